"""Draws panels: as pieces of HTML that need nothing from outside, and as PNG for papers and slides."""

from __future__ import annotations

import base64
import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.views import colours
from vitreous.views.charts import amount, lay_out
from vitreous.views.panels import Card, Curve, Histogram, Panel, Pictures, Table, Text, Tile

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
    env.filters.update(number=number, amount=amount)
    return env


def kind_of(panel: Panel) -> str:
    return type(panel).__name__.lower()


def to_html(panel: Panel) -> Markup:
    """A panel as a piece of HTML: pictures are inside it, text is escaped. It is styled by the report's style sheet."""
    from markupsafe import Markup

    macros: Any = templates().get_template("panels.html.j2").module
    return Markup(macros.draw(panel))


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
    if isinstance(panel, Curve | Histogram):
        return _figure_of_lines(panel, width)
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

    rows = max(1, -(-len(panel.tiles) // panel.columns))
    figure = _empty(width, rows * (width / panel.columns + 0.25) + 0.4, panel.title)
    grid = figure.subplots(rows, panel.columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, tile in zip(grid.flat, panel.tiles, strict=False):
        heat = heat_of(tile, panel)
        axes.imshow(tile.image if heat is None else colours.under(tile.image, colours.veil(heat)))
        axes.set_title(_plain(tile.caption), fontsize=7)
        for box in tile.boxes:
            corner = (box.x0 - 0.5, box.y0 - 0.5)
            axes.add_patch(
                Rectangle(corner, box.x1 - box.x0, box.y1 - box.y0, fill=False, edgecolor="white", linewidth=1.5)
            )
    return figure


def _figure_of_lines(panel: Curve | Histogram, width: float) -> Figure:
    figure = _empty(width, width * 0.55, panel.title)
    axes: Axes = figure.subplots()
    for line in panel.lines:
        colour = colours.SERIES[line.series % len(colours.SERIES)]
        style = "--" if line.control else "-"
        if isinstance(panel, Curve):
            axes.plot(panel.x, line.y, style, color=colour, label=_plain(line.name))
            if line.low and line.high:
                axes.fill_between(panel.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
        else:
            axes.stairs(line.y, panel.edges, color=colour, linestyle=style, label=_plain(line.name))
    if panel.log:
        axes.set_yscale("log")
    axes.set_xlabel(_plain(panel.x_label))
    axes.set_ylabel(_plain(panel.y_label))
    axes.spines[["top", "right"]].set_visible(False)
    if panel.lines:
        axes.legend(frameon=False, fontsize=8)
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
