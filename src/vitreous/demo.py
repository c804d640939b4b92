"""A first look in about a minute: draws scenes, records the bundled models on them, and writes a report."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import SettingsError
from vitreous.models.naming import about, hidden_blocks, short_names
from vitreous.provenance import start_run
from vitreous.report import write_report
from vitreous.views.colours import NEUTRAL
from vitreous.views.first_look import look, overview, sections, title
from vitreous.views.seen import Seen

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

MODELS = ("bundled:scenes-text", "bundled:scenes-mae", "bundled:scenes-contrast")
SIZE = 64  # pixels of a scene
LOOKED = 64  # pictures whose attention is recorded
STORES = "stores"


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
    """Writes `report.html`, `run.json` and a store a model under `out`, and gives the path of the report.

    Run again, it takes up what is there and ends with the same report. `subjects` are looked at in place of `models`.
    """
    import vitreous as vt

    if scenes < 16:
        raise SettingsError("a first look needs some pictures", given=scenes, accepted="16 or more scenes")
    out = Path(out)
    say = _voice(progress)
    say(f"drawing {scenes} scenes")
    images = vt.scenes(scenes, size=SIZE, seed=seed)
    chosen = list(subjects) if subjects is not None else [vt.load(name, device=device) for name in models]
    names = short_names([subject.name for subject in chosen])
    settings = {
        "models": [subject.name for subject in chosen],
        "scenes": scenes,
        "size": SIZE,
        "with attention": LOOKED,
    }
    inputs = {name: subject.fingerprint for name, subject in zip(names, chosen, strict=True)}
    inputs |= {images.name: images.fingerprint}
    where = str(chosen[0].device)
    with start_run(out, "demo", settings, seeds={"seed": seed}, inputs=inputs, device=where) as run:
        seen = [
            record_seen(subject, images, out / STORES, name, series, seed=seed, progress=progress)
            for series, (name, subject) in enumerate(zip(names, chosen, strict=True))
        ]
        control = record_shuffled(chosen[0], images, out / STORES, names[0], seed=seed, progress=progress)
        say("looking at attention, activations and units")
        found = look(seen, images, seed, control)
        path = write_report(out, title(found), sections(found), run, overview=overview(found))
        run.note(report=path.name, detectors={m.seen.name: m.detectors() for m in found.measured})
    say(f"wrote {path}")
    return path


def record_seen(
    subject: Subject, images: ImageSet, folder: Path, name: str, series: int, *, seed: int, progress: bool
) -> Seen:
    """Records one model: the residual stream of all blocks, hidden units of three, attention of the first pictures."""
    import vitreous as vt

    if subject.preprocess is None:
        raise SettingsError("a first look is at pictures", given=f"{subject.name}, which takes text")
    sites = ["blocks.*.resid.out", *_hidden_sites(subject.depth)]
    store = vt.record(subject, images, sites, folder / name, seed=seed, progress=progress)
    attention = None
    if subject.family.attention:
        few = images[: min(LOOKED, len(images))]
        attention = vt.record(
            subject, few, "blocks.*.attn.pattern", folder / f"{name}-attention", seed=seed, progress=progress
        )
    return Seen(name, about(subject), series, store, attention, subject.preprocess)


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


def _voice(progress: bool) -> Callable[[str], None]:
    """Says what is going on, on the error stream."""
    from rich.console import Console

    console = Console(stderr=True, quiet=not progress)
    return lambda text: console.print(text, highlight=False, markup=False)
