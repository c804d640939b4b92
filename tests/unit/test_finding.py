"""Every finding shows itself in a notebook and leaves as a table."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as parquet
import pytest

import vitreous as vt
from vitreous.finding import Finding, heat, shades


@pytest.fixture(scope="module")
def findings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("findings")
    subject, images = vt.load("bundled:scenes-text"), vt.scenes(24, size=64, seed=1)
    sites = [f"blocks.{block}.{name}.out" for block in (0, 1) for name in ("resid", "attn")]
    store = vt.record(subject, images, sites, out=folder / "store", progress=False)
    maps = vt.token_maps(subject, images[:2], tokens=[0, 1, 2, 20], progress=False)
    structure = vt.structure(store, tokens=[0], bins=8, keep_transformed=True, progress=False)
    cut = vt.ncut({"text": store}, n_eig=4)
    responses = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
    return {
        "structure": structure,
        "comparison": vt.compare(structure, structure, progress=False),
        "tokens": maps,
        "segments": vt.segment(vt.token_maps(subject, images[:2], progress=False), k=3),
        "cut": cut,
        "atlas": vt.atlas(cut, n_sample=60),
        "cosines": vt.slot_cosines({"a": store, "b": store}, pictures=4),
        "align": vt.align({"text": store}, responses, width=8, epochs=1, progress=False),
        "disentangle": vt.disentangle(subject, images, units=[0, 1], top_k=40, min_cluster_size=8, progress=False),
    }


NAMES = ("structure", "comparison", "tokens", "segments", "cut", "atlas", "cosines", "align", "disentangle")


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_is_a_table(findings, name, tmp_path):
    finding = findings[name]
    frame = finding.to_pandas()
    assert len(frame) and len(frame.columns) > 1
    table = parquet.read_table(finding.to_parquet(tmp_path / "deep" / "table.parquet"))
    assert table.num_rows == len(frame) and table.column_names == list(frame.columns)
    assert json.loads(table.schema.metadata[b"vitreous"])["kind"] == type(finding).__name__


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_a_finding(findings, name):
    page = findings[name]._repr_html_()
    assert type(findings[name]).__name__ in page and "<script" not in page and "http" not in page
    assert page.count("<table>") == page.count("</table>") >= 1
    assert page.count("data:image/png") == len(findings[name].thumbnails()[:6])


def test_rows_are_what_the_arrays_say(findings):
    frame = findings["structure"].to_pandas()
    assert len(frame) == findings["structure"].labels.size
    unit = frame[(frame.layer == "blocks.1.resid.out") & (frame.channel == 5)]
    assert unit.cluster.item() == findings["structure"].labels[1, 0, 5]
    scores = findings["tokens"].to_pandas()
    row = scores[(scores["sample"] == findings["tokens"].ids[1]) & (scores.token == 20) & (scores.source == 7)]
    assert row.score.item() == findings["tokens"].scores[1, 3, 7]
    cut = findings["cut"].to_pandas()
    place = cut[(cut.layer == "blocks.1.attn.out") & (cut.picture == 3) & (cut.patch == 9)]
    assert place["eigenvector 2"].item() == findings["cut"].of("text", "blocks.1.attn.out")[3, 9, 2]


def test_what_comes_from_outside_is_escaped():
    class Odd(Finding):
        def facts(self):
            return {"<b>": "<script>"}

        def columns_of_rows(self):
            return {"<i>": ["<img>"]}

    page = Odd()._repr_html_()
    assert "<script>" not in page and "<img>" not in page and "&lt;script&gt;" in page


def test_colours_are_bytes():
    assert heat(np.zeros((2, 3))).shape == (2, 3, 3)
    assert (heat(np.array([[0.0, 1.0]]))[0, 1] == (253, 231, 37)).all()
    assert (shades(np.array([[-1, 0]]))[0, 0] == 128).all()
