"""From a layout to pixels, and to the exact answer which layer every pixel belongs to.

The picture is painted with 2 x 2 samples a pixel, from back to front: shadow, then the object with its texture, rounded
edges and light. A pixel belongs to the layer (background or object) that covers the largest part of it; the coverage is
the one that was used to paint, so that masks and picture cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.scenery.draws import Draws, grain
from vitreous.scenery.layout import Layout, Placed
from vitreous.scenery.palette import Tone, background_tones, object_tones
from vitreous.scenery.shapes import COSINE, SHAPES, SINE, distance
from vitreous.scenery.textures import BACKGROUND_TEXTURES, OBJECT_TEXTURES, Cloth, clip

SAMPLES = 2
SHADOW = 0.03
"""How soft a shadow is, in widths of the picture."""


@dataclass(frozen=True)
class Painted:
    """`image` uint8 (row, column, colour), `owner` uint8 (row, column): 0 background, k the k-th object from the back;
    `whole` is the number of pixels that each object would own if nothing hid it and the picture had no border."""

    image: np.ndarray
    owner: np.ndarray
    whole: tuple[int, ...]


@dataclass(frozen=True)
class _Patch:
    """The square around one object, in samples: first row and column (may be negative), positions, distance field."""

    top: int
    left: int
    x: np.ndarray
    y: np.ndarray
    distance: np.ndarray

    def cut(self, values: np.ndarray, side: int, down: int = 0, right: int = 0) -> tuple[np.ndarray, slice, slice]:
        """The part of `values` (..., row, column) that falls on a canvas of this side when moved, and where."""
        top, left = self.top + down, self.left + right
        rows = slice(max(top, 0), max(min(top + values.shape[-2], side), 0))
        columns = slice(max(left, 0), max(min(left + values.shape[-1], side), 0))
        part = values[..., rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
        return part, rows, columns


def _axis(centre: float, half: float, size: int) -> tuple[int, np.ndarray]:
    """First sample and sample positions relative to the centre, over whole pixels that hold centre +- half."""
    first = int((centre - half) * size + 1024) - 1024
    last = int((centre + half) * size + 1025) - 1024
    samples = np.arange(SAMPLES * first, SAMPLES * last, dtype=np.float32) + np.float32(0.5)
    return SAMPLES * first, samples * np.float32(1 / (SAMPLES * size)) - np.float32(centre)


def _patch(placed: Placed, size: int) -> _Patch:
    half = SHAPES[placed.shape].reach * placed.radius + SHADOW
    left, x = _axis(placed.x, half, size)
    top, y = _axis(placed.y, half, size)
    x, y = x[None, :], y[:, None]
    return _Patch(top, left, x, y, distance(placed.shape, x, y, placed.radius, placed.rotation))


def _mix(first: Tone, second: Tone, part: np.ndarray) -> np.ndarray:
    """Two tones and how far between them (row, column) -> (colour, row, column)."""
    start = np.asarray(first, np.float32)[:, None, None]
    return start + (np.asarray(second, np.float32)[:, None, None] - start) * part


def _pixels(samples: np.ndarray) -> np.ndarray:
    """Averages the samples of every pixel; written out, since a library sum may add in another order elsewhere."""
    rows = samples[..., 0::2, :] + samples[..., 1::2, :]
    return (rows[..., 0::2] + rows[..., 1::2]) * np.float32(0.25)


def _shade(patch: _Patch, placed: Placed, light: int, strength: float, pixel: float) -> np.ndarray:
    """Brightness over an object: rounded at the edges, lighter where the edge faces the light."""
    inner = clip(patch.distance * (-2.6 / placed.radius))
    rim = np.float32(1.0) - inner * (np.float32(2.0) - inner)
    step = max(1, round(0.012 / pixel))
    down, right = round(step * SINE[light] * 1.4), round(step * COSINE[light] * 1.4)
    facing = np.zeros_like(patch.distance)
    field = patch.distance
    rows, columns = facing.shape
    here = (slice(max(-down, 0), rows - max(down, 0)), slice(max(-right, 0), columns - max(right, 0)))
    there = (slice(max(down, 0), rows - max(-down, 0)), slice(max(right, 0), columns - max(-right, 0)))
    facing[here] = (field[there] - field[here]) * (1 / (1.4 * step * pixel))
    slope = (patch.x * COSINE[light] + patch.y * SINE[light]) * (1 / placed.radius)
    return np.float32(1.0) + rim * (facing * strength - np.float32(0.1)) + slope * (0.3 * strength)


def _ground(layout: Layout, size: int, draws: Draws) -> np.ndarray:
    """The background, (colour, row, column) in samples."""
    side = SAMPLES * size
    line = (np.arange(side, dtype=np.float32) + np.float32(0.5)) * np.float32(1 / side)
    cloth = Cloth(line[None, :], line[:, None], 0.5, 1 / side)
    dark, pale = background_tones(layout.background_colour, draws)
    return _mix(dark, pale, BACKGROUND_TEXTURES[layout.background_texture](cloth, draws))


def _develop(canvas: np.ndarray, size: int, light: int, draws: Draws, noise: np.ndarray) -> np.ndarray:
    """What a camera adds: uneven light, a little blur, sensor noise; then uint8 (row, column, colour)."""
    line = (np.arange(size, dtype=np.float32) + np.float32(0.5)) * np.float32(1 / size) - np.float32(0.5)
    fall = draws.between(0.1, 0.35)
    lit = canvas * (1 + line[None, :] * (fall * COSINE[light]) + line[:, None] * (fall * SINE[light]))
    blur = draws.between(0.0, 0.3)
    wide = np.pad(lit, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = wide[:, :-2] + wide[:, 2:] + wide[:, 1:-1] * np.float32(2.0)
    soft = rows[:, :, :-2] + rows[:, :, 2:] + rows[:, :, 1:-1] * np.float32(2.0)
    lit = lit * (1 - blur) + soft * (blur / 16)
    levels = lit * np.float32(255.0) + noise * draws.between(1.0, 5.0)
    levels = np.minimum(np.maximum(levels + np.float32(0.5), np.float32(0.0)), np.float32(255.0))
    return np.ascontiguousarray(levels.astype(np.uint8).transpose(1, 2, 0))


class _Canvas:
    """The picture so far and, for every pixel, how much of it each layer covers."""

    def __init__(self, layout: Layout, size: int, draws: Draws) -> None:
        self.size, self.side, self.light = size, SAMPLES * size, layout.light
        self.samples = _ground(layout, size, draws)
        self.cover = np.zeros((len(layout.objects) + 1, size, size), np.float32)
        self.cover[0] = 1
        reach = draws.between(0.018, 0.034)
        self.down, self.right = (round(-reach * part[self.light] * self.side) for part in (SINE, COSINE))
        self.depth, self.strength = draws.between(0.3, 0.55), draws.between(0.16, 0.34)

    def shadow(self, patch: _Patch) -> None:
        dark, rows, columns = patch.cut(clip(0.5 - patch.distance * (0.5 / SHADOW)), self.side, self.down, self.right)
        self.samples[:, rows, columns] *= 1 - dark * self.depth

    def add(self, number: int, patch: _Patch, placed: Placed, draws: Draws) -> int:
        """Paints the object over what is there; returns how many pixels all of it would own."""
        pixel = 1 / self.side
        alpha = clip(0.5 - patch.distance * self.side)
        first, second = object_tones(placed.colour, draws)
        mix = OBJECT_TEXTURES[placed.texture](Cloth(patch.x, patch.y, placed.radius, pixel), draws)
        colour = clip(_mix(first, second, mix) * _shade(patch, placed, self.light, self.strength, pixel))
        part, rows, columns = patch.cut(alpha, self.side)
        colour = patch.cut(colour, self.side)[0]
        self.samples[:, rows, columns] += (colour - self.samples[:, rows, columns]) * part
        covered = _pixels(part)
        rows, columns = (slice(s.start // SAMPLES, s.stop // SAMPLES) for s in (rows, columns))
        self.cover[:number, rows, columns] *= 1 - covered
        self.cover[number, rows, columns] = covered
        return int(np.count_nonzero(_pixels(alpha) > 0.5))


def paint(layout: Layout, size: int, draws: Draws, seed: int, index: int) -> Painted:
    """Paints one scene; `draws` goes on where the layout stopped."""
    canvas = _Canvas(layout, size, draws)
    whole = []
    for number, placed in enumerate(layout.objects, start=1):
        patch = _patch(placed, size)
        canvas.shadow(patch)
        whole.append(canvas.add(number, patch, placed, draws))
    image = _develop(_pixels(canvas.samples), size, layout.light, draws, grain(seed, index, size))
    return Painted(image, canvas.cover.argmax(0).astype(np.uint8), tuple(whole))
