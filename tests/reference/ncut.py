"""Normalized cut straight from eq. 3 and 4, node by node."""

from __future__ import annotations

import math

import numpy as np


def affinity(rows: np.ndarray) -> np.ndarray:
    n = len(rows)
    matrix = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            lengths = math.sqrt(rows[i] @ rows[i]) * math.sqrt(rows[j] @ rows[j])
            matrix[i, j] = math.exp((rows[i] @ rows[j] / lengths if lengths else 0.0) - 1)
    return matrix


def cut(rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    matrix = affinity(rows.astype(np.float64))
    degree = matrix.sum(1)
    values, vectors = np.linalg.eigh(matrix / np.sqrt(degree[:, None] * degree[None, :]))
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def carried(row: np.ndarray, sample: np.ndarray, vectors: np.ndarray, nearest: int) -> np.ndarray:
    """Eq. 4 for one node."""
    unit = row / np.linalg.norm(row)
    near = [math.exp(unit @ (other / np.linalg.norm(other)) - 1) for other in sample]
    kept = sorted(range(len(sample)), key=lambda k: -near[k])[:nearest]
    return sum(near[k] * vectors[k] for k in kept) / sum(near[k] for k in kept)


def subspace_error(a: np.ndarray, b: np.ndarray) -> float:
    """1 - mean cos² of the principal angles between two column spaces."""
    a, b = np.linalg.qr(a)[0], np.linalg.qr(b)[0]
    return float(1 - (np.linalg.svd(a.T @ b, compute_uv=False) ** 2).mean())
