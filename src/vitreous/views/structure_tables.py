"""Numbers of structure findings: per layer, per cluster, and the matrix of differences (Table 1, Figures 3 and 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.statistics import p_text
from vitreous.kernels.l1 import distances
from vitreous.lenses.structure import StructureFinding, unit_clusters
from vitreous.progress import tqdm
from vitreous.views.panels import Cell, Curve, Histogram, Line, Matrix, Table
from vitreous.views.structure import Source, bins_of, layer_names, shown_bins

if TYPE_CHECKING:
    from vitreous.lenses.structure_comparison import Comparison

Findings = Mapping[str, StructureFinding]
WIDTH, END = 10, 200  # of the bins of cluster sizes, section 4.2
THRESHOLDS = (0.5, 1.0, 2.0, 4.0, 8.0)


def size_histogram(findings: Findings) -> Histogram:
    """Cluster sizes in bins of ten up to 200, larger ones in the last, on a log scale; findings side by side."""
    counted = {name: finding.histogram(WIDTH, END) for name, finding in _some(findings).items()}
    edges = next(iter(counted.values()))[1]
    beyond = {name: int((finding.sizes > END).sum()) for name, finding in findings.items()}
    over = [f"{count} of {name}" for name, count in beyond.items() if count]
    return Histogram(
        "Sizes of clusters",
        tuple(map(float, edges)),
        tuple(Line(name, tuple(map(float, counts)), i) for i, (name, (counts, _)) in enumerate(counted.items())),
        "units in a cluster",
        "clusters (log)",
        "Clusters of two or more units, ten sizes a bin."
        + (f" The last bin also holds larger ones: {', '.join(over)}." if over else ""),
        log=True,
        beside=True,
    )


def summary_table(findings: Findings) -> Table:
    """The numbers of section 4.2 that are one a model."""
    rows: list[tuple[Cell, ...]] = []
    for name, finding in _some(findings).items():
        clustered = int((finding.labels >= 0).sum())
        rows.append(
            (
                name,
                f"{finding.labels.size:,}",
                f"{finding.settings['samples']:,}",
                f"{len(finding.sizes):,}",
                f"{clustered:,} ({clustered / finding.labels.size:.1%})",
                f"{finding.mean_size:.3f}",
                finding.largest,
                int(finding.inefficient.sum()),
                f"{int(finding.dead.sum())} / {int(finding.nearly_dead.sum())}",
            )
        )
    columns = (
        "model", "units", "samples", "clusters", "units in clusters", "mean size", "largest cluster",
        "inefficient clusters", "dead / nearly dead",
    )  # fmt: skip
    return Table(
        "All layers together",
        columns,
        tuple(rows),
        "Mean size counts a unit of no cluster as a group of one. An inefficient cluster has a layer without any of "
        "its units between its first and its last. Dead units are constant and never joined; nearly dead ones have one "
        "value on all but a hundredth of the samples.",
    )


def layer_table(findings: Findings) -> Table:
    """Table 1: difference and count of every layer, then inefficient clusters and the largest cluster."""
    names = _shared_layers(findings)
    every = list(_some(findings).values())
    columns = ["layer", *(f"difference, {n}" for n in findings), *(f"count, {n}" for n in findings)]
    rows: list[tuple[Cell, ...]] = []
    for i, layer in enumerate(names):
        differences = [f"{f.differences[i]:.2f}" if i < len(f.layers) else "" for f in every]
        counts = [int(f.counts[i]) if i < len(f.layers) else "" for f in every]
        rows.append((layer, *differences, *counts))
    blank = [""] * len(every)
    rows.append(("inefficient clusters", *blank, *(int(f.inefficient.sum()) for f in every)))
    rows.append(("largest cluster", *blank, *(f.largest for f in every)))
    return Table(
        "Layer by layer",
        tuple(columns),
        tuple(rows),
        "Difference: mean distance of a layer's units to all units, 255 being the two that differ most. Count: groups "
        "of alike units in the layer, a unit of no cluster being a group of its own.",
    )


def layer_curves(findings: Findings, unrelated: Mapping[str, float] | None = None) -> tuple[Curve, Curve]:
    """Difference and count over layers of models of one depth.

    `unrelated` has for some of them the difference of units without anything in common, see `unrelated_difference`.
    """
    depths = {name: len(finding.layers) for name, finding in _some(findings).items()}
    if len({*depths.values()}) > 1:
        raise SettingsError("curves need models of one depth", given=depths, remedy="draw each on its own")
    x = tuple(float(i) for i in range(next(iter(depths.values()))))
    series = list(enumerate(findings.items()))
    differences = tuple(Line(name, tuple(f.differences.tolist()), i) for i, (name, f) in series)
    shares = tuple(Line(name, tuple((f.counts / f.labels[0].size).tolist()), i) for i, (name, f) in series)
    caption = "Mean distance to the units of all layers; 255 are the two units that differ most."
    level = None
    if unrelated:
        level = float(np.mean(list(unrelated.values())))
        said = ", ".join(f"{value:.1f} for {name}" for name, value in unrelated.items())
        caption += f" Line across: what units with nothing in common have ({said})."
    return (
        Curve("Difference by layer", x, differences, "layer", "difference", caption, baseline=level),
        Curve("Groups by layer", x, shares, "layer", "groups / units", "1: no two units of a layer are alike."),
    )


def threshold_curve(
    findings: Findings,
    sources: Mapping[str, Source] | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    *,
    progress: bool = False,
) -> Curve:
    """Share of units that belong to a cluster of grouped ranks, by threshold: how close units come that are not joined.

    `sources` as for `unit_maps`, for findings that do not hold their grouped ranks.
    """
    lines = []
    for series, (name, finding) in enumerate(_some(findings).items()):
        bins = bins_of(finding, (sources or {}).get(name))
        flat = bins.reshape(len(bins), -1).astype(np.float32)
        flat[:, ~finding.counted.ravel()] = 0  # dead, though ranks of equal values differ, or left out: in no cluster
        steps = tqdm(thresholds, f"thresholds, {name}", leave=False, disable=not progress)
        shares = [float((unit_clusters(flat, shown_bins(finding), t) >= 0).mean()) for t in steps]
        lines.append(Line(name, tuple(shares), series))
    return Curve(
        "If the threshold were another",
        tuple(map(float, thresholds)),
        tuple(lines),
        "threshold: mean difference in bins",
        "share of units in clusters",
        "Two units are joined if their ranks differ by less than this on average. A residual stream that carries units "
        "on rises early.",
    )


def unrelated_difference(finding: StructureFinding) -> float | None:
    """What `finding.differences` would be if no unit had anything in common with another; None for raw activations.

    Two independent ranks of n differ by (n² - 1) / 3n on average.
    """
    ranks = {"grouped_rank": finding.settings["bins"], "rank": finding.settings["samples"]}
    n = ranks.get(finding.settings["transform"])
    if n is None or not finding.farthest:
        return None
    return 255 / finding.farthest * finding.settings["samples"] * (n**2 - 1) / (3 * n)


def difference_matrix(
    finding: StructureFinding,
    source: Source = None,
    *,
    pixels: int = 1000,
    shrink: Literal["mean", "sample"] = "mean",
    title: str = "Differences of units",
    progress: bool = False,
) -> Matrix:
    """Figure 3: the distances of all units on a grey scale from 0 to 255, brighter where they differ more.

    Of many units, neighbours within a layer share a pixel, which shows their mean, or with `sample` one of them stands
    for all: the whole matrix is never made. Distances come from the finding if it holds them or what they are taken
    between, else from `source`, as for `unit_maps`.
    """
    layers, here = len(finding.layers), finding.labels[0].size
    if pixels < layers:
        raise SettingsError("every layer needs a pixel", given=pixels, accepted=f"{layers} or more")
    across = min(here, pixels // layers)
    starts = np.linspace(0, here, across, endpoint=False).astype(int)
    shown = (np.arange(layers)[:, None] * here + starts).ravel()
    if shrink == "sample" or across == here:
        means = _block(finding, source, shown, shown)
    else:
        means = _block_means(finding, source, shown, progress)
    about = f"{layers * here:,} units on either axis"
    if across < here:
        about = f"{layers * across:,} of {about}" if shrink == "sample" else about
        about += "" if shrink == "sample" else f", about {here / across:.1f} neighbours a pixel"
    return Matrix(
        title,
        np.clip(np.round(255 / (finding.farthest or 1) * means), 0, 255).astype(np.uint8),
        tuple(range(0, across * layers, across)),
        tuple(name.removeprefix("block ").removeprefix("layer ") for name in layer_names(finding)),
        f"{about}, by layer, token and channel from the lower left corner. Brighter is more different; ticks part the "
        "layers.",
    )


def _block(finding: StructureFinding, source: Source, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Distances (first, second) of some units to others."""
    if finding.distances is not None:
        return finding.distances[np.ix_(first, second)]
    rows = _rows(finding, source)
    return distances(rows[first], rows[second])


