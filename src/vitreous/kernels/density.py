"""Density clusters (HDBSCAN) of many points in many dimensions, with membership probabilities.

"exact" is scikit-learn with all distances. "full" gives the same clusters from matrix products, in memory that does not
grow with the square of the points. "auto" reduces the dimensions first and, where that saves work, clusters a sample
and lets every other point join as if it alone were added. Points that leave with a split, one or two a split, are
noise in "full" and "auto", and on a side that depends on the order of the points in "exact": see `density_tree`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vitreous.errors import SettingsError
from vitreous.kernels.density_cores import cores, single_threaded_products
from vitreous.kernels.density_pairs import Cloud, nearest
from vitreous.kernels.density_reduce import (
    contributions,
    reduced_cloud,
    reduced_contributions,
    refuse_non_finite,
    whole_cloud,
)
from vitreous.kernels.density_rule import DIMS, SAMPLE, SMALL, Rule, checked_rule, drawn_sample
from vitreous.kernels.density_span import spanning_tree
from vitreous.kernels.density_tree import NOISE, Flat, flat_clusters, membership

METHODS = ("auto", "exact", "full")
BLOCK = 1 << 15  # points that join the clusters of a sample at a time


@dataclass(frozen=True)
class Clusters:
    """Labels int64 (point,), -1 noise, numbered by first point; probabilities float32 (point,), 0 of noise.

    `method` says what was done.
    """

    labels: np.ndarray
    probabilities: np.ndarray
    method: str

    @property
    def count(self) -> int:
        return int(self.labels.max(initial=NOISE)) + 1


def density_clusters(
    points: np.ndarray,
    *,
    min_cluster_size: int,
    min_samples: int | None = None,
    selection: str = "leaf",
    method: str = "auto",
    dims: int = DIMS,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Clusters:
    """Clusters of points float32 or float64 (point, dim) by Euclidean distance; for cosine, normalise them first.

    `min_samples` counts the point itself, and is `min_cluster_size` unless given. `selection` is "leaf" or "eom".
    "auto" reduces to `dims` dimensions, and clusters a sample of `sample` points, or more where small clusters need it,
    if there are at least twice as many.
    """
    rule = _checked(points, min_cluster_size, min_samples, selection, method, dims, sample)
    if len(points) < 2 * min_cluster_size:  # one cluster alone is the root, which is no cluster
        return _all_noise(len(points), method)
    refuse_non_finite(points)
    if method == "exact":
        return _by_scikit_learn(points, rule)
    points = np.ascontiguousarray(points, None if points.dtype == np.float64 else np.float32)
    with single_threaded_products():
        if method == "full" or len(points) <= SMALL or points.shape[1] <= 2 * dims:
            return _clusters(whole_cloud(points), rule, "full", seed)
        cloud = reduced_cloud(points.astype(np.float32, copy=False), dims, np.random.default_rng(seed))
        return _clusters(cloud, rule, f"pca {dims}", seed)


def contribution_clusters(
    q: np.ndarray,
    weight: np.ndarray,
    *,
    min_cluster_size: int,
    min_samples: int | None = None,
    selection: str = "leaf",
    method: str = "auto",
    dims: int = DIMS,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Clusters:
    """Clusters of what one unit's inputs add to it, weight * q normalised; q (instance, input), weight (input,).

    The products are not formed, but in "exact", "full" and for few instances. Instances that add nothing are noise.
    """
    if weight.ndim != 1 or q.ndim != 2 or q.shape[1] != len(weight):
        raise SettingsError("q is (instance, input), weight (input,)", given=(q.shape, weight.shape))
    rule = _checked(q, min_cluster_size, min_samples, selection, method, dims, sample)
    weight = np.asarray(weight, np.float32)
    refuse_non_finite(weight)
    if method != "auto" or len(q) <= max(SMALL, 2 * min_cluster_size) or q.shape[1] <= 2 * dims:
        formed = contributions(q, weight)
        alive = np.flatnonzero(formed.any(1))
        found = density_clusters(
            formed[alive],
            min_cluster_size=min_cluster_size,
            min_samples=min_samples,
            selection=selection,
            method=method,
            dims=dims,
            sample=sample,
            seed=seed,
        )
        return _spread(found, alive, len(q))
    with single_threaded_products():
        cloud = reduced_contributions(q, weight, dims, np.random.default_rng(seed))
        alive = np.flatnonzero(cloud.half)
        if len(alive) < 2 * min_cluster_size:
            return _all_noise(len(q), f"pca {dims}")
        cloud = cloud if len(alive) == len(q) else cloud.take(alive)
        return _spread(_clusters(cloud, rule, f"pca {dims}", seed), alive, len(q))


def _checked(
    points: np.ndarray, size: int, samples: int | None, selection: str, method: str, dims: int, sample: int
) -> Rule:
    if points.ndim != 2 or points.dtype.kind != "f":
        raise SettingsError("clustering takes floats (point, dim)", given=(points.shape, points.dtype))
    if method not in METHODS:
        raise SettingsError("no such clustering method", given=method, accepted=METHODS)
    rule = checked_rule(len(points), size, samples, selection, dims, sample)
    return replace(rule, sample=len(points)) if method == "full" else rule


def _by_scikit_learn(points: np.ndarray, rule: Rule) -> Clusters:
    from sklearn.cluster import HDBSCAN

    clusterer = HDBSCAN(
        min_cluster_size=rule.min_cluster_size,
        min_samples=rule.min_samples,
        cluster_selection_method=rule.selection,
        algorithm="brute",
        copy=True,
        n_jobs=cores(),
    )
    # x @ x.T of 20,000 rows in float64 crashes the process on two threads of OpenBLAS 0.3.31, which numpy 2.4 brings
    with single_threaded_products():
        found = clusterer.fit(points)
    return _numbered(found.labels_, found.probabilities_.astype(np.float32), "exact")


def _clusters(cloud: Cloud, rule: Rule, done: str, seed: int) -> Clusters:
    count = len(cloud.half)
    drawn = drawn_sample(count, rule, seed)
    if drawn is None:
        flat, _ = _flat(cloud, rule)
        return _numbered(flat.owner, flat.probabilities, done)
    chosen, scaled = drawn
    sample = cloud.take(chosen)
    flat, core = _flat(sample, scaled)
    owner, probabilities = np.empty(count, np.int64), np.empty(count, np.float32)
    owner[chosen], probabilities[chosen] = flat.owner, flat.probabilities
    rest = np.ones(count, bool)
    rest[chosen] = False
    others = np.flatnonzero(rest)
    for start in range(0, len(others), BLOCK):
        block = others[start : start + BLOCK]
        owner[block], probabilities[block] = _join(cloud.take(block), sample, flat, core, scaled)
    return _numbered(owner, probabilities, f"{done}, {len(chosen)} of {count} points and the rest assigned")


def _flat(cloud: Cloud, rule: Rule) -> tuple[Flat, np.ndarray]:
    edges, squares, core = spanning_tree(cloud, rule.min_samples)
    return flat_clusters(edges, np.sqrt(squares), rule.min_cluster_size, rule.selection), core


def _join(points: Cloud, sample: Cloud, flat: Flat, core: np.ndarray, rule: Rule) -> tuple[np.ndarray, np.ndarray]:
    """The cluster that each point would be in if it alone were added to the sample, and its membership.

    It joins a cluster through its shortest edge to a member, if that is shorter than where the cluster split off.
    """
    near = nearest(points, sample, max(rule.min_samples - 1, 1))
    own = near.radius if rule.min_samples > 1 else np.zeros_like(near.radius)
    squares = np.maximum(near.squares, np.maximum(own[:, None], core[near.ids]))
    with np.errstate(divide="ignore"):
        density = 1 / np.sqrt(squares, dtype=np.float64)
    owner = flat.owner[near.ids]
    density[(owner == NOISE) | (density <= flat.birth[owner])] = 0
    # of edges that are equally long the one to the nearest point
    best = np.lexsort((near.squares, -density), axis=1)[:, 0]
    at = np.arange(len(best)), best
    joined = np.where(density[at] > 0, owner[at], NOISE)
    return joined, membership(joined, density[at], flat.death)


def _numbered(owner: np.ndarray, probabilities: np.ndarray, method: str) -> Clusters:
    """Names in order of the first point."""
    names, first = np.unique(owner, return_index=True)
    first = first[names != NOISE]
    names = names[names != NOISE]
    number = np.full(int(owner.max(initial=0)) + 2, NOISE)  # noise reads the last place
    number[names[np.argsort(first)]] = np.arange(len(names))
    return Clusters(number[owner], probabilities, method)


def _all_noise(count: int, method: str) -> Clusters:
    return Clusters(np.full(count, NOISE), np.zeros(count, np.float32), method)


def _spread(found: Clusters, rows: np.ndarray, count: int) -> Clusters:
    """Clusters of some rows as clusters of all: the others are noise."""
    if len(rows) == count:
        return found
    labels, probabilities = np.full(count, NOISE), np.zeros(count, np.float32)
    labels[rows], probabilities[rows] = found.labels, found.probabilities
    return Clusters(labels, probabilities, found.method)
