"""Few coordinates for many: the subspace of most energy, with the points' true norms kept beside it.

Plain PCA pulls noise into the middle, because the energy that keeps it apart lies in the dimensions that are dropped.
With the true norms, noise and points of different concepts stay as far apart as they are (`density_pairs`).

Contributions c = w * q are never formed: R c = (R diag w) q and |c|^2 = q^2 . w^2.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vitreous.errors import SettingsError
from vitreous.kernels.density_cores import over_rows
from vitreous.kernels.density_pairs import Cloud

LEARN = 4096  # points that the subspace is learned from
SPARE = 16  # more directions than asked for while it is learned
ROUNDS = 3
PIECE = 2048  # rows that a core takes at a time
BLOCK = 512  # rows in memory at a time


def whole_cloud(points: np.ndarray) -> Cloud:
    """All coordinates: exact."""
    return Cloud(points, np.einsum("pd,pd->p", points, points) / 2)


def reduced_cloud(points: np.ndarray, dims: int, rng: np.random.Generator) -> Cloud:
    """float32 (point, dim) -> coordinates (point, dims) in the subspace of most energy, and the true norms."""
    frame = _subspace(points[_some(len(points), LEARN, rng)], dims, rng)
    coordinates = np.empty((len(points), dims), np.float32)
    over_rows(len(points), PIECE, lambda rows: np.matmul(points[rows], frame, out=coordinates[rows]))
    return Cloud(coordinates, whole_cloud(points).half)


def reduced_contributions(q: np.ndarray, weight: np.ndarray, dims: int, rng: np.random.Generator) -> Cloud:
    """The same of w * q normalised, q (instance, input) in any float, weight float32 (input,).

    A row without any contribution has no direction: its norm is 0 here, and it is for the caller to leave it out.
    """
    some = _some(len(q), LEARN, rng)
    frame = _subspace(contributions(q, weight, some), dims, rng) * weight[:, None]
    power = weight * weight
    coordinates, half = np.empty((len(q), dims), np.float32), np.empty(len(q), np.float32)

    def piece(rows: slice) -> None:
        buffer = np.empty((BLOCK, len(weight)), np.float32)  # reused: fresh memory costs more than the products
        for start in range(rows.start, rows.stop, BLOCK):
            to = slice(start, min(start + BLOCK, rows.stop))
            block = buffer[: to.stop - start]
            np.copyto(block, q[to])
            np.matmul(block, frame, out=coordinates[to])
            np.multiply(block, block, out=block)
            norm = np.sqrt(block @ power)
            refuse_non_finite(norm, np.arange(start, to.stop))
            coordinates[to] /= np.where(norm > 0, norm, 1)[:, None]
            half[to] = (norm > 0) / 2

    over_rows(len(q), PIECE, piece)
    return Cloud(coordinates, half)


def contributions(q: np.ndarray, weight: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
    """w * q with norm 1, float32 (instance, input), of some `rows` or of all; those without contribution stay 0."""
    names = np.arange(len(q)) if rows is None else rows
    formed = np.empty((len(names), len(weight)), np.float32)

    def piece(part: slice) -> None:
        block = formed[part]
        np.multiply(q[part] if rows is None else q[rows[part]], weight, out=block, casting="same_kind")
        norm = np.sqrt(np.einsum("pd,pd->p", block, block))
        refuse_non_finite(norm, names[part])
        block /= np.where(norm > 0, norm, 1)[:, None]

    over_rows(len(names), BLOCK, piece)
    return formed


def refuse_non_finite(values: np.ndarray, rows: np.ndarray | None = None) -> None:
    """Names the first row of values (row, ...) that holds a NaN or an infinity."""
    if np.isfinite(values.sum(dtype=np.float64)):  # one number for all of them: a sum takes no memory
        return
    if len(bad := np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))):
        raise SettingsError(
            f"NaN or infinite value in row {bad[0] if rows is None else rows[bad[0]]}: it has no distance to anything",
            remedy="find where the model overflows, or leave these rows out",
        )


def _some(count: int, most: int, rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(count, min(count, most), replace=False))


def _subspace(points: np.ndarray, dims: int, rng: np.random.Generator) -> np.ndarray:
    """Orthonormal directions of most energy, (dim, dims): subspace iteration (Halko et al. 2011, algorithm 4.4)."""
    trial = rng.standard_normal((points.shape[1], dims + SPARE), np.float32)

    def applied(part: np.ndarray) -> np.ndarray:
        return part.T @ (part @ trial)

    def energy(part: np.ndarray) -> np.ndarray:
        inner = part @ trial
        return inner.T @ inner

    for _ in range(ROUNDS):
        trial = np.linalg.qr(_summed(points, applied)).Q
    turn = np.linalg.eigh(_summed(points, energy)).eigenvectors  # least energy first
    return np.ascontiguousarray(trial @ turn[:, : -dims - 1 : -1])


def _summed(points: np.ndarray, work: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    return np.sum(over_rows(len(points), PIECE // 2, lambda rows: work(points[rows])), axis=0)
