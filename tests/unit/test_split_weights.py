"""Weights divided among sub-units against the formulas, and sums that come back bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.kernels.split_weights import RHOS, dead_subunits, divide, search_rho, shares, winners

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import disentangle as slow


def unit(k: int, d: int, seed: int, kind: str) -> tuple[np.ndarray, np.float32, np.ndarray]:
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=d).astype(np.float32)
    r = rng.normal(size=(k, d)).astype(np.float32)
    if kind == "ties":  # few different sizes, signs at random
        r = rng.choice([0, 0.25, 0.5, -0.5, 1, -1], size=(k, d)).astype(np.float32)
    if kind == "zeros":
        weight[::2] = 0
        r[:, ::3] = 0
    if kind == "peaks":
        r *= rng.choice([0.01, 1], size=(k, d))
    return weight, np.float32(rng.normal()), r


@pytest.mark.parametrize("kind", ["plain", "ties", "zeros", "peaks"])
@pytest.mark.parametrize("k", range(2, 8))
def test_every_set_of_equation_3_gives_the_same_shares(k, kind):
    weight, bias, r = unit(k, 40, k, kind)
    for rho in (0.05, 0.5, 0.85, 1.0):
        expected = np.array(slow.shares(r, rho), float)
        np.testing.assert_array_equal(shares(winners(r, rho)), expected)
        exact, exact_bias = slow.split(weight, bias, r, rho)
        weights, biases = vt.split_weights(weight, bias, r, rho)
        assert (np.abs(weights - np.array(exact, float)) <= k * np.spacing(np.abs(weight))).all()
        assert (np.abs(biases - np.array(exact_bias, float)) <= k * np.spacing(abs(bias))).all()


def test_the_kinds_differ_and_all_three_shares_occur():
    _, _, r = unit(4, 200, 0, "peaks")
    assert set(np.unique(winners(r, 0.5).sum(0))) == {1, 2, 3, 4}
    assert {0, 1, 1 / 2, 1 / 3, 1 / 4} == set(np.unique(shares(winners(r, 0.5))))


def in_order(parts: np.ndarray) -> np.ndarray:
    total = parts[0].copy()
    for part in parts[1:]:
        total = total + part
    return total


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6), st.sampled_from(["float32", "float64"]), st.integers(-140, 120))
def test_parts_sum_back_bit_for_bit(k, seed, dtype, exponent):
    rng = np.random.default_rng(seed)
    weight = np.ldexp(rng.normal(size=64), exponent).astype(dtype)
    bias = weight[0]
    members = rng.random((k, 64)) < 0.5
    members[:, ~members.any(0)] = True
    weights, biases = divide(weight, bias, members)
    assert weights.dtype == biases.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(in_order(weights), weight)
    np.testing.assert_array_equal(in_order(weights[::-1]), weight)  # the order of adding does not matter
    assert in_order(biases) == bias
    assert not weights[~members].any()


def test_half_precision_is_held_exactly():
    weight, bias, r = unit(3, 50, 1, "plain")
    half = weight.astype(np.float16)
    weights, _ = vt.split_weights(half, float(bias), r, 0.5)
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(in_order(weights), half.astype(np.float32))


def test_a_models_own_parameters_are_taken_as_they_are():
    layer = torch.nn.Linear(5, 2)
    representatives = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    weights, biases = vt.split_weights(layer.weight[1], layer.bias[1], torch.from_numpy(representatives), 0.4)
    plain = vt.split_weights(layer.weight.detach().numpy()[1], layer.bias[1].item(), representatives, 0.4)
    np.testing.assert_array_equal(weights, plain[0])
    np.testing.assert_array_equal(biases, plain[1])
    half = layer.bfloat16()
    weights, _ = vt.split_weights(half.weight[0], half.bias[0], representatives, 0.4)
    np.testing.assert_array_equal(weights.sum(0), half.weight[0].detach().float().numpy())


def test_rho_of_one_and_three_different_sizes_is_shared_by_all():
    r = np.array([[3.0], [2.0], [1.0]])
    assert winners(r, 1.0).all()  # two prefixes win, so none does
    assert winners(r, 0.6).tolist() == [[True], [True], [False]]
    assert winners(r, 0.4).all()  # no prefix wins
    assert winners(np.array([[3.0], [2.0]]), 1.0).tolist() == [[True], [False]]
    assert winners(np.array([[2.0], [-2.0]]), 1.0).all()


def test_one_subunit_is_the_unit():
    weight, bias, r = unit(1, 20, 2, "plain")
    weights, biases = vt.split_weights(weight, bias, r, 0.3)
    np.testing.assert_array_equal(weights[0], weight)
    assert biases.tolist() == [bias]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_search_finds_the_best_rho_of_all_instances(k):
    rng = np.random.default_rng(k)
    weight, bias, _ = unit(k, 24, k, "plain")
    labels = rng.integers(0, k, 60)
    patterns = np.abs(rng.normal(size=(k, 24))) * (rng.random((k, 24)) < 0.5) * np.sign(weight)
    q = (patterns[labels] + 0.1 * rng.normal(size=(60, 24))).astype(np.float32)
    r = slow.representatives(q, weight, labels, rng.random(60))
    means = np.array([q[labels == g].astype(float).mean(0) for g in range(k)])
    found = search_rho(weight, bias, r, means)
    scores = [slow.rho_score(weight, bias, r, rho, q, labels) for rho in RHOS]
    assert found.score == pytest.approx(max(scores), rel=1e-5)
    assert found.rho == RHOS[int(np.flatnonzero(np.array(scores) > max(scores) - 1e-6)[0])]
    np.testing.assert_array_equal(found.members, winners(r, found.rho))
    assert len(RHOS) == 20 and RHOS[0] == 0.05 and RHOS[-1] == 1.0


def test_the_smallest_rho_wins_a_tie_and_a_mean_of_zero_does_not_divide():
    found = search_rho(np.ones(2, np.float32), 0.0, np.eye(2), np.eye(2))
    assert (found.rho, found.score) == (0.05, 1.0)
    nothing = search_rho(np.zeros(2, np.float32), 0.0, np.eye(2), np.eye(2))
    assert nothing.score == 0


def test_the_smallest_rho_wins_a_tie_of_different_shares():
    """Above 0.5 the last input is one sub-unit's own, and says nothing: its weight is zero."""
    r = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.5]])
    weight, means = np.array([1.0, 1.0, 0.0]), np.eye(3)[:2] + 0.1
    assert not np.array_equal(winners(r, 0.05), winners(r, 1.0))
    found = search_rho(weight, 0.0, r, means)
    assert found.rho == 0.05
    np.testing.assert_array_equal(found.members, winners(r, 0.05))


