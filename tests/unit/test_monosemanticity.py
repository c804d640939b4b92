"""MS-Score: the formula of its twin, planted units, and what has no score."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

import vitreous as vt
from reference.monosemanticity import ms_score
from vitreous.evidence.monosemanticity import monosemanticity, ms_scores, random_partition


def planted(seed: int = 0, images: int = 300, concepts: int = 6, channels: int = 24):
    """Pictures of one concept each, its direction at one place and noise at the others."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(channels, concepts)))[0].T
    which = rng.integers(0, concepts, images)
    embeddings = 0.1 * rng.normal(size=(images, 4, channels))
    place = rng.integers(0, 4, images)
    embeddings[np.arange(images), place] += directions[which] * 3
    return embeddings.astype(np.float32), directions.astype(np.float32)


def quiet(*args, **kwargs):
    return monosemanticity(*args, progress=False, **kwargs)


@pytest.mark.parametrize("top", [2, 7, 100])
def test_it_is_the_formula(top):
    rng = np.random.default_rng(top)
    embeddings = rng.normal(size=(30, 5, 8)).astype(np.float32)
    activations = rng.normal(size=(30, 5, 11)).astype(np.float32)
    activations[..., 3] = np.maximum(activations[..., 3] - 2, 0)  # rarely active
    activations[..., 4] = -1 - activations[..., 4] ** 2  # never
    found = quiet(embeddings, activations, top=top, batch_size=7)
    np.testing.assert_allclose(found.scores, ms_score(embeddings, activations, top), rtol=1e-6)
    assert np.isnan(found.scores[4]) and not found.active[4] and found.active.sum() == 10
    assert found.mean == pytest.approx(np.nanmean(found.scores))


def test_units_of_one_concept_score_high_and_mixed_ones_low():
    embeddings, directions = planted()
    single = quiet(embeddings, lambda x: x @ directions.T, top=30)
    mixed = quiet(embeddings, lambda x: x @ directions[:5].sum(0)[:, None], top=30)
    assert (single.scores > 0.9).all()
    assert mixed.scores[0] < 0.5
    assert single.tokens.max() < 4 and (np.diff(np.sort(single.images, axis=1)) > 0).all()  # an image counts once


def test_batches_tensors_and_halves_change_nothing():
    embeddings, directions = planted(1)
    activations = embeddings @ directions.T
    whole = quiet(embeddings, activations, top=20, batch_size=1000)
    for other in (
        quiet(embeddings, activations, top=20, batch_size=13),
        quiet(torch.tensor(embeddings), torch.tensor(activations), top=20),
        quiet(embeddings, lambda x: torch.tensor(x) @ torch.tensor(directions).T, top=20),
    ):
        np.testing.assert_allclose(other.scores, whole.scores, rtol=1e-5)
    half = embeddings.astype(np.float16)
    same = quiet(half.astype(np.float32), activations, top=20)
    np.testing.assert_allclose(quiet(half, activations, top=20).scores, same.scores, rtol=1e-12)


def test_channels_are_units_where_nothing_else_is_given_and_sources_feed_a_transcoder():
    embeddings, directions = planted(2)
    np.testing.assert_array_equal(quiet(embeddings).scores, quiet(embeddings, embeddings).scores)
    inputs = embeddings @ directions.T
    by_function = quiet(embeddings, lambda x: x[..., :2], sources=inputs)
    np.testing.assert_array_equal(by_function.scores, quiet(embeddings, inputs[..., :2]).scores)
    flat = quiet(embeddings[:, 0], inputs[:, 0])
    np.testing.assert_array_equal(flat.scores, quiet(embeddings[:, :1], inputs[:, :1]).scores)


def test_a_unit_above_its_smallest_value_in_one_image_has_no_pair():
    embeddings, _ = planted(3)
    activations = np.zeros((300, 4, 2), np.float32)
    activations[5, 1, 0] = 1
    activations[[5, 9], 1, 1] = 1
    found = quiet(embeddings, activations)
    assert np.isnan(found.scores[0]) and np.isfinite(found.scores[1])
    assert found.active.all() and found.scored == 1
    assert np.isnan(quiet(embeddings, 0 * activations).mean)


