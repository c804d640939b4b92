"""How large activations are, how they are spread, and how many units never speak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vitreous.views.panels import Cell, Curve, Group, Histogram, Line, Section, Table
from vitreous.views.seen import Seen, block_of

BINS = 48


@dataclass(frozen=True, eq=False)
class Norms:
    """Length of the residual stream after each block: mean (block,) of one kind of token, and its middle 80 %."""

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False)
class Units:
    """The hidden units of one block over all patches.

    `on` (unit,) is the share of patches on which a unit is above zero; `sample` some of all activations.
    """

    site: str
    on: np.ndarray
    sample: np.ndarray

    @property
    def silent(self) -> float:
        """Share of units that are above zero on no patch at all."""
        return float((self.on == 0).mean())


@dataclass(frozen=True, eq=False)
class Activity:
    """What `measure_activity` read of one model; `norms` by kind of token."""

    seen: Seen
    blocks: tuple[int, ...]
    norms: dict[str, Norms]
    units: tuple[Units, ...]


def measure_activity(seen: Seen, sample: int = 200_000) -> Activity:
    """Blocks may differ in tokens and channels: the later stages of a ConvNeXt have fewer and wider ones."""
    residual = seen.sites("resid.out")
    # (sample, token) of each block
    lengths = [np.concatenate([np.linalg.norm(batch, axis=-1) for batch in seen.batches(site)]) for site in residual]
    prefix = seen.store.prefix
    kinds: dict[str, slice] = {"patches": slice(len(prefix), None)}
    if "class" in prefix:
        at = prefix.index("class")
        kinds["class token"] = slice(at, at + 1)
    units = []
    for site in seen.sites("mlp.hidden"):
        values = seen.patches(site).reshape(-1, seen.store[site].shape[-1])
        step = max(1, values.size // sample)
        units.append(Units(site, (values > 0).mean(0), values.ravel()[::step]))
    norms = {kind: _norms([block[:, tokens] for block in lengths]) for kind, tokens in kinds.items()}
    return Activity(seen, tuple(map(block_of, residual)), norms, tuple(units))


def _norms(lengths: Sequence[np.ndarray]) -> Norms:
    """Of the lengths of each block."""
    low, high = np.array([np.quantile(block, (0.1, 0.9)) for block in lengths]).T
    return Norms(np.array([block.mean() for block in lengths]), low, high)


def _norm_line(seen: Seen, norms: Norms) -> Line:
    mean, low, high = (tuple(map(float, part)) for part in (norms.mean, norms.low, norms.high))
    return Line(seen.name, mean, seen.series, low=low, high=high)


def norm_curves(activities: Sequence[Activity]) -> list[Curve]:
    """One chart a kind of token, one line a model."""
    kinds = list(dict.fromkeys(kind for activity in activities for kind in activity.norms))
    every = [a.norms[kind].mean for a in activities for kind in a.norms]
    log = max(map(np.max, every)) > 8 * min(map(np.min, every))
    curves = []
    for kind in kinds:
        have = [a for a in activities if kind in a.norms]
        lines = tuple(_norm_line(a.seen, a.norms[kind]) for a in have)
        curves.append(
            Curve(
                f"Residual stream of the {kind}",
                tuple(map(float, have[0].blocks)),
                lines,
                "after block",
                "length of the vector",
                "Mean over all pictures; the band holds the middle 80 %." + (" Logarithmic scale." if log else ""),
                log,
            )
        )
    return curves


def unit_histograms(activities: Sequence[Activity]) -> list[Histogram]:
    """One chart a hidden layer, one outline a model."""
    charts = []
    for at, units in enumerate(activities[0].units):
        samples = [activity.units[at].sample for activity in activities]
        low = min(float(np.quantile(s, 0.0005)) for s in samples)
        high = max(float(np.quantile(s, 0.9995)) for s in samples)
        edges = np.linspace(low, max(high, low + 1e-6), BINS + 1)
        lines = tuple(
            Line(activity.seen.name, _shares(sample, edges), activity.seen.series)
            for activity, sample in zip(activities, samples, strict=True)
        )
        charts.append(
            Histogram(
                f"Hidden units of block {block_of(units.site)}",
                tuple(map(float, edges)),
                lines,
                "activation",
                "share (log)",
                log=True,
            )
        )
    return charts


def _shares(sample: np.ndarray, edges: np.ndarray) -> tuple[float, ...]:
    counts, _ = np.histogram(sample, edges)
    return tuple(float(c) for c in counts / len(sample))


def silence_table(activities: Sequence[Activity]) -> Table:
    blocks = [block_of(units.site) for units in activities[0].units]
    columns = ["model", "units a block"]
    columns += [f"never on, block\u00a0{block}" for block in blocks]
    columns += [f"typical unit on, block\u00a0{block}" for block in blocks]
    rows: list[tuple[Cell, ...]] = []
    for activity in activities:
        silent = [f"{units.silent:.1%}" for units in activity.units]
        typical = [f"{np.median(units.on):.0%}" for units in activity.units]
        widths = dict.fromkeys(len(units.on) for units in activity.units)  # stages may differ
        wide: Cell = next(iter(widths)) if len(widths) == 1 else ", ".join(f"{width:,}" for width in widths)
        rows.append((activity.seen.name, wide, *silent, *typical))
    return Table(
        "Units that never speak",
        tuple(columns),
        tuple(rows),
        "A unit is on where its activation, after the non-linearity, is above zero. Never on: the share of units that "
        "are on for no patch of any picture. Typical: the share of patches for which the median unit is on.",
    )


def activity_section(activities: Sequence[Activity]) -> Section:
    curves, charts = norm_curves(activities), unit_histograms(activities)
    return Section(
        "activations",
        "How the activations behave",
        "Three checks before any unit is trusted: does the signal stay in range from block to block, are the units' "
        "values spread out as they should be, and how many units never respond to anything?",
        (
            Group("The residual stream", tuple(curves), columns=2),
            Group("The hidden units of the MLPs", tuple(charts), columns=max(1, min(3, len(charts)))),
            Group("", (silence_table(activities),)),
        ),
        short="Activations",
    )
