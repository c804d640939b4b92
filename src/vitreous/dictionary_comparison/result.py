"""The table: rows of all methods and seeds, their means, and who wins pair by pair."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.dictionary_comparison.methods import METHODS, TITLES
from vitreous.dictionary_comparison.rows import Row, read_row
from vitreous.errors import SettingsError, StoreError
from vitreous.finding import Finding, columns
from vitreous.provenance import json_bytes, replace_file

RESULT, ROWS = "comparison.json", "rows"
FORMAT, VERSION = "vitreous dictionary comparison", 1


@dataclass(frozen=True)
class Column:
    """A number of a row: what it is called, and how it is written."""

    key: str
    title: str
    form: str

    def text(self, values: Sequence[float | None]) -> str:
        """The mean over seeds, with the standard deviation where they differ; empty where there is none."""
        there = [value for value in values if value is not None]
        if not there:
            return ""
        mean = format(float(np.mean(there)), self.form)
        return mean if len({*there}) == 1 else f"{mean} ± {format(float(np.std(there)), self.form)}"


COLUMNS = (
    Column("units", "units", ".0f"),
    Column("expansion", "expansion", ".2f"),
    Column("active", "active", ".1f"),
    Column("r2", "R²", ".4f"),
    Column("accuracy", "accuracy", ".3f"),
    Column("loss", "loss", ".3f"),
    Column("output_difference", "output differs by", ".2g"),
    Column("ms", "MS-Score", ".3f"),
    Column("ms_other", "MS-Score, judge", ".3f"),
    Column("scored", "scored", ".0f"),
    Column("rate", "pairs won", ".2f"),
    Column("effective_rank", "effective rank", ".0f"),
    Column("coherence", "coherence", ".2f"),
    Column("seconds", "seconds", ".0f"),
)


@dataclass(frozen=True, eq=False)
class DictionaryComparison(Finding):
    """`rows` of every method and seed, in the order of the table; `settings` all that they were made with.

    `ranking` is what `coherence_rank` says of the methods, pair by pair, as plain values; None where nobody could say.
    `notes` are sentences about what was left out, and why.
    """

    rows: tuple[Row, ...]
    ranking: Mapping[str, Any] | None
    settings: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"DictionaryComparison({self.settings['site']!r}: {len(self.methods)} methods, {len(self.rows)} rows)"

    @property
    def methods(self) -> tuple[str, ...]:
        there = {row.method for row in self.rows}
        return tuple(name for name in METHODS if name in there)

    def values(self, method: str, key: str) -> list[float | None]:
        """A number of one method, seed by seed; `rate` is the share of pairs that it won."""
        if method not in self.methods:
            raise SettingsError("this method was not compared", given=method, accepted=self.methods)
        if key == "rate":
            ranked = self.ranking["methods"] if self.ranking else ()
            return [self.ranking["rates"][ranked.index(method)]] if self.ranking and method in ranked else [None]
        if key not in Row.__annotations__:
            raise SettingsError("no such number", given=key, accepted=[column.key for column in COLUMNS])
        return [row.__dict__[key] for row in self.rows if row.method == method]

    def mean(self, method: str, key: str) -> float | None:
        there = [value for value in self.values(method, key) if value is not None]
        return float(np.mean(there)) if there else None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Those that say something of at least one method."""
        return tuple(c for c in COLUMNS if any(self.mean(method, c.key) is not None for method in self.methods))

    def cells(self) -> list[dict[str, str]]:
        """The table as text, one mapping a method."""
        return [
            {"method": TITLES[method]} | {c.title: c.text(self.values(method, c.key)) for c in self.columns}
            for method in self.methods
        ]

    def table(self) -> str:
        """The table in plain text, notes below."""
        cells = self.cells()
        names = list(cells[0])
        wide = {name: max(len(name), *(len(row[name]) for row in cells)) for name in names}
        lines = ["  ".join(name.ljust(wide[name]) if name == "method" else name.rjust(wide[name]) for name in names)]
        for row in cells:
            parts = (row[n].ljust(wide[n]) if n == "method" else row[n].rjust(wide[n]) for n in names)
            lines.append("  ".join(parts).rstrip())
        return "\n".join([*lines, *self.notes])

    def facts(self) -> dict[str, Any]:
        return {"site": self.settings["site"], "methods": len(self.methods), "rows": len(self.rows)}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a method and seed."""
        rows = [row.facts() for row in self.rows]
        plain = [{k: v for k, v in row.items() if v is None or isinstance(v, int | float | str)} for row in rows]
        return columns(plain)

    def as_json(self) -> dict[str, Any]:
        """Everything but the arrays of the rows, as plain values."""
        rows = [row.facts() for row in self.rows]
        ranking = None if self.ranking is None else dict(self.ranking)
        return {"rows": rows, "ranking": ranking, "notes": list(self.notes), "settings": dict(self.settings)}

    def save(self, folder: str | Path) -> None:
        """Writes comparison.json beside the rows, which are there already."""
        about = {"format": FORMAT, "version": VERSION, "methods": [[row.method, row.seed] for row in self.rows]}
        replace_file(Path(folder) / RESULT, json_bytes(about | self.as_json()))

    @classmethod
    def load(cls, folder: str | Path) -> DictionaryComparison:
        """What `compare_dictionaries(..., out=folder)` left."""
        folder = Path(folder)
        try:
            found = json.loads((folder / RESULT).read_bytes())
            if found["format"] != FORMAT or found["version"] != VERSION:
                raise KeyError(f"{found['format']} {found['version']}")
            rows = [read_row(folder / ROWS, method, seed) for method, seed in found["methods"]]
        except FileNotFoundError as error:
            raise StoreError("no comparison here", given=str(folder), accepted=RESULT) from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise StoreError(
                f"not a comparison: {folder}: {error}", remedy="compare again into a new folder"
            ) from error
        if None in rows:
            raise StoreError(
                "a row of the comparison is gone", given=str(folder), remedy="compare again: it is made anew"
            )
        return cls(tuple(r for r in rows if r), found["ranking"], found["settings"], tuple(found["notes"]))
