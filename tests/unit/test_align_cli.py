"""`vitreous ncut` and `vitreous align`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app

sys.path.insert(0, str(Path(__file__).parent))
from test_report import _parsed


def call(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.stdout if result.exit_code == 0 else result.output


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    images = vt.scenes(10, size=64, seed=0)
    sites = ["blocks.1.attn.out", "blocks.4.attn.out"]
    for name in ("text", "mae"):
        vt.record(vt.load(f"bundled:scenes-{name}"), images, sites, out=folder / name)
    return [folder / "text", folder / "mae"]


def test_align_then_cut_in_its_space(stores, tmp_path):
    repeats = np.random.default_rng(0).standard_normal((10, 3, 4))
    values = repeats.mean(1)
    np.savez(
        tmp_path / "answers.npz",
        responses=values,
        repeats=repeats,
        **{"roi.V1": np.arange(4) < 2, "roi.V9": np.arange(4) > 9},
    )
    words = ["--responses", tmp_path / "answers.npz", "--out", tmp_path / "aligned", "--epochs", 2, "--width", 16]
    code, text = call("align", *stores, *words, "--data", "scenes:10", "--json")
    assert code == 0, text
    facts = json.loads(text)
    assert facts["layers"] == 4 and set(facts["held-out R2"]) == set(facts["noise ceiling"]) == {"all", "V1", "V9"}
    assert facts["held-out R2"]["V9"] is None is facts["noise ceiling"]["V9"]  # JSON knows no NaN
    assert vt.ChannelAlign.load(tmp_path / "aligned").ceiling.shape == (4,)
    html = (tmp_path / "aligned" / "report.html").read_text()
    _parsed(html)
    for part in (
        "After alignment",
        "Oracle segmentation: bundled:scenes-mae",
        "Figure and ground: bundled:scenes-text",
        "Which region sees what",
        "Only 2 pictures were held out",
    ):
        assert part in html, part
    assert json.loads((tmp_path / "aligned" / "run.json").read_text())["status"] == "done"
    out = tmp_path / "cut"
    words = ["--alignment", tmp_path / "aligned", "--eigenvectors", 5, "--out", out, "--data", "scenes:10"]
    words += ["--sample", 200, "--shown", 2]
    code, text = call("ncut", *stores, *words, "--json")
    facts = json.loads(text)
    assert code == 0, text
    assert facts["nodes"] == 4 * 10 * 64 and facts["method"] == "exact"
    assert {"report.html", "run.json", "mosaic.png", "plane.npy", "spectral.json"} <= set(facts["files"])
    assert (out / "mosaic.png").read_bytes()[:4] == b"\x89PNG"
    code, text = call("ncut", *stores, *words, "--method", "paper", "--landmarks", 300, "--neighbours", 9, "--json")
    assert (json.loads(text)["n_sample"], json.loads(text)["k"]) == (300, 9)
    found = vt.Atlas.load(out)
    assert found.spectral.settings["channels"] == 16 and len(found) == facts["nodes"] and len(found.ids) == 10
    assert found.spectral.grid("bundled:scenes-text", "blocks.4.attn.out") == (8, 8)
    html = (out / "report.html").read_text()
    _parsed(html)
    for part in (
        "Colours",
        "Likeness",
        "A few concepts",
        "Ways of patches: bundled:scenes-mae",
        "on the ground",
        "one channel space",
    ):
        assert part in html, part
    record = json.loads((out / "run.json").read_text())
    assert (
        record["status"] == "done" and "bundled:scenes-text, model" in record["inputs"] and record["settings"]["read"]
    )


def test_bad_input_ends_with_a_message(stores, tmp_path):
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    np.savez(tmp_path / "other.npz", answers=np.ones(3))
    np.save(tmp_path / "short.npy", np.ones((5, 2)))
    for name, said in (
        ("bad.npy", "responses cannot be read"),
        ("other.npz", "no array `responses`"),
        ("short.npy", "not as many responses"),
        ("missing.npy", "responses cannot be read"),
    ):
        code, text = call("align", *stores, "--responses", tmp_path / name, "--out", tmp_path / "x")
        assert code == 2 and said in text, text
    code, text = call("ncut", *stores, "--out", tmp_path / "x", "--data", "scenes:11")
    assert code == 2 and "not the pictures that were recorded" in text
    code, text = call("ncut", stores[0], stores[0], "--out", tmp_path / "x")
    assert code == 2 and "two stores have the same name" in text
    other = vt.record(vt.load("bundled:scenes-text"), vt.scenes(3, size=64), ["blocks.1.attn.out"], out=tmp_path / "o")
    code, text = call("ncut", stores[1], other.path, "--out", tmp_path / "x")
    assert code == 2 and "different pictures" in text


def test_addresses_stand_for_folders(tmp_path, monkeypatch):
    pytest.importorskip("fsspec", reason="the extra 'cloud' is not installed")
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    store, out = "memory://here/text", "memory://here/aligned"
    subject, images = vt.load("bundled:scenes-text"), vt.scenes(10, size=64, seed=0)
    vt.record(subject, images, ["blocks.1.attn.out", "blocks.4.attn.out"], out=store, progress=False)
    np.save(tmp_path / "answers.npy", np.random.default_rng(0).standard_normal((10, 4)))
    code, text = call("align", store, "--responses", "answers.npy", "--out", out, "--epochs", 2, "--width", 8, "--json")
    assert code == 0, text
    assert vt.ChannelAlign.load(out).maps[0].shape[1] == 8
    code, text = call("ncut", store, "--alignment", out, "--eigenvectors", 4, "--out", f"{out}-cut", "--json")
    assert code == 0, text
    assert "report.html" in json.loads(text)["files"] and len(vt.Atlas.load(f"{out}-cut")) == 2 * 10 * 64
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("memory")] == []
