"""A browser, and pages to open in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'vitreous[dev]'")

from browser_flags import FLAGS, find_chromium
from made_site import Plan, write_made_site
from opened_page import Opened, opened
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("Chromium is not installed: `make test-browser` as root, or set CHROMIUM to its path")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def hard_site(tmp_path_factory) -> Path:
    return write_made_site(tmp_path_factory.mktemp("made") / "hard")


@pytest.fixture(scope="session")
def many_site(tmp_path_factory) -> Path:
    plan = Plan(units=5000, pictures=600, points=60_000, nasty=False)
    return write_made_site(tmp_path_factory.mktemp("made") / "many", plan, every_card=False)


@pytest.fixture
def hard(chromium, hard_site) -> Iterator[Opened]:
    yield from opened(chromium, (hard_site / "index.html").as_uri())


@pytest.fixture
def many(chromium, many_site) -> Iterator[Opened]:
    yield from opened(chromium, (many_site / "index.html").as_uri())
