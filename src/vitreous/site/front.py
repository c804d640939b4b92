"""What the first page says: models, pictures, findings in plain words, key numbers, and how the report was made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.cards.plain import plain
from vitreous.cards.sheet import Sheet
from vitreous.provenance import versions
from vitreous.report import provenance
from vitreous.site.sprites import ACROSS, DOWN, SIZE
from vitreous.views.charts import listed

if TYPE_CHECKING:
    from vitreous.examination import Examination
    from vitreous.site.lens_pages import LensPage
    from vitreous.site.several import Gathered

FORMAT, VERSION = "vitreous site", 1
HERO = 9  # pictures at the head


def index_data(gathered: Gathered, pages: Sequence[LensPage]) -> dict[str, Any]:
    """Everything that the first page and the frame around all pages need."""
    run = gathered.first
    names = [name for name, _, _ in gathered.models]
    count = len(names)
    sheets = -(-len(gathered.pictures) // (ACROSS * DOWN))
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": f"Inside {listed(names)}",
        "about": f"Models: {count}. Pictures: {len(gathered.pictures):,}. Units: {len(gathered):,}.",
        "models": [_model(name, entry, own, series) for series, (name, entry, own) in enumerate(gathered.models)],
        "pictures": {
            "count": len(gathered.pictures),
            "names": gathered.picture_names,
            "files": [f"pictures/{file}" for _, _, file in gathered.pictures],
            "sheet": {
                "size": SIZE,
                "columns": ACROSS,
                "rows": DOWN,
                "files": [f"sprites/pictures-{k}.jpg" for k in range(sheets)],
            },
        },
        "overview": _overview(gathered, names),
        "lenses": [page.head() for page in pages],
        "parts": {page.name: page.there for page in pages},
        "notes": [note for one in gathered.members for note in one.moved(_notes(one.run))],
        "provenance": [_made(one.run) for one in gathered.members],
        "python": f"import vitreous as vt\n\nrun = vt.open_run({run.folder.resolve().name!r})\nrun.models",
    }


def _model(name: str, entry: Any, run: Examination, series: int) -> dict[str, Any]:
    classes = None
    if run.missing(lambda: run.classes(entry.name)) is None and (found := run.classes(entry.name)) is not None:
        classes = list(found.names)
    return {
        "name": name,
        "about": entry.about,
        "series": series,
        "depth": entry.depth,
        "width": entry.width,
        "rows": entry.grid.rows,
        "columns": entry.grid.columns,
        "prefix": list(entry.prefix),
        "sites": list(entry.sites),
        "classes": classes,
    }


def _notes(run: Examination) -> list[dict[str, Any]]:
    return [
        {"id": note.id, "name": note.name, "comment": note.comment, "when": note.when} for note in run.notes.values()
    ]


def _made(run: Examination) -> dict[str, Any]:
    """Settings, hashes and versions; times and the machine stay in run.json."""
    from vitreous.examination.files import read_json

    name = run.folder.resolve().name
    if run.missing(lambda: read_json(run.folder / "run.json", "run.json")) is not None:
        return {"run": name, "tables": {"Versions": {key: value or "" for key, value in versions().items()}}}
    record = read_json(run.folder / "run.json", "run.json")
    try:
        return {"run": name, "tables": provenance(record)["tables"]}
    except (LookupError, TypeError, AttributeError):
        return {"run": name, "tables": {"Settings": {"run.json": "is damaged"}}}


# -- in plain words


def _overview(gathered: Gathered, names: list[str]) -> dict[str, Any]:
    sheets = [sheet for one in gathered.members for sheet in one.deck.sheets()]
    sources = list(dict.fromkeys(one.run.pictures.source for one in gathered.members))
    chosen = np.linspace(0, len(gathered.pictures) - 1, min(HERO, len(gathered.pictures))).round().astype(int)
    lede = (
        f"{listed(names)} looked at the same pictures. Every unit has a card: what it answers to, which units do the "
        "same job, what it is made of, where its patches lie among all models, and the evidence for each of these."
    )
    if len(names) == 1:
        lede = lede.replace(" looked at the same pictures.", ", unit by unit.")
    return {
        "lede": lede,
        "data": f"{len(gathered.pictures):,} pictures: {listed(sources)}.",
        "numbers": list(_numbers(gathered, sheets)),
        "statements": list(_statements(gathered, sheets)),
        "hero": [{"picture": int(k), "token": None, "value": None, "heat": None} for k in chosen],
    }


def _numbers(gathered: Gathered, sheets: list[Sheet]) -> Iterator[dict[str, Any]]:
    columns = gathered.columns
    units = len(columns["id"])
    named = sum(label is not None for label in columns["label"])
    count = len(gathered.models)
    yield {"label": "units", "value": f"{units:,}", "note": f"in {count} model{'s' if count > 1 else ''}"}
    yield {"label": "pictures", "value": f"{len(gathered.pictures):,}", "note": None}
    if any(sheet.labels is not None for sheet in sheets):
        yield {
            "label": "with a sure name",
            "value": f"{named / max(1, units):.0%}",
            "note": "luck does as well at most once in 20",
        }
    parts = sum(columns["subunits"])
    if parts:
        yield {"label": "sub-units", "value": f"{parts:,}", "note": f"{parts / max(1, units):.1f} a unit"}
    ms, control = (_mean(columns[key]) for key in ("ms", "control"))
    if ms is not None and control is not None:
        yield {"label": "MS-Score of units", "value": f"{ms:.2f}", "note": f"random patches: {control:.2f}"}


def _statements(gathered: Gathered, sheets: list[Sheet]) -> Iterator[dict[str, Any]]:
    """Findings; what they say follows from the numbers."""
    yield from _about_structure(gathered)
    yield from _about_parts(sheets)
    if any(sheet.spectral is not None for sheet in sheets):
        yield {"text": _about_space(gathered), "route": "#/lens/align"}
    yield from _about_pixels(sheets)
    yield from _about_words(gathered)


def _about_structure(gathered: Gathered) -> Iterator[dict[str, Any]]:
    said = []
    for one in gathered.members:
        for entry in one.run.models:
            if one.run.missing(lambda r=one.run, n=entry.name: r.structure(n)) is None:  # type: ignore[misc]
                finding = one.run.structure(entry.name)
                share = float((finding.labels >= 0).mean())
                said.append(f"{one.names[entry.name]} {share:.1%}")
    if said:
        text = f"Units that do the same job as another one, over all blocks: {listed(said)}."
        yield {"text": text, "route": "#/lens/structure"}


def _about_parts(sheets: list[Sheet]) -> Iterator[dict[str, Any]]:
    value, control = (_mean(_all(sheets, key)) for key in ("subunit_ms", "subunit_control"))
    stable, whole = (_mean(_all(sheets, key)) for key in ("stability", "stability_control"))
    if value is not None and control is not None:
        verdict = "are purer than" if value > control else "are no purer than"
        text = f"Sub-units {verdict} random parts of the same units: MS-Score {value:.3f} against {control:.3f}."
        if stable is not None and whole is not None:
            text += (
                f" Found again on other patches with a cosine of {stable:.2f} (taken for the whole unit: {whole:.2f})."
            )
        yield {"text": text, "route": "#/lens/disentangle"}


def _about_space(gathered: Gathered) -> str:
    run = gathered.first
    models = list(dict.fromkeys(model for model, _ in run.spectral.blocks))
    mixed = [len(owners) for owners in _owners(run)]
    shared = sum(count > 1 for count in mixed)
    if len(models) < 2:
        return f"All blocks of {models[0]} lie on one map, in {len(mixed)} groups of patches."
    if run.settings["responses"] is None:
        return (
            f"On the map of all blocks, {len(mixed) - shared} of {len(mixed)} groups of patches belong to one model "
            "alone; no responses were given to align the models by."
        )
    return (
        f"Of {len(mixed)} groups of patches in the space of all blocks, {shared} hold patches of more than one model."
    )


def _owners(run: Examination) -> Iterator[np.ndarray]:
    """Of each concept the models that hold more than a twentieth of it."""
    owner = np.empty(len(run.spectral), np.int64)
    names = list(dict.fromkeys(model for model, _ in run.spectral.blocks))
    for (model, _), (first, last, _, _) in run.spectral.blocks.items():
        owner[first:last] = names.index(model)
    for concept in np.unique(run.concepts):
        counts = np.bincount(owner[run.concepts == concept], minlength=len(names))
        yield np.flatnonzero(counts > counts.sum() / 20)


def _about_pixels(sheets: list[Sheet]) -> Iterator[dict[str, Any]]:
    lost, control = _all(sheets, "lost"), _all(sheets, "lost_control")
    pairs = [(a, b) for a, b in zip(lost, control, strict=True) if a is not None and b is not None]
    if pairs:
        more = sum(a > b for a, b in pairs) / len(pairs)
        mean, random = (float(np.mean(part)) for part in zip(*pairs, strict=True))
        text = (
            f"Covering the patches that a token's map names costs a unit {mean:.0%} of its activation, as many random "
            f"ones {random:.0%}; the map costs more for {more:.0%} of the units."
        )
        yield {"text": text, "route": "#/lens/tokens"}


def _about_words(gathered: Gathered) -> Iterator[dict[str, Any]]:
    words = [label for label in gathered.columns["label"] if label is not None]
    if words:
        common = sorted(set(words), key=lambda word: (-words.count(word), word))[:5]
        text = f"The names that most units have: {listed([f'{word} ({words.count(word)})' for word in common])}."
        yield {"text": text, "route": "#/units"}


def _all(sheets: list[Sheet], name: str) -> list[float | None]:
    return [value for sheet in sheets for value in sheet.evidence.get(name, [])]


def _mean(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return plain(np.mean(there)) if there else None
