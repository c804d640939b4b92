"""Covering and boundary matching by the words of their definitions."""

from __future__ import annotations

from math import dist, hypot

import numpy as np


def slow_covering(segments: np.ndarray, annotations: list[np.ndarray]) -> float:
    scores = []
    for theirs in annotations:
        total = 0.0
        for region in set(theirs.ravel().tolist()):
            R = theirs == region
            best = max(
                (R & (segments == own)).sum() / (R | (segments == own)).sum() for own in set(segments.ravel().tolist())
            )
            total += R.sum() * best
        scores.append(total / theirs.size)
    return sum(scores) / len(scores)


def slow_boundary(labels: np.ndarray) -> list[tuple[int, int]]:
    height, width = labels.shape
    return [
        (y, x)
        for y in range(height)
        for x in range(width)
        if (x + 1 < width and labels[y, x] != labels[y, x + 1]) or (y + 1 < height and labels[y, x] != labels[y + 1, x])
    ]


def slow_matching_size(ours: list, theirs: list, reach: float) -> int:
    """The largest number of one-to-one pairs, by augmenting paths."""
    partner: dict[int, int] = {}

    def augment(a: int, seen: set[int]) -> bool:
        for b, point in enumerate(theirs):
            if b not in seen and dist(ours[a], point) <= reach:
                seen.add(b)
                if b not in partner or augment(partner[b], seen):
                    partner[b] = a
                    return True
        return False

    return sum(augment(a, set()) for a in range(len(ours)))


def slow_found(segments: np.ndarray, annotations: list[np.ndarray], tolerance: float) -> tuple[int, int]:
    """(pixels of the annotations that are matched, all of them)."""
    reach = tolerance * hypot(*segments.shape)
    mine = slow_boundary(segments)
    parts = [slow_boundary(theirs) for theirs in annotations]
    return sum(slow_matching_size(mine, theirs, reach) for theirs in parts), sum(map(len, parts))