def _block_means(finding: StructureFinding, source: Source, starts: np.ndarray, progress: bool) -> np.ndarray:
    """Mean distances (group, group) of groups of neighbours that begin at `starts`; one row of groups at a time."""
    units = np.arange(finding.labels.size)
    sizes = np.diff(starts, append=len(units))
    rows = None if finding.distances is not None else _rows(finding, source)
    out = np.empty((len(starts), len(starts)))
    for number, group in enumerate(tqdm(np.split(units, starts[1:]), "differences", disable=not progress)):
        first = group[0]  # the matrix is symmetric: what comes before was done
        near = finding.distances[first:, group] if rows is None else distances(rows[first:], rows[group])  # type: ignore[index]
        sums = np.add.reduceat(near.sum(1, dtype=np.float64), starts[number:] - first)
        out[number, number:] = out[number:, number] = sums
    return out / (sizes[:, None] * sizes[None])


def _rows(finding: StructureFinding, source: Source) -> np.ndarray:
    """What distances are taken between, (unit, sample)."""
    if source is None and finding.transformed is not None:
        return finding.transformed
    if finding.settings["transform"] != "grouped_rank":
        raise SettingsError(
            "only grouped ranks can be made again from activations",
            given=finding.settings["transform"],
            remedy="use vt.structure(..., keep_transformed=True)",
        )
    bins = bins_of(finding, source)
    return np.ascontiguousarray(bins.reshape(len(bins), -1).T)