def test_a_store_site_is_read_like_an_array(tmp_path):
    subject = vt.load("bundled:scenes-text")
    store = vt.record(subject, vt.scenes(12, size=64, seed=1), "blocks.-1.mlp.out", out=tmp_path / "s", progress=False)
    site = store["blocks.-1.mlp.out"]
    np.testing.assert_array_equal(quiet(site, top=5).scores, quiet(np.asarray(site), top=5).scores)


def test_a_random_partition_adds_up_to_the_unit():
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=(3, 40)), rng.normal(size=3)
    parts = np.array([1, 4, 3])
    weights, biases, parent = random_partition(weight, bias, parts, np.random.default_rng(1))
    np.testing.assert_array_equal(np.bincount(parent), parts)
    for unit in range(3):
        np.testing.assert_array_equal(weights[parent == unit].sum(0), weight[unit])  # disjoint, so exact
        assert biases[parent == unit].sum() == pytest.approx(bias[unit])
        assert ((weights[parent == unit] != 0).sum(0) == 1).all()
    again = random_partition(weight, bias, parts, np.random.default_rng(1))
    np.testing.assert_array_equal(weights, again[0])


def test_a_random_partition_of_a_mixed_unit_stays_mixed():
    """What the control is for: splitting alone does not make a unit clean, splitting along concepts does."""
    embeddings, directions = planted(4)
    q = embeddings @ directions.T  # inputs that each stand for one concept
    weight, bias = np.ones((1, 6), np.float32), np.zeros(1, np.float32)
    clean = quiet(embeddings, lambda x: x, sources=q, top=20).mean
    drawn = [random_partition(weight, bias, np.array([2]), np.random.default_rng(seed))[0] for seed in range(5)]
    control = np.mean([quiet(embeddings, lambda x, w=w: x @ w.T, sources=q, top=20).mean for w in drawn])
    assert clean > 0.9 and control < 0.7


def test_bad_input_is_refused():
    embeddings = np.ones((4, 2, 3), np.float32)
    with pytest.raises(vt.SettingsError, match="top is at least 2"):
        quiet(embeddings, top=1)
    with pytest.raises(vt.SettingsError, match="samples and tokens of the embeddings"):
        quiet(embeddings, np.ones((4, 3, 3), np.float32))
    with pytest.raises(vt.SettingsError, match="every sample has embeddings and activations"):
        quiet(embeddings, np.ones((3, 2, 3), np.float32))
    with pytest.raises(vt.SettingsError, match="samples and tokens of the embeddings"):
        quiet(embeddings, np.ones((5, 2, 3), np.float32))
    with pytest.raises(vt.SettingsError, match=r"embeddings are \(sample, token, channel\)"):
        quiet(np.ones(3))
    broken = embeddings.copy()
    broken[2, 1, 0] = np.nan
    with pytest.raises(vt.SettingsError, match="activations hold NaN"):
        quiet(embeddings, broken)
    steps = np.arange(8, dtype=np.float32).reshape(4, 2, 1)
    with pytest.raises(vt.SettingsError, match="image 2, token 1 are not finite"):
        quiet(broken, steps)
    with pytest.raises(vt.SettingsError, match="parts"):
        random_partition(np.ones((2, 3)), np.ones(2), np.array([0, 1]), np.random.default_rng(0))


def test_a_zero_vector_has_no_direction():
    embeddings = np.zeros((3, 1, 2))
    embeddings[0, 0, 0] = 1
    places = np.array([[0, 1, 2], [0, 0, 1], [0, -1, -1]])
    np.testing.assert_allclose(ms_scores(np.ones((3, 3)), places, embeddings), [0, 1 / 3, np.nan])


def test_memory_and_bits_do_not_depend_on_how_places_are_read(monkeypatch):
    """Places are added in pieces: as many units as one likes need no more memory, and give the same bits."""
    rng = np.random.default_rng(5)
    given = rng.uniform(0.01, 1, (40, 100)), rng.integers(0, 2000, (40, 100)), rng.normal(size=(2000, 256))
    tracemalloc.start()
    whole = ms_scores(*given)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3e6  # all rows at once are 8 MB
    monkeypatch.setattr("vitreous.evidence.monosemanticity.LEAST", 7)
    monkeypatch.setattr("vitreous.evidence.monosemanticity.PIECE", 1)
    np.testing.assert_array_equal(ms_scores(*given), whole)
