"""The synthetic task: two interleaved arms of a spiral in the plane (appendix B.1)."""

from __future__ import annotations

import numpy as np

TRAIN, TEST = 16_384, 4_096
SIDE = 50  # points along a side of the grid


def spiral(count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """float32 (sample, 2) and int64 (sample,), as many of one class as of the other.

    The radius grows with the angle of class 1; class 2 is turned by a quarter.
    """
    labels = np.arange(count) % 2
    turn = generator.uniform(0, 2 * np.pi, count)
    angle = turn + np.where(labels == 1, np.pi / 2, 0)
    points = (turn / (2 * np.pi))[:, None] * np.stack([np.sin(angle), np.cos(angle)], 1)
    return points.astype(np.float32), labels


def grid(side: int = SIDE) -> np.ndarray:
    """float32 (sample, 2): points of [-1, 1]², rows from the bottom up."""
    steps = np.linspace(-1, 1, side, dtype=np.float32)
    return np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2)


def as_pictures(points: np.ndarray, mean: float = 0.5, std: float = 0.5) -> np.ndarray:
    """(sample, 2) -> (sample, 1, 1, 2): two patches of one pixel each, normalised like a picture."""
    return ((points - mean) / std)[:, None, None, :].astype(np.float32)
