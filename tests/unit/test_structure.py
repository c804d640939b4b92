from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from math import fsum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.kernels.l1 import distances, pair_distances
from vitreous.kernels.near_pairs import near_components
from vitreous.lenses.structure import TRANSFORMS

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import structure as twin


def one_factor(samples: int, units: int, correlation: float, seed: int = 0) -> np.ndarray:
    """Units that share one factor: where bounds do not help."""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=(samples, 1)), rng.normal(size=(samples, units))
    return (correlation**0.5 * common + (1 - correlation) ** 0.5 * own).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(5, 60), st.integers(1, 9), st.sampled_from([2, 3, 5]))
def test_grouped_ranks_agree_with_the_twin(seed, samples, units, bins):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(samples, units)).astype(rng.choice([np.float16, np.float32, np.float64]))
    features[:, 0] = np.round(features[:, 0])  # many ties
    features[::2, -1] = -0.0
    features[1::2, -1] = 0.0
    np.testing.assert_array_equal(vt.grouped_ranks(features, bins), twin.grouped_ranks(features, bins))


def test_grouped_ranks_of_extreme_numbers():
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    column = np.array([huge, -huge, tiny, -tiny, 0.0, -0.0, 1.0, -1.0], np.float32)[:, None]
    np.testing.assert_array_equal(vt.grouped_ranks(column, 8)[:, 0], [7, 0, 5, 2, 3, 4, 6, 1])


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("threshold", [0.5, 1.0, 3.0])
def test_clusters_agree_with_the_twin_where_bounds_do_not_help(correlation, threshold):
    features = one_factor(300, 40, correlation)
    features[:, 7] = 1.0
    features[:, 20:24] = features[:, 3:4] * 2 + 1
    found = vt.unit_clusters(features, 20, threshold)
    np.testing.assert_array_equal(found, twin.unit_clusters(features, 20, threshold))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_clusters_agree_with_the_twin(seed):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rng.integers(20, 90), rng.integers(2, 25)))
    copies = rng.integers(0, features.shape[1], 8)
    features[:, copies] = features[:, rng.permutation(copies)] + rng.normal(size=(len(features), 8)) * rng.choice(
        [0, 0.05]
    )
    found = vt.unit_clusters(features, 10, 0.7)
    np.testing.assert_array_equal(found, twin.unit_clusters(features, 10, 0.7))


# -- other transforms


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.999])
@pytest.mark.parametrize(("transform", "threshold"), [("rank", 3.0), ("raw", 0.1), ("normalised_raw", 0.25)])
def test_other_transforms_agree_with_the_twin_where_bounds_do_not_help(correlation, transform, threshold):
    features = one_factor(220, 30, correlation)
    features[:, 7] = features[:, 8] = 1.0
    features[:, 20:24] = features[:, 3:4] * [1, 2, 1, 3] + [0, 0, 0.01, 0]
    features[:, 25] = np.round(features[:, 3])  # many ties
    found = vt.unit_clusters(features, threshold=threshold, transform=transform)
    np.testing.assert_array_equal(found, twin.unit_clusters(features, 100, threshold, transform))
    assert found.max() >= 0 and found[7] == found[8] == -1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["rank", "raw", "normalised_raw"]))
def test_other_transforms_agree_with_the_twin(seed, transform):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(rng.integers(2, 150), rng.integers(2, 20))).astype(rng.choice([np.float32, float]))
    copies = rng.integers(0, features.shape[1], 8)
    noise = rng.normal(size=(len(features), 8)) * rng.choice([0, 0.01, 0.05])
    features[:, copies] = features[:, rng.permutation(copies)] + noise
    if rng.random() < 0.5:
        features = np.round(features * 4) / 4  # ties
    threshold = rng.choice([0.05, 0.5, 1.1, 1.5])  # 1.1: about what independent normal units are apart
    found = vt.unit_clusters(features, threshold=threshold, transform=transform)
    np.testing.assert_array_equal(found, twin.unit_clusters(features, 100, threshold, transform))


