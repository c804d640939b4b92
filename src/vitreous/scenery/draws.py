"""Random draws that are the same on every machine and with every numpy.

Only the raw 64-bit words of the Philox counter generator are used, whose stream numpy promises to keep; the step from
words to numbers is ours. Scene `index` owns its own stretch of the counter, so a scene never depends on how many others
there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Choice = TypeVar("Choice")

LAYOUT, GRAIN = 0, 1
"""Streams: what is in the scene, and the sensor noise over it (apart, since only the second depends on the size)."""


def _philox(seed: int, index: int, stream: int) -> np.random.Philox:
    return np.random.Philox(key=np.array([seed, stream], np.uint64), counter=np.array([0, 0, 0, index], np.uint64))


class Draws:
    """A tape of random words, read once from left to right."""

    def __init__(self, seed: int, index: int, stream: int = LAYOUT) -> None:
        self._philox = _philox(seed, index, stream)

    def between(self, low: float, high: float) -> float:
        """A number in [low, high)."""
        return low + (high - low) * (int(self._philox.random_raw()) >> 11) * 2.0**-53

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + (int(self._philox.random_raw()) >> 11) % (high - low + 1)

    def pick(self, options: Sequence[Choice]) -> Choice:
        return options[self.whole(0, len(options) - 1)]

    def lattice(self, rows: int, columns: int) -> np.ndarray:
        """float32 (rows, columns) in [0, 1], in steps of 1/255."""
        count = rows * columns
        raw = np.atleast_1d(self._philox.random_raw(-(-count // 8)))
        return _octets(raw)[:count].reshape(rows, columns) * np.float32(1 / 255)


def _octets(raw: np.ndarray) -> np.ndarray:
    """uint64 words -> their bytes as float32, lowest byte first on any machine."""
    return raw.astype("<u8", copy=False).view(np.uint8).astype(np.float32)


def grain(seed: int, index: int, size: int) -> np.ndarray:
    """Sensor noise (colour, row, column), mean 0, standard deviation 1, the difference of two random bytes."""
    count = 3 * size * size
    two = _octets(_philox(seed, index, GRAIN).random_raw(-(-count // 4)))
    return ((two[:count] - two[count : 2 * count]) * np.float32(1 / 104.5)).reshape(3, size, size)
