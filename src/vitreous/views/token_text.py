"""Words coloured by how much they count (Figures 6 and 16): as HTML, in the terminal, and as pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from markupsafe import Markup
    from rich.text import Text

HOT = (214, 69, 24)
DEEPEST = 0.78  # of the colour at the highest score, so that black letters can be read on it
WIDTH, SIZE, LINE = 900, 17, 27  # of a drawn text, in pixels


def strengths(scores: Sequence[float] | np.ndarray, top: float | None = None) -> np.ndarray:
    """Scores (token,) brought to [0, 1]: 0 or less is 0, `top` is 1, by default the 95th percentile.

    One word that stands out, often the first of a text, would leave all others pale.
    """
    values = np.asarray(scores, np.float64)
    if values.ndim != 1 or not np.isfinite(values).all():
        raise SettingsError("scores are finite and (token,)", given=values.shape)
    high = float(np.quantile(values, 0.95)) if top is None and len(values) else float(top or 0)
    return np.clip(values / high, 0, 1) if high > 0 else np.zeros(len(values))


def text_html(words: Sequence[str], scores: Sequence[float] | np.ndarray, *, top: float | None = None) -> Markup:
    """A paragraph that needs no style sheet; each word says its score when pointed at. Words are escaped."""
    from markupsafe import Markup, escape

    parts = []
    for word, strength, score in zip(words, _checked(words, scores, top), scores, strict=True):
        shown = Markup("<br>").join(escape(piece) for piece in word.split("\n"))
        ground = "rgba({}, {}, {}, {:.2f})".format(*HOT, DEEPEST * strength)
        style = f"background:{ground};border-radius:3px"
        parts.append(Markup('<span style="{}" title="{:.4g}">{}</span>').format(style, float(score), shown))
    head = Markup('<p class="coloured" style="line-height:1.7;white-space:pre-wrap">')
    return head + Markup("").join(parts) + Markup("</p>")


def text_terminal(words: Sequence[str], scores: Sequence[float] | np.ndarray, *, top: float | None = None) -> Text:
    """For `rich`: the stronger, the redder the ground. It wraps where the terminal does."""
    from rich.text import Text

    out = Text()
    for word, strength in zip(words, _checked(words, scores, top), strict=True):
        colour = "#{:02x}{:02x}{:02x}".format(*_ground(strength))
        out.append(word, style=f"black on {colour}" if strength > 0.02 else "")
    return out


def text_picture(
    words: Sequence[str], scores: Sequence[float] | np.ndarray, *, top: float | None = None, width: int = WIDTH
) -> np.ndarray:
    """uint8 (row, column, colour): the same, drawn."""
    from pathlib import Path

    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), SIZE)
    x, y, placed = 0.0, 0, []
    for word, strength in zip(words, _checked(words, scores, top), strict=True):
        for k, piece in enumerate(word.split("\n")):
            length = font.getlength(piece)
            if k or (x + length > width and x > 0):
                x, y = 0.0, y + LINE
                piece = piece.lstrip(" ")
                length = font.getlength(piece)
            placed.append((x, y, length, piece, strength))
            x += length
    page = Image.new("RGB", (width, y + LINE), "white")
    pen = ImageDraw.Draw(page)
    for left, upper, length, piece, strength in placed:
        if strength > 0:
            pen.rectangle([left, upper + 2, left + length, upper + LINE - 3], fill=_ground(strength))
        pen.text((left, upper + 3), piece, font=font, fill="black")
    return np.asarray(page)


def _checked(words: Sequence[str], scores: Sequence[float] | np.ndarray, top: float | None) -> np.ndarray:
    if len(words) != len(scores):
        raise SettingsError("one score for each word", given=(len(words), len(scores)))
    return strengths(scores, top)


def _ground(strength: float) -> tuple[int, int, int]:
    share = DEEPEST * strength
    red, green, blue = (round(255 * (1 - share) + share * hot) for hot in HOT)
    return red, green, blue
