"""Drawings made of rectangles, lines and words, laid out once and drawn alike in HTML and PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.views import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """A filled rectangle, coloured by `series` or by a colour of its own (`fill`, hex); `title` says what it is."""

    x: float
    y: float
    width: float
    height: float
    title: str = ""
    series: int = 0
    fill: str = ""


@dataclass(frozen=True)
class Stroke:
    """A line through points in the colour of its series, with an arrow head at its end if wanted. Without a series it
    is a thin rule that lies beneath everything, or with `strong` a dark one above it."""

    points: tuple[Point, ...]
    series: int | None = None
    arrow: bool = False
    strong: bool = False
    title: str = ""

    @property
    def beneath(self) -> bool:
        return self.series is None and not self.strong


@dataclass(frozen=True)
class Words:
    """Words at a place; `align` is start, middle or end. `ink` is a colour of its own (hex)."""

    x: float
    y: float
    text: str
    align: str = "middle"
    size: float = 11.5
    ink: str = ""


@dataclass(frozen=True)
class Knob:
    """A small disc: the end of a path, or a mark."""

    x: float
    y: float
    radius: float
    series: int
    title: str = ""
    hollow: bool = False


@dataclass(frozen=True, eq=False)
class Drawing:
    """All marks in the units of a view box. `raster` uint8 (row, column, 4) lies beneath them at `raster_box` (x, y,
    width, height)."""

    width: float
    height: float
    rects: tuple[Rect, ...] = ()
    strokes: tuple[Stroke, ...] = ()
    words: tuple[Words, ...] = ()
    knobs: tuple[Knob, ...] = ()
    raster: np.ndarray | None = None
    raster_box: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


def arrow_head(stroke: Stroke, size: float = 7.0) -> tuple[Point, ...]:
    """The three corners at the end of a line; nothing if its last step has no length."""
    (x0, y0), (x1, y1) = stroke.points[-2:]
    length = float(np.hypot(x1 - x0, y1 - y0))
    if length < 1e-9:
        return ()
    dx, dy = size * (x1 - x0) / length, size * (y1 - y0) / length
    return (x1, y1), (x1 - dx + 0.5 * dy, y1 - dy - 0.5 * dx), (x1 - dx - 0.5 * dy, y1 - dy + 0.5 * dx)


def paint(axes: Axes, drawing: Drawing, points: float) -> None:
    """Draws on axes whose units are those of the drawing; `points` is how many points a unit has."""
    from matplotlib.patches import Circle, Polygon, Rectangle

    if drawing.raster is not None:
        x, y, wide, high = drawing.raster_box
        axes.imshow(drawing.raster, extent=(x, x + wide, y + high, y), aspect="auto", interpolation="antialiased")
    for rect in drawing.rects:
        fill = rect.fill or _series(rect.series)
        axes.add_patch(Rectangle((rect.x, rect.y), rect.width, rect.height, facecolor=fill, linewidth=0, zorder=2))
    for stroke in drawing.strokes:
        colour = ("0.3" if stroke.strong else "0.85") if stroke.series is None else _series(stroke.series)
        across, down = zip(*stroke.points, strict=True)
        if stroke.arrow:
            axes.plot(across, down, color="white", linewidth=5 * points, alpha=0.8, zorder=3)
        wide = (1.0 if stroke.series is None else 2.0) * points
        axes.plot(across, down, color=colour, linewidth=wide, zorder=1 if stroke.beneath else 4)
        if stroke.arrow and (corners := arrow_head(stroke)):
            axes.add_patch(Polygon(corners, facecolor=colour, linewidth=0, zorder=4))
    for knob in drawing.knobs:
        colour = "black" if knob.series < 0 else _series(knob.series)
        fill = "none" if knob.hollow else colour
        axes.add_patch(
            Circle((knob.x, knob.y), knob.radius, facecolor=fill, edgecolor=colour, linewidth=points, zorder=5)
        )
    aligned = {"start": "left", "middle": "center", "end": "right"}
    for word in drawing.words:
        placed: dict[str, Any] = {
            "ha": aligned[word.align],
            "va": "baseline",
            "fontsize": word.size * points,
            "zorder": 6,
        }
        axes.text(word.x, word.y, word.text.replace("$", r"\$"), color=word.ink or "black", **placed)


def _series(number: int) -> str:
    return colours.SERIES[number % len(colours.SERIES)]
