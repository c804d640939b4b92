"""ELUDe straight from its formulas: every set of eq. 3, every instance of every mean, fractions for shares."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np


def top_instances(activations: np.ndarray, k: int) -> np.ndarray:
    """Eq. 1 for one unit: (instance,) -> ids of the k largest, largest first, equal ones by id."""
    return np.array(sorted(range(len(activations)), key=lambda i: (-activations[i], i))[:k])


def contribution(weight: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Section 3.2: one instance's normalised contribution vector."""
    c = weight.astype(np.float64) * q.astype(np.float64)
    return c / np.sqrt((c * c).sum())


def representatives(q: np.ndarray, weight: np.ndarray, labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Eq. 2, one instance at a time: (cluster, input)."""
    rows = []
    for cluster in range(labels.max() + 1):
        r = np.zeros(len(weight))
        for instance in np.flatnonzero(labels == cluster):
            r += probabilities[instance] * contribution(weight, q[instance])
        rows.append(r / (np.sqrt((r * r).sum()) + 1e-12))
    return np.array(rows)


def winning_sets(r: np.ndarray, rho: float) -> list[tuple[int, ...]]:
    """Eq. 3 for one input: every set of sub-units, not empty and not all, that wins."""
    size = np.abs(r.astype(np.float64))
    found = []
    for length in range(1, len(r)):
        for inside in combinations(range(len(r)), length):
            outside = [c for c in range(len(r)) if c not in inside]
            if rho * min(size[c] for c in inside) > max(size[c] for c in outside):
                found.append(inside)
    return found


def shares(representatives: np.ndarray, rho: float) -> list[list[Fraction]]:
    """Eq. 4 as fractions of the weight: [sub-unit][input]."""
    count, inputs = representatives.shape
    out = [[Fraction(0)] * inputs for _ in range(count)]
    for j in range(inputs):
        sets = winning_sets(representatives[:, j], rho)
        takers = sets[0] if len(sets) == 1 else range(count)
        for c in takers:
            out[c][j] = Fraction(1, len(takers))
    return out


def split(
    weight: np.ndarray, bias: float, representatives: np.ndarray, rho: float
) -> tuple[list[list[Fraction]], list[Fraction]]:
    """Eq. 4 and the bias rule in exact arithmetic."""
    part = shares(representatives, rho)
    weights = [[s * Fraction(float(w)) for s, w in zip(row, weight, strict=True)] for row in part]
    return weights, [sum(row) / len(row) * Fraction(float(bias)) for row in part]


def rho_score(
    weight: np.ndarray, bias: float, representatives: np.ndarray, rho: float, q: np.ndarray, labels: np.ndarray
) -> float:
    """Mean activation of sub-units on their own clusters less that on others, each in parts of the unit's own mean."""
    weights, biases = split(weight, bias, representatives, rho)
    w, b = np.array(weights, float), np.array(biases, float)
    count = len(w)
    matrix = np.zeros((count, count))
    for c in range(count):
        for g in range(count):
            members = np.flatnonzero(labels == g)
            unit = np.mean([weight @ q[i] + bias for i in members])
            matrix[c, g] = np.mean([w[c] @ q[i] + b[c] for i in members]) / abs(unit)
    home = [matrix[c, c] for c in range(count)]
    abroad = [matrix[c, g] for c in range(count) for g in range(count) if c != g]
    return float(np.mean(home) - np.mean(abroad))
