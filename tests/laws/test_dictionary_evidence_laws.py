"""What holds of MS-Score, stability and R² for all inputs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.monosemanticity import ms_score
from vitreous.evidence.faithfulness import faithfulness
from vitreous.evidence.monosemanticity import monosemanticity, random_partition
from vitreous.evidence.stability import coherence, effective_rank, matched_similarity

seeds = st.integers(0, 2**32 - 1)
untimed = settings(deadline=None)


@untimed
@given(seeds, st.integers(2, 12), st.integers(1, 4), st.integers(2, 15))
def test_ms_score_is_its_twin_and_a_mean_of_cosines(seed, images, tokens, top):
    rng = np.random.default_rng(seed)
    e = rng.normal(size=(images, tokens, 5))
    a = np.round(rng.normal(size=(images, tokens, 3)), 1)  # rounded: ties between images and tokens
    found = monosemanticity(e, a, top=top, batch_size=5, progress=False).scores
    np.testing.assert_allclose(found, ms_score(e, a, top), rtol=1e-9, atol=1e-12)
    assert (np.abs(found[np.isfinite(found)]) <= 1 + 1e-9).all()


@untimed
@given(seeds, st.floats(0.1, 10), st.floats(0.1, 10))
def test_ms_score_does_not_care_for_scale(seed, of_embeddings, of_activations):
    rng = np.random.default_rng(seed)
    e, a = rng.normal(size=(8, 2, 4)), rng.normal(size=(8, 2, 3))
    plain = monosemanticity(e, a, top=5, progress=False).scores
    scaled = monosemanticity(of_embeddings * e, of_activations * a, top=5, progress=False).scores
    np.testing.assert_allclose(plain, scaled, rtol=1e-6)


@untimed
@given(seeds, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_parts_add_up_to_their_unit(seed, parts):
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(len(parts), 7)), rng.normal(size=len(parts))
    weights, biases, parent = random_partition(weight, bias, np.array(parts), rng)
    assert len(parent) == sum(parts)
    for unit in range(len(parts)):
        np.testing.assert_array_equal(weights[parent == unit].sum(0), weight[unit])
        np.testing.assert_allclose(biases[parent == unit].sum(), bias[unit])


@untimed
@given(seeds, st.integers(1, 9), st.integers(1, 9))
def test_similarity_is_symmetric_and_bounded(seed, k_a, k_b):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(k_a, 4)), rng.normal(size=(k_b, 4))
    for rule in ("first", "best"):
        there, back = matched_similarity(a, b, unmatched=rule), matched_similarity(b, a, unmatched=rule)
        np.testing.assert_allclose(there, back, rtol=1e-9, atol=1e-12)
        assert -2 <= there <= 1 - abs(k_a - k_b) / max(k_a, k_b) + 1e-9
    assert matched_similarity(a, b, unmatched="best") >= matched_similarity(a, b) - 1e-9
    np.testing.assert_allclose(matched_similarity(a, rng.permutation(a)), 1)


@untimed
@given(seeds, st.integers(2, 9), st.floats(1e-3, 1e3))
def test_rank_and_coherence_stay_in_their_bounds(seed, atoms, scale):
    d = np.random.default_rng(seed).normal(size=(atoms, 4))
    assert 1 - 1e-9 <= effective_rank(d) <= min(atoms, 4) + 1e-9
    np.testing.assert_allclose(effective_rank(scale * d), effective_rank(d), rtol=1e-9)
    assert 0 <= coherence(d) <= 1
    np.testing.assert_allclose(coherence(scale * d), coherence(d), rtol=1e-9)


@untimed
@given(seeds, st.integers(1, 20), st.floats(-1e3, 1e3))
def test_r2_does_not_care_for_batches_or_place(seed, size, shift):
    rng = np.random.default_rng(seed)
    x, x_hat = rng.normal(size=(2, 20, 3))
    whole = faithfulness([(x, x_hat)])
    parts = faithfulness((x[i : i + size] + shift, x_hat[i : i + size] + shift) for i in range(0, 20, size))
    np.testing.assert_allclose(parts.r2, whole.r2, rtol=1e-6)
    assert whole.r2 <= 1
