"""All pairs of points in tiles that stay in the cache: nearest neighbours, and shortest edges between components.

A point is its coordinates and half its squared norm, d^2 = 2 (half_a + half_b - a.b). The coordinates may be a
projection while the norms are the true ones: what was projected away is then taken to be orthogonal between any two
points, which holds for noise in many dimensions and keeps it as far away as it is.

Edges are as long as the mutual reachability max(core_a, core_b, d). All lengths in here are squared.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from vitreous.kernels.density_cores import over_rows

ROWS, COLUMNS = 256, 2048  # of a tile
LANES = 64  # columns looked at together: fewer are unrolled, and then not compared side by side
PEEK = 512  # columns that tell how near the nearest are


class Cloud(NamedTuple):
    """Points by coordinates (point, dim) and half the squared norms (point,); both float32 or both float64."""

    coordinates: np.ndarray
    half: np.ndarray

    def take(self, rows: np.ndarray) -> Cloud:
        return Cloud(self.coordinates[rows], self.half[rows])


class Near(NamedTuple):
    """The k nearest points of every row, in no order: ids int32 and squared distances (row, k), the largest (row,)."""

    ids: np.ndarray
    squares: np.ndarray
    radius: np.ndarray


def nearest(rows: Cloud, columns: Cloud, k: int, own: bool = False) -> Near:
    """The k nearest `columns` of every row. `own`: the two are the same points, and none is its own neighbour.

    A look at some columns tells how near a point must be to be looked at. Where that was too near for k of them,
    the row is done again without.
    """
    count, kind = len(rows.half), rows.half.dtype
    near = Near(np.empty((count, k), np.int32), np.empty((count, k), kind), np.zeros(count, kind))
    if k == 0:
        return near
    peek = columns.take(np.arange(0, len(columns.half), max(len(columns.half) // PEEK, 1)))
    rank = math.ceil((2 * k + 8) * len(peek.half) / len(columns.half)) + 3

    def piece(rows_here: slice) -> None:
        to = np.arange(rows_here.start, rows_here.stop)
        floor = np.full(len(to), -np.inf, kind)
        if rank < len(peek.half):
            _floors(rows.coordinates[to] @ peek.coordinates.T - peek.half, rank, floor)
        while len(to):
            missed = _nearest_of(rows.take(to), columns, k, to if own else np.full(len(to), -1), floor, to, near)
            to, floor = to[missed], np.full(len(missed), -np.inf, kind)

    over_rows(count, ROWS, piece)
    near.radius[:] = near.squares.max(1)
    return near


def _nearest_of(
    part: Cloud, columns: Cloud, k: int, names: np.ndarray, floor: np.ndarray, to: np.ndarray, near: Near
) -> np.ndarray:
    """Writes the neighbours of some rows to `near` at `to`; returns the rows that have fewer than k above `floor`."""
    room = 2 * k + LANES
    best, best_ids = np.empty((len(to), room), part.half.dtype), np.empty((len(to), room), np.int32)
    filled = np.zeros(len(to), np.int64)
    for tile, start in _tiles(part.coordinates, columns.coordinates, 0):
        half = columns.half[start : start + tile.shape[1]]
        _keep_best(tile, half, start, names, k, best, best_ids, filled, floor)
    _write_best(k, best, best_ids, filled, part.half, to, near.ids, near.squares)
    return np.flatnonzero(filled < k)


def closest_outside(cloud: Cloud, core: np.ndarray, component: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The shortest edge of every point to another component: its length and its other end, (point,)."""
    lengths = np.full(len(core), np.inf, core.dtype)
    ends = np.zeros(len(core), np.int64)

    def piece(rows: slice) -> None:
        for tile, start in _tiles(cloud.coordinates[rows], cloud.coordinates, 0):
            _shortest_outside(tile, cloud.half, core, component, rows.start, start, lengths, ends)

    over_rows(len(core), ROWS, piece)
    return lengths, ends


def shorten_between(cloud: Cloud, core: np.ndarray, bounds: np.ndarray, known: np.ndarray, ends: np.ndarray) -> None:
    """Puts the shortest edge between every two components into `known` (component, component), where it is shorter than
    what stands there, and its two points into `ends` (component, component, 2).

    Components lie one after the other, at `bounds` (component + 1,). Only the part above the diagonal is used.
    """
    component = np.repeat(np.arange(len(known)), np.diff(bounds))

    def piece(rows: slice) -> list[tuple[int, int, int, float]]:
        lengths = known[component[rows]]
        columns = np.full(lengths.shape, -1, np.int64)
        for tile, start in _tiles(cloud.coordinates[rows], cloud.coordinates, rows.start):
            _shortest_by_component(tile, cloud.half, core, component, bounds, rows.start, start, lengths, columns)
        found = np.nonzero(columns >= 0)
        return list(zip(rows.start + found[0], found[1], columns[found], lengths[found], strict=True))

    for edges in over_rows(len(core), ROWS, piece):
        for row, other, column, length in edges:
            if length < known[component[row], other]:
                known[component[row], other] = length
                ends[component[row], other] = row, column


