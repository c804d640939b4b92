"""Search over what units are called: labels that were found, names and comments that people gave, pictures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from vitreous.errors import VitreousError

if TYPE_CHECKING:
    from vitreous.examination import Examination
    from vitreous.notes import Notes

MOST = 100


@dataclass(frozen=True)
class Hit:
    """`kind` is label, name, comment or picture."""

    id: str
    kind: str
    text: str


class Words:
    """Labels are read once; notes are given anew each time."""

    def __init__(self, examination: Examination) -> None:
        self.examination = examination

    @cached_property
    def _fixed(self) -> list[Hit]:
        found = []
        for entry in self.examination.models:
            for block in entry.blocks:
                found += self._labels(entry.name, block)
        return found + [Hit(str(k), "picture", name) for k, name in enumerate(self.examination.pictures.names)]

    def _labels(self, model: str, block: int) -> list[Hit]:
        """Of units and sub-units; none where there are none, or where they cannot be read."""
        site = f"{model}/blocks.{block}.mlp.out"
        found = []
        try:
            finding = self.examination.disentanglement(model, block)
            units = self.examination.labels(model, block).names
            parts = self.examination.labels(model, block, subunits=True).names
        except VitreousError:
            return []
        for at, unit in enumerate(finding.units.tolist()):
            ids = [(f"{site}/{unit}", units[at])] if at < len(units) else []
            first, last = finding.starts[at], finding.starts[at + 1]
            ids += [(f"{site}/{unit}.{k}", name) for k, name in enumerate(parts[first:last])]
            found += [Hit(id, "label", name) for id, name in ids if name]
        return found

    def search(self, text: str, notes: Notes) -> list[Hit]:
        """Whatever has all words of the text; what people wrote first, then what begins with the text."""
        wanted = text.casefold().split()
        if not wanted:
            return []
        written = []
        for note in notes.current.values():
            said = (("name", note.name), ("comment", note.comment))
            written += [Hit(note.id, kind, words) for kind, words in said if words]
        hits = [hit for hit in [*written, *self._fixed] if _fits(hit.text, wanted)]
        begins = " ".join(wanted)
        order = {"name": 0, "comment": 1, "label": 2, "picture": 3}
        hits.sort(key=lambda hit: (order[hit.kind], not hit.text.casefold().startswith(begins)))
        return hits[:MOST]


def _fits(text: str, wanted: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in wanted)
