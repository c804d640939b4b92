"""Patches as pixels: where one lies in a picture, and values a patch drawn as squares."""

from __future__ import annotations

import numpy as np

from vitreous.views.panels import Box


def patch_box(patch: int, grid: tuple[int, int], size: tuple[int, ...]) -> Box:
    """The patch of a grid (rows, columns) in a picture of this size (height, width)."""
    high, wide = size[0] / grid[0], size[1] / grid[1]
    row, column = divmod(patch, grid[1])
    return Box(column * wide, row * high, (column + 1) * wide, (row + 1) * high)


def enlarged(values: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """A value a patch (row, column, ...) -> a value a pixel: patches stay squares."""
    rows, columns = (np.arange(n) * patches // n for n, patches in zip(size[:2], values.shape[:2], strict=True))
    return values[rows[:, None], columns]
