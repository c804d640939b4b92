"""run.json says what ran, with what, and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous.provenance as provenance
from vitreous.errors import SettingsError
from vitreous.provenance import json_bytes, replace_file, start_run, versions


def read(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text())


def test_a_run_is_written_when_it_starts_and_when_it_ends(tmp_path):
    run = start_run(tmp_path / "a" / "b", "record", {"dtype": "float16"}, seeds={"seed": 3}, inputs={"model": "abc"})
    with run:
        at_start = read(run.folder)
        run.note(samples=12)
    at_end = read(run.folder)
    assert (at_start["status"], at_end["status"]) == ("running", "done")
    assert at_start["seconds"] is None and at_end["seconds"] >= 0
    assert at_end["command"] == "record" and at_end["argv"] == sys.argv
    assert at_end["settings"] == {"dtype": "float16"}
    assert at_end["seeds"] == {"seed": 3} and at_end["inputs"] == {"model": "abc"}
    assert at_end["notes"] == {"samples": 12} and at_end["error"] is None
    assert at_end["ended"] >= at_end["started"]


def test_a_failed_run_says_why_and_the_error_goes_on(tmp_path):
    with pytest.raises(RuntimeError), start_run(tmp_path, "record", {}):
        raise RuntimeError("the model fell over")
    assert read(tmp_path)["status"] == "failed"
    assert read(tmp_path)["error"] == "RuntimeError: the model fell over"


def test_a_killed_run_still_says_running(tmp_path):
    start_run(tmp_path, "record", {})
    assert read(tmp_path)["status"] == "running"


def test_versions_are_read_and_what_is_not_installed_is_none(monkeypatch):
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package-anywhere"))
    assert versions() == {
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "no-such-package-anywhere": None,
    }


def test_importing_and_reading_versions_imports_no_heavy_package():
    code = (
        "import sys, vitreous.provenance as p; p.versions();"
        "print([m for m in ('torch', 'timm', 'transformers', 'numpy') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_settings_that_json_does_not_know_are_written_as_text(tmp_path):
    start_run(tmp_path, "x", {"path": Path("a/b"), "size": (2, 3), "bad": float("nan"), "inner": {1: {2.5}}})
    assert read(tmp_path)["settings"] == {"path": "a/b", "size": [2, 3], "bad": "nan", "inner": {"1": "{2.5}"}}


def test_replacing_leaves_the_old_file_whole_when_it_is_cut_short(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_file(path, b"old")

    def cut(*_):
        raise OSError("power cut")

    monkeypatch.setattr(os, "replace", cut)
    with pytest.raises(OSError, match="power cut"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path], "the draft is gone"


def test_json_bytes_are_the_same_for_the_same_value():
    assert json_bytes({"b": 1, "a": [1.5, "ü"]}) == b'{\n "b": 1,\n "a": [\n  1.5,\n  "\\u00fc"\n ]\n}\n'


def test_an_address_is_not_made_a_folder_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="record writes into a folder, not at an address"):
        start_run(Path("s3://bucket/run"), "record", {})
    assert not list(tmp_path.iterdir())
