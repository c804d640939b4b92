"""Textures: how far each point lies between two tones, 0 to 1.

A texture is drawn over coordinates in units of the picture's width, so that it does not depend on the number of pixels;
`pixel` is the width of one sample and only sets how soft an edge is. Arithmetic is exact, as in `shapes`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vitreous.scenery.draws import Draws
from vitreous.scenery.shapes import turned


@dataclass(frozen=True)
class Cloth:
    """What a texture is drawn on: x (1, column) and y (row, 1), the radius of what it covers, and the sample width."""

    x: np.ndarray
    y: np.ndarray
    radius: float
    pixel: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.y.shape[0], self.x.shape[1]


Texture = Callable[[Cloth, Draws], np.ndarray]


def _fold(t: np.ndarray) -> np.ndarray:
    """Position in a unit cell, -0.5 to 0.5."""
    return t - np.floor(t) - np.float32(0.5)


def _wave(t: np.ndarray) -> np.ndarray:
    """A sine of period 1, made of parabolas."""
    p = _fold(t)
    return p * (np.abs(p) * np.float32(16.0) - np.float32(8.0))


def clip(t: np.ndarray) -> np.ndarray:
    """Kept in [0, 1]."""
    return np.minimum(np.maximum(t, np.float32(0.0)), np.float32(1.0))


def _edge(t: np.ndarray, gain: float) -> np.ndarray:
    """0 where t is below zero, 1 above, with a ramp `1 / gain` wide."""
    return clip(t * gain + np.float32(0.5))


def _turned(cloth: Cloth, period: float, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates counted in periods, at a random angle and phase."""
    x, y = turned(cloth.x * (1 / period), cloth.y * (1 / period), draws.whole(0, 359))
    return x + draws.between(0.0, 1.0), y + draws.between(0.0, 1.0)


