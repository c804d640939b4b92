"""Findings to whole pages: a folder with the report, the findings themselves, and where both come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.mirrors import kept_at
from vitreous.preprocess import Preprocess
from vitreous.provenance import replace_file, start_run
from vitreous.render import to_png
from vitreous.report import write_report
from vitreous.views.alignment_page import AlignLook, alignment_page
from vitreous.views.audit_cards import part_cards, together_card
from vitreous.views.audit_page import PATCH, AuditLook, audit_page
from vitreous.views.cut_page import Look, cut_page
from vitreous.views.dictionaries import (
    comparison_overview,
    comparison_scatter,
    comparison_sections,
    comparison_title,
)
from vitreous.views.structure_page import look_at, structure_overview, structure_sections, structure_title
from vitreous.views.subunits import SplitPictures, subunit_overview, subunit_sections

REGIONS, SHOWN = 4, 4  # regions and pictures in a mosaic by region

if TYPE_CHECKING:
    from vitreous.auditing import AuditFinding, SwitchOff
    from vitreous.auditing.places import PlacesFinding
    from vitreous.auditing.sweep import AuditSweep
    from vitreous.dictionary_comparison import DictionaryComparison
    from vitreous.images import ImageSet
    from vitreous.labels import Labels
    from vitreous.lenses.align import ChannelAlign
    from vitreous.lenses.align_atlas import Atlas
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.lenses.structure import StructureFinding
    from vitreous.lenses.structure_comparison import Comparison
    from vitreous.models.subject import Subject
    from vitreous.responses import Responses
    from vitreous.store import Store
    from vitreous.views.panels import Page, Pictures


@kept_at("out")
def structure_report(
    findings: Mapping[str, StructureFinding],
    out: str | Path,
    *,
    sources: Mapping[str, Store | np.ndarray] | None = None,
    comparison: Comparison | None = None,
    progress: bool = True,
) -> Path:
    """Writes `report.html`, `run.json` and the findings (`finding.npz`, `finding-2.npz`, ...) into `out`.

    `findings` and `sources` go by the names that the page uses. Units and differences are drawn if a finding holds what
    it was made from (`vt.structure(..., keep_transformed=True)`), or if that is given as its source: a store, or
    activations. Findings are saved without it, for it is large.

    >>> vt.structure_report({"mae": finding}, "structure", sources={"mae": store})
    """
    sources = sources or {}
    if not findings or not set(sources) <= set(findings):
        raise SettingsError("every source belongs to a finding", given=sorted(sources), accepted=sorted(findings))
    settings = {name: _settings(finding) for name, finding in findings.items()}
    inputs = {key: value for name, finding in findings.items() for key, value in _inputs(name, finding).items()}
    out = Path(out)
    with start_run(out, "structure", settings, inputs=inputs) as run:
        looked = look_at(findings, sources)
        for number, finding in enumerate(findings.values(), 1):
            name = "finding.npz" if number == 1 else f"finding-{number}.npz"
            replace(finding, transformed=None, distances=None).save(out / name)
        sections = structure_sections(looked, comparison, progress=progress)
        path = write_report(out, structure_title(looked), sections, run, overview=structure_overview(looked))
        run.note(report=path.name, clusters={one.name: len(one.finding.sizes) for one in looked})
    return path


@kept_at("out")
def dictionary_report(found: DictionaryComparison, out: str | Path, *, images: ImageSet | None = None) -> Path:
    """Writes `report.html`, `scatter.png` and `run.json` into `out`, which may be the comparison's own folder.

    `images` are the pictures that it was measured on: with them the page shows units of every method.

    >>> vt.dictionary_report(vt.compare_dictionaries(subject, train, evaluate=held, out="compared"), "compared")
    """
    settings = dict(found.settings)
    measured = settings["measured on"]
    if images is not None and images.fingerprint != measured["fingerprint"]:
        raise SettingsError(
            "these are not the pictures it was measured on", given=images.name, accepted=measured["name"]
        )
    inputs = {part: settings[part]["fingerprint"] for part in ("model", "made from", "measured on")}
    said = {name: value for name, value in settings.items() if name not in inputs and not isinstance(value, dict)}
    out = Path(out)
    with start_run(out, "compare-dictionaries", said, inputs=inputs) as run:
        replace_file(out / "scatter.png", to_png(comparison_scatter(found)))
        sections = comparison_sections(found, images)
        path = write_report(out, comparison_title(found), sections, run, overview=comparison_overview(found))
        run.note(report=path.name, methods=list(found.methods))
    return path


@kept_at("out")
def cut_report(
    found: Atlas,
    out: str | Path,
    *,
    images: ImageSet | None = None,
    stores: Mapping[str, Store] | None = None,
    shown: int = 4,
) -> Path:
    """Writes `report.html`, `run.json` and the atlas into `out`, with `images` (those that were recorded) also
    `mosaic.png`. `stores` by name of the model say how pictures were cut, and where the pictures have masks, figure and
    ground are told apart.

    >>> vt.cut_report(vt.atlas(vt.ncut(stores), ids=images.ids), "cut", images=images, stores=stores)
    """
    from vitreous.views.align import color_mosaic

    if images is not None and found.ids and tuple(images.ids) != found.ids:
        raise SettingsError("these are not the pictures of the atlas", given=images.name)
    out = Path(out)
    look = _look(found, images, stores or {}, shown)
    with start_run(out, "ncut", found.spectral.settings, inputs=_store_inputs(stores or {})) as run:
        found.save(out)
        if images is not None:
            mosaic = color_mosaic(found.spectral, found.shades, images, pictures=look.pictures, crops=look.crops)
            replace_file(out / "mosaic.png", to_png(mosaic, width=10))
        page = cut_page(look, aligned=bool(found.spectral.settings.get("read")))
        path = write_report(out, page.title, page.sections, run, overview=page.overview)
        run.note(report=path.name, nodes=len(found))
    return path


def _look(found: Atlas, images: ImageSet | None, stores: Mapping[str, Store], shown: int) -> Look:
    if images is None:
        return Look(found)
    some = np.linspace(0, len(images) - 1, min(shown, len(images))).round().astype(int)
    crops = {name: crop for name, store in stores.items() if (crop := _crop(store)) is not None}
    masks = {}
    for model in found.models:
        grid = found.spectral.grid(model, found.layers(model)[0])
        if model in crops and (maps := _objects(images, crops[model])) is not None:
            masks[model] = _figure_and_ground(maps, grid)
    return Look(found, images, tuple(some.tolist()), crops, masks)


def _crop(store: Store) -> Preprocess | None:
    said = store.manifest.settings["preprocess"]
    return None if said is None else Preprocess(**said)


def _objects(images: ImageSet, crop: Preprocess) -> np.ndarray | None:
    """bool (picture, row, column) of the model's input, or None where pictures have no masks."""
    from vitreous.baselines.masks import input_masks, object_masks

    if images[0].mask is None:
        return None
    return input_masks(object_masks(images, progress=False), crop)


