"""An alignment as a page: how well it predicts, whether models came together, what it did to objects."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from vitreous.lenses.align import ChannelAlign
from vitreous.lenses.align_likeness import SlotCosines
from vitreous.lenses.align_segmentation import LayerScores, RegionMeans
from vitreous.views.align_panels import (
    cosine_heats,
    region_bars,
    region_curves,
    score_bars,
    segmentation_curves,
)
from vitreous.views.panels import (
    Cell,
    Curve,
    Fact,
    Group,
    Line,
    Member,
    Overview,
    Page,
    Panel,
    Pictures,
    Section,
    Statement,
    Table,
    Text,
)

REGIONS = 6  # with a curve of their own
FEW = 20  # pictures held out, below which a page says so
PREDICT = {
    "together": "The response loss sees the mean over layers only: nothing makes a single layer predict alone.",
    "alone": "Every layer had to predict alone, through the one head.",
}
NAMES = {"response": "responses", "eigen": "eigen-constraint", "zero": "zero centre", "covariance": "covariance"}
NAMES |= {"agree": "agreement of layers"}


@dataclass(frozen=True, eq=False)
class AlignLook:
    """What a page is made of: an alignment, and what was measured with it, where it was."""

    alignment: ChannelAlign
    cosines: tuple[SlotCosines, SlotCosines] | None = None
    segmentation: LayerScores | None = None
    regions: RegionMeans | None = None
    brains: tuple[Pictures, ...] = ()
    by_region: Pictures | None = None


def alignment_page(look: AlignLook) -> Page:
    found = look.alignment
    sections = list(_sections(look))
    table = found.records()[0]
    models = list(dict.fromkeys(model for model, _ in found.slots))
    numbers = [
        Fact("R² on held-out pictures", f"{table['R2']:.3f}", f"mean of {table['responses']:,} responses"),
        Fact("layers", str(len(found.slots)), f"of {len(models)} models"),
        Fact("channels", str(len(found.head)), "of the shared space"),
    ]
    if "ceiling" in table:
        numbers.insert(1, Fact("of the noise ceiling", f"{table['share']:.0%}", f"{table['ceiling']:.3f}"))
    layers = {m: sum(model == m for model, _ in found.slots) for m in models}
    members = tuple(Member(m, f"{layers[m]} layers", k) for k, m in enumerate(models))
    lede = (
        "One linear map a layer, learned so that the mean over layers and patches predicts what was measured for each "
        "picture. Whether a channel then means the same in every layer and model is what the cosines say."
    )
    data = f"{found.settings['responses']}: {table['responses']:,} responses; {len(found.held_out)} pictures held out."
    overview = Overview(lede, data, members, tuple(numbers), tuple(_statements(look)), kind="alignment")
    return Page(f"One space for {', '.join(models)}", overview, tuple(sections))


def _statements(look: AlignLook) -> Iterator[Statement]:
    rows = look.alignment.records()
    if (held := len(look.alignment.held_out)) < FEW:
        yield Statement(f"Only {held} pictures were held out: R² says little before there are more.", "prediction")
    regions = [row for row in rows[1:] if np.isfinite(row["R2"])]
    if regions:
        best, worst = (f(regions, key=lambda row: row["R2"]) for f in (max, min))
        yield Statement(
            f"Best predicted: {best['region']} ({best['R2']:.3f}); least: {worst['region']} ({worst['R2']:.3f}).",
            "prediction",
        )
    elif rows[0]["R2"] <= 0:
        yield Statement("Held-out pictures are not predicted better than by the mean.", "prediction")
    else:
        yield Statement(f"{rows[0]['R2']:.1%} of the variance over held-out pictures is explained.", "prediction")
    if look.cosines is not None:
        (before, _), (after, other) = (part.between() for part in look.cosines)
        if np.isfinite(after):
            was = f" from {before:.3f}" if np.isfinite(before) else ""
            yield Statement(
                f"The cosine of the same patch in two models went{was} to {after:.3f}; of another patch it is "
                f"{other:.3f}.",
                "cosines",
            )
    if look.segmentation is not None:
        model = look.alignment.slots[0][0]
        ends = {name: max(look.segmentation.best(name, model).values()) for name in look.segmentation.readings}
        said = ", ".join(f"{name} {value:.3f}" for name, value in ends.items())
        yield Statement(f"Oracle segmentation at the best layer of {model}: {said}.", "objects")


def _sections(look: AlignLook) -> Iterator[Section]:
    found = look.alignment
    panels: list[Panel] = [score_bars(found), _training_curve(found)]
    groups = [Group("", tuple(panels), columns=2), Group("", (_score_table(found),))]
    if look.brains:
        groups.append(Group("On the surface", look.brains))
    sentence = "R² by region, on pictures that no step was taken on; their error chose the epoch that is kept."
    yield Section("prediction", "Are the responses predicted?", sentence, tuple(groups), "Prediction")
    if look.cosines is not None:
        sentence = "The same patch of the same picture at two layers: what the alignment brought together."
        group = Group("", cosine_heats(*look.cosines), columns=2)
        yield Section("cosines", "Did layers and models come together?", sentence, (group,), "Cosines")
    if look.segmentation is not None or look.regions is not None:
        yield _object_section(look)
    yield _reading_section(found)


def _object_section(look: AlignLook) -> Section:
    groups = []
    models = list(dict.fromkeys(model for model, _ in look.alignment.slots))
    if look.segmentation is not None:
        curves = tuple(segmentation_curves(look.segmentation, model) for model in models)
        groups.append(Group("Oracle segmentation", curves, columns=2))
    if look.regions is not None:
        bars = []
        for model in models:
            layers = [layer for name, layer in look.regions.slots if name == model]
            bars.append(region_bars(look.regions, model, layers[len(layers) // 2], title=f"Figure and ground: {model}"))
        groups.append(Group("What patches add to each region", tuple(bars), columns=2))
        curves = tuple(region_curves(look.regions, roi) for roi in list(look.regions.by_roi())[:REGIONS])
        groups.append(Group("Figure minus ground over layers", curves, columns=2))
    if look.by_region is not None:
        groups.append(Group("Which region sees what", (look.by_region,)))
    sentence = "How well layers tell objects apart before and after, and what figure and ground say to each region."
    return Section("objects", "What became of objects?", sentence, tuple(groups), "Objects")


def _training_curve(found: ChannelAlign) -> Curve:
    x = tuple(range(1, len(found.log) + 1))
    lines = [Line("held out", tuple(line["held out"] for line in found.log), 1)]
    lines.append(Line("trained on", tuple(line["response"] for line in found.log), 0))
    return Curve("Training", x, tuple(lines), "epoch", "mean absolute error, in deviations")


def _score_table(found: ChannelAlign) -> Table:
    rows = found.records()
    columns = tuple(rows[0])
    return Table("By region", columns, tuple(tuple(_cell(row[name]) for name in columns) for row in rows))


def _cell(value: Cell) -> Cell:
    return "none" if isinstance(value, float) and not np.isfinite(value) else value


def _reading_section(found: ChannelAlign) -> Section:
    settings = found.settings
    words = Text(
        "How to read it",
        (
            f"Weights: eigen-constraint {settings['lambda_eigen']:g}, zero centre {settings['lambda_zero']:g}, "
            f"covariance {settings['lambda_cov']:g}, agreement {settings.get('lambda_agree', 0):g}; "
            f"{settings['epochs']} epochs, seed {settings['seed']}.",
            PREDICT[settings.get("predict", "together")],
            "R² below 0 is worse than the mean of the held-out pictures.",
            "Compare with shuffled weights or pixels before you read much into a score.",
        ),
        "import vitreous as vt\n\nalignment = vt.ChannelAlign.load(FOLDER)\n"
        "vt.ncut(stores, read=alignment.transform)  # a cut in the shared space",
    )
    last = found.log[-1]
    terms = Table(
        "Terms of the loss, last epoch",
        ("term", "value"),
        tuple((said, float(last[name])) for name, said in NAMES.items() if name in last),
    )
    return Section(
        "reading", "How to read this page", "What was done.", (Group("", (words, terms), columns=2),), "Reading it"
    )
