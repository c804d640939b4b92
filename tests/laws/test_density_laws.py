"""Clusters depend neither on the order of the points, nor on their scale, also where most distances are equal."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reference.density import hdbscan
from vitreous.kernels.density import density_clusters

# few whole numbers: copies and equal distances are the rule, and no rounding breaks them
clouds = st.integers(4, 45).flatmap(
    lambda n: hnp.arrays(np.float64, (n, 2), elements=st.integers(0, 12).map(float) | st.integers(30, 36).map(float))
)
rules = st.fixed_dictionaries(
    {
        "min_cluster_size": st.integers(2, 6),
        "min_samples": st.none() | st.integers(1, 4),
        "selection": st.sampled_from(("leaf", "eom")),
    }
)


def _same_up_to_names(a, b):
    return len({*zip(a, b, strict=True)}) == len(set(a)) == len(set(b)) and ((a == -1) == (b == -1)).all()


@settings(max_examples=80, deadline=None)
@given(clouds, rules)
def test_the_definition_holds_also_among_ties(points, rule):
    if (rule["min_samples"] or rule["min_cluster_size"]) > len(points):
        return
    found = density_clusters(points, **rule, method="full")
    twin = hdbscan(points, rule["min_cluster_size"], rule["min_samples"], rule["selection"])
    np.testing.assert_array_equal(found.labels, twin.labels)
    np.testing.assert_allclose(found.probabilities, twin.probabilities, atol=2e-7)


@settings(max_examples=50, deadline=None)
@given(clouds, rules, st.randoms(use_true_random=False))
def test_the_order_of_the_points_only_changes_names(points, rule, random):
    order = np.array(random.sample(range(len(points)), len(points)))
    found = density_clusters(points, **rule, method="full")
    moved = density_clusters(points[order], **rule, method="full")
    assert _same_up_to_names(found.labels[order], moved.labels)
    np.testing.assert_allclose(found.probabilities[order], moved.probabilities, atol=2e-7)


@settings(max_examples=30, deadline=None)
@given(clouds, rules, st.integers(-20, 20), st.sampled_from((np.float32, np.float64)))
def test_scale_changes_nothing(points, rule, power, kind):
    points = points.astype(kind)
    found = density_clusters(points, **rule, method="full")
    scaled = density_clusters(points * kind(2.0**power), **rule, method="full")
    np.testing.assert_array_equal(found.labels, scaled.labels)
    np.testing.assert_allclose(found.probabilities, scaled.probabilities, atol=2e-7)
