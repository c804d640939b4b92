"""The k largest rows of every unit where k is large, over any number of rows, in memory for about three times k rows.

`TopK` sorts newcomers in at every update, which suits small k. Here rows are collected until there are as many as k,
and then one selection a unit, linear in their number, says who stays; the places are sorted once, at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vitreous.errors import SettingsError
from vitreous.kernels.topk import Top


def stream_top(pieces: Iterable[np.ndarray], units: int, k: int) -> Top:
    """Pieces (unit, row), rows numbered on from 0, to the k largest of each unit, largest first, equal ones by id.

    The result does not depend on how the rows were cut into pieces. There must be k rows or more.
    """
    room = 2 * k
    values, ids = np.empty((units, k + room), np.float32), np.empty((units, k + room), np.int64)
    filled = seen = 0
    for piece in pieces:
        if np.isnan(piece.min(initial=0)):
            unit, row = (int(i[0]) for i in np.nonzero(np.isnan(piece)))
            raise SettingsError(f"NaN in row {seen + row}, unit {unit}: it is neither larger nor smaller than anything")
        for first in range(0, piece.shape[1], room):
            part = piece[:, first : first + room]
            if filled + part.shape[1] > k + room:
                filled = _select(values, ids, filled, k)
            values[:, filled : filled + part.shape[1]] = part
            ids[:, filled : filled + part.shape[1]] = np.arange(seen, seen + part.shape[1])
            filled, seen = filled + part.shape[1], seen + part.shape[1]
    if seen < k:
        raise SettingsError("fewer rows than k", given=k, accepted=f"1 to {seen}")
    _select(values, ids, filled, k)
    order = np.argsort(-values[:, :k], axis=1, kind="stable")  # ids rise, so equal values stay in their order
    return Top(np.take_along_axis(values[:, :k], order, 1), np.take_along_axis(ids[:, :k], order, 1))


def _select(values: np.ndarray, ids: np.ndarray, filled: int, k: int) -> int:
    """Moves the k largest of the filled places to the front, in the order of their ids; of equal ones the first."""
    for row, names in zip(values, ids, strict=True):
        held = row[:filled]
        least = np.partition(held, filled - k)[filled - k]
        stays = held > least
        stays[np.flatnonzero(held == least)[: k - int(stays.sum())]] = True
        row[:k], names[:k] = held[stays], names[:filled][stays]
    return k
