"""Planted truth on scenes: units that add up two known concepts come apart, units with one concept stay whole.

What enters the layer are hidden units of the bundled model at every patch of drawn scenes; a concept's direction is the
ridge regression of "this patch shows it" on them. The exact masks say which patch shows what.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.evidence.monosemanticity import random_partition
from vitreous.evidence.planted import scene_concepts
from vitreous.evidence.selectivity import auc

SITE = "blocks.-1.mlp.hidden"
MIXED = (
    ("purple objects", "rings"),
    ("pink objects", "zigzag objects"),
    ("blue objects", "marbled objects"),
    ("brown objects", "discs"),
    ("stars", "white objects"),
)
SINGLE = ("purple objects", "rings", "pink objects", "marbled objects", "striped objects")


class Patches(NamedTuple):
    """`q` (patch, input) and `shows` bool (patch, concept) by name."""

    q: np.ndarray
    shows: dict[str, np.ndarray]


def patches(count: int, seed: int, folder) -> Patches:
    subject, images = vt.load("bundled:scenes-text"), vt.scenes(count, size=64, seed=seed)
    store = vt.record(subject, images, SITE, folder, dtype="float32", progress=False)
    q = np.asarray(store[SITE])[:, 1:]  # without the class token
    truth = scene_concepts([p.instances for p in images], [p.about for p in images], subject.grid())
    flat = truth.present.reshape(-1, len(truth.names))
    return Patches(q.reshape(-1, q.shape[-1]), dict(zip(truth.names, flat.T, strict=True)))


def direction(seen: Patches, concept: str) -> np.ndarray:
    """Ridge regression of the concept, of one length in activations."""
    x, y = seen.q - seen.q.mean(0), seen.shows[concept] - seen.shows[concept].mean()
    gram = x.T @ x / len(x)
    gram[np.diag_indices_from(gram)] += 0.1 * np.trace(gram) / len(gram)
    w = np.linalg.solve(gram, x.T @ y / len(x))
    return (w / np.std(x @ w)).astype(np.float32)


class Planted(NamedTuple):
    layer: nn.Linear
    finding: vt.Disentanglement
    fresh: Patches


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Planted:
    folder = tmp_path_factory.mktemp("scenes")
    seen, fresh = patches(200, 1, folder / "seen"), patches(100, 2, folder / "fresh")
    of = {name: direction(seen, name) for name in {*SINGLE, *(c for pair in MIXED for c in pair)}}
    weights = np.stack([*(of[a] + of[b] for a, b in MIXED), *(of[name] for name in SINGLE)])
    layer = nn.Linear(weights.shape[1], len(weights))
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weights))
        layer.bias.zero_()
    finding = vt.disentangle(layer, seen.q, top_k=600, min_cluster_size=60, progress=False)
    return Planted(layer, finding, fresh)


def tells_apart(values: np.ndarray, fresh: Patches, one: str, other: str) -> float:
    """AUC of patches that show `one` against patches that show `other`, both left out: 0.5 is no difference."""
    a, b = fresh.shows[one], fresh.shows[other]
    there = a ^ b
    return float(auc(values[there][:, None], a[there][:, None]).item())


def test_units_of_two_concepts_come_apart(planted):
    finding, fresh = planted.finding, planted.fresh
    whole = planted.layer(torch.from_numpy(fresh.q)).detach().numpy()
    parts = finding.subunit_activations(fresh.q)
    split = [u for u in range(len(MIXED)) if finding.counts[u] == 2]
    assert split == [0, 1, 2, 3]  # stars with white objects stay in one cloud
    for unit in split:
        first, second = MIXED[unit]
        of = {s: tells_apart(parts[:, s], fresh, first, second) for s in finding.subunits(unit)}
        mine, others = max(of, key=of.__getitem__), min(of, key=of.__getitem__)
        unsplit = tells_apart(whole[:, unit], fresh, first, second)
        assert of[mine] > 0.95 and of[mine] > unsplit + 0.1 and of[others] < unsplit - 0.3, (MIXED[unit], unsplit, of)
        # brown with discs is half done: what is left for discs still answers to some brown objects
        assert of[others] < (0.15 if unit != 3 else 0.5)
        for concept, s in ((first, mine), (second, others)):
            strongest = np.argsort(-parts[:, s])[:20]
            assert fresh.shows[concept][strongest].mean() >= 0.7, (concept, fresh.shows[concept][strongest].mean())


def test_units_of_one_concept_stay_whole(planted):
    assert planted.finding.counts[len(MIXED) :].tolist() == [0] * len(SINGLE)
    for unit in range(len(MIXED), len(MIXED) + len(SINGLE)):
        assert len(planted.finding.subunits(unit)) == 1 and planted.finding.noise[unit] == 1


def test_inputs_given_at_random_tell_concepts_apart_less(planted):
    """Not by a wide margin: a few detectors carry a concept, and in two random halves they often part by chance."""
    finding, fresh = planted.finding, planted.fresh
    split, few = [0, 1, 2, 3], np.full(4, 2)
    ours, theirs = finding.subunit_activations(fresh.q), []

    def gap(values: np.ndarray, subunits: list[int], unit: int) -> float:
        found = [tells_apart(values[:, s], fresh, *MIXED[unit]) for s in subunits]
        return max(found) - min(found)

    for seed in range(20):
        made = random_partition(finding.weight[split], finding.bias[split], few, np.random.default_rng(seed))
        values = fresh.q @ made[0].T + made[1]
        theirs.append([gap(values, [2 * unit, 2 * unit + 1], unit) for unit in split])
    mine = [gap(ours, list(finding.subunits(unit)), unit) for unit in split]
    assert np.mean(mine) > 0.8 and np.mean(theirs) < 0.6
    assert (np.array(mine) > np.median(theirs, 0) + 0.2).all()


def test_sub_units_of_scenes_add_up_to_their_unit(planted):
    finding, q = planted.finding, planted.fresh.q[:200]
    whole = planted.layer(torch.from_numpy(q)).detach().numpy()
    parts = finding.subunit_activations(q)
    for unit in range(len(whole.T)):
        np.testing.assert_allclose(parts[:, finding.subunits(unit)].sum(1), whole[:, unit], atol=1e-4)
