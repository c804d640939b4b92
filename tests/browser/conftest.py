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
from threadpoolctl import threadpool_limits

import vitreous as vt


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
def run(tmp_path_factory) -> Path:
    """Two bundled models on a few scenes, with little of everything."""
    folder = tmp_path_factory.mktemp("explored") / "run"
    models = ["bundled:scenes-text", "bundled:scenes-mae"]
    scenes = vt.scenes(20, size=64, seed=3)
    with threadpool_limits(1):  # so little work only waits for its own threads
        vt.examine(models, scenes, folder, blocks=[7], units=4, close=4, eigenvectors=8, progress=False)
    return folder


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
