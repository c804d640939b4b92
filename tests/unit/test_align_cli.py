"""`vitreous ncut` and `vitreous align`."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import vitreous as vt
from vitreous.cli import app


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
    values = np.random.default_rng(0).standard_normal((10, 4))
    np.savez(tmp_path / "answers.npz", responses=values, **{"roi.V1": np.arange(4) < 2})
    words = ["--responses", tmp_path / "answers.npz", "--out", tmp_path / "aligned", "--epochs", 2, "--width", 16]
    code, text = call("align", *stores, *words, "--json")
    facts = json.loads(text)
    assert code == 0 and facts["layers"] == 4 and set(facts["held-out R2"]) == {"all", "V1"}
    out = tmp_path / "cut"
    words = ["--alignment", tmp_path / "aligned", "--eigenvectors", 5, "--out", out, "--data", "scenes:10"]
    words += ["--sites", "blocks.4.*"]
    code, text = call("ncut", *stores, *words, "--json")
    facts = json.loads(text)
    assert code == 0 and facts["nodes"] == 2 * 10 * 64 and facts["method"] == "exact"
    assert facts["files"] == ["spectral.npz", "colours.npy", "mosaic.png"]
    assert vt.Spectral.load(out).settings["channels"] == 16
    assert np.load(out / "colours.npy").shape == (facts["nodes"], 3)
    assert (out / "mosaic.png").read_bytes()[:4] == b"\x89PNG"


def test_bad_input_ends_with_a_message(stores, tmp_path):
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    np.savez(tmp_path / "other.npz", answers=np.ones(3))
    np.save(tmp_path / "short.npy", np.ones((5, 2)))
    for name, said in (
        ("bad.npy", "responses cannot be read"),
        ("other.npz", "no array `responses`"),
        ("short.npy", "different number"),
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