def comparison_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Tables 7 and 8; the second only where layers could be compared."""
    a, b = comparison.names
    sizes = zip(comparison.names, comparison.groups, comparison.mean_sizes, strict=True)
    tables = [
        Table(
            "Sizes of groups",
            ("test", "statistic", "p", "reading"),
            tuple((row.name, f"{row.test.statistic:.4g}", p_text(row.test.p), row.reading) for row in comparison.sizes),
            "; ".join(f"{name}: {count:,} groups of {mean:.3f} units" for name, count, mean in sizes)
            + ". A unit of no cluster is a group of one.",
        )
    ]
    if comparison.layers:
        rows = tuple(
            (
                row.layer.removesuffix(".resid.out"),
                *(f"{x:.2f}" for x in (row.a, row.b, row.difference, row.permutation.statistic)),
                p_text(row.permutation.p, 1e-4),
                f"{row.t.statistic:.1f}",
                p_text(row.t.p),
            )
            for row in comparison.layers
        )
        columns = ("layer", a, b, "difference", "difference, 5,000 pairs", "p, permutation", "t", "p, paired t")
        caption = (
            "Distances of a layer's units to all units. The paired t-test takes all pairs of units for independent, "
            "which they are not: of so many, any difference is significant."
        )
        tables.append(Table("Differences by layer", columns, rows, caption))
    return tuple(tables)


def _some(findings: Findings) -> Findings:
    if not findings:
        raise SettingsError("at least one finding is needed", accepted="a name and a finding each")
    return findings


def _shared_layers(findings: Findings) -> tuple[str, ...]:
    """Names of the layers of the deepest finding."""
    return max((layer_names(f) for f in _some(findings).values()), key=len)
