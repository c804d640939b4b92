"""Draws panels: as pieces of HTML that need nothing from outside, and as PNG for papers and slides."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.views import colours
from vitreous.views.charts import amount, bar_places, lay_out
from vitreous.views.drawing import arrow_head, paint
from vitreous.views.panels import (
    Card,
    Curve,
    Histogram,
    Maps,
    Matrix,
    Panel,
    Pictures,
    Scatter,
    Section,
    Table,
    Text,
    Tile,
)
from vitreous.views.plane import Bars, Heat, Paths
from vitreous.views.plane_layout import lay_plane
from vitreous.views.scatter import lay_scatter
from vitreous.views.sheets import Sheet, lay_plate, lay_sheet

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUALITY = 86  # of lossy pictures; the eye finds nothing at twice the size
ENLARGED = 128  # smaller pictures are made this large once, so that browsers do not blur them each in its own way


@lru_cache(maxsize=1)
def templates() -> Environment:
    """The package's templates; whatever is put into them is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("vitreous"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals.update(kind_of=kind_of, picture_uri=picture_uri, veil_uri=veil_uri, lay_out=lay_out, heat_of=heat_of)
    env.globals.update(lay_sheet=lay_sheet, lay_plate=lay_plate, lay_scatter=lay_scatter, data_uri=data_uri)
    env.globals.update(lay_plane=lay_plane, arrow_head=arrow_head)
    env.globals.update(mark=colours.MARK, signs=colours.SIGNS)
    env.filters.update(number=number, amount=amount)
    return env


def kind_of(panel: Panel) -> str:
    return type(panel).__name__.lower()


def to_html(panel: Panel) -> Markup:
    """A panel as a piece of HTML: pictures are inside it, text is escaped. It is styled by the report's style sheet."""
    from markupsafe import Markup

    macros: Any = templates().get_template("panels.html.j2").module
    return Markup(macros.draw(panel))


def sections_html(sections: Sequence[Section]) -> Markup:
    """Sections with their panels as a piece of HTML, as they stand on a report."""
    from markupsafe import Markup

    macros: Any = templates().get_template("sections.html.j2").module
    return Markup(macros.draw(sections))


def number(value: object) -> str:
    """A table cell as text."""
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    return str(value)


# -- pixels


def data_uri(pixels: np.ndarray, lossless: bool = False) -> str:
    """uint8 (row, column, 3 or 4) as a link that holds the picture: WebP where Pillow can write it, else PNG."""
    from PIL import Image, features

    webp = features.check("webp")
    buffer = io.BytesIO()
    image = Image.fromarray(pixels)
    if webp:
        image.save(buffer, "WEBP", quality=QUALITY, lossless=lossless, method=4, exact=False)
    else:
        image.save(buffer, "PNG", optimize=True)
    kind = "webp" if webp else "png"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def enlarge(pixels: np.ndarray, least: int = ENLARGED) -> np.ndarray:
    """Makes a small picture so large that its shorter side has `least` pixels, smoothly."""
    from PIL import Image

    height, width = pixels.shape[:2]
    factor = least / min(height, width)
    if factor <= 1:
        return pixels
    size = (round(width * factor), round(height * factor))
    return np.asarray(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))


def picture_uri(tile: Tile) -> str:
    return data_uri(enlarge(tile.image))


def heat_of(tile: Tile, pictures: Pictures) -> np.ndarray | None:
    """The tile's heat map brought to [0, 1] by the scale of its panel, or by its own."""
    if tile.heat is None:
        return None
    return colours.scaled(tile.heat, *(pictures.heat_range or colours.span(tile.heat)))


def veil_uri(heat: np.ndarray) -> str:
    return data_uri(colours.veil(heat))


# -- PNG


def to_png(panel: Panel, width: float = 8.0, dpi: int = 120) -> bytes:
    """A panel as PNG, `width` inches wide. A card becomes its panels, one below the other."""
    figures = [_figure(part, width) for part in _leaves(panel)]
    pages = [_pixels(figure, dpi) for figure in figures]
    return _png(_stacked(pages))


def _leaves(panel: Panel) -> list[Panel]:
    if not isinstance(panel, Card):
        return [panel]
    claim = Text(panel.title, (panel.claim, *(f"{f.label}: {f.value} {f.note}".strip() for f in panel.facts)))
    return [claim, *(leaf for part in (*panel.aside, *panel.panels) for leaf in _leaves(part))]


def _pixels(figure: Figure, dpi: int) -> np.ndarray:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _stacked(pages: list[np.ndarray]) -> np.ndarray:
    widest = max(page.shape[1] for page in pages)
    padded = [np.pad(p, ((0, 0), (0, widest - p.shape[1]), (0, 0)), constant_values=255) for p in pages]
    return np.concatenate(padded)


