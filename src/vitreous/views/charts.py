"""Where the marks of a chart lie: from a `Curve` or `Histogram` to paths and ticks in the units of an SVG view box."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vitreous.views.panels import Curve, Histogram, Line

WIDTH = 400.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 8.0, 26.0, 40.0


@dataclass(frozen=True)
class Mark:
    """One line: its SVG path, the path of its band (or nothing), its name, colour, and whether it is a control.

    Bars are `solid` and have no line around them.
    """

    name: str
    path: str
    band: str
    series: int
    control: bool
    solid: bool = False


@dataclass(frozen=True)
class Chart:
    """A laid out chart; ticks are (position, text), `baseline` a height or None."""

    marks: tuple[Mark, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    baseline: float | None
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True)
class Axis:
    """Maps values in [low, high] to positions [start, end]."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high, v = (math.log10(max(x, 1e-300)) if self.log else x for x in (self.low, self.high, value))
        share = min(max((v - low) / (high - low), 0.0), 1.0)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, about: int, whole: bool = False) -> tuple[tuple[float, str], ...]:
        """Where numbers stand, and how they are written; if `whole`, no fractions: there is no block 4.5."""
        values = log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, about)
        if whole:
            values = [v for v in values if v == int(v)]
        return tuple((self.at(v), short(v)) for v in values)


def short(value: float) -> str:
    """A number as one writes it at an axis."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000 or abs(value) < 0.001:
        mantissa, _, exponent = f"{value:.0e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{value:.4g}"


def amount(value: float) -> str:
    """Two decimals, and no minus before a zero."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def listed(parts: Sequence[str]) -> str:
    """Words one after the other: a, b and c."""
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high, in steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten, thinned out if there are many; with 2 and 5 in between if there are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = max(1, math.ceil((last - first) / 6))
    between = (1, 2, 5) if last - first <= 2 else (1,)
    values = [m * 10.0**p for p in range(first, last + 1, step) for m in between]
    return [v for v in values if low * 0.999 <= v <= high * 1.001]


def _limits(values: Iterable[float], log: bool, baseline: float | None) -> tuple[float, float]:
    """A little room around the values. A linear axis of what is never negative starts at zero, unless there is another
    baseline to compare with."""
    there = [v for v in values if not log or v > 0]
    there += [] if baseline is None else [baseline]
    if not there:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(there), max(there)
    if log:
        return (low / 1.3, high * 1.3)
    if low >= 0 and baseline is None:
        return 0.0, high * 1.06 or 1.0
    room = 0.08 * (high - low) or abs(high) or 1.0
    return low - room, high + room


def _path(points: Iterable[tuple[float, float]]) -> str:
    """A line through the points; one point alone becomes a dot, as round ends of a line of no length."""
    path = "M" + "L".join(f"{x:g},{y:g}" for x, y in points)
    return path if "L" in path else f"{path}h0"


def lay_out(panel: Curve | Histogram, width: float = WIDTH) -> Chart:
    """Ticks and paths of a chart in a box of this width; a narrow one gets fewer ticks, not smaller letters."""
    height = round(max(0.5 * width, 110.0) + 40)
    baseline = panel.baseline if isinstance(panel, Curve) else None
    positions = panel.x if isinstance(panel, Curve) else panel.edges
    every = [v for line in panel.lines for part in (line.y, line.low, line.high) for v in part]
    if isinstance(panel, Histogram) and panel.beside:
        every.append(1.0)  # on a log scale a bar of one has to be seen, and all bars begin at the same height
    wide = (min(positions), max(positions))
    x = Axis(*wide, LEFT, width - RIGHT) if wide[1] > wide[0] else Axis(wide[0] - 1, wide[0] + 1, LEFT, width - RIGHT)
    y = Axis(*_limits(every, panel.log, baseline), height - BOTTOM, TOP, panel.log)
    return Chart(
        tuple(_curve_mark(line, positions, x, y) for line in panel.lines)
        if isinstance(panel, Curve)
        else _outline_marks(panel, x, y),
        x.ticks(7 if width > 300 else 4, whole=isinstance(panel, Curve) and all(p == int(p) for p in positions)),
        y.ticks(5 if width > 300 else 3),
        None if baseline is None else y.at(baseline),
        width,
        height,
        x.start,
        x.end,
        y.end,
        y.start,
    )


def _curve_mark(line: Line, positions: tuple[float, ...], x: Axis, y: Axis) -> Mark:
    at = [x.at(p) for p in positions]
    band = ""
    if line.low and line.high:
        upper = [(a, y.at(v)) for a, v in zip(at, line.high, strict=True)]
        lower = [(a, y.at(v)) for a, v in zip(at, line.low, strict=True)]
        band = _path([*upper, *reversed(lower)]) + "Z"
    path = _path((a, y.at(v)) for a, v in zip(at, line.y, strict=True))
    return Mark(line.name, path, band, line.series, line.control)


def _outline_marks(panel: Histogram, x: Axis, y: Axis) -> tuple[Mark, ...]:
    """Steps from edge to edge, down to the axis at both ends; one that stands alone, but for its control, is filled."""
    if panel.beside:
        return tuple(_bars(panel, k, x, y) for k in range(len(panel.lines)))
    alone = sum(not line.control for line in panel.lines) == 1
    at = [x.at(edge) for edge in panel.edges]
    marks = []
    for line in panel.lines:
        steps = [(a, y.at(v)) for left, right, v in zip(at[:-1], at[1:], line.y, strict=True) for a in (left, right)]
        path = _path([(at[0], y.start), *steps, (at[-1], y.start)])
        marks.append(Mark(line.name, path, f"{path}Z" if alone and not line.control else "", line.series, line.control))
    return tuple(marks)


def bar_places(panel: Histogram, number: int) -> list[tuple[float, float]]:
    """Left and right ends of the bars of one line: those of all lines share the room between two edges."""
    room = 0.8 / len(panel.lines)
    pairs = list(zip(panel.edges[:-1], panel.edges[1:], strict=True))
    return [
        (low + (0.1 + room * number) * (high - low), low + (0.1 + room * (number + 1)) * (high - low))
        for low, high in pairs
    ]


def _bars(panel: Histogram, number: int, x: Axis, y: Axis) -> Mark:
    """Bars of one line; where there is nothing there is no bar."""
    line = panel.lines[number]
    parts = [
        _path([(x.at(left), y.start), (x.at(left), y.at(v)), (x.at(right), y.at(v)), (x.at(right), y.start)]) + "Z"
        for (left, right), v in zip(bar_places(panel, number), line.y, strict=True)
        if v > 0
    ]
    return Mark(line.name, "", "".join(parts), line.series, line.control, solid=True)
