"""The perturbation test and removal curves: against slow twins, and on models whose needs are known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.perturbation import deletion, draw_tokens, insertion, perturbation_test, removal_curves

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.perturbation import slow_deletion, slow_mask_test

GRID, FAST = (3, 4), {"repeats": 20}
QUIET = {"progress": False}


def mixing(seed: int, prefix: int = 1):
    """Tokens that are fixed mixtures of patch means: a model whose needs are known. Returns it and the mixture."""
    rng = np.random.default_rng(seed)
    weights = rng.random((prefix + 12, 12)) ** 3

    def represent(x):
        patches = x.reshape(len(x), 3, 3, 2, 4, 2).mean((3, 5)).reshape(len(x), 3, 12)
        return np.einsum("tp,ncp->ntc", weights, patches).astype(np.float32)

    return represent, weights


def inputs(seed: int, count: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(1.0, 0.3, (count, 3, 6, 8)).astype(np.float32)


def test_masks_are_eq_14():
    represent, _ = mixing(0)
    x, tokens = inputs(1), draw_tokens(3, 12, 5, prefix=1, seed=2)
    maps = np.random.default_rng(3).random((3, 5, *GRID))
    found = perturbation_test(represent, x, maps, tokens, prefix=1, area=0.3, fill=0.5, batch_size=7, **QUIET)
    expected = slow_mask_test(represent, x, maps, tokens, 1, 4, 0.5)
    assert found.patches == 4 and found.of == 12
    for side, value in expected.items():
        assert found.mean("mask", side, **FAST).value == pytest.approx(value, rel=1e-5)


def test_a_map_that_knows_what_the_token_is_made_of_wins_and_a_wrong_one_loses():
    represent, weights = mixing(1)
    x, tokens = inputs(2, 6), draw_tokens(6, 12, 4, prefix=1)
    truth = weights[tokens].reshape(6, 4, *GRID)
    right = perturbation_test(represent, x, truth, tokens, prefix=1, **QUIET)
    wrong = perturbation_test(represent, x, -truth, tokens, prefix=1, **QUIET)
    for kind in ("mask", "noise"):
        means = [right.mean(kind, side, **FAST).value for side in ("negative", "random", "positive")]
        assert means == sorted(means)
        assert right.gap(kind, **FAST).low > 0 and wrong.gap(kind, **FAST).high < 0
        assert right.gap(kind, "random", **FAST).value > 0
    np.testing.assert_allclose(right.distances[0, 0], wrong.distances[0, 1])
    one = perturbation_test(represent, x, truth, tokens, prefix=1, sides=["positive"], kinds=["noise"], **QUIET)
    np.testing.assert_array_equal(one.distances[0, 0], right.distances[1, 1])


def test_the_own_patch_is_never_touched_and_a_prefix_token_has_none():
    seen = []

    def represent(x):
        seen.extend(x[:, 0].reshape(len(x), 3, 2, 4, 2)[:, :, 0, :, 0].reshape(len(x), 12))
        return np.zeros((len(x), 13, 2), np.float32)

    x = np.ones((1, 3, 6, 8), np.float32)
    maps = np.zeros((1, 12, *GRID))
    maps[0, np.arange(12), *np.divmod(np.arange(12), 4)] = 9.0  # each token's own patch is its most relevant one
    tokens = np.arange(1, 13)[None]
    perturbation_test(represent, x, maps, tokens, prefix=1, area=0.4, kinds=["mask"], **QUIET)
    spoiled = np.array(seen[1:]).reshape(3, 12, 12)
    assert (spoiled[:, np.arange(12), np.arange(12)] == 1).all()
    assert ((spoiled == 0).sum(-1) == 5).all()
    seen.clear()
    class_map = np.zeros((1, 1, *GRID))
    class_map[0, 0, 0, 0] = 1
    perturbation_test(represent, x, class_map, np.zeros((1, 1), int), prefix=1, area=0.1, kinds=["mask"], **QUIET)
    assert seen[2][0] == 0  # the class token's positive side takes any patch


def test_noise_is_the_same_on_both_sides_and_as_strong_as_said():
    shown = []

    def represent(x):
        shown.append(x.copy())
        return np.zeros((len(x), 12, 2), np.float32)

    x = np.zeros((1, 3, 60, 80), np.float32)
    maps = np.arange(12.0).reshape(1, 1, *GRID)
    kinds = {"kinds": ["noise"], "area": 0.5, "seed": 4, **QUIET}
    perturbation_test(represent, x, maps, np.array([[3]]), deviation=0.3, **kinds)
    negative, positive, random = shown[1]
    assert 0.29 < negative[:, negative.any(0)].std() < 0.31
    assert not (negative.any(0) & positive.any(0)).any()
    both = random.any(0) & positive.any(0)
    assert both.any() and (random[:, both] == positive[:, both]).all()


def test_equal_values_are_chosen_by_the_seed_not_by_their_place():
    represent, _ = mixing(2, prefix=0)
    x, tokens = inputs(0, 2), draw_tokens(2, 12, 3)
    flat = np.zeros((2, 3, *GRID))
    first, again, other = (perturbation_test(represent, x, flat, tokens, seed=s, **QUIET) for s in (0, 0, 1))
    np.testing.assert_array_equal(first.distances, again.distances)
    assert (first.distances != other.distances).any()


def test_cosines_do_not_see_length():
    def represent(x):
        return x[:, :, ::2, ::2].reshape(len(x), 3, 12).transpose(0, 2, 1) * 0 + x.mean((1, 2, 3))[:, None, None]

    x, tokens = inputs(5, 1), draw_tokens(1, 12, 2)
    found = perturbation_test(represent, x, np.random.default_rng(0).random((1, 2, *GRID)), tokens, **QUIET)
    assert found.mean("mask", "positive", **FAST).value > 0.1
    assert found.mean("mask", "positive", "cosine", **FAST).value == pytest.approx(0, abs=1e-6)


def test_drawn_tokens_are_different_and_seeded():
    tokens = draw_tokens(5, 12, 10, prefix=3, seed=1)
    assert tokens.shape == (5, 10) and tokens.min() >= 3 and tokens.max() < 15
    assert all(len(set(row)) == 10 for row in tokens.tolist())
    np.testing.assert_array_equal(tokens, draw_tokens(5, 12, 10, prefix=3, seed=1))


# -- curves


def total(x, which=None):
    return np.asarray(x, np.float64)[:, 0].sum((1, 2)) ** 2


def test_deletion_is_one_patch_after_the_other():
    x, maps = inputs(3, 2), np.random.default_rng(1).random((2, *GRID))
    found = deletion(total, x, maps, fill=0.1, batch_size=5, **QUIET)
    for k in range(2):
        np.testing.assert_allclose(found.values[k], slow_deletion(total, x[k], maps[k], 0.1), rtol=1e-6)
    assert found.shares[0] == 0 and found.shares[-1] == 1 and found.values.shape == (2, 13)


def test_insertion_begins_empty_and_ends_with_the_picture():
    x, maps = inputs(4, 2), np.random.default_rng(2).random((2, *GRID))
    found = insertion(total, x, maps, **QUIET)
    np.testing.assert_allclose(found.values[:, 0], 0)
    np.testing.assert_allclose(found.values[:, -1], total(x), rtol=1e-6)
    blurred = np.broadcast_to(x.mean((2, 3), keepdims=True), x.shape)
    np.testing.assert_allclose(insertion(total, x, maps, fill=blurred, **QUIET).values[:, 0], total(blurred), rtol=1e-5)


def test_the_area_is_that_of_the_trapezoids_and_orders_maps():
    x = np.ones((1, 1, 2, 4), np.float32)
    weights = np.array([[8.0, 4.0, 2.0, 1.0]])

    def score(x, which):
        return x[:, 0, 0] @ weights[0]

    good, bad = (deletion(score, x, sign * weights[None], **QUIET) for sign in (1, -1))
    assert good.values[0].tolist() == [15, 7, 3, 1, 0] and bad.values[0].tolist() == [15, 14, 12, 8, 0]
    assert good.areas[0] == pytest.approx((7.5 + 7 + 3 + 1) / 4) and good.area(**FAST).value < bad.area(**FAST).value


def test_maps_of_one_picture_share_it_and_a_kept_patch_stays():
    x, maps = inputs(6, 1), np.random.default_rng(3).random((3, *GRID))
    which, keep = np.zeros(3, int), np.array([2, 5, -1])
    asked = []

    def score(made, which):
        asked.extend(which.tolist())
        return made[:, 0].reshape(len(made), 3, 2, 4, 2).any((2, 4)).reshape(len(made), 12).sum(1)

    found = removal_curves(score, x, maps, insert=False, which=which, keep=keep, steps=4, **QUIET)
    assert found.values[:, -1].tolist() == [1, 1, 0] and found.values[:, 0].tolist() == [12, 12, 12]
    assert sorted(set(asked)) == [0, 1, 2] and found.values.shape == (3, 5)


def test_what_does_not_fit_is_refused():
    represent, _ = mixing(0, prefix=0)
    x, tokens = inputs(0, 1), np.array([[1]])
    maps = np.ones((1, 1, *GRID))
    cases = {
        "whole patches": {"maps": np.ones((1, 1, 3, 5))},
        "the same ones\n  given:    0.6": {"area": 0.6},
        "unknown kind of perturbation\n  given:    'blur'": {"kinds": ["blur"]},
        "unknown side of perturbation\n  given:    'up'": {"sides": ["up"]},
        "one map for each token": {"tokens": np.array([[1, 2]])},
        "no such token\n  given:    -1\n  accepted: 0 to": {"tokens": np.array([[-1]])},
        "no such token\n  given:    99": {"tokens": np.array([[99]])},
        "there have to be two others": {"maps": np.ones((1, 1, 1, 2))},
        "float .sample, colour, row, column.": {"pictures": (x * 9).astype(int)},
        "maps are finite": {"maps": maps * np.nan},
        "prefix tokens first": {"represent": lambda x: np.zeros((len(x), 5, 2))},
    }
    for message, change in cases.items():
        given = {"represent": represent, "pictures": x, "maps": maps, "tokens": tokens, **change}
        with pytest.raises(vt.SettingsError, match=message):
            perturbation_test(**given, **QUIET)
    with pytest.raises(vt.SettingsError, match="without putting them back"):
        draw_tokens(1, 12, 13)
    with pytest.raises(vt.SettingsError, match="between one step and one for each patch"):
        deletion(total, x, maps[0], steps=13, **QUIET)
    with pytest.raises(vt.SettingsError, match="no such side\n  given:    'up'"):
        perturbation_test(represent, x, maps, tokens, **QUIET).mean("mask", "up")
