"""A minimum spanning tree of mutual reachability, exact, in two passes over the pairs.

No edge of a point is shorter than its core distance. A point with a denser one inside its core ball therefore has a
shortest edge at hand, and these edges make no circle: density only rises along them. What is left are the density
peaks, a few dozen as a rule, and one more pass finds the shortest edges between their components. Where neither
min_samples nor the data leave few peaks (min_samples = 1 leaves every point), rounds of Boruvka's algorithm come first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from vitreous.kernels.density_pairs import Cloud, Near, closest_outside, nearest, shorten_between

FEW = 512  # components whose pairs are held as a matrix
SAME = {np.dtype(np.float32): 4e-6, np.dtype(np.float64): 2e-14}  # what rounding leaves of d^2 = 0, for norms of 1


def spanning_tree(cloud: Cloud, min_samples: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges (point - 1, 2) and their squared lengths (point - 1,) in float64, squared core distances (point,).

    A point counts as one of its `min_samples`.
    """
    near = nearest(cloud, cloud, min_samples - 1, own=True)
    core = near.radius
    upward, component = _climb(near.ids, core)
    points = np.flatnonzero(upward >= 0)
    edges, lengths = [np.stack([points, upward[points]], 1)], [core[points]]
    while (count := component.max() + 1) > FEW:
        more, longer, component = _boruvka(cloud, core, component, count)
        edges.append(more)
        lengths.append(longer)
    if count > 1:
        more, longer = _between(cloud, near, core, component, count)
        edges.append(more)
        lengths.append(longer)
    joined, squares = np.concatenate(edges), np.concatenate(lengths).astype(np.float64)
    squares[squares < SAME[core.dtype] * cloud.half[joined].sum(1)] = 0
    return joined, squares, core


@njit(cache=True, nogil=True)
def _climb(ids, core):
    """A denser neighbour of every point, -1 at a peak, and the peak's number as name of the component, (point,)."""
    points = core.shape[0]
    upward = np.full(points, -1)
    for a in range(points):
        for b in ids[a]:
            if core[b] < core[a] or (core[b] == core[a] and b < a):
                upward[a] = b
                break
    component, peaks = np.full(points, -1), 0
    for a in range(points):
        top = a
        while component[top] < 0 and upward[top] >= 0:
            top = upward[top]
        if component[top] < 0:
            component[top] = peaks
            peaks += 1
        name, b = component[top], a
        while component[b] < 0:
            component[b] = name
            b = upward[b]
    return upward, component


def _boruvka(cloud: Cloud, core: np.ndarray, component: np.ndarray, count: int):
    """Joins every component by its shortest edge to another."""
    lengths, ends = closest_outside(cloud, core, component)
    order = np.argsort(lengths, kind="stable")
    _, first = np.unique(component[order], return_index=True)
    best = order[np.sort(first)]  # shortest first
    taken, name = unite(component[best], component[ends[best]], count)
    chosen = best[taken]
    _, numbers = np.unique(name, return_inverse=True)
    return np.stack([chosen, ends[chosen]], 1), lengths[chosen], numbers[component]


@njit(cache=True, nogil=True)
def unite(left, right, count):
    """Unites components (edge,) at both ends of edges, in order; which edges did so, and the names after it."""
    taken, name = np.zeros(left.shape[0], np.bool_), np.arange(count)
    for n in range(left.shape[0]):
        a, b = left[n], right[n]
        while name[a] != a:
            a = name[a]
        while name[b] != b:
            b = name[b]
        if a != b:
            name[max(a, b)] = min(a, b)
            taken[n] = True
    for n in range(count):
        name[n] = name[name[n]]
    return taken, name


def _between(cloud: Cloud, near: Near, core: np.ndarray, component: np.ndarray, count: int):
    """The minimum spanning tree of the components.

    Edges to neighbours and edges of the peaks give a first tree. Between two components only an edge shorter than the
    longest on that tree's path can change it, so points less dense than that take no part in the pass over all pairs.
    """
    known = np.full((count, count), np.inf, core.dtype)
    ends = np.zeros((count, count, 2), np.int64)
    _edges_at_hand(near.ids, core, component, known, ends)
    _edges_of_peaks(cloud, core, component, known, ends)
    limit = _on_the_way(*_prim(known))
    active = np.flatnonzero(core < limit.max())
    order = active[np.lexsort((core[active], component[active]))]
    bounds = np.searchsorted(component[order], np.arange(count + 1))
    better = limit.copy()
    places = np.full((count, count, 2), -1)
    shorten_between(cloud.take(order), core[order], bounds, better, places)
    found = places[..., 0] >= 0
    known[found], ends[found] = better[found], order[places[found]]
    known = np.minimum(known, known.T)
    parent, length = _prim(known)
    child = np.flatnonzero(parent >= 0)
    above = parent[child]
    low, high = np.minimum(child, above), np.maximum(child, above)
    return ends[low, high], length[child]


@njit(cache=True, nogil=True)
def _edges_at_hand(ids, core, component, known, ends):
    """Edges to neighbours: inside a core ball, so as long as the larger of the two core distances."""
    for a in range(core.shape[0]):
        for b in ids[a]:
            low, high = min(component[a], component[b]), max(component[a], component[b])
            length = max(core[a], core[b])
            if low != high and length < known[low, high]:
                known[low, high], known[high, low] = length, length
                ends[low, high, 0], ends[low, high, 1] = a, b


def _edges_of_peaks(cloud: Cloud, core: np.ndarray, component: np.ndarray, known: np.ndarray, ends: np.ndarray) -> None:
    """Some edge between any two components, so that the first tree has no gaps: that of their densest points."""
    order = np.lexsort((core, component))
    peaks = order[np.searchsorted(component[order], np.arange(len(known)))]
    at = cloud.take(peaks)
    squares = 2 * (at.half[:, None] + at.half - at.coordinates @ at.coordinates.T)
    lengths = np.maximum(squares, np.maximum(core[peaks][:, None], core[peaks]))
    lengths = np.maximum(lengths, lengths.T)
    low, high = np.nonzero(np.triu(lengths < known, 1))
    known[low, high] = known[high, low] = lengths[low, high]
    ends[low, high] = np.stack([peaks[low], peaks[high]], 1)


@njit(cache=True, nogil=True)
def _prim(lengths):
    """Parent of every node, -1 of node 0, and the length of the edge to it."""
    count = lengths.shape[0]
    parent, reach = np.zeros(count, np.int64), lengths[0].copy()
    parent[0], reach[0] = -1, 0
    inside = np.zeros(count, np.bool_)
    inside[0] = True
    for _ in range(count - 1):
        node, nearest_yet = -1, np.inf
        for n in range(count):
            if not inside[n] and (node < 0 or reach[n] < nearest_yet):
                node, nearest_yet = n, reach[n]
        inside[node] = True
        for n in range(count):
            if not inside[n] and lengths[node, n] < reach[n]:
                reach[n], parent[n] = lengths[node, n], node
    return parent, reach


@njit(cache=True, nogil=True)
def _on_the_way(parent, length):
    """The longest edge on the tree's path between any two nodes, (node, node)."""
    count = parent.shape[0]
    longest = np.zeros((count, count), length.dtype)
    order = np.argsort(length)
    name = np.arange(count)
    for child in order:
        if parent[child] >= 0:
            a, b = name[child], name[parent[child]]
            for i in range(count):
                if name[i] == a:
                    for j in range(count):
                        if name[j] == b:
                            longest[i, j] = longest[j, i] = length[child]
            for i in range(count):
                if name[i] == b:
                    name[i] = a
    return longest
