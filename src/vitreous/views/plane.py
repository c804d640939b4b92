"""Panels of numbers by name and of points in a plane: a coloured table, bars, and paths through a cloud."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.errors import SettingsError


@dataclass(frozen=True, eq=False)
class Heat:
    """A table of coloured cells: `values` (row, column), NaN where there is nothing; colours from `low` to `high`.

    Where `low` is below 0 colours part at 0. `row_parts` and `column_parts` (name, length) bind rows and columns
    together; with `numbers` each cell says its value.
    """

    title: str
    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    low: float
    high: float
    x_label: str = ""
    y_label: str = ""
    caption: str = ""
    numbers: bool = False
    row_parts: tuple[tuple[str, int], ...] = ()
    column_parts: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.values.shape != (len(self.rows), len(self.columns)) or not self.values.size:
            raise SettingsError(
                "a table has a value for each row and column",
                given=self.values.shape,
                accepted=f"({len(self.rows)}, {len(self.columns)})",
            )
        if not self.high > self.low:
            raise SettingsError("colours run from low to high", given=(self.low, self.high))
        for names, parts in ((self.rows, self.row_parts), (self.columns, self.column_parts)):
            if parts and sum(length for _, length in parts) != len(names):
                raise SettingsError("parts hold all rows or columns", given=parts, accepted=f"{len(names)} together")


@dataclass(frozen=True)
class Bar:
    """Bars of one colour, one for each name; `marks` are thin lines beside them, such as a ceiling."""

    name: str
    values: tuple[float, ...]
    series: int = 0
    marks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Bars:
    """Lying bars in groups called `names`. A value that is no number has no bar."""

    title: str
    names: tuple[str, ...]
    bars: tuple[Bar, ...]
    x_label: str
    caption: str = ""
    mark_label: str = ""

    def __post_init__(self) -> None:
        for bar in self.bars:
            if len(bar.values) != len(self.names) or len(bar.marks) not in (0, len(self.names)) or not self.names:
                raise SettingsError(f"bars {bar.name!r} need one value for each of {len(self.names)} names")


@dataclass(frozen=True, eq=False)
class Path:
    """A way through the plane: `points` (step, 2)."""

    name: str
    points: np.ndarray
    series: int = 0


@dataclass(frozen=True, eq=False)
class Paths:
    """Points (point, 2) with a colour each (`shades` uint8 (point, 3)), and paths among them.

    `circles` (x, y, radius, name) mark places.
    """

    title: str
    points: np.ndarray
    shades: np.ndarray
    paths: tuple[Path, ...] = ()
    circles: tuple[tuple[float, float, float, str], ...] = ()
    caption: str = ""

    def __post_init__(self) -> None:
        if self.points.ndim != 2 or self.points.shape[1] != 2 or not len(self.points):
            raise SettingsError("points of a plane are (point, 2)", given=self.points.shape)
        if self.shades.shape != (len(self.points), 3) or self.shades.dtype != np.uint8:
            raise SettingsError("every point has a colour, uint8 (point, 3)", given=self.shades.shape)
        for path in self.paths:
            if path.points.ndim != 2 or path.points.shape[1] != 2 or len(path.points) < 2:
                raise SettingsError(f"path {path.name!r} needs two points or more", given=path.points.shape)
