"""Tables of the disentanglement studies: what was measured, laid out; nothing is computed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.dictionary_comparison.methods import TITLES

Rows = list[list[str]]
COLUMNS = (
    ("units", "units", "{:.0f}"),
    ("expansion", "expansion", "{:.2f}"),
    ("active", "active", "{:.1f}"),
    ("r2", "R²", "{:.4f}"),
    ("accuracy", "accuracy", "{:.3f}"),
    ("loss", "loss", "{:.3f}"),
    ("output_difference", "output differs by", "{:.2g}"),
    ("ms", "MS-Score", "{:.3f}"),
    ("ms_other", "MS-Score, judge", "{:.3f}"),
    ("same token", "same token", "{:.3f}"),
    ("same next", "same next", "{:.3f}"),
    ("scored", "scored", "{:.0f}"),
    ("rate", "pairs won", "{:.2f}"),
    ("seconds", "seconds", "{:.0f}"),
)


def put_tables(results: dict[str, Any], page: Path) -> None:
    """Replaces what stands between the markers of the page; a page that is not there is made of the tables alone."""
    tables = _tables(results)
    if not page.exists():
        page.write_text("")
    text = page.read_text()
    for name, rows in tables.items():
        if f"<!-- table: {name} -->" not in text:
            text += f"\n<!-- table: {name} -->\n<!-- end -->\n"
        pattern = re.compile(rf"(<!-- table: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
        made = _lines(rows)
        text = pattern.sub(lambda m, made=made: f"{m[1]}{made}\n{m[2]}", text)
    page.write_text(text)


def _lines(rows: Rows) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def _tables(results: dict[str, Any]) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for name, part in results.items():
        if name.startswith(("table2", "block")):
            found[name] = _comparison(part)
        elif name in ("layers", "layers-dino", "models", "expansions"):
            found[name] = _settings(part)
        elif name.startswith("table4"):
            found[name] = _stability(part)
        elif name.startswith("table7"):
            found[name] = _ablations(part)
    return found


def _cell(rows: list[dict[str, Any]], key: str, form: str, ranking: dict[str, Any] | None) -> str:
    """One method's number: of several seeds the mean and the standard deviation, of pairs won the interval."""
    if key == "rate":
        if ranking is None or rows[0]["method"] not in ranking["methods"]:
            return ""
        at = ranking["methods"].index(rows[0]["method"])
        low, high = ranking["intervals"][at]
        return f"{form.format(ranking['rates'][at])} [{low:.2f}, {high:.2f}]"
    there = [row[key] for row in rows if row.get(key) is not None]
    if not there:
        return ""
    mean = form.format(np.mean(there))
    return mean if len({*there}) == 1 else f"{mean} ± {form.format(np.std(there))}"


def _methods(part: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Rows of each method, seed by seed."""
    names = dict.fromkeys(row["method"] for row in part["rows"])
    return [[row for row in part["rows"] if row["method"] == name] for name in names]


def _comparison(part: dict[str, Any]) -> Rows:
    methods = _methods(part)
    shown = [c for c in COLUMNS if any(_cell(rows, c[0], c[2], part["ranking"]) for rows in methods)]
    lines = [["method", *(title for _, title, _ in shown)]]
    for rows in methods:
        lines.append([TITLES[rows[0]["method"]], *(_cell(rows, key, form, part["ranking"]) for key, _, form in shown)])
    return lines


def _settings(part: dict[str, Any]) -> Rows:
    """Table 6: one line a setting and method."""
    few = [c for c in COLUMNS if c[0] in ("expansion", "r2", "accuracy", "ms", "ms_other", "rate")]
    rows = [["setting", "method", *(title for _, title, _ in few)]]
    for name, one in part.items():
        for same in _methods(one):
            cells = (_cell(same, key, form, one["ranking"]) for key, _, form in few)
            rows.append([name, TITLES[same[0]["method"]], *cells])
    return rows


def _stability(part: dict[str, Any]) -> Rows:
    rows = [["method", "stability", "effective rank", "coherence", "expansion"]]
    for name, row in part["rows"].items():
        cells = [_spread(row.get(key)) for key in ("stability", "effective rank", "coherence")]
        rows.append([TITLES.get(name, name), *cells, ", ".join(f"{e:.2f}" for e in row.get("expansion", []))])
    return rows


def _spread(value: Any) -> str:
    if value is None:
        return ""
    return f"{value[0]:.4g} ± {value[1]:.2g}" if isinstance(value, list) else f"{value:.4g}"


def _ablations(part: dict[str, Any]) -> Rows:
    """Table 7: means with intervals, and in which direction a row differs from the base setting."""
    numbers = [f"{key}{less}" for key in ("ms", "ms judge") for less in ("", " less units", " less base")]
    less = ["less units", "less leaf"]
    rows = [["setting", "sub-units", "expansion", "noise", "MS-Score", *less, "MS-Score, judge", *less]]
    for name, row in part["rows"].items():
        if "note" in row:
            rows.append([name, row["note"], *[""] * (len(rows[0]) - 2)])
            continue
        more = [f"{row[key]:.2f}" if key in row else "" for key in ("expansion", "noise")]
        rows.append([name, f"{row['units']:.0f}", *more, *(_within(row.get(key), key) for key in numbers)])
    return rows


def _within(value: list[float] | None, key: str) -> str:
    if value is None:
        return ""
    mean, low, high = (f"{v:+.3f}" if "less" in key else f"{v:.3f}" for v in value)
    return f"{mean} [{low}, {high}]"


def rounded(value: Any) -> Any:
    """Four digits of every number."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
