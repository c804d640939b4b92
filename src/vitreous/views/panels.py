"""What can be shown: frozen values that say what is drawn, not how. `vitreous.render` draws them.

A panel is a `Pictures`, `Maps`, `Matrix`, `Curve`, `Histogram`, `Scatter`, `Heat`, `Bars`, `Paths` (`views.plane`),
`Table`, `Text`, or a `Card` that holds some of these beside a claim. `as_json` gives everything but the pixels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.plane import Bars, Heat, Paths

Cell = str | int | float
THIN, BARE = -1, -2  # frames of a map that have no colour of their own: a thin line, none at all


@dataclass(frozen=True)
class Box:
    """A rectangle in pixels of its picture, origin at the top left."""

    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, eq=False)
class Tile:
    """One picture, uint8 (row, column, colour), and what it shows in words (`alt`).

    `heat` (row, column) is laid over it: bright where it is high, NaN where the model saw nothing.
    """

    image: np.ndarray
    alt: str
    caption: str = ""
    heat: np.ndarray | None = None
    boxes: tuple[Box, ...] = ()

    def __post_init__(self) -> None:
        if self.image.dtype != np.uint8 or self.image.ndim != 3 or self.image.shape[2] != 3:
            raise SettingsError(
                "a tile's picture is uint8 (row, column, colour)", given=(self.image.dtype, self.image.shape)
            )
        if self.heat is not None and self.heat.shape != self.image.shape[:2]:
            raise SettingsError(
                "a heat map is as large as its picture", given=self.heat.shape, accepted=str(self.image.shape[:2])
            )


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures in rows of `columns`. With `heat_range` all heat maps share this scale, else each has its own."""

    title: str
    tiles: tuple[Tile, ...]
    columns: int
    caption: str = ""
    heat_range: tuple[float, float] | None = None
    series: int | None = None

    def __post_init__(self) -> None:
        if self.columns < 1:
            raise SettingsError("pictures need at least one column", given=self.columns)


@dataclass(frozen=True)
class Link:
    """A line from one cell (row, column) of `Maps` to another: thick if the weight is large, coloured by its sign."""

    start: tuple[int, int]
    end: tuple[int, int]
    weight: float


@dataclass(frozen=True, eq=False)
class Maps:
    """A table of small filled contour maps: `values` (row, column, height, width), NaN where there is nothing.

    `frames` int (row, column): a colour from 0 on, `THIN` or `BARE`. `crosses` and `rings` bool (row, column) mark
    cells. All maps share the scale from `low` to `high`.
    """

    title: str
    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    frames: np.ndarray
    crosses: np.ndarray
    rings: np.ndarray
    links: tuple[Link, ...] = ()
    low: float = 0.0
    high: float = 1.0
    caption: str = ""

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.values.ndim != 4 or not self.values.size:
            raise SettingsError("maps are (row, column, height, width)", given=self.values.shape)
        for name, part in (("values", self.values), *((n, self.__dict__[n]) for n in ("frames", "crosses", "rings"))):
            if part.shape[:2] != shape:
                raise SettingsError(f"{name} do not fit the rows and columns", given=part.shape, accepted=str(shape))
        for row, column in (cell for link in self.links for cell in (link.start, link.end)):
            if not (0 <= row < shape[0] and 0 <= column < shape[1]):
                raise SettingsError(
                    "a link points to a cell that is not there", given=(row, column), accepted=f"cells of {shape}"
                )


@dataclass(frozen=True, eq=False)
class Matrix:
    """A square grey picture, uint8 (row, column): black is 0. Row and column 0 are at the lower left corner.

    `starts` are the rows at which the parts called `names` begin.
    """

    title: str
    values: np.ndarray
    starts: tuple[int, ...]
    names: tuple[str, ...]
    caption: str = ""

    def __post_init__(self) -> None:
        square = self.values.ndim == 2 and self.values.shape[0] == self.values.shape[1]
        if self.values.dtype != np.uint8 or not square or not self.values.size:
            raise SettingsError("a matrix is uint8 and square", given=(self.values.dtype, self.values.shape))
        if len(self.starts) != len(self.names) or list(self.starts) != sorted({*self.starts}):
            raise SettingsError("a matrix names where its parts begin, in order", given=self.starts)


@dataclass(frozen=True)
class Line:
    """One line of a curve or outline of a histogram.

    `series` picks the colour, so that a model keeps its colour over a whole report; a `control` is drawn dashed.
    `low` and `high`, if given, bound a band around it.
    """

    name: str
    y: tuple[float, ...]
    series: int = 0
    control: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True)
