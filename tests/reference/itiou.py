"""Eq. 12 and 15 pixel by pixel."""

from __future__ import annotations

from collections import Counter

import numpy as np


def slow_token_classes(truth: np.ndarray, grid: tuple[int, int], ignore: int = 255) -> list[int]:
    height, width = truth.shape
    found = []
    for row in range(grid[0]):
        for column in range(grid[1]):
            inside = [
                int(truth[y, x])
                for y in range(height)
                for x in range(width)
                if int((y + 0.5) * grid[0] / height) == row and int((x + 0.5) * grid[1] / width) == column
            ]
            named = Counter(v for v in inside if v != ignore)
            if not named or 2 * sum(named.values()) < len(inside):
                found.append(-1)
            else:
                most = max(named.values())
                found.append(min(v for v, n in named.items() if n == most))
    return found


def slow_itiou(maps: np.ndarray, truth: np.ndarray, classes: list[int], tau: float, ignore: int = 255) -> float:
    by_class: dict[int, list[float]] = {}
    for S, c in zip(maps, classes, strict=True):
        if c < 0:
            continue
        shared = either = 0
        for value, label in zip(S.ravel(), truth.ravel(), strict=True):
            if label == ignore:
                continue
            inside, object_ = value >= tau, label == c
            shared += inside and object_
            either += inside or object_
        by_class.setdefault(c, []).append(shared / either)
    return sum(sum(v) / len(v) for v in by_class.values()) / len(by_class)