def _figure_and_ground(maps: np.ndarray, grid: tuple[int, int]) -> dict[str, np.ndarray]:
    """Patches with more than half their pixels on an object, and those with fewer."""
    from vitreous.evidence.oracle import patch_classes

    pixels = patch_classes(maps.astype("uint8"), grid, classes=2)
    return {"on objects": pixels[..., 1] > pixels[..., 0], "on the ground": pixels[..., 1] <= pixels[..., 0]}


@kept_at("out")
def align_report(
    found: ChannelAlign,
    out: str | Path,
    *,
    stores: Mapping[str, Store] | None = None,
    images: ImageSet | None = None,
    responses: Responses | None = None,
    progress: bool = True,
) -> Path:
    """Writes `report.html`, `run.json` and the alignment into `out`, which may be its own folder.

    With `stores` the page compares layers before and after; with `images` that have masks it scores segmentation and
    figure against ground; `responses` that know their vertices are drawn on a brain if nilearn is there.

    >>> vt.align_report(alignment, "aligned", stores=stores, images=images)
    """
    out = Path(out)
    with start_run(out, "align", found.settings, inputs=_store_inputs(stores or {})) as run:
        found.save(out)
        page = alignment_page(_align_look(found, stores or {}, images, responses, progress))
        path = write_report(out, page.title, page.sections, run, overview=page.overview)
        run.note(report=path.name, score=found.means())
    return path


