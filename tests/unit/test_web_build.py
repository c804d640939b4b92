"""The built pages in the package are those of the sources in `web/`."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
APP = ROOT / "src" / "vitreous" / "site" / "app"
REMEDY = "run `make front` and commit src/vitreous/site/app"


def digest(paths: list[str], base: Path) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path}\n".encode() + (base / path).read_bytes() + b"\n")
    return total.hexdigest()


def sources() -> list[str]:
    files = [WEB / name for name in ("build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json")]
    files += [path for path in (WEB / "src").rglob("*") if path.is_file()]
    files.append(ROOT / "src/vitreous/templates/report.css")
    return sorted(path.relative_to(ROOT).as_posix() for path in files)


def test_the_built_pages_match_their_sources():
    note = json.loads((APP / "built.json").read_text())
    assert note["sources"] == digest(sources(), ROOT), REMEDY
    for name, expected in note["built"].items():
        assert digest([name], APP) == expected, f"{name} has been changed by hand: {REMEDY}"


def test_the_pages_ask_nobody_outside():
    page = (APP / "index.html").read_text()
    assert 'type="module"' not in page, "modules are blocked on pages from the file system"
    for name in ("app.js", "app.css", "map.js", "index.html"):
        text = (APP / name).read_text()
        for address in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`)]*", text):
            assert "www.w3.org" in address, f"{name} names {address}"  # names of standards, loaded by nobody


def test_the_lock_file_names_no_registry():
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]


def test_the_licences_of_what_is_built_in_come_along():
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    built_in = {
        f"{path.rpartition('node_modules/')[2]}@{entry['version']}"
        for path, entry in lock.items()
        if path and not entry.get("dev")
    }
    said = (APP.parent / "LICENSES.txt").read_text()
    named = {name for line in said.splitlines() for name in re.findall(r"(?:@[\w-]+/)?[\w-]+@\d[\w.]*", line)}
    assert named == built_in, "the licences in site/LICENSES.txt are of other packages than those that are built in"


def test_the_lock_file_holds_every_package_that_another_may_ask_for():
    """Those for other machines too, else `npm ci` refuses the file wherever it is not one of those it holds."""
    packages = json.loads((WEB / "package-lock.json").read_text())["packages"]
    held = {name.rpartition("node_modules/")[2] for name in packages}
    kinds = ("dependencies", "devDependencies", "optionalDependencies")
    asked = {name for entry in packages.values() for kind in kinds for name in entry.get(kind, {})}
    assert asked <= held, f"missing: {sorted(asked - held)}; run `npm install --package-lock-only` in web/"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node to build again")
@pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="needs `npm ci` in web/ (make front)")
def test_building_again_gives_the_same_bytes(tmp_path):
    subprocess.run(["node", "build.mjs", str(tmp_path / "app")], cwd=WEB, check=True, capture_output=True)
    for path in sorted(APP.iterdir()):
        assert (tmp_path / "app" / path.name).read_bytes() == path.read_bytes(), f"{path.name}: {REMEDY}"
