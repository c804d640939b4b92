"""What is in a scene and where, before a single pixel is drawn.

Nothing here depends on the size of the picture: the same seed and index give the same scene at 64 and at 512 pixels.
Objects come from back to front. A place for the next one is kept only if every object behind it stays visible enough,
which is counted on points spread over each object.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vitreous.scenery.draws import Draws
from vitreous.scenery.palette import COLOURS
from vitreous.scenery.shapes import COSINE, SHAPES, SINE, distance
from vitreous.scenery.textures import BACKGROUND_TEXTURES, OBJECT_TEXTURES

SIZES: dict[str, tuple[float, float]] = {"small": (0.106, 0.124), "medium": (0.155, 0.180), "large": (0.225, 0.260)}
"""Size name -> radius in widths of the picture, (low, high)."""

MIN_VISIBLE = 0.4
"""The share of every object that is meant to stay visible."""

TRIES = 30


@dataclass(frozen=True)
class Placed:
    """One object; `x`, `y` and `radius` in widths of the picture, `rotation` in degrees clockwise."""

    shape: str
    colour: str
    texture: str
    size: str
    x: float
    y: float
    radius: float
    rotation: int


@dataclass(frozen=True)
class Layout:
    """The objects from back to front, the background, and where the light comes from (degrees, clockwise from +x)."""

    objects: tuple[Placed, ...]
    background_colour: str
    background_texture: str
    light: int


@lru_cache(maxsize=len(SHAPES))
def _points(shape: str) -> tuple[np.ndarray, np.ndarray]:
    """Points spread evenly over a shape of radius 1: x and y, (point,)."""
    reach = SHAPES[shape].reach
    steps = (np.arange(24) + 0.5) / 12 - 1
    x, y = np.meshgrid(steps * reach, steps * reach)
    inside = SHAPES[shape].distance(x, y) < 0
    return x[inside], y[inside]


def _spread(placed: Placed) -> np.ndarray:
    """Points over an object in the picture, (2, point)."""
    x, y = _points(placed.shape)
    cosine, sine = COSINE[placed.rotation], SINE[placed.rotation]
    across, down = x * cosine - y * sine, y * cosine + x * sine
    return np.stack([placed.x + across * placed.radius, placed.y + down * placed.radius])


def _gap(x: float, y: float, other: Placed) -> float:
    across, down = x - other.x, y - other.y
    return across * across + down * down - other.radius * other.radius


def _place(draws: Draws, behind: list[Placed], radius: float) -> tuple[float, float]:
    """Partly over an object that is already there, or (two times in three) the roomier of two free draws."""
    edge = 0.55 * radius + 0.03
    if behind and draws.between(0.0, 1.0) < 0.33:
        other, angle = draws.pick(behind), draws.whole(0, 359)
        apart = (other.radius + radius) * draws.between(0.55, 0.95)
        x, y = other.x + apart * COSINE[angle], other.y + apart * SINE[angle]
        return min(max(x, edge), 1 - edge), min(max(y, edge), 1 - edge)
    spots = [(draws.between(edge, 1 - edge), draws.between(edge, 1 - edge)) for _ in range(2)]
    room = [min((_gap(x, y, other) for other in behind), default=0.0) for x, y in spots]
    return spots[room.index(max(room))]


class _Crowd:
    """The objects so far, with the points of each that can still be seen."""

    def __init__(self) -> None:
        self.objects: list[Placed] = []
        self._seen: list[np.ndarray] = []
        self._whole: list[int] = []

    def worst(self, new: Placed) -> tuple[float, list[np.ndarray]]:
        """The smallest visible share of any object if `new` came in front, and the points left of each."""
        spread = _spread(new)
        inside = ((spread > 0) & (spread < 1)).all(0)
        left = [
            points[:, distance(new.shape, points[0] - new.x, points[1] - new.y, new.radius, new.rotation) > 0]
            for points in self._seen
        ] + [spread[:, inside]]
        whole = [*self._whole, spread.shape[1]]
        return min(points.shape[1] / count for points, count in zip(left, whole, strict=True)), left

    def add(self, new: Placed, seen: list[np.ndarray]) -> None:
        self.objects.append(new)
        self._seen = seen
        self._whole.append(len(_points(new.shape)[0]))


def _next(draws: Draws, crowd: _Crowd, must: bool) -> None:
    """Adds one object where it hides nothing too much; smaller and smaller if there is no room, or not at all."""
    shape, colour, texture = draws.pick(tuple(SHAPES)), draws.pick(tuple(COLOURS)), draws.pick(tuple(OBJECT_TEXTURES))
    names = tuple(SIZES)
    size = draws.whole(0, len(names) - 1)
    best: tuple[float, Placed, list[np.ndarray]] | None = None
    for attempt in range(TRIES):
        if attempt and attempt % 10 == 0:
            size = max(size - 1, 0)
        radius = draws.between(*SIZES[names[size]])
        x, y = _place(draws, crowd.objects, radius)
        placed = Placed(shape, colour, texture, names[size], x, y, radius, draws.whole(0, 359))
        worst, seen = crowd.worst(placed)
        if best is None or worst > best[0]:
            best = worst, placed, seen
        if worst >= MIN_VISIBLE:
            break
    if best is not None and (best[0] >= MIN_VISIBLE or must):
        crowd.add(best[1], best[2])


def lay_out(draws: Draws, objects: tuple[int, int]) -> Layout:
    """Draws a scene of at least `objects[0]` and at most `objects[1]` objects."""
    colour, texture = draws.pick(tuple(COLOURS)), draws.pick(tuple(BACKGROUND_TEXTURES))
    light = draws.whole(205, 335)
    crowd = _Crowd()
    for number in range(draws.whole(*objects)):
        _next(draws, crowd, must=number < objects[0])
    return Layout(tuple(crowd.objects), colour, texture, light)