class Curve:
    """Lines over shared positions `x`; `baseline` is the value that means nothing special, such as chance."""

    title: str
    x: tuple[float, ...]
    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    caption: str = ""
    log: bool = False
    baseline: float | None = None

    def __post_init__(self) -> None:
        for line in self.lines:
            lengths = {len(part) for part in (line.y, line.low or line.y, line.high or line.y)}
            if lengths != {len(self.x)} or not self.x:
                raise SettingsError(f"line {line.name!r} needs one value for each of {len(self.x)} positions")
            _finite(line)


@dataclass(frozen=True)
class Histogram:
    """Counts (or shares) between shared `edges`: outlines, or with `beside` bars next to each other."""

    title: str
    edges: tuple[float, ...]
    lines: tuple[Line, ...]
    x_label: str
    y_label: str
    caption: str = ""
    log: bool = False
    beside: bool = False

    def __post_init__(self) -> None:
        for line in self.lines:
            if len(line.y) != len(self.edges) - 1:
                raise SettingsError(
                    f"histogram {line.name!r} needs one value between each two of {len(self.edges)} edges"
                )
            _finite(line)


@dataclass(frozen=True)
class Dot:
    """One point of a scatter, named beside it. Its area grows with `size`; a `control` is drawn hollow.

    `x_spread` and `y_spread` are half the lengths of its error bars, 0 for none.
    """

    name: str
    x: float
    y: float
    size: float = 1.0
    series: int = 0
    control: bool = False
    x_spread: float = 0.0
    y_spread: float = 0.0


@dataclass(frozen=True)
class Scatter:
    """Points in a plane, each with its name."""

    title: str
    dots: tuple[Dot, ...]
    x_label: str
    y_label: str
    caption: str = ""

    def __post_init__(self) -> None:
        for dot in self.dots:
            if not np.isfinite([dot.x, dot.y, dot.size, dot.x_spread, dot.y_spread]).all() or dot.size <= 0:
                raise SettingsError(f"dot {dot.name!r} cannot be drawn", given=(dot.x, dot.y, dot.size))


@dataclass(frozen=True)
class Table:
    """Rows under named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise SettingsError(f"every row of table {self.title!r} needs {len(self.columns)} cells")


@dataclass(frozen=True)
class Text:
    """Paragraphs, and lines of code if there are any."""

    title: str
    paragraphs: tuple[str, ...]
    code: str = ""


@dataclass(frozen=True)
class Fact:
    """One number with its name, and in a few words what it says."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Meter:
    """A value between `low` and `high` with the control beside it, to be seen at a glance."""

    label: str
    value: float
    control: float
    low: float
    high: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class Card:
    """A claim with its evidence: what is said, the numbers behind it, and the panels that show it."""

    title: str
    claim: str
    tag: str = ""
    series: int = 0
    meter: Meter | None = None
    facts: tuple[Fact, ...] = ()
    aside: tuple[Panel, ...] = ()
    panels: tuple[Panel, ...] = ()
    code: str = ""


Panel = Pictures | Maps | Matrix | Curve | Histogram | Scatter | Heat | Bars | Paths | Table | Text | Card


@dataclass(frozen=True, eq=False)
class Group:
    """Panels of one model, or of all if `series` is None, drawn in rows of `columns` where there is room."""

    title: str
    panels: tuple[Panel, ...]
    text: str = ""
    series: int | None = None
    columns: int = 1


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report: `name` is its link, `short` its name in the list of parts, `sentence` says what one sees."""

    name: str
    title: str
    sentence: str
    groups: tuple[Group, ...]
    short: str = ""


@dataclass(frozen=True)
class Statement:
    """A finding in plain words, and the section that shows it."""

    text: str
    section: str


@dataclass(frozen=True)
class Member:
    """A model of the report: its name, what it is, and its colour."""

    name: str
    about: str
    series: int


@dataclass(frozen=True, eq=False)
class Overview:
    """The head of a report: `hero` are a few pictures to begin with, `kind` says what sort of page it is."""

    lede: str
    data: str
    models: tuple[Member, ...]
    numbers: tuple[Fact, ...]
    statements: tuple[Statement, ...]
    hero: tuple[Tile, ...] = ()
    kind: str = "first look"


@dataclass(frozen=True, eq=False)
class Page:
    """What `write_report` takes."""

    title: str
    overview: Overview
    sections: tuple[Section, ...]


def as_json(value: Any) -> Any:
    """A panel, section or overview as plain values; arrays are named by shape and hash instead of being written out."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: as_json(value.__dict__[field.name]) for field in fields(value)}
        return {"kind": type(value).__name__.lower(), **parts}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return {"shape": list(value.shape), "dtype": str(value.dtype), "sha256": digest}
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise SettingsError("panels hold plain values and arrays", given=type(value).__name__)


def _finite(line: Line) -> None:
    if not np.isfinite([*line.y, *line.low, *line.high]).all():
        raise SettingsError(f"line {line.name!r} has values that cannot be drawn", accepted="finite numbers")
