"""What several files of tests look at and none changes."""

from __future__ import annotations

import pytest
from small_run import small_run


@pytest.fixture(scope="session")
def examined(tmp_path_factory):
    """A finished examination of two small models."""
    return small_run(tmp_path_factory.mktemp("examined") / "run")
