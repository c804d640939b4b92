"""One or several structure findings as sections of a report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.lenses.structure import StructureFinding
from vitreous.views.panels import Fact, Group, Maps, Matrix, Member, Overview, Panel, Section, Statement, Text
from vitreous.views.structure import (
    COLUMNS,
    Source,
    anchor_values,
    bins_of,
    choose,
    layer_names,
    transformation_maps,
    unit_maps,
)
from vitreous.views.structure_tables import (
    comparison_tables,
    difference_matrix,
    layer_curves,
    layer_table,
    size_histogram,
    summary_table,
    threshold_curve,
    unrelated_difference,
)

if TYPE_CHECKING:
    from vitreous.lenses.structure_comparison import Comparison

PIXELS = 480  # of a matrix on the page
#: transform: when units are alike, what is made of a unit's values, and what then differs.
TRANSFORMS = {
    "grouped_rank": (
        "put the samples in the same order, whatever their scale",
        "Each unit's values are replaced by their ranks over the samples, the ranks by {bins} bins",
        "bins",
    ),
    "rank": (
        "put the samples in the same order, whatever their scale",
        "Each unit's values are replaced by their ranks over the samples",
        "ranks",
    ),
    "raw": ("have the same values on the samples", "Each unit's values are taken as they are", "values"),
    "normalised_raw": (
        "have the same values on the samples, but for scale and offset",
        "Each unit's values are brought to mean 0 and deviation 1 over the samples",
        "values",
    ),
}


@dataclass(frozen=True, eq=False)
class Looked:
    """One finding of a page. `bins` (sample, layer, token, channel) and `example`, the activations (sample,) of one
    unit, are there if what the finding was made from is."""

    name: str
    finding: StructureFinding
    series: int
    bins: np.ndarray | None = None
    example: np.ndarray | None = None


def look_at(findings: Mapping[str, StructureFinding], sources: Mapping[str, Source]) -> tuple[Looked, ...]:
    """Reads what the page shows of each finding, from its source or from what it holds itself."""
    looked = []
    for series, (name, finding) in enumerate(findings.items()):
        bins = example = None
        source = sources.get(name)
        if finding.transformed is not None and finding.settings["transform"] == "grouped_rank":
            bins = bins_of(finding)
        elif source is not None:
            bins = bins_of(finding, source)
        if source is not None:
            marked = choose(finding).cluster
            example = None if marked is None else anchor_values(finding, source, marked)
        looked.append(Looked(name, finding, series, bins, example))
    return tuple(looked)


def structure_sections(
    looked: Sequence[Looked], comparison: Comparison | None = None, *, progress: bool = False
) -> tuple[Section, ...]:
    """The whole page: clusters, layers, units, differences, how to read it."""
    findings = {one.name: one.finding for one in looked}
    parts = [_cluster_section(looked, findings, comparison, progress), _layer_section(looked, findings)]
    if any(one.bins is not None for one in looked):
        parts.append(_unit_section(looked))
    matrices = tuple(_matrices(looked))
    if matrices:
        text = (
            "Dark diagonals are units of one token and channel, layer against layer: the residual stream carries them. "
            "Where a diagonal fades, layers have rewritten them."
        )
        group = Group("", matrices, columns=min(2, len(matrices)))
        parts.append(Section("differences", "How different any two units are", text, (group,), short="Differences"))
    return (*parts, _reading_section(looked))


def brief_section(looked: Sequence[Looked]) -> Section:
    """One section of a larger report: the numbers, and the map of the model with the most units in clusters."""
    findings = {one.name: one.finding for one in looked}
    most = max(looked, key=lambda one: _clustered(one.finding))
    sources = {one.name: one.bins for one in looked}
    groups = [
        Group("", (summary_table(findings),)),
        Group("", (size_histogram(findings), threshold_curve(findings, sources)), columns=2),
        Group(
            most.name,
            (_wide_maps(most, "Units from block to block"),),
            series=most.series,
        ),
    ]
    tokens = len(looked[0].finding.tokens)
    return Section(
        "structure",
        "Which units do the same job",
        "Two units of the residual stream do the same job if they put the pictures in the same order. A unit is a "
        f"token, of which the first {tokens} are looked at, and a channel.",
        tuple(groups),
        short="Structure",
    )


def _cluster_section(
    looked: Sequence[Looked], findings: Mapping[str, StructureFinding], comparison: Comparison | None, progress: bool
) -> Section:
    beside: list[Panel] = [size_histogram(findings)]
    if all(one.bins is not None and one.finding.settings["transform"] == "grouped_rank" for one in looked):
        beside.append(threshold_curve(findings, {one.name: one.bins for one in looked}, progress=progress))
    groups = [Group("", (summary_table(findings),)), Group("", tuple(beside), columns=2)]
    if comparison is not None:
        groups.append(Group("Is the difference real?", comparison_tables(comparison), " ".join(comparison.notes)))
    return Section(
        "clusters",
        "Units that do the same job",
        f"Two units are alike if they {_words(looked)[0]}; alike units form clusters, within a layer and across "
        "layers.",
        tuple(groups),
        short="Clusters",
    )


def _words(looked: Sequence[Looked]) -> tuple[str, str, str]:
    return TRANSFORMS[looked[0].finding.settings["transform"]]


def _layer_section(looked: Sequence[Looked], findings: Mapping[str, StructureFinding]) -> Section:
    return Section(
        "layers",
        "From layer to layer",
        "How far a layer's units are from all others, and how many different things it holds.",
        (Group("", _curves(looked, findings), columns=2), Group("", (layer_table(findings),))),
        short="Layers",
    )


def _curves(looked: Sequence[Looked], findings: Mapping[str, StructureFinding]) -> tuple[Panel, ...]:
    """Curves of all models in one chart if they are equally deep, else a chart each."""
    levels = {one.name: unrelated_difference(one.finding) for one in looked}
    unrelated = {name: level for name, level in levels.items() if level is not None}
    if len({len(finding.layers) for finding in findings.values()}) == 1:
        return layer_curves(findings, unrelated)
    alone = [layer_curves({name: f}, {n: v for n, v in unrelated.items() if n == name}) for name, f in findings.items()]
    return tuple(curve for curves in alone for curve in curves)


def _unit_section(looked: Sequence[Looked]) -> Section:
    there = [one for one in looked if one.bins is not None]
    if len(there) == 1:
        maps = [_wide_maps(there[0], there[0].name)]
    else:
        maps = [unit_maps(one.finding, one.bins, sort=True, title=one.name) for one in there]
    return Section(
        "units",
        "What the clusters look like",
        "One column is one unit (token and channel), one row a layer. Cells with one colour are one cluster.",
        (Group("", tuple(maps), columns=min(2, len(maps))),),
        short="Units",
    )


def _wide_maps(one: Looked, title: str) -> Maps:
    """Twice as many units, for a panel that has the page to itself."""
    units = choose(one.finding, columns=2 * COLUMNS).units
    return unit_maps(one.finding, one.bins, units=units, sort=True, title=title)


def _matrices(looked: Sequence[Looked]) -> Iterator[Matrix]:
    for one in looked:
        held = one.finding.distances is not None or one.finding.transformed is not None
        if held or (one.bins is not None and one.finding.settings["transform"] == "grouped_rank"):
            pixels = max(PIXELS, len(one.finding.layers))
            yield difference_matrix(one.finding, one.bins, pixels=pixels, shrink="sample", title=one.name)


def _reading_section(looked: Sequence[Looked]) -> Section:
    settings = looked[0].finding.settings
    _, made, what = _words(looked)
    words = Text(
        "How to read the numbers",
        (
            f"{made.format(bins=settings['bins'])}. Two units are joined if their {what} differ by less than "
            f"{settings['threshold']:g} on average, and joined units form a cluster, also over several steps.",
            "A cluster in one layer is a job done more than once; a cluster over layers is a unit that is carried on. "
            "An inefficient cluster has a gap: what it does vanishes in a layer and comes back in a later one.",
            "Units that are alike on these samples need not be so on others.",
        ),
        "import vitreous as vt\n\nfinding = vt.structure(vt.Store.open(STORE), tokens=[0, 1, 2])\nfinding.clusters[0]"
        "  # (member, (layer, token, channel)); the first member is the anchor",
    )
    panels: list[Panel] = [words]
    shown = next((one for one in looked if one.example is not None), None)
    if shown is not None and shown.example is not None and settings["transform"] == "grouped_rank":
        panels.append(transformation_maps(shown.example, settings["bins"]))
    return Section(
        "reading",
        "How to read this page",
        "What was done, and what it does not say.",
        (Group("", tuple(panels), columns=len(panels)),),
        short="Reading it",
    )


# -- the head of the page


def structure_title(looked: Sequence[Looked]) -> str:
    return f"Units that do the same job: {' and '.join(one.name for one in looked)}"


def structure_overview(looked: Sequence[Looked]) -> Overview:
    first = looked[0].finding
    tokens = ", ".join(map(str, first.tokens[:8])) + (", ..." if len(first.tokens) > 8 else "")
    return Overview(
        "Every unit of the residual stream, layer by layer, compared with every other: which ones are alike over the "
        "samples, where they are carried on, and where they vanish and come back.",
        f"{first.settings['samples']:,} samples; tokens {tokens}; {_compared(first)}, threshold "
        f"{first.settings['threshold']:g}.",
        tuple(Member(one.name, _about(one.finding), one.series) for one in looked),
        tuple(_numbers(looked)),
        tuple(_statements(looked)),
        kind="structure",
    )


def _compared(finding: StructureFinding) -> str:
    """What distances are taken between."""
    transform = finding.settings["transform"]
    return f"{finding.settings['bins']} bins" if transform == "grouped_rank" else f"transform {transform}"


def _about(finding: StructureFinding) -> str:
    layers, tokens, channels = finding.labels.shape
    return f"{layers} layers x {tokens} tokens x {channels} channels"


def _numbers(looked: Sequence[Looked]) -> Iterator[Fact]:
    for one in looked:
        note = one.name if len(looked) > 1 else ""
        yield Fact("units in clusters", f"{_clustered(one.finding):.1%}", note or f"of {one.finding.labels.size:,}")
        yield Fact("units in the largest cluster", str(one.finding.largest), note)
        yield Fact("clusters with a gap", str(int(one.finding.inefficient.sum())), note or "inefficient")


def _statements(looked: Sequence[Looked]) -> Iterator[Statement]:
    yield Statement(about_alike(looked), "clusters")
    for one in looked:
        if len(one.finding.sizes):
            yield Statement(_about_clusters(one), "clusters")
    yield Statement(_about_layers(looked), "layers")


def _clustered(finding: StructureFinding) -> float:
    return float((finding.labels >= 0).mean())


def about_alike(looked: Sequence[Looked]) -> str:
    """How many units of each model do the same job as another one."""
    parts = []
    for one in looked:
        units, count = one.finding.labels.size, int((one.finding.labels >= 0).sum())
        said = f"{count:,} of {units:,} units in {len(one.finding.sizes):,} clusters" if count else "no two units alike"
        parts.append(f"{one.name}: {said}")
    return f"{'; '.join(parts)}."


def _about_clusters(one: Looked) -> str:
    """What kind of clusters they are: one unit carried on, or several units at once; with or without a gap."""
    finding = one.finding
    carried = sum(len(np.unique(members[:, 1:], axis=0)) == 1 for members in finding.clusters)
    spanning = int((finding.spans[:, 1] > finding.spans[:, 0]).sum())
    gaps = int(finding.inefficient.sum())
    text = (
        f"{one.name}: {spanning:,} of {len(finding.sizes):,} clusters reach over several layers, and {carried:,} are "
        "one unit that the residual stream carries on."
    )
    if gaps:
        return f"{text} {gaps:,} have a gap: what they do vanishes and comes back."
    return f"{text} None has a gap."


def _about_layers(looked: Sequence[Looked]) -> str:
    """Which layer holds the most doubles."""
    parts = []
    for one in looked:
        share = one.finding.counts / one.finding.labels[0].size
        least = int(share.argmin())
        if share[least] < 1:
            name = layer_names(one.finding)[least]
            parts.append(f"{one.name} has the most doubles in {name}: {share[least]:.1%} of its units are different")
        else:
            parts.append(f"in {one.name} no layer does a job twice")
    return f"Within layers, {'; '.join(parts)}."
