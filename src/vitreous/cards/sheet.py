"""What the cards of one block share: its parts, read once, and why any of them is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vitreous.cards.plain import packed, plain
from vitreous.errors import VitreousError
from vitreous.examination.files import AGAIN

if TYPE_CHECKING:
    from vitreous.examination import Examination
    from vitreous.examination.opened import ModelEntry
    from vitreous.examination.profiles import Profile
    from vitreous.labels import Labels
    from vitreous.lenses.align_cut import Spectral
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.lenses.structure_finding import StructureFinding
    from vitreous.lenses.tokens_finding import TokenMaps

T = TypeVar("T")
SURE = 0.05  # a word that as many random sets of pictures fit as well is no name


def unit_id(model: str, block: int, unit: int, subunit: int | None = None) -> str:
    """The stable name and link of a unit, or of the sub-unit of this number."""
    name = f"{model}/blocks.{block}.mlp.out/{unit}"
    return name if subunit is None else f"{name}.{subunit}"


@dataclass(frozen=True, eq=False)
class Sheet:
    """Parts of one block of one model; None where there is none, and then `missing` says why and how to get it."""

    run: Examination
    entry: ModelEntry
    block: int
    finding: Disentanglement | None
    profile: Profile | None
    structure: StructureFinding | None
    near: tuple[np.ndarray, np.ndarray] | None
    maps: TokenMaps | None
    spectral: Spectral | None
    labels: Labels | None
    subunit_labels: Labels | None
    evidence: Mapping[str, list[float | None]]
    missing: list[dict[str, str]]

    @classmethod
    def read(cls, run: Examination, model: str, block: int) -> Sheet:
        missing: list[dict[str, str]] = []

        def part(lens: str, read: Callable[[], T]) -> T | None:
            try:
                return read()
            except VitreousError as error:
                why, how = str(error).splitlines()[0], AGAIN
                if "is not part of this run" in why:
                    how = "the reason says what it would take"
                if not any(one["lens"] == lens for one in missing):
                    missing.append({"lens": lens, "why": why, "how": how})
                return None

        finding = part("disentangle", lambda: run.disentanglement(model, block))
        profile = part("pictures", lambda: run.profile(model, block))
        structure = part("structure", lambda: run.structure(model))
        near = None if structure is None else part("structure", lambda: run.near(model))
        maps = part("tokens", lambda: run.token_maps(model, block))
        spectral = part("align", lambda: run.spectral)
        if spectral is not None and part("align", lambda: run.places) is None:
            spectral = None
        if spectral is not None and model not in {name for name, _ in spectral.blocks}:
            why = f"{model} is not in the universal space: its width is another"
            missing.append({"lens": "align", "why": why, "how": "examine with responses= to align models of any width"})
            spectral = None
        labels = part("words", lambda: run.labels(model, block))
        sub = part("words", lambda: run.labels(model, block, subunits=True))
        evidence = part("evidence", lambda: run.evidence(model, block)) or {}
        entry = run.model(model)
        made = cls(run, entry, block, finding, profile, structure, near, maps, spectral, labels, sub, evidence, missing)
        return made

    @property
    def model(self) -> str:
        return self.entry.name

    @property
    def site(self) -> str:
        return f"blocks.{self.block}.mlp.out"

    @cached_property
    def places(self) -> dict[int, int]:
        """Unit -> its position in the arrays of this block."""
        units = self.run.settings["units"][f"{self.model}/{self.block}"]
        return {int(unit): k for k, unit in enumerate(units)}

    def is_dead(self, unit: int) -> bool:
        return self.profile is not None and float(self.profile.std[self.places[unit]]) == 0

    # -- tiles

    def tile(self, picture: int, patch: int, value: float | None, heat: np.ndarray | None) -> dict[str, Any]:
        token = None if patch < 0 else int(patch) + len(self.entry.prefix)
        shown = None if heat is None else packed(self.on_grid(heat))
        return {"picture": int(picture), "token": token, "value": plain(value), "heat": shown}

    def on_grid(self, heat: np.ndarray) -> np.ndarray:
        """A map of this block (patch,) on the model's own grid, which blocks of a pyramid have not."""
        grid = self.entry.grid
        if len(heat) == grid.patches:
            return heat
        side = round(len(heat) ** 0.5)
        if side * side != len(heat):
            return np.zeros(grid.patches, np.uint8)
        rows = np.arange(grid.rows) * side // grid.rows
        columns = np.arange(grid.columns) * side // grid.columns
        return heat.reshape(side, side)[rows[:, None], columns[None]].ravel()

    def strongest(self, unit: int) -> dict[str, Any] | None:
        if self.profile is None:
            return None
        found, at = self.profile, self.places[unit]
        if found.pictures[at, 0, 0] < 0:
            return None
        return self.tile(
            found.pictures[at, 0, 0], found.patches[at, 0, 0], found.values[at, 0, 0], found.heat[at, 0, 0]
        )

    # -- words

    def label(self, unit: int) -> dict[str, Any] | None:
        return self._label(self.labels, self.places[unit])

    def subunit_label(self, number: int) -> dict[str, Any] | None:
        return self._label(self.subunit_labels, number)

    def best_word(self, unit: int) -> tuple[str, float] | None:
        """The best word and how likely it is luck, sure or not."""
        at = self.places[unit]
        if self.labels is None or at >= len(self.labels) or not self.labels[at]:
            return None
        return self.labels[at][0][0], float(self.labels.chance[at])

    def _label(self, labels: Labels | None, at: int) -> dict[str, Any] | None:
        """A name that is more than luck, None otherwise."""
        if labels is None or at >= len(labels) or not labels[at] or not labels.chance[at] <= SURE:
            return None
        (text, score), *others = labels[at]
        rest = [[word, plain(value)] for word, value in others]
        return {"text": text, "score": plain(score), "chance": plain(labels.chance[at]), "others": rest}

    def sublabels(self, unit: int) -> list[str] | None:
        if self.finding is None or self.subunit_labels is None:
            return None
        found = [self.subunit_label(int(k)) for k in self.finding.subunits(unit)]
        return list(dict.fromkeys(one["text"] for one in found if one is not None)) or None

    # -- numbers

    def evidence_of(self, name: str, unit: int) -> float | None:
        return self._number(name, self.places[unit])

    def subunit_evidence(self, name: str, number: int) -> float | None:
        return self._number(name, number)

    def _number(self, name: str, at: int) -> float | None:
        column = self.evidence.get(name, [])
        value = column[at] if at < len(column) else None
        return plain(value) if isinstance(value, int | float) else None

    def subunit_count(self, unit: int) -> int:
        return 0 if self.finding is None else len(self.finding.subunits(unit))

    def cluster(self, unit: int) -> tuple[int, int] | None:
        """Number of the cluster that this unit's channel belongs to, and at which token; None for none."""
        layer = self.layer
        if self.structure is None or layer is None or unit >= self.structure.labels.shape[2]:
            return None
        for token in range(len(self.structure.tokens)):
            if (found := int(self.structure.labels[layer, token, unit])) >= 0:
                return found, token
        return None

    def cluster_size(self, unit: int) -> int:
        found = self.cluster(unit)
        return 0 if found is None or self.structure is None else len(self.structure.clusters[found[0]])

    @cached_property
    def layer(self) -> int | None:
        """Which layer of the structure this block's stream is."""
        name = f"blocks.{self.block}.resid.out"
        return self.structure.layers.index(name) if self.structure and name in self.structure.layers else None

    @cached_property
    def duplicates(self) -> dict[int, list[str]]:
        """Sub-unit number -> ids of sub-units of other units that say the same (correlation 0.95 or more)."""
        from vitreous.examination.profiles import Layer

        if self.finding is None or self.run.missing(lambda: self.run.store(self.model)) is not None:
            return {}
        layer = Layer.of(self.run.store(self.model), self.finding, self.block)
        _, q = next(layer.batches("", False))
        names = {int(k): self.subunit_id(int(k)) for k in range(len(self.finding))}
        groups = self.finding.duplicates(q.reshape(-1, q.shape[-1]))
        return {int(k): [names[int(o)] for o in group if o != k] for group in groups for k in group}

    def subunit_id(self, number: int) -> str:
        assert self.finding is not None
        parent = int(self.finding.parents[number])
        return unit_id(
            self.model, self.block, int(self.finding.units[parent]), number - int(self.finding.starts[parent])
        )
