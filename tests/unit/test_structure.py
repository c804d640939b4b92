from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.kernels.near_pairs import near_components

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


def test_differences_agree_with_the_whole_matrix():
    x = planted_layers()
    found = vt.structure(x, bins=50, distances=True)
    ranks = twin.grouped_ranks(x.reshape(600, -1), 50)
    M = np.abs(ranks[:, :, None] - ranks[:, None, :]).sum(0)
    np.testing.assert_array_equal(found.distances, M)
    grey = 255 * (M - M.min()) / (M.max() - M.min())
    np.testing.assert_allclose(found.differences, grey.reshape(4, -1).mean(1), rtol=1e-12)
    np.testing.assert_allclose(vt.structure(x, bins=50).differences, found.differences, rtol=1e-12)


def test_a_store_and_its_activations_give_the_same(tiny, tmp_path):
    images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (120, 32, 32, 3), np.uint8))
    store = vt.record(tiny, images, "blocks.*.resid.out", tmp_path / "s", dtype="float32", progress=False)
    found = vt.structure(store, layers=[0, -1], tokens=[0, 3])
    x = np.stack([np.asarray(store[f"blocks.{b}.resid.out"][:, [0, 3]]) for b in (0, 2)], 1)
    np.testing.assert_array_equal(found.labels, vt.structure(x).labels)
    assert found.layers == ("blocks.0.resid.out", "blocks.2.resid.out") and found.tokens == (0, 3)
    assert found.labels.shape == (2, 2, 32)


def test_nearly_dead_units_can_be_left_out():
    x = planted_layers()
    x[:, 1, 1, 4] = (np.arange(600) > 596) * 1.0
    kept, without = vt.structure(x, bins=50), vt.structure(x, bins=50, keep_nearly_dead=False)
    assert kept.labels[0, 1, 4] == kept.labels[1, 1, 4] >= 0, "three samples of six hundred: alike whatever they are"
    assert without.labels[0, 1, 4] == without.labels[1, 1, 4] == -1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": [4]}, "no such layer"),
        ({"tokens": [0, 2]}, "no such token"),
        ({"layers": []}, "at least one layer"),
        ({"bins": 1000}, "bins out of range"),
        ({"threshold": 0}, "threshold must be positive"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(SettingsError, match=message):
        vt.structure(planted_layers(), **{"bins": 50, **settings})


def test_no_clusters_at_all():
    found = vt.structure(np.random.default_rng(0).normal(size=(200, 2, 1, 5)))
    assert found.clusters == () and found.largest == 0 and found.counts.tolist() == [5, 5]
    assert found.anchors.shape == (0, 3) and found.inefficient.shape == (0,)
