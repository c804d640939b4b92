"""Documentation runs, or does not exist: every ```python block of the README and of docs/, page by page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    space: dict = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page)):
        exec(compile(block, f"{page.name}, block {number}", "exec"), space)


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    lost = [p.name for p in (ROOT / "docs").glob("*.md") if p.name not in navigation]
    assert not lost


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([\w./-]+\.(?:md|png|json|py))\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


def test_the_help_in_the_documentation_is_the_help():
    sys.path.insert(0, str(ROOT / "docs"))
    from write_tables import command_help

    assert command_help() in (ROOT / "docs" / "cli.md").read_text(), "run `make docs`"


def test_the_public_names_in_the_documentation_are_the_public_names():
    sys.path.insert(0, str(ROOT / "docs"))
    from write_tables import public_names

    assert public_names() in (ROOT / "docs" / "api.md").read_text(), "run `make docs`"


def test_the_site_asks_for_nothing_from_the_network():
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings and "extra_javascript" not in settings and "http" not in settings


def test_the_site_builds_and_its_links_hold(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    page = (tmp_path / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(https?:)?//[^"]+\.(?:js|css|woff2?)"', page)
    assert (tmp_path / "studies" / "results" / "align_mosaic.png").is_file()
    for path in tmp_path.rglob("*.html"):  # opened from disk: no server turns a folder into its index.html
        if path.name != "404.html":
            links = re.findall(r'(?:href|src)="([^"#:]+)["#]', path.read_text())
            lost = [link for link in links if not link.startswith("//") and not (path.parent / link).is_file()]
            assert not lost, f"{path.name}: {lost}"
