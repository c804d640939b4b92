"""One page a lens, from the panels that the lens's own report uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import VitreousError
from vitreous.images import ImageSet
from vitreous.render import sections_html
from vitreous.views.align import color_mosaic
from vitreous.views.colours import NEUTRAL
from vitreous.views.panels import Curve, Group, Histogram, Line, Panel, Section, Table
from vitreous.views.structure_page import look_at, structure_sections
from vitreous.views.token_page import READ, spread_tokens
from vitreous.views.tokens import layer_panel

if TYPE_CHECKING:
    from vitreous.cards.sheet import Sheet
    from vitreous.examination import Examination
    from vitreous.lenses.structure import StructureFinding
    from vitreous.site.several import Gathered

SHOWN = 3  # pictures of a mosaic and of token maps
UNALIGNED = (
    "No responses were given to align the models by, so their channels are compared as they stand: likeness says "
    "something within a model, and little between two."
)
MOST_PARTS = 12  # bars of the histogram of sub-units
TITLES = {
    "structure": ("Structure", "Which units do the same job, within a block and from block to block."),
    "disentangle": ("Disentangle", "Units split into sub-units that different inputs drive, and whether that is real."),
    "align": ("Align", "All blocks of all models on one map: patches that are alike lie together and share a colour."),
    "tokens": ("Tokens", "What each token is made of: the pixels that count for it."),
}


@dataclass(frozen=True, eq=False)
class LensPage:
    """A page of panels. Without sections it says what is missing and how to get it."""

    name: str
    title: str
    sentence: str
    sections: tuple[Section, ...]
    missing: str | None = None

    @property
    def there(self) -> bool:
        return bool(self.sections)

    def head(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "sentence": self.sentence,
            "there": self.there,
            "missing": self.missing,
        }

    def data(self) -> dict[str, Any]:
        toc = [{"name": section.name, "title": section.short or section.title} for section in self.sections]
        html = f'<div class="vt-panels">{sections_html(self.sections)}</div>'
        return {"title": self.title, "sentence": self.sentence, "html": html, "toc": toc}


def lens_pages(gathered: Gathered) -> list[LensPage]:
    """The four pages, in the order of the lenses; what cannot be shown says why."""
    return [_page(name, lambda make=make: make(gathered)) for name, make in PAGES.items()]  # type: ignore[misc]


def _page(name: str, make: Callable[[], tuple[Section, ...]]) -> LensPage:
    title, sentence = TITLES[name]
    try:
        sections = make()
    except VitreousError as error:
        return LensPage(name, title, sentence, (), str(error).splitlines()[0])
    missing = None if sections else "This run has nothing to show here."
    return LensPage(name, title, sentence, sections, missing)


# -- structure


def _structure(gathered: Gathered) -> tuple[Section, ...]:
    findings: dict[str, StructureFinding] = {}
    why = None
    for name, entry, run in gathered.models:
        try:
            findings[name] = run.structure(entry.name)
        except VitreousError as error:
            why = error
    if not findings and why is not None:
        raise why
    return structure_sections(look_at(findings, {}))


# -- disentangle


def _disentangle(gathered: Gathered) -> tuple[Section, ...]:
    there = [(name, sheet) for name, sheet in _sheets(gathered) if sheet.finding is not None]
    if not there:
        for _, entry, run in gathered.models:
            run.disentanglement(entry.name, entry.blocks[0])  # says why
    rows = tuple(_split_row(name, sheet) for name, sheet in there)
    columns = (
        "model",
        "block",
        "units",
        "sub-units",
        "in no group",
        "MS units",
        "MS sub-units",
        "MS random parts",
        "found again",
        "as the whole unit",
    )
    caption = (
        "MS: mean cosine of the layer at the strongest patches. Random parts take inputs at random. Found again: "
        "cosine with the sub-units of other patches."
    )
    table = Table("Block by block", columns, rows, caption)
    parts: tuple[Panel, ...] = (_part_counts(there), *_ms_curves(there))
    return (
        Section(
            "splits",
            "Units and their parts",
            "A unit's strongest patches are grouped by what drove it there; each group becomes a sub-unit, and "
            "together they are the unit, bit for bit.",
            (Group("", parts, columns=2), Group("", (table,))),
            short="Parts",
        ),
    )


def _sheets(gathered: Gathered) -> Iterator[tuple[str, Sheet]]:
    for one in gathered.members:
        for sheet in one.deck.sheets():
            yield one.names[sheet.model], sheet


def _split_row(name: str, sheet: Sheet) -> tuple[str | int | float, ...]:
    assert sheet.finding is not None
    numbers = [_mean(sheet, key) for key in ("ms", "subunit_ms", "subunit_control", "stability", "stability_control")]
    shown = ["–" if value is None else value for value in numbers]
    finding = sheet.finding
    return (name, sheet.block, len(finding.units), len(finding), float(np.mean(finding.noise)), *shown)


def _mean(sheet: Sheet, key: str) -> float | None:
    values = [value for value in sheet.evidence.get(key, []) if value is not None]
    return float(np.mean(values)) if values else None


def _part_counts(there: list[tuple[str, Sheet]]) -> Histogram:
    """How many sub-units units have, model by model."""
    lines = []
    for series, name in enumerate(dict.fromkeys(name for name, _ in there)):
        counts = np.concatenate([np.diff(s.finding.starts) for n, s in there if n == name and s.finding is not None])
        heights = np.bincount(np.minimum(counts, MOST_PARTS), minlength=MOST_PARTS + 1)[1:]
        lines.append(Line(name, tuple(map(float, heights)), series))
    edges = tuple(np.arange(0.5, MOST_PARTS + 1.5).tolist())
    caption = f"{MOST_PARTS} stands for {MOST_PARTS} and more; 1 is a unit that stays whole."
    return Histogram("How many sub-units a unit has", edges, tuple(lines), "sub-units", "units", caption, beside=True)


def _ms_curves(there: list[tuple[str, Sheet]]) -> Iterator[Curve]:
    """MS-Score by block: units, sub-units, and random parts as the control; a curve a model that has them all."""
    for name in dict.fromkeys(name for name, _ in there):
        mine = [sheet for other, sheet in there if other == name]
        curves = {key: [_mean(sheet, key) for sheet in mine] for key in ("ms", "subunit_ms", "subunit_control")}
        if all(value is not None for values in curves.values() for value in values):
            titles = {"ms": "units", "subunit_ms": "sub-units", "subunit_control": "random parts"}
            lines = tuple(
                Line(titles[key], tuple(float(v or 0) for v in values), NEUTRAL if control else k, control=control)
                for k, (key, values) in enumerate(curves.items())
                for control in (key == "subunit_control",)
            )
            x = tuple(float(sheet.block) for sheet in mine)
            yield Curve(f"How pure they are, {name}", x, lines, "block", "MS-Score")


# -- align


def _align(gathered: Gathered) -> tuple[Section, ...]:
    groups = []
    why = None
    for one in gathered.members:
        run = one.run
        try:
            spectral, shades = run.spectral, run.colours
            images = _close(run)
        except VitreousError as error:
            why = error
            continue
        count = max(pictures for _, _, pictures, _ in spectral.blocks.values())
        some = np.linspace(0, min(count, len(images)) - 1, min(SHOWN, len(images))).round().astype(int).tolist()
        panels = (color_mosaic(spectral, shades, images, pictures=some, title=""),)
        layers, pictures = len(spectral.blocks), len(run.pictures.close)
        text = f"{len(spectral):,} points: the patches of {pictures} pictures at {layers} layers in all."
        if run.settings["responses"] is None and len(one.names) > 1:
            text += f" {UNALIGNED}"
        groups.append(Group(", ".join(one.names.values()), panels, text))
    if not groups and why is not None:
        raise why
    sentence = "Each patch has the colour of its place on the map: what is alike has one colour, in every picture."
    return (Section("colours", "Patches coloured by their place", sentence, tuple(groups), "Colours"),)


def _close(run: Examination, count: int | None = None) -> ImageSet:
    """The pictures that were looked at closely, as they are kept."""
    close = run.pictures.close[:count]
    arrays = [np.asarray(run.pictures.image(k)) for k in close]
    return ImageSet.from_arrays(arrays, ids=[run.pictures.names[k] for k in close])


# -- tokens


def _tokens(gathered: Gathered) -> tuple[Section, ...]:
    groups = []
    why = None
    for series, (name, entry, run) in enumerate(gathered.models):
        try:
            found = [run.token_maps(entry.name, block) for block in entry.blocks]
            images = _close(run, SHOWN)
        except VitreousError as error:
            why = error
            continue
        panels: list[Panel] = []
        for k in range(min(SHOWN, len(found[-1]), len(images))):
            tokens = spread_tokens(found[-1], 4)
            panels.append(layer_panel(found, images[k], tokens, sample=k, title=images.ids[k]))
        groups.append(Group(name, tuple(panels), entry.about, series, columns=len(panels)))
    if not groups and why is not None:
        raise why
    return (Section("maps", "What tokens stand for", READ, tuple(groups), "Maps"),)


PAGES: dict[str, Callable[[Gathered], tuple[Section, ...]]] = {
    "structure": _structure,
    "disentangle": _disentangle,
    "align": _align,
    "tokens": _tokens,
}
