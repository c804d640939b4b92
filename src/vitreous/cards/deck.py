"""All cards of a run. What several cards share is read once; a part that cannot be read is said on every card."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.cards.claims import claim, evidence_rows
from vitreous.cards.lenses import align_part, disentangle_part, structure_part, token_part
from vitreous.cards.plain import plain
from vitreous.cards.sheet import Sheet
from vitreous.cards.sheet import unit_id as unit_id
from vitreous.errors import SettingsError
from vitreous.examination.profiles import ROWS

if TYPE_CHECKING:
    from vitreous.examination import Examination


class Deck:
    """Cards of all examined units, by model, block and unit."""

    def __init__(self, examination: Examination) -> None:
        self.run = examination
        self._sheets: dict[tuple[str, int], Sheet] = {}

    def __len__(self) -> int:
        return len(self.run.unit_ids)

    def sheet(self, model: str, block: int) -> Sheet:
        key = model, block
        if key not in self._sheets:
            self._sheets[key] = Sheet.read(self.run, model, block)
        return self._sheets[key]

    def sheets(self) -> Iterator[Sheet]:
        for entry in self.run.models:
            for block in entry.blocks:
                yield self.sheet(entry.name, block)

    def cards(self) -> Iterator[dict[str, Any]]:
        for model, block, unit in self.run.unit_ids:
            yield self.card(model, block, unit)

    def card(self, model: str, block: int, unit: int) -> dict[str, Any]:
        """One card; its id is its link."""
        sheet = self.sheet(model, block)
        if unit not in sheet.places:
            raise SettingsError(
                "this unit was not examined", given=unit, accepted=[str(u) for u in sorted(sheet.places)]
            )
        label = sheet.label(unit)
        return {
            "id": unit_id(model, block, unit),
            "model": model,
            "site": sheet.site,
            "block": block,
            "unit": unit,
            "dead": sheet.is_dead(unit),
            "claim": claim(sheet, unit, label),
            "label": label,
            "activation": _activation(sheet, unit),
            "rows": _rows(sheet, unit),
            "structure": structure_part(sheet, unit),
            "disentangle": disentangle_part(sheet, unit),
            "align": align_part(sheet, unit),
            "tokens": token_part(sheet, unit),
            "similar": self._similar(model, block, unit),
            "evidence": evidence_rows(sheet, unit),
            "code": code(self.run, model, block, unit),
            "missing": sheet.missing,
        }

    def columns(self) -> dict[str, list[Any]]:
        """One entry a unit: what the list of units shows, sorts and searches."""
        names = [entry.name for entry in self.run.models]
        found: dict[str, list[Any]] = {key: [] for key in COLUMNS}
        for model, block, unit in self.run.unit_ids:
            sheet = self.sheet(model, block)
            label, strongest = sheet.label(unit), sheet.strongest(unit)
            row = (
                unit_id(model, block, unit),
                names.index(model),
                sheet.site,
                block,
                unit,
                None if label is None else label["text"],
                None if label is None else label["score"],
                sheet.evidence_of("ms", unit),
                sheet.evidence_of("ms_control", unit),
                sheet.subunit_count(unit),
                sheet.cluster_size(unit),
                int(sheet.is_dead(unit)),
                strongest["picture"] if strongest else 0,
                strongest["heat"] if strongest else None,
                sheet.sublabels(unit),
            )
            for key, value in zip(COLUMNS, row, strict=True):
                found[key].append(value)
        return found

    @cached_property
    def _alike(self) -> tuple[np.ndarray, np.ndarray, dict[tuple[str, int, int], int]] | None:
        if self.run.missing(lambda: self.run.similar) is not None:
            return None
        units, r = self.run.similar
        numbers = {one: k for k, one in enumerate(self.run.unit_ids)}
        return (units, r, numbers) if len(units) == len(numbers) else None

    def _similar(self, model: str, block: int, unit: int) -> list[dict[str, Any]]:
        if self._alike is None:
            return []
        units, r, numbers = self._alike
        mine = numbers[model, block, unit]
        found = []
        for other, value in zip(units[mine].tolist(), r[mine].tolist(), strict=True):
            if 0 <= other < len(self):
                name, at, which = self.run.unit_ids[other]
                label = self.sheet(name, at).label(which)
                text = None if label is None else label["text"]
                found.append({"id": unit_id(name, at, which), "r": plain(value), "label": text})
        return found


COLUMNS = (
    "id",
    "model",
    "site",
    "block",
    "unit",
    "label",
    "score",
    "ms",
    "control",
    "subunits",
    "cluster",
    "dead",
    "top",
    "heat",
    "sublabels",
)


def code(run: Examination, model: str, block: int, unit: int) -> str:
    """Python that opens this unit; it runs beside the run folder."""
    return "\n".join(
        (
            "import vitreous as vt",
            "",
            f"run = vt.open_run({run.folder.resolve().name!r})",
            f"finding = run.disentanglement({model!r}, {block})",
            f"position = finding.units.tolist().index({unit})",
            f"finding.counts[position], finding.rho[position], finding.subunits({unit})",
            "",
            f"profile = run.profile({model!r}, {block})",
            "profile.pictures[position, 0]  # its strongest pictures; run.pictures.image(k) is picture k",
            "",
            f"hidden = run.store({model!r})['blocks.{block}.mlp.hidden'][:4]",
            "hidden @ finding.weight[position] + finding.bias[position]  # its activation, (picture, token)",
        )
    )


def _activation(sheet: Sheet, unit: int) -> dict[str, Any] | None:
    if sheet.profile is None:
        return None
    found, at = sheet.profile, sheet.places[unit]
    return {
        "edges": plain(found.edges[at]),
        "counts": plain(found.counts[at]),
        "mean": plain(found.mean[at]),
        "std": plain(found.std[at]),
        "positive": plain(found.positive[at]),
    }


def _rows(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    """The strongest pictures and some from each lower stretch; stretches without pictures are left out."""
    if sheet.profile is None:
        return []
    found, at = sheet.profile, sheet.places[unit]
    rows = []
    for k, (title, _) in enumerate(ROWS):
        there = np.flatnonzero(found.pictures[at, k] >= 0)
        if len(there):
            values = found.values[at, k, there]
            tiles = [
                sheet.tile(
                    found.pictures[at, k, j], found.patches[at, k, j], found.values[at, k, j], found.heat[at, k, j]
                )
                for j in there
            ]
            rows.append({"title": title, "low": plain(values.min()), "high": plain(values.max()), "tiles": tiles})
    return rows
