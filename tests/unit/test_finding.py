"""Every finding shows itself in a notebook and leaves as a table."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
import torch
from shown import leaves_as_a_table, shows_itself

import vitreous as vt
from vitreous.finding import Finding, heat, shades
from vitreous.training.run import Trained

#: What public functions give that is no finding: things to go on with, to train or to speak to.
NO_FINDINGS = {"Dictionary", "Engine", "ImageSet", "Law", "Responses", "Store", "Subject", "Cache"}


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
    atlas = vt.atlas(cut, n_sample=60)
    layers = tuple(layer for _, layer in list(cut.blocks)[:2])
    classifier = vt.wrap(_classifier(), preprocess=subject.preprocess)
    groups = {0: images[:6], 1: images[6:12]}
    tcav = vt.tcav(classifier, groups, {"some": images[12:18]}, random_sets=3, examples=5, progress=False)
    tops = {name: np.random.default_rng(k).integers(0, 24, (6, 9)) for k, name in enumerate("ab")}
    sweep = _sweep()
    return {
        "structure": structure,
        "comparison": vt.compare(structure, structure, progress=False),
        "tokens": maps,
        "segments": vt.segment(vt.token_maps(subject, images[:2], progress=False), k=3),
        "cut": cut,
        "atlas": atlas,
        "transitions": vt.layer_transitions(atlas, "text", layers, count=3),
        "groups": vt.group_nodes(cut, n_sample=60),
        "concepts": vt.concepts(atlas.space, 4, activations=cut.eigenvectors),
        "cams": vt.gradcam(classifier, images[:2], progress=False),
        "tcav": tcav,
        "tcav comparison": vt.tcav_table(tcav, tcav),
        "k-means": vt.kmeans_segments(np.random.default_rng(0).normal(size=(2, 4, 4, 8)), 3),
        "ranking": vt.coherence_rank(tops, np.random.default_rng(0).normal(size=(24, 8)), pairs=4),
        "labels": vt.label(*_embedded(24, 24, 6), list("uvwxyz"), top=5),
        "trained": Trained(folder, 51.5, ({"epoch": 0, "loss": 0.7}, {"epoch": 1, "loss": 0.6})),
        "sweep": sweep,
        "audit": sweep.findings[0],
        "patch": sweep.patch([(sweep.findings[0].site, sweep.findings[0].rows[0].id)]),
        "effect": sweep.measured(sweep.patch([(sweep.findings[0].site, sweep.findings[0].rows[0].id)])).effect,
        "cosines": vt.slot_cosines({"a": store, "b": store}, pictures=4),
        "align": vt.align({"text": store}, None, responses, width=8, epochs=1, progress=False),
        "disentangle": vt.disentangle(subject, images, units=[0, 1], top_k=40, min_cluster_size=8, progress=False),
    }


def _embedded(*counts):
    return [np.random.default_rng(k).normal(size=(count, 5)) for k, count in enumerate(counts)]


def _classifier():
    from timm.models.vision_transformer import VisionTransformer

    torch.manual_seed(0)
    return VisionTransformer(img_size=64, patch_size=16, embed_dim=16, depth=2, num_heads=2, num_classes=2).eval()


def _sweep():
    rng = np.random.default_rng(0)
    pictures = vt.ImageSet.from_arrays(
        rng.integers(0, 256, (24, 64, 64, 3), dtype=np.uint8), labels=np.arange(24) % 2, classes=("dark", "light")
    )
    subject = vt.wrap(_classifier())
    return vt.audit_sites(subject, pictures, ["blocks.-1.mlp.out"], split=False, confirm=1, repeats=50, progress=False)


NAMES = (
    "structure", "comparison", "tokens", "segments", "cut", "atlas", "transitions", "groups", "concepts", "cosines",
    "align", "disentangle", "cams", "tcav", "tcav comparison", "k-means", "ranking", "labels", "trained", "sweep",
    "audit", "patch", "effect",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def every_module():
    """Loaded, so that no finding is missed."""
    for module in pkgutil.walk_packages(vt.__path__, "vitreous."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def kinds(base: type = Finding) -> set[type]:
    """Every finding of the package."""
    below = base.__subclasses__()
    return {one for one in below if one.__module__.startswith("vitreous.")}.union(*map(kinds, below))


def test_what_public_functions_give_is_a_finding_or_no_finding_on_purpose():
    functions = [value for value in map(vt.__getattr__, vt.__all__) if inspect.isfunction(value)]
    plain = {"Any", "Iterator", "None", "Path"}
    in_a_with = {"OpenedAttention", "Recording", "Steering"}
    said = {word for f in functions for word in re.findall(r"\b[A-Z]\w+", str(inspect.signature(f).return_annotation))}
    known = {one.__name__ for one in kinds()} | NO_FINDINGS | plain | in_a_with
    assert not said - known, "let it be a Finding"


def test_every_finding_has_rows_of_its_own():
    assert all("columns_of_rows" in vars(one) for one in kinds())


def test_every_finding_is_shown_here_or_where_it_is_made(findings):
    assert set(NAMES) == set(findings)
    elsewhere = {"Examination", "DictionaryComparison", "LayerScores", "RegionMeans", "LearnedWeights", "ContextScores"}
    elsewhere |= {"PlacesFinding", "PlacesOff", "EveryPart"}
    assert {one.__name__ for one in kinds()} == {type(one).__name__ for one in findings.values()} | elsewhere


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_is_a_table(findings, name, tmp_path):
    leaves_as_a_table(findings[name], tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_shows_a_finding(findings, name):
    shows_itself(findings[name])


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