def _tiles(part: np.ndarray, columns: np.ndarray, begin: int):
    """Products of some rows with all columns from `begin` on, a tile at a time in one buffer, and where it starts."""
    buffer = np.empty((len(part), COLUMNS), part.dtype)
    for start in range(begin, len(columns), COLUMNS):
        stop = min(start + COLUMNS, len(columns))
        tile = buffer[:, : stop - start]
        np.matmul(part, columns[start:stop].T, out=tile)
        yield tile, start


@njit(cache=True, nogil=True)
def _keep_largest(values, ids, count, k):
    """Puts the k largest of the first `count` values in front and returns the smallest of them."""
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                ids[i], ids[j] = ids[j], ids[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            high = j
        elif k - 1 >= i:
            low = i
        else:
            break
    smallest = values[0]
    for i in range(1, k):
        smallest = min(smallest, values[i])
    return smallest


@njit(cache=True, nogil=True)
def _floors(values, rank, floors):
    """The value of that rank in every row, from 1, largest first."""
    unused = np.empty(values.shape[1], np.int32)
    for row in range(values.shape[0]):
        floors[row] = _keep_largest(values[row], unused, values.shape[1], rank)


@njit(cache=True, nogil=True)
def _keep_best(tile, half, start, names, k, best, best_ids, filled, floor):
    """Adds a tile's columns to the rows' best: those with the largest a.b - half_b. Most lanes hold none."""
    rows, width = tile.shape
    for row in range(rows):
        values, ids, line = best[row], best_ids[row], tile[row]
        count, least = filled[row], floor[row]
        if 0 <= names[row] - start < width:
            line[names[row] - start] = -np.inf
        for left in range(0, width, LANES):
            if left + LANES <= width:
                products, halves, above = line[left : left + LANES], half[left : left + LANES], np.uint8(0)
                for j in range(LANES):
                    above |= np.uint8(products[j] - halves[j] > least)
                if not above:
                    continue
            for j in range(left, min(left + LANES, width)):
                value = line[j] - half[j]
                if value > least:
                    values[count] = value
                    ids[count] = start + j
                    count += 1
            if count > values.shape[0] - LANES:
                least = _keep_largest(values, ids, count, k)
                count = k
        filled[row], floor[row] = count, least


@njit(cache=True, nogil=True)
def _write_best(k, best, best_ids, filled, half, to, ids, squares):
    for row in range(to.shape[0]):
        if filled[row] >= k:
            _keep_largest(best[row], best_ids[row], filled[row], k)
            for n in range(k):
                ids[to[row], n] = best_ids[row, n]
                squares[to[row], n] = max(2 * (half[row] - best[row, n]), 0.0)


@njit(cache=True, nogil=True)
def _shortest_outside(tile, half, core, component, first, start, lengths, ends):
    for row in range(tile.shape[0]):
        a = first + row
        for j in range(tile.shape[1]):
            b = start + j
            if component[b] != component[a]:
                apart = half[a] + half[b] - tile[row, j]
                length = max(core[a], core[b], apart + apart)
                if length < lengths[a]:
                    lengths[a] = length
                    ends[a] = b


@njit(cache=True, nogil=True)
def _shortest_by_component(tile, half, core, component, bounds, first, start, lengths, columns):
    """For every row the shortest edge to each later component that is shorter than what stands in `lengths`."""
    for row in range(tile.shape[0]):
        a, line = first + row, tile[row]
        other = max(component[start], component[a] + 1)
        while other < bounds.shape[0] - 1 and bounds[other] < start + tile.shape[1]:
            low = max(bounds[other], start) - start
            high = min(bounds[other + 1], start + tile.shape[1]) - start
            if core[a] < lengths[row, other]:
                for left in range(low, high, LANES):
                    shortest = lengths[row, other]
                    if left + LANES <= high:
                        products, at = line[left : left + LANES], start + left
                        halves, cores, closer = half[at : at + LANES], core[at : at + LANES], np.uint8(0)
                        for j in range(LANES):
                            apart = half[a] + halves[j] - products[j]  # doubled by addition: 2 is no float32
                            closer |= np.uint8(apart + apart < shortest) & np.uint8(cores[j] < shortest)
                        if not closer:
                            continue
                    for j in range(left, min(left + LANES, high)):
                        apart = half[a] + half[start + j] - line[j]
                        length = max(apart + apart, core[start + j], core[a])
                        if length < shortest:
                            shortest = length
                            columns[row, other] = start + j
                    lengths[row, other] = shortest
            other += 1