def _align_look(
    found: ChannelAlign, stores: Mapping[str, Store], images: ImageSet | None, responses: Responses | None, show: bool
) -> AlignLook:
    from importlib.util import find_spec

    from vitreous.lenses.align_likeness import slot_cosines
    from vitreous.lenses.align_segmentation import region_means, segmentation_by_layer

    brains: tuple[Pictures, ...] = ()
    if responses is not None and responses.vertices is not None and find_spec("nilearn") is not None:
        from vitreous.views.brain import brain_pictures

        brains = (brain_pictures(found.score()["all"], responses.vertices, title="R² by place"),)
    if not stores:
        return AlignLook(found, brains=brains)
    sites = str(found.settings["sites"])
    cosines = slot_cosines(stores, sites=sites), slot_cosines(stores, found.transform, sites=sites)
    crops = {name: crop for name, store in stores.items() if (crop := _crop(store)) is not None}
    maps = None
    if images is not None and set(crops) == set(stores):
        masks = {name: _objects(images, crop) for name, crop in crops.items()}
        maps = {name: part.astype("uint8") for name, part in masks.items() if part is not None} or None
    if maps is None:
        return AlignLook(found, cosines, brains=brains)
    scores = segmentation_by_layer(stores, maps, {"before": None, "after": found}, sites=sites, progress=show)
    means = region_means(found, stores, maps, sites=sites, progress=show)
    return AlignLook(found, cosines, scores, means, brains, _by_region(found, stores, images, crops))


