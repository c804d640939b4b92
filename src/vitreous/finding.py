"""What every finding can do: show itself in a notebook, and leave as a table for pandas or parquet."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

SHOWN_ROWS, SHOWN_PICTURES = 8, 6
SMALLEST = 96  # pixels that a small picture is enlarged to

STYLE = (
    "<style>.vt table{border-collapse:collapse;margin:.4em 0}.vt td,.vt th{text-align:left;padding:.1em .7em .1em 0;"
    "border:0;font-size:90%}.vt figure{display:inline-block;margin:0 .8em .4em 0}.vt figcaption{font-size:80%}"
    ".vt img{image-rendering:pixelated;display:block}</style>"
)


class Finding:
    """Base of what lenses find. A finding says its `facts`, its rows as `columns_of_rows`, and has `thumbnails`."""

    def facts(self) -> dict[str, Any]:
        """A few numbers that say what was found."""
        return {}

    def columns_of_rows(self) -> dict[str, Any]:
        """The finding as a table: name of a column -> its values, one a row."""
        raise NotImplementedError(type(self).__name__)

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        """Captions and small pictures uint8 (row, column, 3); none where there is nothing to look at."""
        return []

    def to_pandas(self) -> Any:
        """A data frame, one row a unit, sub-unit, token, region or whatever was found."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self.columns_of_rows())

    def to_parquet(self, path: str | Path) -> Path:
        """The same table as a parquet file, with the facts as JSON under the key "vitreous"."""
        import pyarrow
        from pyarrow import parquet

        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        about = {"kind": type(self).__name__, "facts": self.facts()}
        table = pyarrow.table({name: pyarrow.array(values) for name, values in self.columns_of_rows().items()})
        table = table.replace_schema_metadata({b"vitreous": json.dumps(about, default=str).encode()})
        parquet.write_table(table, path)
        return path

    def _repr_html_(self) -> str:
        """What a notebook shows: the facts, pictures where there are some, and the first rows."""
        columns = self.columns_of_rows()
        rows = len(next(iter(columns.values()), ()))
        first = {name: values[:SHOWN_ROWS] for name, values in columns.items()}
        parts = [STYLE, f"<b>{html.escape(type(self).__name__)}</b>", _facts_table(self.facts())]
        parts += [_figure(caption, picture) for caption, picture in self.thumbnails()[:SHOWN_PICTURES]]
        parts.append(_rows_table(first))
        if rows > SHOWN_ROWS:
            parts.append(f"<small>{SHOWN_ROWS} of {rows:,} rows; <code>to_pandas()</code> has all</small>")
        return f'<div class="vt">{"".join(parts)}</div>'


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows as mappings -> one list a column; what a row does not have is None."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def heat(values: np.ndarray) -> np.ndarray:
    """Numbers (row, column) -> uint8 (row, column, 3), from dark to bright; flat ones are dark."""
    low, high = np.nanmin(values), np.nanmax(values)
    share = np.nan_to_num((values - low) / (high - low if high > low else 1))[..., None]
    dark, middle, bright = (np.array(colour, float) for colour in ((20, 24, 48), (33, 145, 140), (253, 231, 37)))
    low_half = dark + (middle - dark) * np.minimum(2 * share, 1)
    return (low_half + (bright - middle) * np.maximum(2 * share - 1, 0)).round().astype(np.uint8)


def shades(labels: np.ndarray) -> np.ndarray:
    """Whole numbers (row, column) -> uint8 (row, column, 3), one colour a number; grey below 0."""
    turn = (labels * 0.61803) % 1.0  # neighbouring numbers get distant hues
    wave = 2 * np.pi * (turn[..., None] + np.array([0, 1 / 3, 2 / 3]))
    found = (145 + 95 * np.cos(wave)).round().astype(np.uint8)
    found[labels < 0] = 128
    return found


def _facts_table(facts: dict[str, Any]) -> str:
    cells = (f"<tr><th>{html.escape(str(k))}</th><td>{_cell(v)}</td></tr>" for k, v in facts.items())
    return f"<table>{''.join(cells)}</table>" if facts else ""


def _rows_table(columns: dict[str, Any]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    rows = zip(*columns.values(), strict=True)
    body = "".join("<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return html.escape(str(value))


def _figure(caption: str, picture: np.ndarray) -> str:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(picture))
    times = max(1, round(SMALLEST / max(1, min(image.size))))
    image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "PNG")
    data = base64.b64encode(file.getvalue()).decode()
    label = html.escape(caption)
    return f'<figure><img alt="{label}" src="data:image/png;base64,{data}"><figcaption>{label}</figcaption></figure>'
