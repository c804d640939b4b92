"""Losses of the alignment straight from eq. 5 to 8, loops and plain eigenvectors."""

from __future__ import annotations

import math

import numpy as np


def _cut(rows: np.ndarray, kept: int) -> tuple[np.ndarray, np.ndarray]:
    n = len(rows)
    affinity = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            cosine = rows[i] @ rows[j] / (np.linalg.norm(rows[i]) * np.linalg.norm(rows[j]))
            affinity[i, j] = math.exp(cosine - 1)
    degree = affinity.sum(1)
    _, vectors = np.linalg.eigh(affinity / np.sqrt(np.outer(degree, degree)))
    return affinity, vectors[:, -kept:]


def eigen(before: np.ndarray, after: np.ndarray, kept: int) -> float:
    """Eq. 8 for one slot."""
    affinity, x_before = _cut(before, kept)
    _, x_after = _cut(after, kept)
    total = 0.0
    for i in range(len(before)):
        for j in range(len(before)):
            gap = x_before[i] @ x_before[j] - x_after[i] @ x_after[j]
            total += (gap * math.exp(-affinity[i, j])) ** 2
    return math.sqrt(total)


def zero(rows: np.ndarray) -> float:
    return float(np.mean([abs(rows[:, j].mean()) for j in range(rows.shape[1])]))


def covariance(rows: np.ndarray) -> float:
    m, width = rows.shape
    mean = rows.mean(0)
    matrix = sum(np.outer(row - mean, row - mean) for row in rows) / (m - 1)
    return sum(matrix[i, j] ** 2 for i in range(width) for j in range(width) if i != j) / width


def agreement(slots: list[np.ndarray], temperature: float) -> float:
    """Of slots (node, channel) in a ring: how surely each node is told from all other nodes, here and in the next."""
    found = []
    for n, rows in enumerate(slots):
        there = slots[(n + 1) % len(slots)]
        for i, row in enumerate(rows):
            others = [*there, *(rows[j] for j in range(len(rows)) if j != i)]
            cosines = [row @ other / (np.linalg.norm(row) * np.linalg.norm(other)) for other in others]
            found.append(-cosines[i] / temperature + math.log(sum(math.exp(c / temperature) for c in cosines)))
    return float(np.mean(found))


def predicted(features: list[np.ndarray], maps: list[np.ndarray], head: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Eq. 1 and 2: (picture, patch, channel) of every slot -> (picture, response), picture by picture."""
    found = []
    for n in range(len(features[0])):
        aligned = sum(part[n] @ w for part, w in zip(features, maps, strict=True)) / len(features)
        found.append(np.mean([patch @ head + bias for patch in aligned], axis=0))
    return np.array(found)


def total(
    features: list[np.ndarray],
    rows: list[np.ndarray],
    maps: list[np.ndarray],
    head: np.ndarray,
    bias: np.ndarray,
    measured: np.ndarray,
    weights: tuple[float, float, float],
    kept: int,
) -> float:
    """Eq. 10 with the mean for eq. 9: `rows` (node, channel) of every slot are the patches that the regularisers see,
    `weights` λ_eigen, λ_zero, λ_cov."""
    response = np.abs(predicted(features, maps, head, bias) - measured).mean()
    after = [part @ w for part, w in zip(rows, maps, strict=True)]
    held = np.mean([eigen(a, b, kept) for a, b in zip(rows, after, strict=True)])
    together = np.concatenate(after)
    return response + weights[0] * held + weights[1] * zero(together) + weights[2] * covariance(together)
