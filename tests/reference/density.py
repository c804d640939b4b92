"""Slow twin of `vitreous.kernels.density`: HDBSCAN as it is defined, on the full matrix of mutual reachability.

Campello, Moulavi and Sander 2013: a minimum spanning tree (Prim), then its longest edges are taken away, all equally
long ones together; parts below min_cluster_size leave, and two or more larger parts are a split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Twin(NamedTuple):
    labels: np.ndarray
    probabilities: np.ndarray
    bridges: np.ndarray  # points that leave with a split: where the order of equally long edges would decide


def mutual_reachability(points: np.ndarray, min_samples: int) -> np.ndarray:
    points = points.astype(np.float64)
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    core = np.sort(distances, axis=1)[:, min_samples - 1]  # the point itself counts
    return np.maximum(distances, np.maximum(core[:, None], core))


def prim(reach: np.ndarray) -> list[tuple[int, int, float]]:
    inside, edges = [0], []
    while len(inside) < len(reach):
        outside = np.setdiff1d(np.arange(len(reach)), inside)
        block = reach[np.ix_(inside, outside)]
        a, b = np.unravel_index(block.argmin(), block.shape)
        edges.append((inside[a], int(outside[b]), float(block[a, b])))
        inside.append(int(outside[b]))
    return edges


class Cluster:
    """A cluster of the condensed tree: what lies below, and where each of its points left it."""

    def __init__(self, birth: float) -> None:
        self.birth = birth
        self.left: dict[int, float] = {}
        self.parts: list[Cluster] = []
        self.split = 0.0
        self.bridges: set[int] = set()

    def points(self) -> dict[int, float]:
        everything = dict(self.left)
        for part in self.parts:
            everything |= part.points()
        return everything

    def leaves(self) -> list[Cluster]:
        return [leaf for part in self.parts for leaf in part.leaves()] or [self]

    def stability(self) -> float:
        inside = sum(len(part.points()) for part in self.parts)
        return sum(d - self.birth for d in self.left.values()) + inside * (self.split - self.birth if inside else 0)

    def heaviest(self) -> tuple[float, list[Cluster]]:
        below = [part.heaviest() for part in self.parts]
        weight = sum(w for w, _ in below)
        if weight > self.stability():
            return weight, [cluster for _, clusters in below for cluster in clusters]
        return self.stability(), [self]

    def death(self) -> float:
        return max([*self.left.values(), self.split])


def components(points: set[int], edges: list[tuple[int, int, float]]) -> list[set[int]]:
    found, todo = [], set(points)
    while todo:
        part, fresh = set(), {min(todo)}
        while fresh:
            part |= fresh
            fresh = {b for a, b, _ in edges if a in fresh} | {a for a, b, _ in edges if b in fresh}
            fresh -= part
        found.append(part)
        todo -= part
    return found


def condense(points: set[int], edges: list[tuple[int, int, float]], size: int, birth: float = 0.0) -> Cluster:
    cluster = Cluster(birth)
    while edges:
        longest = max(length for _, _, length in edges)
        density = 1 / longest if longest > 0 else np.inf
        edges = [edge for edge in edges if edge[2] < longest]
        parts = components(points, edges)
        large = [part for part in parts if len(part) >= size]
        gone = {point for part in parts if len(part) < size for point in part}
        cluster.left |= dict.fromkeys(gone, density)
        if len(large) != 1:
            cluster.split = density if large else 0.0
            cluster.bridges = gone if large else set()
            cluster.parts = [condense(p, [e for e in edges if e[0] in p], size, density) for p in large]
            break
        points = large[0]
    return cluster


def hdbscan(points: np.ndarray, min_cluster_size: int, min_samples: int | None = None, selection: str = "leaf") -> Twin:
    count = len(points)
    labels, probabilities = np.full(count, -1), np.zeros(count)
    bridges = np.zeros(count, bool)
    if count < 2 * min_cluster_size:
        return Twin(labels, probabilities, bridges)
    edges = prim(mutual_reachability(points, min_samples or min_cluster_size))
    root = condense(set(range(count)), edges, min_cluster_size)
    todo = [root]
    while todo:
        cluster = todo.pop()
        bridges[list(cluster.bridges)] = True
        todo += cluster.parts
    if selection == "leaf":
        chosen = [leaf for leaf in root.leaves() if leaf is not root]
    else:
        chosen = [cluster for part in root.parts for cluster in part.heaviest()[1]]
    for number, cluster in enumerate(sorted(chosen, key=lambda c: min(c.points()))):
        for point, density in cluster.points().items():
            labels[point] = number
            probabilities[point] = 1 if np.isinf(density) else min(density, cluster.death()) / cluster.death()
    return Twin(labels, probabilities, bridges)