def test_ranks_at_the_threshold():
    """Fifty swaps of neighbours among a hundred: distance 100, which is not below 1.0 a sample."""
    column = np.arange(100.0)
    swapped = column.reshape(50, 2)[:, ::-1].ravel()
    features = np.stack([column, swapped], 1)
    assert vt.unit_clusters(features, threshold=1.0, transform="rank").tolist() == [-1, -1]
    assert vt.unit_clusters(features, threshold=1.0 + 1e-12, transform="rank").tolist() == [0, 0]
    swapped[:2] = [0, 1]
    features = np.stack([column, swapped], 1)
    assert vt.unit_clusters(features, threshold=1.0, transform="rank").tolist() == [0, 0]


@pytest.mark.parametrize("samples", [2, 63, 64, 65, 1023, 1024, 1025, 3000])
def test_raw_features_at_the_threshold(samples):
    """Halves and quarters are exact in binary, so that the limit is met to the last bit, wherever the sum is cut."""
    rng = np.random.default_rng(samples)
    steps = np.full(samples, 0.5)
    steps[: samples // 2] = 0.25
    steps[samples // 2 : samples // 2 * 2] = 0.75
    base = np.round(rng.normal(size=samples), 1).astype(np.float32)
    base = np.round(base * 8) / 8
    features = np.stack([base, base + rng.permutation(steps) * rng.choice([-1, 1], samples)], 1)
    assert vt.unit_clusters(features, threshold=0.5, transform="raw").tolist() == [-1, -1]
    assert vt.unit_clusters(features, threshold=np.nextafter(0.5, 1), transform="raw").tolist() == [0, 0]


def test_a_common_offset_changes_no_raw_cluster():
    """Sums of groups would be rounded here, and would part what belongs together."""
    features = np.concatenate([one_factor(400, 15, 0.995), one_factor(400, 15, 0.5)], 1).astype(float)
    features = np.round(features * 2**20) / 2**20  # what the offset leaves of them, exactly
    found = vt.unit_clusters(features, threshold=0.1, transform="raw")
    assert found.max() >= 0 and (found < 0).any()
    np.testing.assert_array_equal(vt.unit_clusters(features + 2.0**30, threshold=0.1, transform="raw"), found)


def test_normalised_features_forget_scale_and_offset_and_raw_ones_do_not():
    features = np.random.default_rng(0).normal(size=(300, 3))
    features[:, 2] = features[:, 0] * 1e6 + 1e9
    assert vt.unit_clusters(features, threshold=0.01, transform="normalised_raw").tolist() == [0, -1, 0]
    assert vt.unit_clusters(features, threshold=0.01, transform="raw").tolist() == [-1, -1, -1]
    huge = features * 1e298
    assert vt.unit_clusters(huge, threshold=0.01, transform="normalised_raw").tolist() == [0, -1, 0], "no overflow"
    np.testing.assert_array_equal(vt.unit_clusters(features[:, [0, 1]], threshold=3, transform="raw"), [0, 0])


@pytest.mark.parametrize("transform", ["rank", "raw", "normalised_raw"])
def test_more_edges_than_any_list_would_hold_in_floats(transform):
    assert set(vt.unit_clusters(one_factor(256, 2000, 1 - 1e-6), threshold=1.0, transform=transform)) == {0}


@pytest.mark.parametrize("kind", [np.uint8, np.float64, np.float32, np.int32])
def test_blocks_and_pairs_of_distances(kind):
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 255, (19, 1500)).astype(kind), rng.integers(0, 256, (37, 1500)).astype(kind)
    expected = np.abs(a[:, None].astype(float) - b[None]).sum(2)
    np.testing.assert_array_equal(distances(a, b), expected)
    both, first, second = np.concatenate([a, b]), rng.integers(0, 19, 50), rng.integers(19, 56, 50)
    np.testing.assert_array_equal(pair_distances(both, first, second), expected[first, second - 19])
    roots = near_components(np.concatenate([a, a[::-1] + kind(1)]), 1500.5)
    np.testing.assert_array_equal(roots, [*range(19), *range(18, -1, -1)])


def test_sums_of_floats_are_those_of_the_formula_within_the_stated_error():
    rows = np.random.default_rng(0).lognormal(0, 4, (8, 15_680))
    exact = np.array([[fsum(abs(p - q)) for q in rows] for p in rows])
    np.testing.assert_allclose(distances(rows, rows), exact, rtol=15_680 * 2**-53)


# -- planted truth


@pytest.mark.parametrize("seed", range(3))
def test_planted_copies_across_layers_are_found_and_nothing_else(seed):
    """Noisy bent copies of units in other layers; units that are merely alike; dead and nearly dead ones."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(3000, 6, 2, 40)).astype(np.float32)
    bends = [np.exp, np.tanh, lambda v: v**3, lambda v: 5 * v - 2, np.arctan, lambda v: -1 / (1 + np.exp(v))]
    places = rng.permutation(6 * 2 * 40)
    groups = [sorted(part.tolist()) for part in np.split(places[:40], [2, 4, 7, 12, 30])[:5]]
    flat = x.reshape(3000, -1)
    for group in groups:
        common = rng.normal(size=3000)
        for k, unit in enumerate(group):
            flat[:, unit] = bends[k % 6](common + 0.01 * rng.normal(size=3000))
    similar = places[40:60]
    flat[:, similar] = 0.95 * rng.normal(size=(3000, 1)) + 0.31 * flat[:, similar]
    dead, nearly = np.sort(places[60:70]), np.sort(places[70:73])
    flat[:, dead] = rng.integers(-1, 2, 10)
    flat[:, nearly] = 0
    flat[:20, nearly[0]] = 1
    found = vt.structure(flat.reshape(x.shape), keep_nearly_dead=False)
    clusters = [np.ravel_multi_index(tuple(members.T), x.shape[1:]).tolist() for members in found.clusters]
    assert clusters == sorted(groups)
    dead = np.sort([*dead, *nearly[1:]])
    assert np.flatnonzero(found.dead).tolist() == dead.tolist()
    assert np.flatnonzero(found.nearly_dead).tolist() == nearly[:1].tolist()


def test_planted_copies_are_found_and_nothing_else():
    """Noisy monotone copies, across what would be layers; dead units; the rest independent."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4000, 600)).astype(np.float32)
    groups = [(3, 203, 403), (10, 11), (50, 150, 250, 350, 450, 550)]
    bends = [np.exp, np.tanh, lambda x: x**3, lambda x: 5 * x - 2, np.arctan]
    for first, *copies in groups:
        for k, copy in enumerate(copies):
            features[:, copy] = bends[k](features[:, first] + 0.01 * rng.normal(size=4000))
    features[:, [100, 101, 102]] = 0.25
    labels = vt.unit_clusters(features)
    assert [tuple(np.flatnonzero(labels == c)) for c in range(labels.max() + 1)] == groups


def test_more_edges_than_any_list_would_hold():
    """All units alike: two million edges, one cluster."""
    features = one_factor(256, 2000, 0.99999)
    assert set(vt.unit_clusters(features, 16)) == {0}


def test_components_are_named_by_their_smallest_row_at_any_limit():
    rows = np.array([[0, 0], [9, 9], [0, 1], [9, 8], [5, 5]], np.uint8)
    np.testing.assert_array_equal(near_components(rows, 2), [0, 1, 0, 1, 4])
    np.testing.assert_array_equal(near_components(rows, 1), [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(near_components(rows, 1.0001), [0, 1, 0, 1, 4])
    np.testing.assert_array_equal(near_components(rows, 100), [0] * 5)
    np.testing.assert_array_equal(near_components(rows, 1e300), [0] * 5)


def test_the_order_of_samples_does_not_matter_where_there_are_no_ties():
    features = one_factor(500, 60, 0.995)
    shuffled = features[np.random.default_rng(3).permutation(500)]
    np.testing.assert_array_equal(vt.unit_clusters(features, 50), vt.unit_clusters(shuffled, 50))


@pytest.mark.parametrize(
    ("features", "bins", "message"),
    [
        (np.zeros((50, 3)), 100, "fewer samples than bins"),
        (np.zeros((50, 3)), 1, "bins out of range"),
        (np.zeros(50), 10, r"features are numbers \(sample, unit\)"),
        (np.full((50, 3), np.nan), 10, "NaN or infinity"),
        (np.zeros((50, 3), bool), 10, "features are numbers"),
    ],
)
def test_bad_input_is_refused(features, bins, message):
    with pytest.raises(SettingsError, match=message):
        vt.unit_clusters(features, bins)


def test_what_to_do_is_said():
    with pytest.raises(SettingsError, match="given:    '50 samples, 100 bins'\n  remedy:   record more samples"):
        vt.unit_clusters(np.zeros((50, 3)))
    features = np.ones((200, 3))
    features[7, 2] = np.inf
    with pytest.raises(SettingsError, match="NaN or infinity\n  given:    'unit 2'\n  remedy:   leave such units out"):
        vt.unit_clusters(features)
    with pytest.raises(SettingsError, match=r"unknown transform\n(.*\n)*  nearest:  normalised_raw"):
        vt.unit_clusters(features, transform="normalized_raw")
    with pytest.raises(SettingsError, match="fewer than two samples"):
        vt.unit_clusters(np.ones((1, 3)), transform="raw")


@pytest.mark.parametrize("threshold", [0, -1, np.nan, np.inf])
def test_a_threshold_that_joins_nothing_or_everything_is_refused(threshold):
    with pytest.raises(SettingsError, match="threshold must be positive"):
        vt.unit_clusters(np.random.default_rng(0).normal(size=(200, 3)), threshold=threshold)


def test_all_dead():
    assert (vt.unit_clusters(np.ones((200, 5))) == -1).all()


# -- the finding


def planted_layers() -> np.ndarray:
    """(sample, layer, token, channel): one feature kept in place over all layers, one that skips a layer, one dead."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(600, 4, 2, 6)).astype(np.float32)
    x[:, 1:, 0, 0] = x[:, :1, 0, 0] * [2, 3, 4]
    x[:, 3, 1, 5] = np.tanh(x[:, 1, 0, 2])
    x[:, 2, 1, 1] = 7
    x[:, 0, 1, 4] = (np.arange(600) < 3) * 1.0
    return x


def test_the_finding_says_what_was_planted():
    found = vt.structure(planted_layers(), bins=50)
    assert [members.tolist() for members in found.clusters] == [
        [[0, 0, 0], [1, 0, 0], [2, 0, 0], [3, 0, 0]],
        [[1, 0, 2], [3, 1, 5]],
    ]
    assert found.anchors.tolist() == [[0, 0, 0], [1, 0, 2]]
    assert found.spans.tolist() == [[0, 3], [1, 3]]
    assert found.inefficient.tolist() == [False, True]
    assert found.largest == 4 and found.sizes.tolist() == [4, 2]
    assert np.argwhere(found.dead).tolist() == [[2, 1, 1]]
    assert np.argwhere(found.nearly_dead).tolist() == [[0, 1, 4]]
    assert found.counts.tolist() == [12, 12, 11, 12], "one unit a layer of each cluster, others alone, one dead"
    counts, edges = found.histogram()
    assert counts[0] == 2 and counts.sum() == 2 and edges[-1] == 200


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_differences_agree_with_the_whole_matrix(transform, monkeypatch):
    x = planted_layers()[:200]
    monkeypatch.setattr("vitreous.lenses.structure.BLOCK", 20)  # several blocks
    found = vt.structure(x, bins=50, transform=transform, distances=True)
    M = twin.distances(x.reshape(200, -1), transform, 50)
    np.testing.assert_allclose(found.distances, M, rtol=1e-12, atol=1e-9)
    grey = 255 * (M - M.min()) / (M.max() - M.min())
    np.testing.assert_allclose(found.differences, grey.reshape(4, -1).mean(1), rtol=1e-12)
    assert found.farthest == pytest.approx(M.max(), rel=1e-12)
    without = vt.structure(x, bins=50, transform=transform)
    assert without.distances is None and without.transformed is None
    np.testing.assert_allclose(without.differences, found.differences, rtol=1e-12)
    assert without.farthest == found.farthest


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_is_kept_is_the_transform_of_the_samples_in_order(transform):
    x = planted_layers()[:200]
    found = vt.structure(x, bins=50, transform=transform, keep_transformed=True)
    expected = twin.transformed(x.reshape(200, -1), transform, 50).T
    np.testing.assert_allclose(found.transformed, expected, rtol=1e-9, atol=1e-12)
    assert found.transformed.dtype == (np.uint8 if transform == "grouped_rank" else np.float64)
    np.testing.assert_array_equal(
        found.labels.ravel(), vt.unit_clusters(x.reshape(200, -1), 50, 1.0, transform=transform)
    )
    assert found.settings == {
        "samples": 200, "transform": transform, "bins": 50, "threshold": 1.0, "keep_nearly_dead": True, "source": None
    }  # fmt: skip


def test_a_store_and_its_activations_give_the_same(tiny, tmp_path):
    images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (120, 32, 32, 3), np.uint8))
    store = vt.record(tiny, images, "blocks.*.resid.out", tmp_path / "s", dtype="float32", progress=False)
    found = vt.structure(store, layers=[0, -1], tokens=[0, 3])
    x = np.stack([np.asarray(store[f"blocks.{b}.resid.out"][:, [0, 3]]) for b in (0, 2)], 1)
    np.testing.assert_array_equal(found.labels, vt.structure(x).labels)
    assert found.layers == ("blocks.0.resid.out", "blocks.2.resid.out") and found.tokens == (0, 3)
    assert found.labels.shape == (2, 2, 32)
    assert found.settings["source"]["data"] == dict(store.manifest.data)
    assert found.settings["source"]["model"]["fingerprint"] == tiny.fingerprint


def test_stores_without_what_is_needed_are_refused(tiny, tmp_path):
    images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (12, 32, 32, 3), np.uint8))
    record = partial(vt.record, tiny, images, dtype="float32", progress=False)
    hidden = record("blocks.*.mlp.hidden", tmp_path / "hidden")
    with pytest.raises(SettingsError, match=r"the store holds no blocks\.\*\.resid\.out"):
        vt.structure(hidden)
    one = record("blocks.1.resid.out", tmp_path / "one")
    with pytest.raises(SettingsError, match="needs two or more"):
        vt.structure(one)
    some = record("blocks.*.resid.out", tmp_path / "some", tokens=3)
    with pytest.raises(SettingsError, match="the store holds other tokens of each sample"):
        vt.structure(some, bins=10)
    every = record("blocks.*.resid.out", tmp_path / "every")
    with pytest.raises(SettingsError, match="no such token\n  given:    19\n  accepted: -19 to 18"):
        vt.structure(every, tokens=range(20))
    with pytest.raises(SettingsError, match="fewer samples than bins\n  given:    '12 samples, 100 bins'"):
        vt.structure(every)
    assert (vt.structure(str(every.path), bins=10).labels == vt.structure(every, bins=10).labels).all()
    first, *others = every.manifest.sites.items()
    stages = {first[0]: replace(first[1], shape=(4, 64)), **dict(others)}
    with pytest.raises(SettingsError, match=r"layers differ in shape(.*\n)*  remedy:   choose layers= of one stage"):
        vt.structure(vt.Store(every.path, replace(every.manifest, sites=stages), 12))
    empty = vt.Store(every.path, replace(every.manifest, shards=()), 0)
    with pytest.raises(SettingsError, match="the store holds no samples"):
        vt.structure(empty)


def test_padding_is_no_activation(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=40, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2)
    subject = vt.wrap(LlamaForCausalLM(config).eval())
    ids = np.random.default_rng(0).integers(1, 40, (40, 4))
    texts = vt.TextSet.from_ids([row[: 3 + k % 2] for k, row in enumerate(ids)])
    store = vt.record(subject, texts, "blocks.*.resid.out", tmp_path / "s", dtype="float32", progress=False)
    assert not vt.structure(store, tokens=[1, 2], bins=10).dead.any()
    with pytest.raises(SettingsError, match="padding is no activation\n  given:    'token 3; the shortest text has 3'"):
        vt.structure(store, bins=10)


def test_activations_without_use_are_refused():
    with pytest.raises(SettingsError, match="every unit is constant over the samples"):
        vt.structure(np.ones((200, 2, 1, 3)))
    with pytest.raises(SettingsError, match=r"activations are \(sample, layer, token, channel\)"):
        vt.structure(np.ones((200, 2, 3)))
    with pytest.raises(SettingsError, match="fewer samples than bins"):
        vt.structure(np.ones((0, 2, 1, 3)))
    x = planted_layers()
    x[5, 1, 1, 2] = np.nan
    with pytest.raises(SettingsError, match="NaN or infinity"):
        vt.structure(x, bins=50)


def test_nearly_dead_units_can_be_left_out():
    x = planted_layers()
    x[:, 1, 1, 4] = (np.arange(600) > 596) * 1.0
    kept, without = vt.structure(x, bins=50), vt.structure(x, bins=50, keep_nearly_dead=False)
    assert kept.labels[0, 1, 4] == kept.labels[1, 1, 4] >= 0, "three samples of six hundred: alike whatever they are"
    assert without.labels[0, 1, 4] == without.labels[1, 1, 4] == -1


def test_a_model_of_nearly_dead_units_that_are_left_out_is_refused():
    x = np.zeros((200, 2, 1, 3))
    x[0] = 1
    with pytest.raises(SettingsError, match=r"(?s)every unit is dead or nearly so.*keep_nearly_dead=True"):
        vt.structure(x, keep_nearly_dead=False)
    assert vt.structure(x).largest == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": [2, 0]}, r"layers go from first to last(.*\n)*  given:    \[2, 0\]\n  accepted: \[0, 2\]"),
        ({"layers": [4]}, "no such layer"),
        ({"tokens": [0, 2]}, "no such token"),
        ({"tokens": [0, 1, 2]}, "no such token\n  given:    2\n  accepted: -2 to 1"),
        ({"layers": []}, "at least one layer"),
        ({"tokens": [0, -2]}, "at least one token is needed, and none twice"),
        ({"layers": [1]}, "needs two or more\n  given:    'layer 1'\n  remedy:   choose or record more layers"),
        ({"transform": "ranks"}, "unknown transform"),
        ({"bins": 1000}, "bins out of range"),
        ({"bins": 20.5}, "bins out of range"),
        ({"tokens": 2}, r"tokens are a list of numbers\n  given:    2\n  accepted: such as \[0, 1\]"),
        ({"layers": "01"}, "layers are a list of numbers"),
        ({"layers": [0.5, 1]}, "layers are a list of numbers"),
        ({"threshold": 0}, "threshold must be positive"),
        ({"layers": 1.5}, r"layers are a list of numbers\n  given:    1.5"),
        ({"tokens": [True, False]}, "tokens are a list of numbers"),
        ({"bins": True}, "bins out of range"),
        ({"threshold": True}, "threshold must be positive"),
        ({"keep_nearly_dead": "no"}, r"keep_nearly_dead is True or False\n  given:    'no'"),
        ({"distances": 1}, "distances is True or False"),
        ({"threshold": "1"}, r"threshold must be positive\n  given:    '1'\n  accepted: a number above 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        vt.structure(planted_layers(), **{"bins": 50, **settings})


@pytest.mark.parametrize("source", [None, 5, object(), np.zeros((300, 4, 2))])
def test_what_is_no_activation_is_refused(source):
    with pytest.raises(SettingsError, match=r"activations are \(sample, layer, token, channel\)\n  given"):
        vt.structure(source)


def test_tensors_of_any_kind_are_activations():
    import torch

    x = planted_layers()
    of_array = vt.structure(x, bins=50)
    of_tensor = vt.structure(torch.tensor(x, requires_grad=True), bins=50)
    np.testing.assert_array_equal(of_tensor.labels, of_array.labels)
    half = torch.tensor(x).bfloat16()
    np.testing.assert_array_equal(
        vt.structure(half, bins=50).labels, vt.structure(half.float().numpy(), bins=50).labels
    )
    flat = half.flatten(1)
    np.testing.assert_array_equal(vt.unit_clusters(flat, 50), vt.unit_clusters(flat.float().numpy(), 50))


def test_no_clusters_at_all():
    found = vt.structure(np.random.default_rng(0).normal(size=(200, 2, 1, 5)))
    assert found.clusters == () and found.largest == 0 and found.counts.tolist() == [5, 5]
    assert found.anchors.shape == (0, 3) and found.inefficient.shape == (0,)


def test_the_kernels_leave_torch_its_threads():
    """Else a pass of a model after them is rounded otherwise than before, where there are fewer than cores."""
    script = """
import numpy as np, torch, vitreous as vt
vt.unit_clusters(np.random.default_rng(0).normal(size=(200, 9)).astype(np.float32))
assert torch.get_num_threads() == 1, torch.get_num_threads()
"""
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, **threads})
