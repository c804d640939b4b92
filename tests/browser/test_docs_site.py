"""The built documentation, opened from the file system with the network off."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from opened_page import opened

pytest.importorskip("material", reason="mkdocs-material is not installed: pip install 'vitreous[dev]'")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def docs_site(tmp_path_factory) -> Path:
    site = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    subprocess.run(command, cwd=ROOT, check=True)
    return site


@pytest.mark.parametrize("start", ["index.html", "studies/results/align.html"])
def test_the_search_works_from_disk_and_asks_for_nothing_from_the_network(chromium, docs_site, start):
    for site in opened(chromium, (docs_site / start).as_uri()):
        asked: list[str] = []
        site.page.on("request", lambda request, asked=asked: asked.append(request.url))
        site.page.goto(site.base)
        site.page.click("input.md-search__input")
        site.page.keyboard.type("watermark")
        found = site.page.locator("a.md-search-result__link", has_text="My model looks at the watermark")
        found.first.click()
        site.page.wait_for_url("**/watermark.html*")
        assert all(url.startswith(("file:", "data:", "about:", "blob:")) for url in asked), asked
        assert not site.wrong, site.wrong