def _png(pixels: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def _figure(panel: Panel, width: float) -> Figure:
    if isinstance(panel, Pictures):
        return _figure_of_pictures(panel, width)
    if isinstance(panel, Maps):
        return _figure_of_maps(panel, width)
    if isinstance(panel, Matrix):
        return _figure_of_matrix(panel, width)
    if isinstance(panel, Curve | Histogram):
        return _figure_of_lines(panel, width)
    if isinstance(panel, Scatter):
        return _figure_of_scatter(panel, width)
    if isinstance(panel, Heat | Bars | Paths):
        return _figure_of_drawing(panel, width)
    if isinstance(panel, Table):
        return _figure_of_table(panel, width)
    assert isinstance(panel, Text)
    return _figure_of_text(panel, width)


def _empty(width: float, height: float, title: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(_plain(title), fontsize=11, x=0.01, ha="left")
    return figure


def _plain(text: str) -> str:
    """matplotlib reads what stands between two dollars as mathematics; a name may hold them by chance."""
    return text.replace("$", r"\$")


def _figure_of_pictures(panel: Pictures, width: float) -> Figure:
    from matplotlib.patches import Rectangle

    across = panel.columns
    rows = [panel.tiles[first : first + across] for first in range(0, len(panel.tiles), across)] or [()]
    shapes = [[tile.image.shape for tile in row] for row in rows]
    heights = [width / across * max((high / wide for high, wide, _ in row), default=1) + 0.25 for row in shapes]
    figure = _empty(width, sum(heights) + 0.4, panel.title)
    grid = figure.subplots(len(rows), across, squeeze=False, height_ratios=heights)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, tile in zip(grid.flat, panel.tiles, strict=False):
        heat = heat_of(tile, panel)
        axes.imshow(tile.image if heat is None else colours.under(tile.image, colours.veil(heat)))
        axes.set_title(_plain(tile.caption), fontsize=7)
        for box in tile.boxes:
            corner, size = (box.x0 - 0.5, box.y0 - 0.5), (box.x1 - box.x0, box.y1 - box.y0)
            for colour, line in (("black", 3), ("white", 1.5)):  # to be seen on any ground
                axes.add_patch(Rectangle(corner, *size, fill=False, edgecolor=colour, linewidth=line))
    return figure


def _figure_of_maps(panel: Maps, width: float) -> Figure:
    sheet = lay_sheet(panel)
    figure, axes, points = _bare(width, sheet.width, sheet.height, panel.title)
    axes.imshow(sheet.pixels, extent=(0, sheet.width, sheet.height, 0), interpolation="antialiased", aspect="auto")
    for stroke in sheet.strokes:
        colour = colours.SIGNS[stroke.positive]
        axes.plot((stroke.x0, stroke.x1), (stroke.y0, stroke.y1), color=colour, linewidth=stroke.width * points)
    _draw_marks(axes, sheet, points)
    for y, name in sheet.row_labels:
        axes.text(sheet.left - 8, y, _plain(name), ha="right", va="center", fontsize=12 * points)
    for x, name in sheet.column_labels:
        axes.text(x, sheet.top - 8, _plain(name), ha="center", va="bottom", fontsize=12 * points)
    return figure


def _draw_marks(axes: Axes, sheet: Sheet, points: float) -> None:
    from matplotlib.patches import Circle, Rectangle

    cell = sheet.cell
    for place in sheet.places:
        corner, bold = (place.x, place.y), sheet.bold * points
        if place.colour or place.thin:
            colour, line = (place.colour, bold) if place.colour else ("black", points)
            axes.add_patch(Rectangle(corner, cell, cell, fill=False, edgecolor=colour, linewidth=line))
        if place.ring:
            middle = (place.x + cell / 2, place.y + cell / 2)
            axes.add_patch(Circle(middle, 0.74 * cell, fill=False, edgecolor=colours.MARK, linewidth=0.8 * bold))
        if place.cross:
            low, high = 0.22 * cell, 0.78 * cell
            for ends in ((low, high), (high, low)):
                across, down = (place.x + low, place.x + high), (place.y + ends[0], place.y + ends[1])
                axes.plot(across, down, color="white", linewidth=1.7 * bold, solid_capstyle="round")
            for ends in ((low, high), (high, low)):
                across, down = (place.x + low, place.x + high), (place.y + ends[0], place.y + ends[1])
                axes.plot(across, down, color=colours.MARK, linewidth=bold, solid_capstyle="round")


def _figure_of_matrix(panel: Matrix, width: float) -> Figure:
    plate = lay_plate(panel)
    figure, axes, points = _bare(width, plate.width, plate.height, panel.title)
    axes.imshow(
        plate.pixels,
        extent=(plate.left, plate.left + plate.side, plate.bottom, plate.bottom - plate.side),
        aspect="auto",
    )
    for at in plate.ticks:
        x, y = plate.left + at, plate.bottom - at
        axes.plot(
            (x, x), (plate.bottom, plate.bottom + 6), (plate.left - 6, plate.left), (y, y), color="black", lw=points
        )
    for at, name in plate.labels:
        size = 12 * points
        axes.text(plate.left + at, plate.bottom + 10, _plain(name), ha="center", va="top", fontsize=size)
        axes.text(plate.left - 10, plate.bottom - at, _plain(name), ha="right", va="center", fontsize=size)
    return figure


def _bare(width: float, across: float, down: float, title: str) -> tuple[Figure, Axes, float]:
    """A figure whose only axes run from the top left corner to (across, down), and how many points a unit has."""
    from matplotlib.figure import Figure

    head = 0.4 if title else 0.0
    height = width * down / across + head
    figure = Figure(figsize=(width, height))
    figure.text(0.01, 1 - 0.25 / height, _plain(title), fontsize=11, va="center")
    axes = figure.add_axes((0, 0, 1, 1 - head / height))
    axes.set(xlim=(0, across), ylim=(down, 0))
    axes.set_axis_off()
    axes.set_autoscale_on(False)
    return figure, axes, 72 * width / across


def _figure_of_lines(panel: Curve | Histogram, width: float) -> Figure:
    figure = _empty(width, width * 0.55, panel.title)
    axes: Axes = figure.subplots()
    for number, line in enumerate(panel.lines):
        colour = colours.SERIES[line.series % len(colours.SERIES)]
        style = "--" if line.control else "-"
        if isinstance(panel, Curve):
            dot = "o" if len(panel.x) == 1 else None  # a line of one point is none
            axes.plot(panel.x, line.y, style, marker=dot, color=colour, label=_plain(line.name))
            if line.low and line.high:
                axes.fill_between(panel.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        elif panel.beside:
            places = np.array(bar_places(panel, number))
            axes.bar(
                places[:, 0], line.y, np.diff(places, axis=1)[:, 0], align="edge", color=colour, label=_plain(line.name)
            )
        else:
            axes.stairs(line.y, panel.edges, color=colour, linestyle=style, label=_plain(line.name))
    if panel.log:
        axes.set_yscale("log")
        if isinstance(panel, Histogram) and panel.beside:
            axes.set_ylim(1 / 1.3, 1.3 * max([1.0, *(v for line in panel.lines for v in line.y)]))
    axes.set_xlabel(_plain(panel.x_label))
    axes.set_ylabel(_plain(panel.y_label))
    axes.spines[["top", "right"]].set_visible(False)
    if panel.lines:
        axes.legend(frameon=False, fontsize=8)
    return figure


def _figure_of_scatter(panel: Scatter, width: float) -> Figure:
    from matplotlib.patches import Circle

    plot = lay_scatter(panel)
    figure, axes, points = _bare(width, plot.width, plot.height, panel.title)
    for y, text in plot.y_ticks:
        axes.plot((plot.left, plot.right), (y, y), color="0.9", linewidth=0.8)
        axes.text(plot.left - 7, y, text, ha="right", va="center", fontsize=11 * points)
    for x, text in plot.x_ticks:
        axes.text(x, plot.bottom + 14, text, ha="center", va="center", fontsize=11 * points)
    axes.plot((plot.left, plot.right), (plot.bottom, plot.bottom), color="0.4", linewidth=0.8)
    for spot in plot.spots:
        colour = colours.SERIES[spot.series % len(colours.SERIES)]
        for x0, y0, x1, y1 in (*spot.bars, *spot.leader):
            axes.plot((x0, x1), (y0, y1), color=colour, linewidth=0.9 * points)
        fill = "none" if spot.control else colour
        axes.add_patch(Circle((spot.x, spot.y), spot.radius, facecolor=fill, edgecolor=colour, alpha=0.85, zorder=3))
        axes.text(
            spot.label_x,
            spot.label_y,
            _plain(spot.name),
            ha=spot.align,
            va="center",
            fontsize=11.5 * points,
            color=colour,
        )
    axes.text((plot.left + plot.right) / 2, plot.height - 8, _plain(panel.x_label), ha="center", fontsize=12 * points)
    axes.text(8, 12, _plain(panel.y_label), fontsize=12 * points)
    return figure


def _figure_of_drawing(panel: Heat | Bars | Paths, width: float) -> Figure:
    drawing = lay_plane(panel)
    figure, axes, points = _bare(width, drawing.width, drawing.height, panel.title)
    paint(axes, drawing, points)
    return figure


def _figure_of_table(panel: Table, width: float) -> Figure:
    figure = _empty(width, 0.32 * (len(panel.rows) + 1) + 0.5, panel.title)
    axes = figure.subplots()
    axes.set_axis_off()
    cells = [[_plain(number(cell)) for cell in row] for row in panel.rows]
    if cells:
        axes.table(cells, colLabels=[_plain(c) for c in panel.columns], loc="center", edges="horizontal")
    return figure


def _figure_of_text(panel: Text, width: float) -> Figure:
    import textwrap

    parts = [*panel.paragraphs, *panel.code.splitlines()]
    lines = [line for part in parts for line in textwrap.wrap(part, int(width * 13)) or [""]]
    figure = _empty(width, 0.2 * len(lines) + 0.45, panel.title)
    figure.text(0.01, 0.04, _plain("\n".join(lines)), fontsize=9, va="bottom")
    return figure
