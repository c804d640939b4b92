"""What clusters of units must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.lenses.structure import TRANSFORMS

seeds = st.integers(0, 100_000)
THRESHOLDS = {"grouped_rank": 1.0, "rank": 4.0, "raw": 0.1, "normalised_raw": 0.1}


def units(seed: int) -> tuple[np.ndarray, np.random.Generator]:
    """(sample, unit) without ties: some units noisy copies of others."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(int(rng.integers(40, 200)), 24))
    x[:, 12:] = x[:, rng.integers(0, 12, 12)] + rng.choice([1e-4, 0.02, 0.3], 12) * rng.normal(size=(len(x), 12))
    return x, rng


def parts(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == c).tolist()) for c in range(labels.max() + 1)}


def clusters(x: np.ndarray, transform: str) -> np.ndarray:
    return vt.unit_clusters(x, 20, THRESHOLDS[transform], transform=transform)


@pytest.mark.parametrize("transform", TRANSFORMS)
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_order_of_units_and_of_samples_does_not_matter(transform, seed):
    x, rng = units(seed)
    order = rng.permutation(24)
    found = parts(clusters(x, transform))
    moved = parts(clusters(x[rng.permutation(len(x))][:, order], transform))
    assert {frozenset(order[list(part)].tolist()) for part in moved} == found


@pytest.mark.parametrize("transform", TRANSFORMS)
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_labels_are_numbered_by_their_first_units_and_none_is_alone(transform, seed):
    labels = clusters(units(seed)[0], transform)
    first = [int(np.flatnonzero(labels == c)[0]) for c in range(labels.max() + 1)]
    assert first == sorted(first) and all(len(part) > 1 for part in parts(labels))


@pytest.mark.parametrize("transform", TRANSFORMS)
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_a_larger_threshold_never_parts_units(transform, seed):
    x, _ = units(seed)
    small = parts(vt.unit_clusters(x, 20, 0.5 * THRESHOLDS[transform], transform=transform))
    large = parts(clusters(x, transform))
    assert all(any(part <= whole for whole in large) for part in small)


@pytest.mark.parametrize("transform", ["grouped_rank", "rank"])
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_ranks_forget_every_bend(transform, seed):
    x, rng = units(seed)
    bent = np.where(rng.random(24) < 0.5, np.exp(x), x**3 + x)
    np.testing.assert_array_equal(clusters(bent, transform), clusters(x, transform))


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_normalised_features_forget_scale_and_offset(seed):
    x, rng = units(seed)
    moved = x * rng.uniform(0.1, 100, 24) + rng.normal(0, 1000, 24)
    np.testing.assert_array_equal(clusters(moved, "normalised_raw"), clusters(x, "normalised_raw"))
