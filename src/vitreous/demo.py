"""The bundled models on scenes, through all four lenses, to a report; and a first look that uses the known truth."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import SettingsError
from vitreous.models.naming import about, hidden_blocks
from vitreous.progress import voice
from vitreous.provenance import start_run
from vitreous.report import write_report
from vitreous.site.lens_pages import LensPage
from vitreous.views.colours import NEUTRAL
from vitreous.views.first_look import look, overview, sections, title
from vitreous.views.seen import Seen

if TYPE_CHECKING:
    from vitreous.examination import Examination
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

MODELS = ("bundled:scenes-text", "bundled:scenes-mae", "bundled:scenes-contrast")
SIZE = 64  # pixels of a scene
LOOKED = 64  # pictures whose attention is recorded
CLOSE, UNITS = 64, 48  # pictures that are looked at patch by patch, units of each block
FIRST_LOOK, REPORT = "first-look", "report"


def run_demo(
    out: str | Path = "vitreous-demo",
    *,
    scenes: int = 512,
    seed: int = 0,
    device: str = "auto",
    models: Sequence[str] = MODELS,
    progress: bool = True,
    subjects: Sequence[Subject] | None = None,
) -> Path:
    """Examines the bundled models on scenes into `out`, and gives the path of the report's first page.

    `out` is a run that `vitreous explore` opens; `report/` in it the site, `first-look/` a page that uses the known
    truth of scenes. Run again, it takes up what is there and ends with the same report. `subjects` are looked at in
    place of `models`.
    """
    import vitreous as vt

    if scenes < 16:
        raise SettingsError("a first look needs some pictures", given=scenes, accepted="16 or more scenes")
    out = Path(out)
    say = voice(progress)
    say(f"drawing {scenes} scenes")
    images = vt.scenes(scenes, size=SIZE, seed=seed)
    chosen = list(subjects) if subjects is not None else [vt.load(name, device=device) for name in models]
    asked: Any = {"close": min(CLOSE, scenes), "units": UNITS, "seed": seed, "device": device}
    run = vt.examine(chosen, images, out, progress=progress, **asked)
    say("a first look at attention, activations and units, with the truth that scenes come with")
    page = first_look(run, chosen, images, seed=seed, progress=progress)
    say("writing the report")
    path = vt.write_site(run, out / REPORT, extra=[page], progress=progress)
    say(f"wrote {path}: open it in any browser")
    return path


def first_look(
    run: Examination, subjects: Sequence[Subject], images: ImageSet, *, seed: int, progress: bool
) -> LensPage:
    """Writes `first-look/report.html`, one page that holds everything, and gives its sections as a page of the site."""
    out = run.folder / FIRST_LOOK
    names = [entry.name for entry in run.models]
    settings = {"models": [s.name for s in subjects], "scenes": len(images), "size": SIZE, "with attention": LOOKED}
    inputs = {name: subject.fingerprint for name, subject in zip(names, subjects, strict=True)}
    inputs |= {images.name: images.fingerprint}
    where = str(subjects[0].device)
    with start_run(out, "first look", settings, seeds={"seed": seed}, inputs=inputs, device=where) as record:
        seen = [
            read_seen(run, subject, images, entry.name, series, seed=seed, progress=progress)
            for series, (entry, subject) in enumerate(zip(run.models, subjects, strict=True))
        ]
        control = record_shuffled(subjects[0], images, out, names[0], seed=seed, progress=progress)
        found = look(seen, images, seed, control)
        parts = sections(found)
        path = write_report(out, title(found), parts, record, overview=overview(found))
        record.note(report=path.name, detectors={m.seen.name: m.detectors() for m in found.measured})
    sentence = "Where the models look, how activations behave, what single units detect, checked against the truth."
    return LensPage("first-look", "First look", sentence, parts)


def read_seen(
    run: Examination, subject: Subject, images: ImageSet, name: str, series: int, *, seed: int, progress: bool
) -> Seen:
    """What the examination recorded of one model, and attention of the first pictures."""
    import vitreous as vt

    attention = None
    if subject.family.attention:
        few = images[: min(LOOKED, len(images))]
        folder = run.folder / FIRST_LOOK / f"{name}-attention"
        attention = vt.record(subject, few, "blocks.*.attn.pattern", folder, seed=seed, progress=progress)
    assert subject.preprocess is not None
    return Seen(name, about(subject), series, run.store(name), attention, subject.preprocess)


def record_shuffled(subject: Subject, images: ImageSet, folder: Path, name: str, *, seed: int, progress: bool) -> Seen:
    """Records the hidden units of a copy that has learned nothing, as a control."""
    import vitreous as vt

    blind = shuffled(subject, seed)
    store = vt.record(
        blind, images, _hidden_sites(subject.depth), folder / f"{name}-shuffled", seed=seed, progress=progress
    )
    assert subject.preprocess is not None
    return Seen(f"{name}, weights shuffled", about(subject), NEUTRAL, store, None, subject.preprocess)


def shuffled(subject: Subject, seed: int) -> Subject:
    """A copy with the numbers in each weight array in random order: the same sizes and spreads, nothing learned."""
    import torch

    import vitreous as vt

    module = copy.deepcopy(subject.module)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
            parameter.copy_(parameter.flatten()[order].view_as(parameter))
    return vt.wrap(module, name=f"{subject.name} shuffled", family=subject.family, preprocess=subject.preprocess)


def _hidden_sites(depth: int) -> list[str]:
    return [f"blocks.{block}.mlp.hidden" for block in hidden_blocks(depth)]
