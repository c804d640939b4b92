"""Eq. 14 and deletion curves, one picture, one token and one patch at a time."""

from __future__ import annotations

import numpy as np


def slow_sides(values: np.ndarray, own: int | None, count: int) -> tuple[list[int], list[int]]:
    """Patches of the smallest and of the largest values (patch,), a token's own left out; no two values are equal."""
    order = sorted((p for p in range(len(values)) if p != own), key=lambda p: values[p])
    return order[:count], order[-count:]


def slow_masked(picture: np.ndarray, patches: list[int], grid: tuple[int, int], fill: float) -> np.ndarray:
    out = picture.copy()
    height, width = picture.shape[1] // grid[0], picture.shape[2] // grid[1]
    for p in patches:
        row, column = divmod(p, grid[1])
        out[:, row * height : (row + 1) * height, column * width : (column + 1) * width] = fill
    return out


def slow_mask_test(represent, pictures, maps, tokens, prefix: int, count: int, fill: float) -> dict[str, float]:
    """d of eq. 14 for masks: {"negative": ..., "positive": ...}."""
    grid = maps.shape[2:]
    totals = {"negative": [], "positive": []}
    for x, S, numbers in zip(pictures, maps, tokens, strict=True):
        z = np.asarray(represent(x[None]))[0]
        moved = {"negative": [], "positive": []}
        for one, i in zip(S, numbers, strict=True):
            for side, patches in zip(moved, slow_sides(one.ravel(), i - prefix, count), strict=True):
                spoiled = np.asarray(represent(slow_masked(x, patches, grid, fill)[None]))[0]
                moved[side].append(np.sqrt(((z[i].astype(float) - spoiled[i]) ** 2).sum()))
        for side in totals:
            totals[side].append(sum(moved[side]) / len(moved[side]))
    return {side: sum(values) / len(values) for side, values in totals.items()}


def slow_deletion(score, picture: np.ndarray, values: np.ndarray, fill: float) -> list[float]:
    """The score of a picture after 0, 1, 2, ... patches are gone, largest value first."""
    grid, order = values.shape, sorted(range(values.size), key=lambda p: -values.ravel()[p])
    return [float(score(slow_masked(picture, order[:n], grid, fill)[None])[0]) for n in range(values.size + 1)]
