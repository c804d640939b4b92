"""Where the marks of tables, bars and paths lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from vitreous.views.charts import Axis, amount, short
from vitreous.views.drawing import Drawing, Knob, Rect, Stroke, Words
from vitreous.views.plane import Bars, Heat, Paths

WIDTH = 560.0
LETTER = 6.4  # room that a letter takes
CELL, WIDEST, NARROWEST = 22.0, 46.0, 9.0
COLD, MIDDLE, WARM = (33, 102, 172), (247, 247, 247), (178, 24, 43)
LOW, HIGH = (247, 251, 255), (8, 64, 129)
NOTHING = "#b8bdbb"
BAR, GAP = 13.0, 10.0
CLOUD = 420.0


def lay_plane(panel: Heat | Bars | Paths) -> Drawing:
    if isinstance(panel, Heat):
        return lay_heat(panel)
    return lay_bars(panel) if isinstance(panel, Bars) else lay_paths(panel)


# -- tables


def cell_colour(value: float, low: float, high: float) -> tuple[str, str]:
    """Hex of a cell and of the ink on it."""
    if not np.isfinite(value):
        return NOTHING, "#000000"
    if low < 0:
        share = float(np.clip(value / max(high, -low), -1, 1))
        rgb = _mix(MIDDLE, WARM if share > 0 else COLD, abs(share))
    else:
        rgb = _mix(LOW, HIGH, float(np.clip((value - low) / (high - low), 0, 1)))
    light = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
    return "#{:02x}{:02x}{:02x}".format(*rgb), "#000000" if light > 140 else "#ffffff"


def _mix(a: Sequence[int], b: Sequence[int], share: float) -> tuple[int, int, int]:
    x, y, z = (round(p + share * (q - p)) for p, q in zip(a, b, strict=True))
    return x, y, z


def lay_heat(panel: Heat) -> Drawing:
    rows, columns = panel.values.shape
    widest = WIDEST if panel.numbers else CELL
    cell = max(NARROWEST, min(widest, 400 / columns))
    high = cell if not panel.numbers else max(CELL, 0.62 * cell)
    every = max(1, round(14 / cell))
    names = LETTER * max(map(len, panel.rows)) + 14
    left = max(names + _longest(panel.row_parts), LETTER * len(panel.y_label) + 8)
    top = 18 + (16 if panel.column_parts else 0)
    right, bottom = left + columns * cell, top + rows * high
    rects, words = [], []
    for r, c in np.ndindex(rows, columns):
        value = float(panel.values[r, c])
        fill, ink = cell_colour(value, panel.low, panel.high)
        said = amount(value) if np.isfinite(value) else "none"
        rects.append(Rect(left + c * cell, top + r * high, cell, high, _cell_title(panel, r, c, said), fill=fill))
        if panel.numbers and np.isfinite(value):
            words.append(Words(left + (c + 0.5) * cell, top + (r + 0.5) * high + 4, said, ink=ink))
    words += [Words(left - 7, top + (r + 0.5) * high + 4, n, "end") for r, n in enumerate(panel.rows) if not r % every]
    words += [Words(left + (c + 0.5) * cell, top - 6, n) for c, n in enumerate(panel.columns) if not c % every]
    strokes = list(_parted(panel, (left, top, right, bottom), cell, high, left - names, words))
    scale, below = _scale(panel, left, bottom)
    words += below
    if panel.y_label:
        words.append(Words(0, top - 6, panel.y_label, "start", size=12))
    return Drawing(max(right + 10, 240.0), bottom + 46, (*rects, *scale), tuple(strokes), tuple(words))


def _cell_title(panel: Heat, row: int, column: int, said: str) -> str:
    def part(parts: tuple[tuple[str, int], ...], at: int) -> str:
        for name, length in parts:
            if at < length:
                return f"{name} "
            at -= length
        return ""

    first = f"{part(panel.row_parts, row)}{panel.rows[row]}"
    return f"{first}, {part(panel.column_parts, column)}{panel.columns[column]}: {said}"


def _longest(parts: tuple[tuple[str, int], ...]) -> float:
    return LETTER * max(map(len, (name for name, _ in parts))) + 10 if parts else 0.0


def _parted(
    panel: Heat, box: tuple[float, float, float, float], cell: float, high: float, end: float, words: list[Words]
) -> Iterator[Stroke]:
    """Lines between parts, and their names into `words`."""
    left, top, right, bottom = box
    at = 0
    for name, length in panel.column_parts:
        words.append(Words(left + (at + length / 2) * cell, top - 20, name, size=12))
        at += length
        if at < panel.values.shape[1]:
            yield Stroke(((left + at * cell, top), (left + at * cell, bottom)), strong=True)
    at = 0
    for name, length in panel.row_parts:
        words.append(Words(end, top + (at + length / 2) * high + 4, name, "end", size=12))
        at += length
        if at < panel.values.shape[0]:
            yield Stroke(((left, top + at * high), (right, top + at * high)), strong=True)


def _scale(panel: Heat, left: float, bottom: float) -> tuple[list[Rect], list[Words]]:
    """Colours from low to high below the table, and what the columns are."""
    steps, wide = 24, 120.0
    values = np.linspace(panel.low, panel.high, steps)
    rects = [
        Rect(left + k * wide / steps, bottom + 24, wide / steps + 0.3, 8, fill=cell_colour(v, panel.low, panel.high)[0])
        for k, v in enumerate(values)
    ]
    words = [
        Words(left, bottom + 44, short(panel.low), "start"),
        Words(left + wide, bottom + 44, short(panel.high), "end"),
    ]
    if panel.x_label:
        words.append(Words(left, bottom + 16, panel.x_label, "start", size=12))
    return rects, words


# -- bars


def lay_bars(panel: Bars) -> Drawing:
    there = [v for bar in panel.bars for v in (*bar.values, *bar.marks) if np.isfinite(v)]
    low, high = min([0.0, *there]), max([0.0, *there])
    room = 0.06 * (high - low) or 1.0
    left = min(200.0, 16 + LETTER * max(map(len, panel.names)))
    x = Axis(low - (room if low < 0 else 0), high + (room if high > 0 else 0), left, WIDTH - 14)
    group = BAR * len(panel.bars) + GAP
    top = 30.0
    bottom = top + group * len(panel.names)
    rects, words = _bar_legend(panel)
    strokes = []
    for at, text in x.ticks(6):
        strokes.append(Stroke(((at, top), (at, bottom))))
        words.append(Words(at, bottom + 15, text))
    for n, name in enumerate(panel.names):
        y = top + n * group + GAP / 2
        words.append(Words(left - 8, y + BAR * len(panel.bars) / 2 + 4, name[: int(200 / LETTER)], "end"))
        for k, bar in enumerate(panel.bars):
            value = bar.values[n]
            if np.isfinite(value):
                a, b = sorted((x.at(0.0), x.at(value)))
                rects.append(
                    Rect(a, y + k * BAR, max(b - a, 0.8), BAR - 2, f"{bar.name}, {name}: {value:.3g}", bar.series)
                )
            if bar.marks and np.isfinite(bar.marks[n]):
                at = x.at(bar.marks[n])
                line = ((at, y + k * BAR - 1), (at, y + (k + 1) * BAR - 1))
                strokes.append(Stroke(line, bar.series, title=f"{panel.mark_label}: {bar.marks[n]:.3g}"))
    strokes.append(Stroke(((x.at(0.0), top), (x.at(0.0), bottom)), strong=True))
    words.append(Words((left + WIDTH) / 2, bottom + 33, panel.x_label, size=12))
    return Drawing(WIDTH, bottom + 40, tuple(rects), tuple(strokes), tuple(words))


def _bar_legend(panel: Bars) -> tuple[list[Rect], list[Words]]:
    rects, words, at = [], [], 0.0
    for bar in panel.bars if len(panel.bars) > 1 else ():
        rects.append(Rect(at, 3, 11, 11, series=bar.series))
        words.append(Words(at + 17, 13, bar.name, "start"))
        at += 34 + LETTER * len(bar.name)
    if panel.mark_label:
        words.append(Words(at, 13, f"| {panel.mark_label}", "start"))
    return rects, words


# -- paths


def lay_paths(panel: Paths) -> Drawing:
    """The cloud as a picture, the paths above it. Both axes have one scale, as distances are what counts."""
    around = [np.array([[x - r, y - r], [x + r, y + r]]) for x, y, r, _ in panel.circles]
    every = np.concatenate([panel.points, *(path.points for path in panel.paths), *around])
    low, high = every.min(0), every.max(0)
    side = float((high - low).max()) or 1.0
    low = (low + high - side) / 2 - 0.03 * side
    scale = CLOUD / (1.06 * side)

    def at(points: np.ndarray) -> np.ndarray:
        moved = (points - low) * scale
        return np.stack([moved[:, 0], CLOUD - moved[:, 1]], 1)

    strokes, knobs, words = [], [], []
    for path in panel.paths:
        steps = at(np.asarray(path.points, np.float64))
        points = tuple((round(float(a), 1), round(float(b), 1)) for a, b in steps)
        strokes.append(Stroke(points, path.series, arrow=True, title=path.name))
        knobs.append(Knob(*points[0], 4.0, path.series, f"{path.name}, first layer"))
        words.append(Words(points[0][0] + 7, points[0][1] - 6, path.name, "start", 15))
    for x, y, radius, name in panel.circles:
        ((cx, cy),) = at(np.array([[x, y]]))
        knobs.append(Knob(float(cx), float(cy), radius * scale, -1, name, hollow=True))
        words.append(Words(float(cx), float(cy) + 4, name, size=13))
    return Drawing(
        CLOUD,
        CLOUD,
        (),
        tuple(strokes),
        tuple(words),
        tuple(knobs),
        cloud(at(np.asarray(panel.points, np.float64)), panel.shades),
        (0.0, 0.0, CLOUD, CLOUD),
    )


def cloud(points: np.ndarray, shades: np.ndarray, pixels: int = 840, radius: int = 2) -> np.ndarray:
    """uint8 (row, column, 4): a small disc a point, in a random order that is always the same."""
    picture = np.zeros((pixels, pixels, 4), np.uint8)
    order = np.random.default_rng(0).permutation(len(points))
    x, y = np.clip((points[order] * pixels / CLOUD).astype(int), 0, pixels - 1).T
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if dx * dx + dy * dy <= radius * radius + 1:
                rows, columns = np.clip(y + dy, 0, pixels - 1), np.clip(x + dx, 0, pixels - 1)
                picture[rows, columns, :3] = shades[order]
                picture[rows, columns, 3] = 255
    return picture
