"""Where the marks of `Maps` and `Matrix` lie, in the units of an SVG view box, and the pixels below them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.views.colours import CLUSTERS, contour_colours
from vitreous.views.panels import BARE, THIN, Link, Maps, Matrix

ACROSS = 1120.0  # a sheet is not wider, unless its cells would be smaller than the least
LEAST, MOST = 30.0, 76.0  # side of a cell
SHARP = 2  # pixels of the picture for each unit of the view box
LEVELS = 12  # steps of a filled contour
LETTER = 7.4  # width of a letter of the labels
NAMES = 12  # parts of a matrix that are named; of more, every second, third, ...


@dataclass(frozen=True)
class Place:
    """A cell: its corner, and how it is marked. `colour` is that of its bold frame, or nothing."""

    x: float
    y: float
    colour: str
    thin: bool
    cross: bool
    ring: bool
    name: str


@dataclass(frozen=True)
class Tie:
    """A link as drawn, from (x0, y0) to (x1, y1)."""

    x0: float
    y0: float
    x1: float
    y1: float
    width: float
    positive: bool


@dataclass(frozen=True, eq=False)
class Sheet:
    """A laid out `Maps`; labels are (position, text), `pixels` RGBA of the whole box with nothing between the cells.

    `bold` is the width of a coloured frame.
    """

    places: tuple[Place, ...]
    strokes: tuple[Tie, ...]
    row_labels: tuple[tuple[float, str], ...]
    column_labels: tuple[tuple[float, str], ...]
    left: float
    top: float
    cell: float
    bold: float
    width: float
    height: float
    pixels: np.ndarray


def lay_sheet(panel: Maps) -> Sheet:
    rows, columns = len(panel.rows), len(panel.columns)
    left, top = 16 + LETTER * max(map(len, panel.rows)), 30.0
    gap, below = (0.6, 0.36) if panel.links else (0.24, 0.24)  # of a cell; links need room to be told apart
    cell = float(np.floor(np.clip((ACROSS - left) / (columns * (1 + gap)), LEAST, MOST)))
    step_x, step_y = round(cell * (1 + gap)), round(cell * (1 + below))
    corners = [(left + step_x * c, top + step_y * r) for r in range(rows) for c in range(columns)]
    places = tuple(_place(panel, i, corners[i]) for i in range(rows * columns))
    width, height = left + step_x * columns, top + step_y * rows
    thin_out = -(-max(map(len, panel.columns)) * LETTER // step_x)  # labels that would run into each other
    middles = [(left + step_x * c + cell / 2, name) for c, name in enumerate(panel.columns)]
    return Sheet(
        places,
        tuple(_stroke(link, panel, corners, cell) for link in panel.links),
        tuple((top + step_y * r + cell / 2, name) for r, name in enumerate(panel.rows)),
        tuple(middles[:: max(1, int(thin_out))]),
        left,
        top,
        cell,
        round(1.2 + 0.036 * cell, 2),
        width,
        height,
        _sheet_pixels(panel, corners, cell, width, height),
    )


def _place(panel: Maps, index: int, corner: tuple[float, float]) -> Place:
    row, column = divmod(index, len(panel.columns))
    frame = int(panel.frames[row, column])
    return Place(
        *corner,
        "" if frame in (THIN, BARE) else CLUSTERS[frame % len(CLUSTERS)],
        frame == THIN,
        bool(panel.crosses[row, column]),
        bool(panel.rings[row, column]),
        f"{panel.rows[row]}, {panel.columns[column]}",
    )


def _stroke(link: Link, panel: Maps, corners: list[tuple[float, float]], cell: float) -> Tie:
    """From the side of one cell to the facing side of the other, so that no map is crossed."""
    strongest = max(abs(other.weight) for other in panel.links) or 1.0
    (x0, y0), (x1, y1) = (corners[r * len(panel.columns) + c] for r, c in (link.start, link.end))
    width = 0.4 + 2.6 * abs(link.weight) / strongest
    if link.start[1] == link.end[1]:
        return Tie(x0 + cell / 2, y0 + cell + 2, x1 + cell / 2, y1 - 2, width, link.weight > 0)
    return Tie(x0 + cell + 2, y0 + cell / 2, x1 - 2, y1 + cell / 2, width, link.weight > 0)


def _sheet_pixels(
    panel: Maps, corners: list[tuple[float, float]], cell: float, width: float, height: float
) -> np.ndarray:
    side = round(cell * SHARP)
    out = np.zeros((round(height * SHARP), round(width * SHARP), 4), np.uint8)
    maps = panel.values.reshape(-1, *panel.values.shape[2:])
    for (x, y), values in zip(corners, maps, strict=True):
        r, c = round(y * SHARP), round(x * SHARP)
        out[r : r + side, c : c + side] = contour(values, side, panel.low, panel.high)
    return out


def contour(values: np.ndarray, side: int, low: float, high: float) -> np.ndarray:
    """A map (height, width) as filled contours: RGBA (side, side, 4), nothing where the map is NaN."""
    from PIL import Image

    there = np.isfinite(values)
    filled = np.where(there, values, values[there].mean() if there.any() else low).astype(np.float32)
    large = np.asarray(Image.fromarray(filled).resize((side, side), Image.Resampling.BILINEAR))
    shown = np.asarray(Image.fromarray(there).resize((side, side), Image.Resampling.NEAREST))
    level = np.clip((large - low) / max(high - low, 1e-30) * LEVELS, 0, LEVELS - 1).astype(int)
    out = np.zeros((side, side, 4), np.uint8)
    out[..., :3] = contour_colours(LEVELS)[level]
    out[..., 3] = 255 * shown
    return out


# -- matrices


@dataclass(frozen=True, eq=False)
class Plate:
    """A laid out `Matrix`: `ticks` are positions of boundaries, `labels` (position, text) of parts, on both axes."""

    ticks: tuple[float, ...]
    labels: tuple[tuple[float, str], ...]
    left: float
    bottom: float
    side: float
    width: float
    height: float
    pixels: np.ndarray


def lay_plate(panel: Matrix, side: float = 480.0) -> Plate:
    """Positions count from the origin at the lower left, on either axis."""
    ends = (*panel.starts[1:], len(panel.values))
    scale = side / len(panel.values)
    step = -(-len(panel.names) // NAMES)
    labels = [
        (scale * (start + end) / 2, name) for start, end, name in zip(panel.starts, ends, panel.names, strict=True)
    ]
    left = 16 + LETTER * max(map(len, panel.names))
    grey = np.repeat(panel.values[::-1, :, None], 3, 2)
    ticks = tuple(scale * at for at in (*panel.starts, len(panel.values)))
    return Plate(ticks, tuple(labels[::step]), left, 8 + side, side, left + side + 8, side + 36, grey)
