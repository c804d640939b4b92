"""Connected components of the graph in which two rows are joined if their L1 distance is below a limit. Exact.

Slow but easy to read:

    near = cdist(rows, rows, "cityblock") < limit; labels = connected_components(near)

Most pairs are far apart, and two bounds see it early. Sums over groups of samples never differ by more than the
samples do, so the L1 distance of the group sums is a lower bound; and a partial sum over the first samples is one too,
so a pair is given up as soon as it reaches the limit. Group sums of floats are rounded and bound nothing: there the
first few samples are looked at instead. Pairs that are already in one component are skipped. Edges go into a
union-find as they come, so a dense graph takes no more memory than a sparse one. Samples have to come in random order:
neighbours that are alike (tokens of one picture) make poor groups.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from vitreous.kernels.l1 import bytes_or_floats, l1
from vitreous.kernels.numba_threads import start_threads
from vitreous.progress import tqdm

GROUP = 256  # samples in a group; independent units are told apart by the sums of 16 bins up to about a thousand
CHUNK = 1024  # samples between two looks at the limit
LOOK = 16  # group sums between two looks
HEAD = 64  # first samples of floats, in place of group sums
ROWS = 32  # rows that are compared with all later ones before their edges are united
COLUMNS = 16  # columns in a tile


def near_components(rows: np.ndarray, limit: float, progress: bool = False) -> np.ndarray:
    """uint8, or other numbers as float64, (row, sample) -> int64 (row,): the smallest row of each row's component."""
    rows = bytes_or_floats(rows)
    count, samples = rows.shape
    if rows.dtype == np.uint8:
        bounds = np.add.reduceat(rows, np.arange(0, samples, GROUP), axis=1, dtype=np.int32)
        # distances are whole numbers: below the limit is below its ceiling, and none is above 255 a sample
        limit = int(min(np.ceil(limit), 255 * samples + 1))
    else:
        bounds, limit = np.ascontiguousarray(rows[:, :HEAD]), float(limit)
    root = np.arange(count)
    start_threads()
    near = np.zeros((ROWS, count), np.bool_)
    for first in tqdm(range(0, count, ROWS), "clusters", delay=1, leave=False, disable=not progress):
        last = min(first + ROWS, count)
        near[:] = False
        _compare(rows, bounds, limit, first, last, root, near)
        _unite(near, first, last, root)
    return root


@njit(cache=True, nogil=True)
def _give_up(data, step, limit, first, column, pairs, count, totals):
    """Adds up the distances of `pairs` (row, column) step by step over samples; keeps those that stay below the limit.

    All pairs take one step before any takes the next, so that the rows' parts stay in the first cache.
    """
    totals[:count] = 0
    for start in range(0, data.shape[1], step):
        kept = 0
        for n in range(count):
            i, j = pairs[n, 0], pairs[n, 1]
            total = totals[n] + l1(data[first + i, start : start + step], data[column + j, start : start + step])
            if total < limit:
                pairs[kept, 0], pairs[kept, 1] = i, j
                totals[kept] = total
                kept += 1
        count = kept
        if count == 0:
            break
    return count


@njit(parallel=True, cache=True, nogil=True)
def _compare(rows, bounds, limit, first, last, root, near):
    """Fills `near` (row - first, column) for rows first to last and all later columns, a tile of columns a thread."""
    units = rows.shape[0]
    for tile in prange((units - first + COLUMNS - 1) // COLUMNS):
        column = first + tile * COLUMNS
        pairs = np.empty((ROWS * COLUMNS, 2), np.int32)
        totals = np.full(ROWS * COLUMNS, limit)  # of the same kind as the limit: whole or not
        count = 0
        for j in range(column, min(column + COLUMNS, units)):
            for i in range(first, min(last, j)):
                if root[i] != root[j]:
                    pairs[count, 0], pairs[count, 1] = i - first, j - column
                    count += 1
        count = _give_up(bounds, LOOK, limit, first, column, pairs, count, totals)
        count = _give_up(rows, CHUNK, limit, first, column, pairs, count, totals)
        for n in range(count):
            near[pairs[n, 0], column + pairs[n, 1]] = True


@njit(cache=True, nogil=True)
def _unite(near, first, last, root):
    """Smallest row as the name of a component; `root` holds that name for every row when this returns."""
    count = root.shape[0]
    parent = root.copy()
    for i in range(first, last):
        for j in range(i + 1, count):
            if near[i - first, j]:
                a, b = i, j
                while parent[a] != a:
                    parent[a] = parent[parent[a]]
                    a = parent[a]
                while parent[b] != b:
                    parent[b] = parent[parent[b]]
                    b = parent[b]
                if a < b:
                    parent[b] = a
                elif b < a:
                    parent[a] = b
    for j in range(count):
        a = parent[j]
        while parent[a] != a:
            a = parent[a]
        root[j] = a
