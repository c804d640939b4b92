"""Oracle segmentation pixel by pixel, straight from the five steps of AlignedCut's C.4."""

from __future__ import annotations

import math

import numpy as np


def _pixels(vectors: np.ndarray, truths, ignore: int) -> list[tuple[np.ndarray, int]]:
    found = []
    for grid, truth in zip(vectors, truths, strict=True):
        height, width = truth.shape
        for y in range(height):
            for x in range(width):
                if truth[y, x] != ignore:
                    found.append((grid[y * grid.shape[0] // height, x * grid.shape[1] // width], int(truth[y, x])))
    return found


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / (math.sqrt(a @ a) * math.sqrt(b @ b))


def miou(named: list[int], true: list[int]) -> float:
    scores = []
    for c in sorted(set(true)):
        both = sum(a == c and b == c for a, b in zip(named, true, strict=True))
        either = sum(a == c or b == c for a, b in zip(named, true, strict=True))
        scores.append(both / either)
    return sum(scores) / len(scores)


def slow_oracle(vectors: np.ndarray, truths, thresholds, background: int = 0, ignore: int = 255) -> list[float]:
    """mIoU at each threshold."""
    pixels = _pixels(vectors, truths, ignore)
    true = [c for _, c in pixels]
    centres = {c: np.mean([v for v, d in pixels if d == c], axis=0) for c in sorted(set(true))}
    found = []
    for threshold in thresholds:
        named = []
        for vector, _ in pixels:
            likeness = {c: _cosine(vector, centre) for c, centre in centres.items()}
            nearest = max(likeness, key=likeness.get)
            named.append(background if likeness[nearest] < threshold else nearest)
        found.append(miou(named, true))
    return found