def test_subunits_that_only_share_with_all_are_dead_if_there_are_two():
    members = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 1]], bool)
    members[:, 2] = True
    assert dead_subunits(members).tolist() == [False, True, True]
    assert dead_subunits(members[:2]).tolist() == [False, False]  # one alone has nobody to be equal to
    assert dead_subunits(np.ones((3, 4), bool)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rho": 0.0}, "rho out of range"),
        ({"rho": 1.5}, "rho out of range"),
        ({"rho": "0.5"}, "rho out of range"),
        ({"bias": "x"}, "the bias of one unit is one number"),
        ({"bias": np.zeros(2)}, "the bias of one unit is one number"),
        ({"weight": np.ones((2, 4), np.float32)}, "the weight of one unit is floats"),
        ({"weight": np.full(4, np.nan)}, "the weight is not finite"),
        ({"bias": np.inf}, "the bias is not finite"),
        ({"representatives": np.ones((2, 5))}, "representatives are (sub-unit, input)"),
        ({"representatives": np.ones((0, 4))}, "one sub-unit or more"),
        ({"representatives": np.full((2, 4), np.nan)}, "representatives are not finite"),
    ],
)
def test_what_cannot_be_split_is_refused(change, message):
    good = {"weight": np.ones(4, np.float32), "bias": 0.0, "representatives": np.ones((2, 4)), "rho": 0.5}
    with pytest.raises(vt.SettingsError) as error:
        vt.split_weights(**(good | change))
    assert message in str(error.value)
