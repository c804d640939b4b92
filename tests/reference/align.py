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
