"""Units and the sub-units they split into, by their pictures; the same concept found twice is shown once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from vitreous.views.panels import Card, Fact, Group, Member, Overview, Pictures, Section, Statement, Table, Tile
from vitreous.views.patches import patch_box

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.axes import Grid
    from vitreous.images import ImageSet
    from vitreous.labels import Labels
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.models.subject import Subject
    from vitreous.preprocess import Preprocess
    from vitreous.subunits.pooled import Strongest

OF_UNIT, OF_SUBUNIT = 8, 6  # pictures shown
GROUPS = 8  # of the same concept in several units
MOST_SUBUNITS = 12  # shown of one unit


@dataclass(frozen=True, eq=False)
class SplitPictures:
    """A split layer and the pictures where its parts are strongest. `merged`: groups of sub-units that say the same."""

    finding: Disentanglement
    subject: Subject
    images: ImageSet
    strongest: Strongest
    labels: Labels | None
    threshold: float

    @cached_property
    def merged(self) -> tuple[np.ndarray, ...]:
        return self.finding.duplicates(self.strongest.inputs, self.threshold)

    @cached_property
    def patches(self) -> tuple[int, Grid | None]:
        """How many positions stand before the patches that the layer sees, and their grid; None if it sees none."""
        from vitreous.subunits.applied import layer_of
        from vitreous.subunits.layers import grid_at, prefix_at

        layer = layer_of(self.finding, self.subject)
        return prefix_at(self.subject, layer), grid_at(self.subject, layer, self.strongest.positions)

    @cached_property
    def group_of(self) -> dict[int, int]:
        """Sub-unit -> the group it is in."""
        return {int(sub): number for number, group in enumerate(self.merged) for sub in group}

    def name(self, sub: int) -> str:
        """The unit and which of its sub-units, with its label where there is one."""
        parent = int(self.finding.parents[sub])
        said = f"unit {self.finding.units[parent]}, sub-unit {sub - int(self.finding.starts[parent])}"
        word = None if self.labels is None else self.labels.names[sub]
        return said if word is None or self.labels is None else f"{said}: {word} (chance {self.labels.chance[sub]:.2f})"

    def unit_tiles(self, at: int) -> tuple[Tile, ...]:
        return self._tiles(self.strongest.units[:, at], self.strongest.unit_places[:, at], OF_UNIT)

    def subunit_tiles(self, sub: int) -> tuple[Tile, ...]:
        return self._tiles(self.strongest.subunits[:, sub], self.strongest.subunit_places[:, sub], OF_SUBUNIT)

    def _tiles(self, values: np.ndarray, places: np.ndarray, count: int) -> tuple[Tile, ...]:
        best = np.argsort(-values, kind="stable")[:count]
        return tuple(self._tile(int(k), int(places[k]), float(values[k])) for k in best)

    def _tile(self, number: int, place: int, value: float) -> Tile:
        """The picture as the model sees it, the patch framed; a class token has no place."""
        steps = self.subject.preprocess
        assert steps is not None
        picture = self.images[number]
        pixels = as_seen(steps, picture.image)
        before, grid = self.patches
        boxes = () if grid is None or place < before else (patch_box(place - before, grid, pixels.shape),)
        return Tile(pixels, f"{picture.id}, activation {value:.2f}", f"{value:.2f}", boxes=boxes)


def as_seen(steps: Preprocess, picture: Image) -> np.ndarray:
    """uint8 (row, column, colour): the picture cut and resized as the model gets it."""
    raw = np.asarray(steps(picture.convert("RGB"))).transpose(1, 2, 0) * steps.std + steps.mean
    return (raw.clip(0, 1) * 255).round().astype(np.uint8)


def subunit_sections(split: SplitPictures, chosen: Sequence[int], drawn: Sequence[int]) -> list[Section]:
    """Cards of units by position: those whose sub-units are told apart best, and others drawn by lot."""
    sections = [
        Section(
            "units",
            "Units, and what they split into",
            "The pictures where a unit is strongest, and below them those of its sub-units. A frame marks the patch; "
            "without one it is the class token.",
            (
                Group("Told apart best", tuple(unit_card(split, at) for at in chosen)),
                Group("Drawn by lot", tuple(unit_card(split, at) for at in drawn)),
            ),
            "Units",
        )
    ]
    if split.merged:
        cards = tuple(group_card(split, group) for group in split.merged[:GROUPS])
        sections.append(
            Section(
                "merged",
                "The same in several units",
                f"{len(split.merged)} groups of sub-units whose activations correlate above {split.threshold:g}: each "
                f"can be read as one. The {len(cards)} largest:",
                (Group("", cards),),
                "Merged",
            )
        )
    return [*sections, counts_section(split.finding)]


def unit_card(split: SplitPictures, at: int) -> Card:
    finding = split.finding
    subs = np.flatnonzero(finding.parents == at)
    panels = []
    for sub in subs[:MOST_SUBUNITS].tolist():
        size = int(finding.sizes[sub])
        caption = f"{size} instances in its cluster" if size else "no cluster: the unit itself"
        if sub in split.group_of:
            others = [s for s in split.merged[split.group_of[sub]] if s != sub]
            caption += f"; the same as {split.name(int(others[0]))}" + (
                f" and {len(others) - 1} more" if len(others) > 1 else ""
            )
        if finding.dead[sub]:
            caption += "; equal to another sub-unit"
        panels.append(Pictures(split.name(sub), split.subunit_tiles(sub), OF_SUBUNIT, caption))
    more = f", {MOST_SUBUNITS} of them shown" if len(subs) > MOST_SUBUNITS else ""
    claim = f"Splits into {len(subs)} sub-units{more}." if len(subs) > 1 else "One cluster or none: it stays whole."
    own = Pictures("Where the unit is strongest", split.unit_tiles(at), OF_UNIT)
    facts = [Fact("instances in no cluster", f"{finding.noise[at]:.0%}")]
    if np.isfinite(finding.rho[at]):
        facts.append(Fact("margin", f"{finding.rho[at]:.2f}", f"own less other clusters {finding.scores[at]:.2f}"))
    return Card(f"Unit {finding.units[at]}", claim, facts=tuple(facts), panels=(own, *panels))


def group_card(split: SplitPictures, group: np.ndarray) -> Card:
    units = np.unique(split.finding.units[split.finding.parents[group]])
    panels = tuple(Pictures(split.name(int(sub)), split.subunit_tiles(int(sub)), OF_SUBUNIT) for sub in group[:3])
    claim = f"{len(group)} sub-units of {len(units)} units: {', '.join(map(str, units[:12]))}."
    return Card(f"Merged from {len(group)}", claim, panels=panels)


def counts_section(finding: Disentanglement) -> Section:
    counts = np.bincount(np.maximum(finding.counts, 1))
    rows = tuple((k, int(n), f"{n / len(finding.units):.0%}") for k, n in enumerate(counts) if n)
    table = Table("Units by their number of sub-units", ("sub-units", "units", "share"), rows)
    said = f"{len(finding.units)} units became {len(finding)} sub-units, {finding.expansion:.2f} a unit."
    return Section("counts", "How many", said, (Group("", (table,)),), "How many")


def subunit_overview(split: SplitPictures) -> Overview:
    finding, merged = split.finding, sum(len(group) - 1 for group in split.merged)
    lede = (
        f"{len(finding.units)} units of {finding.site} in {split.subject.name} split into {len(finding)} sub-units, "
        "whose weights add up to the layer's own: the model computes what it always did."
    )
    statements = [Statement(f"{int((finding.counts < 2).sum())} units stay whole.", "counts")]
    if split.merged:
        statements.append(
            Statement(f"{merged} sub-units say what another one says; {len(finding) - merged} are left.", "merged")
        )
    return Overview(
        lede,
        f"{len(split.images):,} pictures of {split.images.name}. A cluster is not yet a concept: look at them.",
        (Member(split.subject.name, finding.site, 0),),
        (
            Fact("sub-units", f"{len(finding):,}", f"{finding.expansion:.2f} a unit"),
            Fact("after merging", f"{len(finding) - merged:,}", f"correlation above {split.threshold:g}"),
        ),
        tuple(statements),
        kind="split units",
    )
