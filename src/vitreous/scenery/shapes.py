"""Outlines of the objects, as distance fields: negative inside, positive outside, slope one near the edge.

A distance gives the anti-aliased edge, the soft shadow and the rounded shading from one evaluation. Only arithmetic
that IEEE 754 rounds exactly is used (no sine, no power), so pixels are the same on every machine.

Coordinates are in units of the object's radius, x to the right, y down. The shapes are scaled to about the same area.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

COSINE = tuple(round(math.cos(math.radians(angle)), 6) for angle in range(360))
SINE = tuple(round(math.sin(math.radians(angle)), 6) for angle in range(360))


@dataclass(frozen=True)
class Shape:
    """A distance field over (x, y) and the radius of the circle around the origin that holds it all."""

    distance: Callable[[np.ndarray, np.ndarray], np.ndarray]
    reach: float


def _circle(x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    return np.sqrt(x * x + y * y) - radius


def _box(x: np.ndarray, y: np.ndarray, half_width: float, half_height: float) -> np.ndarray:
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


def _disc(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _circle(x, y, 0.84)


def _ring(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(_circle(x, y, 0.7)) - 0.24


def _crescent(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(_circle(x + 0.14, y, 1.1), -_circle(x - 0.56, y, 0.94))


def _square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _box(x, y, 0.74, 0.74)


def _triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(x) * 0.866025 - y * 0.5, y) - 0.59


def _hexagon(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = np.abs(x), np.abs(y)
    return np.maximum(x * 0.866025 + y * 0.5, y) - 0.8


def _star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A point is in the five-pointed star when at most one of its five lines cuts it off: the second largest counts."""
    x = np.abs(x)
    first = x * 0.951057 - y * 0.309017
    second = np.full_like(x, -9.0)
    for across, down in ((-0.951057, -0.309017), (0.587785, 0.809017), (-0.587785, 0.809017), (0.0, -1.0)):
        side = x * across + y * down
        second = np.maximum(second, np.minimum(first, side))
        first = np.maximum(first, side)
    return second - 0.41


def _cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.minimum(_box(x, y, 0.3, 0.95), _box(x, y, 0.95, 0.3))


def _heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = np.abs(x), y - 0.06
    point = np.maximum(np.abs(x + y), np.abs(x - y)) * 0.707107 - 0.56
    return np.minimum(point, _circle(x - 0.39598, y + 0.39598, 0.56))


def _leaf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _circle(np.abs(x) + 0.64, y, 1.28)


def _arrow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    head = np.maximum(np.abs(x) * 0.780869 - y * 0.624695 - 0.735, y - 0.07)
    return np.minimum(head, _box(x, y - 0.56, 0.34, 0.56))


def _flower(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    petals = np.minimum(_circle(x, y + 0.58, 0.37), _circle(x - 0.551613, y + 0.17923, 0.37))
    petals = np.minimum(petals, _circle(x - 0.340915, y - 0.46923, 0.37))
    return np.minimum(petals, _circle(x, y, 0.42))


SHAPES: dict[str, Shape] = {
    "disc": Shape(_disc, 0.84),
    "ring": Shape(_ring, 0.94),
    "crescent": Shape(_crescent, 1.25),
    "square": Shape(_square, 1.05),
    "triangle": Shape(_triangle, 1.2),
    "hexagon": Shape(_hexagon, 0.93),
    "star": Shape(_star, 1.34),
    "cross": Shape(_cross, 1.0),
    "heart": Shape(_heart, 1.14),
    "leaf": Shape(_leaf, 1.12),
    "arrow": Shape(_arrow, 1.2),
    "flower": Shape(_flower, 0.95),
}


def turned(x: np.ndarray, y: np.ndarray, angle: int) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the same points in a frame turned clockwise by `angle` degrees."""
    cosine, sine = COSINE[angle % 360], SINE[angle % 360]
    return x * cosine + y * sine, y * cosine - x * sine


def distance(shape: str, x: np.ndarray, y: np.ndarray, radius: float, angle: int) -> np.ndarray:
    """Distance field of a turned object of this radius at the origin, in the units of x and y."""
    across, down = turned(x * (1 / radius), y * (1 / radius), angle)
    return SHAPES[shape].distance(across, down) * radius