def _by_region(
    found: ChannelAlign, stores: Mapping[str, Store], images: ImageSet | None, crops: Mapping[str, Preprocess]
) -> Pictures | None:
    """The middle layer of the first model, cut by each of the first regions alone."""
    from vitreous.lenses.align_segmentation import colors_by_region
    from vitreous.views.align import region_mosaic

    model = found.slots[0][0]
    rois = [name for name, mask in found.rois.items() if mask.any()][:REGIONS]
    if images is None or not rois or model not in stores:
        return None
    layers = [layer for name, layer in found.slots if name == model]
    layer = layers[len(layers) // 2]
    grid = stores[model].grid(layer)
    if grid is None:
        return None
    shades = colors_by_region(found, {model: stores[model]}, model, layer, rois)
    some = range(0, len(images), max(1, len(images) // SHOWN))[:SHOWN]
    title = f"{model}, {layer}"
    shape = (grid.rows, grid.columns)
    return region_mosaic(shades, images, shape, pictures=some, crop=crops.get(model), title=title)


def _store_inputs(stores: Mapping[str, Store]) -> dict[str, str]:
    found = {f"{name}, model": store.manifest.model["fingerprint"] for name, store in stores.items()}
    return found | {f"{name}, data": store.manifest.data["fingerprint"] for name, store in stores.items()}


@kept_at("out")
def disentangle_report(
    finding: Disentanglement,
    subject: Subject,
    images: ImageSet,
    out: str | Path,
    *,
    labels: Labels | None = None,
    merge: float = 0.95,
    units: int = 6,
    seed: int = 0,
    progress: bool = True,
) -> Path:
    """Writes `report.html` and `run.json` into `out`: units and their sub-units by the pictures that move them most.

    `units` are shown whose sub-units are told apart best, and as many that are drawn by lot. Sub-units of different
    units whose activations correlate above `merge` are taken for one. `labels` are those of `vt.label`, one a sub-unit.

    >>> vt.disentangle_report(finding, subject, images, "page")
    """
    from vitreous.subunits.pooled import strongest_in_pictures

    if labels is not None and len(labels) != len(finding):
        raise SettingsError("labels are one for each sub-unit", given=len(labels), accepted=str(len(finding)))
    if units < 1:
        raise SettingsError("a page shows at least one unit", given=units)
    out = Path(out)
    said = {"site": finding.site, "merge": merge, "units": units}
    inputs = {"layer": finding.settings["layer"], "pictures": images.fingerprint}
    with start_run(out, "disentangle-report", said, seeds={"seed": seed}, inputs=inputs) as run:
        seen = strongest_in_pictures(finding, subject, images, progress=progress)
        split = SplitPictures(finding, subject, images, seen, labels, merge)
        best = np.argsort(-np.nan_to_num(finding.scores, nan=-np.inf), kind="stable")[:units].tolist()
        rest = np.setdiff1d(np.arange(len(finding.units)), best)
        drawn = np.sort(np.random.default_rng(seed).permutation(rest)[:units]).tolist()
        sections = subunit_sections(split, best, drawn)
        title = f"{subject.name}, {finding.site}: units split"
        path = write_report(out, title, sections, run, overview=subunit_overview(split))
        run.note(report=path.name, subunits=len(finding), merged_groups=len(split.merged))
    return path


@kept_at("out")
def audit_report(
    found: AuditFinding | AuditSweep,
    out: str | Path,
    *,
    patch: SwitchOff | None = None,
    places: PlacesFinding | None = None,
    shown: int = 6,
) -> Path:
    """Writes `report.html`, `run.json` and the audit into `out`, and `patch.safetensors` if there are alarms.

    Of several layers it is one page with the parts of all, and each layer's finding lies in a folder of its own. The
    first `shown` parts have a card with pictures. Where the object was painted over, it is shown painted over too.
    `patch` is a measured one that the page tells of; without it what `switch_off` chooses is switched off. `places` are
    what `vt.audit_places` found in the same pictures; after an alarm `places.safetensors` is written too.

    >>> vt.audit_report(vt.audit(subject, images, masks="masks"), "audit")
    """
    from vitreous.auditing.folder import folder_of
    from vitreous.auditing.sweep import AuditSweep

    if shown < 1:
        raise SettingsError("a page shows at least one part", given=shown)
    sweep = found if isinstance(found, AuditSweep) else AuditSweep((found,))
    sites, out = [finding.site for finding in sweep.findings], Path(out)
    one = sweep.findings[0]
    said = {**one.settings, "site": sites if len(sites) > 1 else sites[0], "basis": one.basis, "shown": shown}
    inputs = {finding.site if len(sites) > 1 else "layer": finding.layer["layer"] for finding in sweep.findings}
    inputs |= {} if one.images is None else {"pictures": one.images.fingerprint}
    first = sorted(sweep.rows, key=lambda pair: not pair[1].alarm)[:shown]
    with start_run(out, "audit", said, seeds={"seed": int(one.settings.get("seed", 0))}, inputs=inputs) as run:
        cards = part_cards(sweep, first)
        if len(sweep.alarms) > 1:
            cards = (together_card(sweep), *cards)
        if patch is None and sweep.alarms:
            patch = found.switch_off()
        for finding in sweep.findings:
            finding.save(folder_of(out, sites, finding.site))
        if patch is not None:
            patch.save(out / PATCH)
        assert one.subject is not None and one.images is not None
        data = f"{len(one.images):,} pictures of {one.images.name}"
        look = AuditLook(sweep, cards, patch, one.subject.name, data)
        page = audit_page(look) if places is None else _with_places(look, places, out)
        path = write_report(out, page.title, page.sections, run, overview=page.overview)
        run.note(report=path.name, alarms=len(sweep.alarms))
    return path


def _with_places(look: AuditLook, places: PlacesFinding, out: Path) -> Page:
    from vitreous.views.audit_places import PLACES, places_section, said_of_places

    if places.alarm:
        places.switch_off().save(out / PLACES)
    return audit_page(look, (said_of_places(places),), (places_section(places),))


def _settings(finding: StructureFinding) -> dict[str, object]:
    chosen = {key: value for key, value in finding.settings.items() if key != "source"}
    return chosen | {"layers": len(finding.layers), "tokens": list(finding.tokens)}


def _inputs(name: str, finding: StructureFinding) -> dict[str, str]:
    """Content hashes of the model and the data, where the finding comes from a store."""
    source = finding.settings.get("source") or {}
    return {f"{name}, {part}": source[part]["fingerprint"] for part in ("model", "data") if part in source}
