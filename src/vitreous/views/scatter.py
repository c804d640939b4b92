"""Where the dots of a `Scatter` lie, and where their names stand: beside them, and not on top of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot, sqrt

from vitreous.views.charts import Axis, short
from vitreous.views.panels import Dot, Scatter

WIDTH, HEIGHT = 620.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 24.0, 30.0, 42.0
LETTER, LINE = 7.0, 14.0  # room that a letter and a line of text take
RADIUS, LARGEST = 5.0, 13.0  # of a dot of size 1, and of the largest
FAR = 12.0  # a name this much farther from its dot is tied to it by a line

Box = tuple[float, float, float, float]
Segment = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spot:
    """A dot in the units of the view box, its name beside it, its error bars and the line to its name, if any.

    `align` is the side of the name that `label_x` is: left, right or center.
    """

    name: str
    said: str
    x: float
    y: float
    radius: float
    series: int
    control: bool
    label_x: float
    label_y: float
    align: str
    bars: tuple[Segment, ...]
    leader: tuple[Segment, ...]


@dataclass(frozen=True)
class ScatterPlot:
    """A laid out scatter; ticks are (position, text)."""

    spots: tuple[Spot, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float


def lay_scatter(panel: Scatter, width: float = WIDTH, height: float = HEIGHT) -> ScatterPlot:
    """Dots, names and ticks in a box of this size."""
    x = Axis(*_limits([(d.x, d.x_spread) for d in panel.dots]), LEFT, width - RIGHT)
    y = Axis(*_limits([(d.y, d.y_spread) for d in panel.dots]), height - BOTTOM, TOP)
    largest = max([dot.size for dot in panel.dots], default=1.0)
    unit = min(RADIUS, LARGEST / sqrt(largest))
    circles = [(x.at(d.x), y.at(d.y), round(unit * sqrt(d.size), 2)) for d in panel.dots]
    taken: list[Box] = [(cx - r, cy - r, cx + r, cy + r) for cx, cy, r in circles]
    frame = (LEFT, TOP - 14, width, height - BOTTOM)
    spots: list[Spot | None] = [None] * len(panel.dots)
    for at in _crowded_first(circles):
        spot = _spot(panel.dots[at], circles[at], x, y, taken, frame)
        taken.append(_box(spot.label_x, spot.label_y, spot.align, spot.name))
        spots[at] = spot
    return ScatterPlot(
        tuple(spot for spot in spots if spot), x.ticks(7), y.ticks(6), width, height, x.start, x.end, y.end, y.start
    )


def _limits(values: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """A little room around the values and their error bars."""
    if not values:
        return 0.0, 1.0
    low, high = min(v - s for v, s in values), max(v + s for v, s in values)
    room = 0.07 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


def _crowded_first(circles: Sequence[tuple[float, float, float]]) -> list[int]:
    """Dots with the nearest neighbours choose the place of their names first."""

    def nearest(at: int) -> float:
        x, y, _ = circles[at]
        return min((hypot(x - a, y - b) for k, (a, b, _) in enumerate(circles) if k != at), default=0.0)

    return sorted(range(len(circles)), key=lambda at: (nearest(at), at))


def _spot(dot: Dot, circle: tuple[float, float, float], x: Axis, y: Axis, taken: Sequence[Box], frame: Box) -> Spot:
    cx, cy, r = circle
    places = list(_places(cx, cy, r))
    costs = [_cost(_box(*place, dot.name), taken, frame) + 0.02 * k for k, place in enumerate(places)]
    label_x, label_y, align = places[costs.index(min(costs))]
    bars: list[Segment] = []
    if dot.x_spread:
        bars.append((x.at(dot.x - dot.x_spread), cy, x.at(dot.x + dot.x_spread), cy))
    if dot.y_spread:
        bars.append((cx, y.at(dot.y - dot.y_spread), cx, y.at(dot.y + dot.y_spread)))
    away = hypot(label_x - cx, label_y - cy) - r
    ends = label_y - LINE / 2 if align == "center" and label_y > cy else label_y + LINE / 2
    leader = ((cx, cy, round(label_x, 2), round(ends if align == "center" else label_y, 2)),) if away > FAR else ()
    said = f"{short(round(dot.x, 4))}, {short(round(dot.y, 4))}"
    place = round(label_x, 2), round(label_y, 2), align
    return Spot(dot.name, said, cx, cy, r, dot.series, dot.control, *place, tuple(bars), leader)


def _places(cx: float, cy: float, r: float) -> Iterator[tuple[float, float, str]]:
    """Where a name may stand, the best first: to the right, to the left, above, below, then farther away."""
    for away in (5.0, 16.0, 28.0, 42.0, 58.0):
        d = r + away
        yield cx + d, cy, "left"
        yield cx - d, cy, "right"
        yield cx, cy - d - 4, "center"
        yield cx, cy + d + 4, "center"
        for up in (-1, 1):
            yield cx + 0.7 * d, cy + up * 0.8 * d, "left"
            yield cx - 0.7 * d, cy + up * 0.8 * d, "right"


def _box(x: float, y: float, align: str, name: str) -> Box:
    width = LETTER * len(name)
    left = {"left": x, "right": x - width, "center": x - width / 2}[align]
    return left, y - LINE / 2, left + width, y + LINE / 2


def _cost(box: Box, taken: Sequence[Box], frame: Box) -> float:
    """The area that a name shares with what is there already, and what of it lies outside."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    return sum(_shared(box, other) for other in taken) + 4 * (area - _shared(box, frame))


def _shared(a: Box, b: Box) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