def _ramp(count: int, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """For `count` points over `cells` cells: the cell of each, and how far into it (smoothed)."""
    at = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * np.float32(cells / count)
    cell = np.minimum(at.astype(np.intp), cells - 1)
    part = at - cell.astype(np.float32)
    return cell, part * part * (np.float32(3.0) - part * np.float32(2.0))


def _noise(shape: tuple[int, int], rows: int, columns: int, draws: Draws) -> np.ndarray:
    """Value noise in [0, 1]: random heights on a lattice, smoothly joined."""
    heights = draws.lattice(rows + 1, columns + 1)
    row, down = _ramp(shape[0], rows)
    column, across = _ramp(shape[1], columns)
    wide = heights[:, column] * (1 - across) + heights[:, column + 1] * across
    return wide[row] * (1 - down)[:, None] + wide[row + 1] * down[:, None]


def _cells(cloth: Cloth, period: float) -> int:
    """How many lattice cells of this width cover the cloth."""
    return max(2, round(2.4 * cloth.radius / period))


def _period(cloth: Cloth, draws: Draws) -> float:
    """The repeat of an object's texture: fine enough for a small object, coarse enough to be seen at 64 pixels."""
    return draws.between(0.075, min(0.13, 0.06 + 0.45 * cloth.radius))


def _plain(cloth: Cloth, draws: Draws) -> np.ndarray:
    return np.full(cloth.shape, draws.between(0.0, 0.06), np.float32)


def _striped(cloth: Cloth, draws: Draws) -> np.ndarray:
    period = _period(cloth, draws)
    x, _ = _turned(cloth, period, draws)
    return _edge(_wave(x) + draws.between(-0.25, 0.25), period / (8 * cloth.pixel))


def _dotted(cloth: Cloth, draws: Draws) -> np.ndarray:
    period = _period(cloth, draws)
    x, y = _turned(cloth, period, draws)
    row = np.floor(y)
    x, y = _fold(x + row * np.float32(0.5)), y - row - np.float32(0.5)
    return _edge(draws.between(0.29, 0.36) - np.sqrt(x * x + y * y), period / cloth.pixel)


def _checked(cloth: Cloth, draws: Draws) -> np.ndarray:
    period = 1.35 * _period(cloth, draws)
    x, y = _turned(cloth, period, draws)
    return _edge(_wave(x) * _wave(y), period / (8 * cloth.pixel))


def _zigzag(cloth: Cloth, draws: Draws) -> np.ndarray:
    period = _period(cloth, draws)
    x, y = _turned(cloth, period, draws)
    bent = y + np.abs(_fold(x * np.float32(0.7))) * np.float32(1.5)
    return _edge(_wave(bent), period / (11 * cloth.pixel))


def _marbled(cloth: Cloth, draws: Draws) -> np.ndarray:
    period = _period(cloth, draws)
    x, _ = _turned(cloth, 1.5 * period, draws)
    cells = _cells(cloth, 1.1 * period)
    vein = _wave(x + _noise(cloth.shape, cells, cells, draws) * np.float32(2.2))
    return clip(np.float32(1.0) - np.abs(vein) * np.float32(1.6))


def _speckled(cloth: Cloth, draws: Draws) -> np.ndarray:
    cells = _cells(cloth, 0.42 * _period(cloth, draws))
    return _edge(_noise(cloth.shape, cells, cells, draws) - draws.between(0.52, 0.6), 7.0)


def _faded(cloth: Cloth, draws: Draws) -> np.ndarray:
    x, _ = turned(cloth.x, cloth.y, draws.whole(0, 359))
    return clip(x * (0.62 / cloth.radius) + draws.between(0.38, 0.5))


OBJECT_TEXTURES: dict[str, Texture] = {
    "plain": _plain,
    "striped": _striped,
    "dotted": _dotted,
    "checked": _checked,
    "zigzag": _zigzag,
    "marbled": _marbled,
    "speckled": _speckled,
    "faded": _faded,
}


def _woven(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Strands that pass over and under each other."""
    x, y = _turned(cloth, draws.between(0.062, 0.1), draws)
    row, column = np.floor(y), np.floor(x)
    x, y = x - column - np.float32(0.5), y - row - np.float32(0.5)
    over = _fold((row + column) * np.float32(0.5)) < -0.25
    return clip(np.float32(1.0) - np.where(over, x * x + np.abs(y) * 0.15, y * y + np.abs(x) * 0.15) * np.float32(4.0))


def _rippled(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Waves around a point, mostly outside of the picture."""
    x = cloth.x - draws.between(-0.3, 1.3)
    y = cloth.y - draws.between(-0.3, 1.3)
    period = draws.between(0.07, 0.15)
    bend = _noise(cloth.shape, 3, 3, draws) * np.float32(0.8)
    return _wave(np.sqrt(x * x + y * y) * (1 / period) + bend) * np.float32(0.5) + np.float32(0.5)


def _cloudy(cloth: Cloth, draws: Draws) -> np.ndarray:
    cells = draws.whole(3, 5)
    heap = _noise(cloth.shape, cells, cells, draws) * np.float32(0.55)
    heap += _noise(cloth.shape, 2 * cells, 2 * cells, draws) * np.float32(0.3)
    heap += _noise(cloth.shape, 5 * cells, 5 * cells, draws) * np.float32(0.15)
    return clip((heap - np.float32(0.5)) * np.float32(1.9) + np.float32(0.5))


def _brick(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Rows of bricks in mortar, no two bricks quite alike."""
    rows = draws.between(7.0, 11.0)
    y = cloth.y * rows + draws.between(0.0, 1.0)
    row = np.floor(y)
    x = cloth.x * (0.5 * rows) + _fold(row * np.float32(0.5)) + draws.between(1.0, 2.0)
    column = np.floor(x)
    tints = draws.lattice(16, 16)[(row.astype(np.intp) % 16), (column.astype(np.intp) % 16)]
    inside = np.minimum(np.float32(0.5) - np.abs(y - row - 0.5), (np.float32(0.5) - np.abs(x - column - 0.5)) * 2)
    wall = _edge(inside - np.float32(0.1), 0.7 / (rows * cloth.pixel))
    return np.float32(0.92) - wall * (np.float32(0.42) + tints * np.float32(0.5))


def _grassy(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Upright blades: noise that is fine across and coarse along, in two lengths."""
    blades = _noise(cloth.shape, draws.whole(5, 8), draws.whole(28, 40), draws) * np.float32(0.55)
    blades += _noise(cloth.shape, draws.whole(9, 13), draws.whole(44, 60), draws) * np.float32(0.45)
    return clip((blades - np.float32(0.5)) * np.float32(2.0) + np.float32(0.5))


def _misty(cloth: Cloth, draws: Draws) -> np.ndarray:
    """One tone fading into the other."""
    x, _ = turned(cloth.x - np.float32(0.5), cloth.y - np.float32(0.5), draws.whole(0, 359))
    veil = _noise(cloth.shape, 4, 4, draws) * np.float32(0.4)
    return clip(x * np.float32(0.9) + veil + np.float32(0.3))


def _wooden(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Grain lines that wander around knots."""
    along, across = draws.pick(((2, 6), (6, 2)))
    bend = _noise(cloth.shape, along, across, draws) * np.float32(2.4)
    fine = _noise(cloth.shape, 9 * along - 8, 9 * across - 8, draws) * np.float32(0.35)
    line = cloth.x if across > along else cloth.y
    return clip(np.abs(_wave(line * draws.between(2.0, 3.6) + bend)) * np.float32(0.75) + fine)


def _scaly(cloth: Cloth, draws: Draws) -> np.ndarray:
    """Overlapping scales, as on a roof: the upper row hides the top of the row below."""
    rows = draws.between(8.0, 12.0)
    x, y = cloth.x * (0.62 * rows) + draws.between(0.0, 1.0), cloth.y * rows + draws.between(0.0, 1.0)
    row = np.floor(y)
    down = (y - row) * np.float32(0.7)
    across = _fold(x + row * np.float32(0.5)) * np.float32(1.8)
    above = _fold(x + (row - 1) * np.float32(0.5)) * np.float32(1.8)
    upper = np.sqrt(above * above + (down + np.float32(0.7)) * (down + np.float32(0.7)))
    lower = np.sqrt(across * across + down * down) * np.float32(0.8)
    return clip(np.where(upper < 1.0, upper * upper, lower * lower))


BACKGROUND_TEXTURES: dict[str, Texture] = {
    "woven": _woven,
    "rippled": _rippled,
    "cloudy": _cloudy,
    "brick": _brick,
    "grassy": _grassy,
    "misty": _misty,
    "wooden": _wooden,
    "scaly": _scaly,
}
