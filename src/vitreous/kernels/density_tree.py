"""From a spanning tree to clusters: linkage, condensed tree, selection, membership (HDBSCAN, Campello et al. 2013).

Edges of equal length are taken away together, as the paper says. Mutual reachability makes such ties also where no two
distances are equal: the point that joins two clusters has both its edges as long as its core distance. A binary tree
puts it on one side or the other by chance of order; here it leaves with the split, so that the result depends neither
on the order of the points nor on which of the minimum spanning trees was found.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

NOISE = -1


class Condensed(NamedTuple):
    """Clusters in order of birth, 0 the root; a parent comes before its children. Densities are 1 / distance."""

    exit: np.ndarray  # (point,): the smallest cluster that a point was in
    density: np.ndarray  # (point,): where it left it
    parent: np.ndarray  # (cluster,), -1 of the root
    birth: np.ndarray  # (cluster,): density of the split it came from
    size: np.ndarray  # (cluster,)


class Flat(NamedTuple):
    """`owner` (point,): the selected cluster of every point, -1 noise; `birth` and `death` (cluster,)."""

    owner: np.ndarray
    probabilities: np.ndarray
    birth: np.ndarray
    death: np.ndarray


def flat_clusters(edges: np.ndarray, lengths: np.ndarray, min_cluster_size: int, selection: str) -> Flat:
    """A spanning tree, edges (point - 1, 2) with lengths (point - 1,) -> selected clusters."""
    tree = condense(edges, lengths, min_cluster_size)
    chosen = leaves(tree) if selection == "leaf" else excess_of_mass(tree)
    owner_of = np.full(len(tree.parent), NOISE)
    for cluster in range(1, len(owner_of)):
        above = owner_of[tree.parent[cluster]]
        owner_of[cluster] = above if above != NOISE else (cluster if chosen[cluster] else NOISE)
    death = np.zeros(len(owner_of))
    np.maximum.at(death, tree.exit, tree.density)
    np.maximum.at(death, tree.parent[1:], tree.birth[1:])
    owner = owner_of[tree.exit]
    return Flat(owner, membership(owner, tree.density, death), tree.birth, death)


def membership(owner: np.ndarray, density: np.ndarray, death: np.ndarray) -> np.ndarray:
    """How long a point stays in its cluster, as a share of how long the cluster's last point stays."""
    last = np.where(owner == NOISE, np.inf, death[owner])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(np.isinf(density), 1.0, np.minimum(density, last) / last)
    return np.where(owner == NOISE, 0.0, share).astype(np.float32)


def leaves(tree: Condensed) -> np.ndarray:
    """Clusters that are not split again, (cluster,). The root alone is no cluster."""
    chosen = np.ones(len(tree.parent), bool)
    chosen[tree.parent[1:]] = False
    chosen[0] = False
    return chosen


def excess_of_mass(tree: Condensed) -> np.ndarray:
    """The clusters below the root, none inside another, whose stabilities add up to most, (cluster,)."""
    stability = np.zeros(len(tree.parent))
    np.add.at(stability, tree.exit, tree.density - tree.birth[tree.exit])
    inner = tree.parent[1:]
    np.add.at(stability, inner, (tree.birth[1:] - tree.birth[inner]) * tree.size[1:])
    below = np.zeros(len(stability))
    chosen = np.zeros(len(stability), bool)
    for cluster in range(len(stability) - 1, 0, -1):
        chosen[cluster] = below[cluster] <= stability[cluster]
        below[tree.parent[cluster]] += max(stability[cluster], below[cluster])
    return chosen  # an outer cluster takes what lies inside it: see flat_clusters


def condense(edges: np.ndarray, lengths: np.ndarray, min_cluster_size: int) -> Condensed:
    """Takes edges away from the longest on. What comes off in parts below `min_cluster_size` has left the cluster; a
    split into two or more larger parts makes new clusters."""
    order = np.argsort(lengths, kind="stable")
    lengths = np.asarray(lengths, np.float64)[order]
    children, size = _link(np.asarray(edges, np.int64)[order])
    return Condensed(*_condense(children, lengths, size, min_cluster_size))


@njit(cache=True, nogil=True)
def _link(edges):
    """Sorted edges -> children (point - 1, 2) and sizes of the nodes, which are numbered from point on."""
    points = edges.shape[0] + 1
    up = np.arange(2 * points - 1)
    children = np.empty((points - 1, 2), np.int64)
    size = np.ones(2 * points - 1, np.int64)
    for n in range(points - 1):
        for side in range(2):
            node = edges[n, side]
            while up[node] != node:
                up[node] = up[up[node]]
                node = up[node]
            children[n, side] = node
        top = points + n
        up[children[n, 0]] = top
        up[children[n, 1]] = top
        size[top] = size[children[n, 0]] + size[children[n, 1]]
    return children, size


@njit(cache=True, nogil=True)
def _parts(children, lengths, points, top, parts):
    """What is left of node `top` when all its edges of the longest length are gone; returns how many parts."""
    count, open_from, length = 0, parts.shape[0], lengths[top - points]
    open_from -= 1
    parts[open_from] = top
    while open_from < parts.shape[0]:  # nodes to open lie at the end of the same array
        node = parts[open_from]
        open_from += 1
        for side in range(2):
            child = children[node - points, side]
            if child >= points and lengths[child - points] == length:
                open_from -= 1
                parts[open_from] = child
            else:
                parts[count] = child
                count += 1
    return count


@njit(cache=True, nogil=True)
def _leave(children, points, node, cluster, density, stack, exits, densities):
    """All points below `node` leave `cluster` at `density`."""
    stack[0], count = node, 1
    while count:
        count -= 1
        node = stack[count]
        if node < points:
            exits[node] = cluster
            densities[node] = density
        else:
            stack[count], stack[count + 1] = children[node - points, 0], children[node - points, 1]
            count += 2


@njit(cache=True, nogil=True)
def _condense(children, lengths, size, min_cluster_size):
    points = children.shape[0] + 1
    exits, densities = np.zeros(points, np.int64), np.zeros(points)
    most = 2 * (points // min_cluster_size) + 2
    parent, birth, sizes = np.full(most, -1), np.zeros(most), np.zeros(most, np.int64)
    parts, stack = np.empty(2 * points + 2, np.int64), np.empty(points + 1, np.int64)
    # clusters that are still whole, by their top node; found in order, so a parent has the smaller number
    tops = np.empty(most, np.int64)
    tops[0], sizes[0], clusters = 2 * points - 2, points, 1
    cluster = 0
    while cluster < clusters:
        node = tops[cluster]
        while node >= 0:
            length = lengths[node - points]
            density = 1.0 / length if length > 0 else np.inf
            count = _parts(children, lengths, points, node, parts)
            large = 0
            for part in parts[:count]:
                large += size[part] >= min_cluster_size
            node = -1
            for part in parts[:count]:
                if size[part] < min_cluster_size:
                    _leave(children, points, part, cluster, density, stack, exits, densities)
                elif large == 1:
                    node = part
                else:
                    parent[clusters], birth[clusters], sizes[clusters] = cluster, density, size[part]
                    tops[clusters] = part
                    clusters += 1
        cluster += 1
    return exits, densities, parent[:clusters], birth[:clusters], sizes[:clusters]
