"""Slow twin of `vitreous.kernels.topk`: sorts everything, then walks down the list."""

from __future__ import annotations

from collections import Counter

import numpy as np


def top_rows(
    values: np.ndarray, ids: np.ndarray, k: int, groups: np.ndarray | None = None, per_group: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(row, unit), (row,) -> values and ids (unit, k); -inf and -1 where the rows ran out."""
    units = values.shape[1]
    best, names = np.full((units, k), -np.inf), np.full((units, k), -1)
    for unit in range(units):
        order = sorted(range(len(ids)), key=lambda row: (-values[row, unit], ids[row]))
        taken: Counter[int] = Counter()
        place = 0
        for row in order:
            if place == k:
                break
            if groups is not None and per_group is not None:
                if taken[groups[row]] == per_group:
                    continue
                taken[groups[row]] += 1
            best[unit, place], names[unit, place] = values[row, unit], ids[row]
            place += 1
    return best, names
