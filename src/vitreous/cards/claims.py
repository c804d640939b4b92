"""What a card claims in one sentence, and the evidence beside it, each number with its control."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitreous.cards.plain import number, plain
from vitreous.cards.sheet import SURE, Sheet


def claim(sheet: Sheet, unit: int, label: dict[str, Any] | None) -> str:
    """One plain sentence: what the unit answers to, as far as the evidence goes."""
    where = f"Unit {unit} of block {sheet.block} in {sheet.model}"
    if sheet.is_dead(unit):
        return f"{where} is dead: it gives the same for every patch of every picture."
    parts = sheet.subunit_count(unit)
    split = f" It splits into {parts} sub-units." if parts > 1 else ""
    if label is not None:
        return f"{where} answers most to pictures with “{label['text']}”.{split}"
    ms, control = sheet.evidence_of("ms", unit), sheet.evidence_of("ms_control", unit)
    if ms is not None and control is not None:
        alike = "alike" if ms > control else "no more alike than random ones"
        return f"{where} has no sure name; its strongest patches look {alike} to the model.{split}"
    return f"{where} has no name.{split}"


def evidence_rows(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    """Rows without a number are left out."""
    rows = [
        *_words(sheet, unit),
        *_alike(sheet, unit),
        *_parts(sheet, unit),
        *_again(sheet, unit),
        *_pixels(sheet, unit),
    ]
    return [row for row in rows if row["value"] is not None]


def _row(
    lens: str, text: str, value: Any, control: Any, note: str, low: Any = None, high: Any = None
) -> dict[str, Any]:
    return {
        "lens": lens,
        "claim": text,
        "value": plain(value),
        "control": plain(control),
        "low": plain(low),
        "high": plain(high),
        "note": note,
    }


def _words(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    best = sheet.best_word(unit)
    if best is None:
        return []
    word, chance = best
    verdict = "sure enough to be its name" if chance <= SURE else "too often luck to be its name"
    note = f"Share of random sets of pictures that no word fits as well: {verdict}. Control: what a name needs."
    return [_row("words", f"“{word}” fits its strongest pictures better than luck", 1 - chance, 1 - SURE, note)]


def _alike(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    value, control = sheet.evidence_of("ms", unit), sheet.evidence_of("ms_control", unit)
    note = "MS-Score: mean cosine of the layer at its strongest patches. Control: as many random patches."
    return [_row("disentangle", "Its strongest patches look alike to the model", value, control, note)]


def _parts(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    if sheet.finding is None or sheet.subunit_count(unit) < 2:
        return []
    mine = [int(k) for k in sheet.finding.subunits(unit) if not sheet.finding.dead[k]]
    scores = [score for k in mine if (score := sheet.subunit_evidence("subunit_ms", k)) is not None]
    if not scores:
        return []
    control = sheet.subunit_evidence("subunit_control", mine[0])
    note = f"Mean MS-Score of its sub-units. Control: {len(mine)} parts that take inputs at random."
    return [_row("disentangle", "Its sub-units are purer than chance", np.mean(scores), control, note)]


def _again(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    value, control = sheet.evidence_of("stability", unit), sheet.evidence_of("stability_control", unit)
    note = (
        "Cosine of its sub-units with those found on other patches of the same pictures. Control: all of them taken "
        "for the whole unit."
    )
    return [_row("disentangle", "Other patches give the same sub-units", value, control, note)]


def _pixels(sheet: Sheet, unit: int) -> list[dict[str, Any]]:
    value, control = sheet.evidence_of("lost", unit), sheet.evidence_of("lost_control", unit)
    low, high = sheet.evidence_of("lost_low", unit), sheet.evidence_of("lost_high", unit)
    note = (
        "Share of its activation that is lost when a quarter of the picture is covered: the patches that its "
        f"token's map names, against random ones ({number(control)}). 95 % over tokens."
    )
    return [_row("tokens", "It answers to the pixels that its tokens are made of", value, control, note, low, high)]
