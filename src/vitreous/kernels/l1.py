"""L1 distances between rows of bytes, all pairs: their sums without computing them, the largest, the full matrix."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from vitreous.kernels.near_pairs import l1

TILE = 16


def distance_sums(rows: np.ndarray, bins: int) -> np.ndarray:
    """uint8 (row, sample) below `bins` -> int64 (row,): the sum of a row's distances to all rows.

    Exact without any pair: at one sample the sum of |v - other| over all rows depends on v alone, and a count of rows
    by bin gives it for every v at once.
    """
    table = np.zeros((rows.shape[1], bins), np.int64)
    _count(rows, table)
    values = np.arange(bins)
    below, moment = table.cumsum(1), (table * values).cumsum(1)
    table = values * below - moment + (moment[:, -1:] - moment) - values * (below[:, -1:] - below)
    return _gather(rows, np.ascontiguousarray(table))


@njit(cache=True, nogil=True)
def _count(rows, table):
    for i in range(rows.shape[0]):
        for s in range(rows.shape[1]):
            table[s, rows[i, s]] += 1


@njit(parallel=True, cache=True, nogil=True)
def _gather(rows, table):
    out = np.zeros(rows.shape[0], np.int64)
    for i in prange(rows.shape[0]):
        total = np.int64(0)
        for s in range(rows.shape[1]):
            total += table[s, rows[i, s]]
        out[i] = total
    return out


@njit(parallel=True, cache=True, nogil=True)
def largest_distance(rows):
    """The largest distance of any two rows."""
    tiles = (rows.shape[0] + TILE - 1) // TILE
    best = np.zeros(tiles, np.int64)
    for tile in prange(tiles):
        for start in range(tile * TILE, rows.shape[0], TILE):
            for i in range(tile * TILE, min(tile * TILE + TILE, rows.shape[0])):
                for j in range(max(start, i + 1), min(start + TILE, rows.shape[0])):
                    best[tile] = max(best[tile], np.int64(l1(rows[i], rows[j])))
    return best.max()


@njit(parallel=True, cache=True, nogil=True)
def distance_matrix(rows):
    """int32 (row, row)."""
    count = rows.shape[0]
    out = np.zeros((count, count), np.int32)
    for i in prange(count):
        for j in range(i + 1, count):
            out[i, j] = l1(rows[i], rows[j])
    for i in range(count):
        for j in range(i):
            out[i, j] = out[j, i]
    return out
