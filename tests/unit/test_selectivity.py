"""AUC against its slow twin and against scikit-learn; the held-out procedure on planted and on empty data."""

from __future__ import annotations

import numpy as np
import pytest

from reference import selectivity as slow
from vitreous.errors import SettingsError
from vitreous.evidence.selectivity import auc, halves, other_pictures, precision, ranks, selectivity


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def _tied(rng, rows=60, units=5, concepts=4):
    values = np.round(rng.standard_normal((rows, units)), 0)
    values[:, 0] = 3.0  # a unit that says nothing
    present = rng.random((rows, concepts)) < 0.3
    return values, present


def test_auc_counts_pairs(rng):
    values, present = _tied(rng)
    np.testing.assert_allclose(auc(values, present), slow.auc(values, present), atol=1e-12)


def test_auc_is_that_of_scikit_learn(rng):
    metrics = pytest.importorskip("sklearn.metrics")
    values, present = _tied(rng, rows=300, units=70)  # more units than are ranked at a time
    found = auc(values, present)
    for unit in (0, 3, 63, 64, 69):
        for concept in range(present.shape[1]):
            assert found[unit, concept] == pytest.approx(metrics.roc_auc_score(present[:, concept], values[:, unit]))


def test_half_precision_is_ranked_as_its_values(rng):
    values = rng.standard_normal((200, 3)).astype(np.float16)
    values[:40] = np.round(values[:40])  # ties, zeros of both signs
    values[0], values[1] = -0.0, np.inf
    np.testing.assert_array_equal(ranks(values), ranks(values.astype(np.float64)))


def test_a_detector_its_opposite_and_a_constant():
    present = np.array([[True], [True], [False]])
    values = np.array([[2.0, -2.0, 1.0], [1.0, -1.0, 1.0], [0.0, 0.0, 1.0]])
    assert auc(values, present)[:, 0].tolist() == [1.0, 0.0, 0.5]


def test_infinite_activations_have_ranks_too():
    assert ranks(np.array([[np.inf], [-np.inf], [0.0], [np.inf]])).T.tolist() == [[3.5, 1.0, 2.0, 3.5]]


def test_a_concept_of_all_or_no_rows_has_no_auc():
    found = auc(np.arange(4.0)[:, None], np.array([[True, False]] * 4))
    assert np.isnan(found).all()


def test_precision_of_the_strongest():
    values, present = np.array([3.0, 9.0, 9.0, 1.0]), np.array([True, False, True, False])
    assert precision(values, present, 1) == 0.0  # of two equal ones the first row
    assert precision(values, present, 3) == pytest.approx(2 / 3)


def test_halves_are_halves_and_depend_on_the_seed_only():
    assert halves(11, 0).sum() == 5
    assert (halves(40, 3) == halves(40, 3)).all()
    assert (halves(40, 3) != halves(40, 4)).any()


@pytest.mark.parametrize("samples", [2, 3, 50])
def test_every_picture_gets_another_one_and_all_are_used(rng, samples):
    partner = other_pictures(samples, rng)
    assert (partner != np.arange(samples)).all()
    assert sorted(partner) == list(range(samples))


def _planted(rng, samples=60, patches=16):
    """Unit 0 sees concept 2, unit 1 only knows where in the picture it is, unit 2 is noise."""
    present = rng.random((samples, patches, 4)) < 0.25
    present[:, : patches // 2, 3] |= rng.random((samples, patches // 2)) < 0.6  # concept 3 lies in the upper half
    values = rng.standard_normal((samples, patches, 3))
    values[..., 0] += 3 * present[..., 2]
    values[..., 1] -= 3 * (np.arange(patches) >= patches // 2)
    return values, present


def test_the_planted_concept_is_found_and_beats_its_control(rng):
    values, present = _planted(rng)
    found = selectivity(values, present, seed=1, repeats=19)
    assert found.concept[0] == 2
    assert found.held_out[0] > 0.95
    assert found.control[:, 0].max() < 0.65
    assert found.chance[0] == pytest.approx(1 / 20)


def test_a_unit_that_only_knows_positions_does_no_better_than_its_control(rng):
    values, present = _planted(rng)
    found = selectivity(values, present, seed=1, repeats=19)
    assert found.concept[1] == 3
    assert found.held_out[1] > 0.7  # looks like a detector of concept 3 ...
    assert abs(found.held_out[1] - found.control[:, 1].mean()) < 0.05  # ... until the masks are exchanged
    assert found.chance[1] > 0.05


def test_the_number_is_that_of_the_half_that_had_no_say(rng):
    values, present = _planted(rng)
    found = selectivity(values, present, seed=5, repeats=1)
    report = ~halves(len(values), 5)
    again = slow.auc(values[report].reshape(-1, 3), present[report].reshape(-1, 4))
    np.testing.assert_allclose(found.held_out, again[np.arange(3), found.concept])
    choose = slow.auc(values[~report].reshape(-1, 3), present[~report].reshape(-1, 4))
    np.testing.assert_array_equal(found.concept, choose.argmax(1))
    np.testing.assert_allclose(found.chosen, choose.max(1))


def test_noise_looks_selective_where_it_was_chosen_and_not_on_the_other_half(rng):
    values = rng.standard_normal((40, 4, 200))
    present = rng.random((40, 4, 30)) < 0.3
    found = selectivity(values, present, rare=5, repeats=1)
    assert found.chosen.mean() > 0.6
    assert abs(found.held_out.mean() - 0.5) < 0.02


def test_rare_concepts_are_not_considered(rng):
    values, present = _planted(rng)
    present[..., 2] = False
    present[0, :, 2] = True  # one picture only
    values[0, :, 0] += 100
    assert selectivity(values, present).concept[0] != 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: auc(np.zeros((3, 1)), np.zeros((4, 1), bool)), "have the same rows"),
        (lambda: auc(np.zeros((3, 1)), np.zeros((3, 1))), "concepts are bool"),
        (lambda: auc(np.full((3, 1), np.nan), np.zeros((3, 1), bool)), "NaN has no rank"),
        (lambda: selectivity(np.zeros((8, 1)), np.zeros((8, 1), bool)), r"takes \(sample, patch, ...\) twice"),
        (lambda: selectivity(np.zeros((8, 4, 1)), np.zeros((8, 4, 1), bool)), "no concept is true of 20 patches"),
        (lambda: halves(1, 0), "two halves need at least two pictures"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(SettingsError, match=text):
        call()
