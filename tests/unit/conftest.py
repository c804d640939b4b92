"""What several files of tests look at and none changes."""

from __future__ import annotations

import shutil

import pytest
from small_run import small_run


@pytest.fixture(scope="session")
def examined(tmp_path_factory):
    """A finished examination of two small models."""
    return small_run(tmp_path_factory.mktemp("examined") / "run")


@pytest.fixture(scope="session")
def explored(tmp_path_factory):
    """A run of two bundled models, which can be loaded again."""
    import vitreous as vt

    names = ["bundled:scenes-text", "bundled:scenes-mae"]
    settings = {"blocks": [7], "units": 4, "close": 5, "eigenvectors": 6, "seed": 3, "device": "cpu"}
    out = tmp_path_factory.mktemp("explored") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vitreous.examination.parts.TSNE_SAMPLE", 200)  # nobody looks at this map
        return vt.examine(names, vt.scenes(16, size=64, seed=3), out, progress=False, **settings)


@pytest.fixture
def own_run(explored, tmp_path):
    """A copy of the run, to write into or to damage."""
    return shutil.copytree(explored.folder, tmp_path / "run")
