"""Pictures of a structure finding: units as maps, layer by layer, framed by their clusters (Figures 1 and 2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Union

import numpy as np

from vitreous.errors import SettingsError
from vitreous.lenses.structure import StructureFinding, grouped_ranks
from vitreous.views.colours import CLUSTERS
from vitreous.views.panels import BARE, THIN, Maps

if TYPE_CHECKING:
    from vitreous.store import Store

Source = Union["Store", np.ndarray, None]  # what a finding was made from; None: what it holds itself
COLUMNS = 6  # units shown where nobody chose, as in Figure 1
ROWS = 14  # layers shown at most


def layer_names(finding: StructureFinding) -> tuple[str, ...]:
    """`blocks.3.resid.out` as `block 3`; other names as they are."""
    return tuple(re.sub(r"^blocks\.(\d+)\.resid\.out$", r"block \1", name) for name in finding.layers)


def bins_of(finding: StructureFinding, source: Source = None) -> np.ndarray:
    """Grouped ranks, uint8 (sample, layer, token, channel), of what a finding was made from: its store or activations.

    Without a source the finding itself has to hold them. What takes a `source` also takes these.
    """
    if source is None:
        return _kept(finding)
    if isinstance(source, np.ndarray):
        return ranked(finding, fitting(finding, source))
    _refuse_other_store(finding, source)
    tokens = list(finding.tokens)
    parts = [ranked(finding, source[name][:, tokens]) for name in finding.layers]
    return np.stack(parts, 1)


def _kept(finding: StructureFinding) -> np.ndarray:
    if finding.transformed is None or finding.settings["transform"] != "grouped_rank":
        raise SettingsError(
            "the finding does not hold grouped ranks",
            given=f"transform {finding.settings['transform']!r}, transformed "
            + ("kept" if finding.transformed is not None else "not kept"),
            remedy="pass its store or activations as source, or use vt.structure(..., keep_transformed=True)",
        )
    return np.moveaxis(finding.transformed.reshape(*finding.labels.shape, -1), -1, 0)


def fitting(finding: StructureFinding, source: np.ndarray) -> np.ndarray:
    """The source, if it can be what the finding was made from."""
    if source.shape != (finding.settings["samples"], *finding.labels.shape):
        raise SettingsError(
            "these are not the activations of this finding",
            given=source.shape,
            accepted=f"(sample, layer, token, channel) {(finding.settings['samples'], *finding.labels.shape)}",
        )
    return source


def _refuse_other_store(finding: StructureFinding, store: Store) -> None:
    missing = [name for name in finding.layers if name not in store.sites]
    if missing or len(store) != finding.settings["samples"]:
        raise SettingsError(
            "this store is not the one of the finding",
            given=f"{store!r}, without {missing}" if missing else repr(store),
            accepted=f"{finding.settings['samples']} samples of {', '.join(finding.layers)}",
        )


def _columns(finding: StructureFinding, source: Source, blocks: Sequence[int], units: np.ndarray) -> np.ndarray:
    """Activations (sample, block, unit) of some (token, channel) units; a store is read for these alone."""
    tokens, channels = units.T
    if source is None:
        return _kept(finding)[:, list(blocks)][:, :, tokens, channels]
    if isinstance(source, np.ndarray):
        return fitting(finding, source)[:, list(blocks)][:, :, tokens, channels]
    _refuse_other_store(finding, source)
    positions = np.asarray(finding.tokens)[tokens]
    return np.stack([source[finding.layers[b]][:, positions, channels] for b in blocks], 1)


def ranked(finding: StructureFinding, values: np.ndarray) -> np.ndarray:
    """Grouped ranks (sample, ...); bytes are taken for grouped ranks already."""
    if values.dtype == np.uint8:
        return values
    return grouped_ranks(values.reshape(len(values), -1), shown_bins(finding)).reshape(values.shape)


def shown_bins(finding: StructureFinding) -> int:
    """Bins of the maps: the finding's own, unless it went without and there are fewer samples."""
    return min(finding.settings["bins"], finding.settings["samples"])


# -- a vector of samples as a map


def square_side(samples: int) -> int:
    """Side of the smallest square that holds all samples."""
    return ceil(sqrt(samples))


def as_maps(values: np.ndarray, grid: tuple[int, int] | None = None) -> np.ndarray:
    """(sample, ...) -> float32 (..., row, column).

    With `grid` (rows, columns) the samples lie row by row on a plane, the first at the lower left corner. Without, they
    fill a square from its upper left corner on; what is left of the square is NaN.
    """
    samples = len(values)
    values = np.moveaxis(values, 0, -1).astype(np.float32)
    if grid is not None:
        if grid[0] * grid[1] != samples:
            raise SettingsError("a grid has one place for every sample", given=f"{grid} for {samples} samples")
        return values.reshape(*values.shape[:-1], *grid)[..., ::-1, :]
    side = square_side(samples)
    full = np.full((*values.shape[:-1], side * side), np.nan, np.float32)
    full[..., :samples] = values
    return full.reshape(*values.shape[:-1], side, side)


def about_maps(samples: int, grid: tuple[int, int] | None, ordered: bool) -> str:
    if grid is not None:
        return f"Each map is the plane of the {samples:,} inputs."
    side = square_side(samples)
    blank = side * side - samples
    text = f"Each map holds all {samples:,} samples, row by row in a square of {side} x {side}"
    text += f" whose last {blank} places stay empty" if blank else ""
    if ordered:
        return (
            f"{text}. In each column they are sorted by the anchor of its first cluster, or by its first map: where a "
            "map fades evenly, the unit still puts the samples in that order."
        )
    return f"{text}, in the order of the recording: compare maps, the place has no meaning."


# -- Figure 1


@dataclass(frozen=True, eq=False)
class Choice:
    """Which (token, channel) units and layers to show, and the cluster to mark (None: there is none)."""

    units: np.ndarray
    blocks: tuple[int, ...]
    cluster: int | None


def choose(finding: StructureFinding, columns: int = COLUMNS, rows: int = ROWS) -> Choice:
    """The largest cluster that spans layers is marked; half of the units carry it, the others the next largest ones."""
    layers, _, channels = finding.labels.shape
    blocks = tuple(np.unique(np.linspace(0, layers - 1, min(rows, layers)).round().astype(int)).tolist())
    ranked = sorted(
        range(len(finding.sizes)), key=lambda c: (finding.spans[c, 0] == finding.spans[c, 1], -finding.sizes[c])
    )
    units: list[tuple[int, int]] = []
    for number, cluster in enumerate(ranked):
        carriers, layers_of = np.unique(finding.clusters[cluster][:, 1:], axis=0, return_counts=True)
        strongest = carriers[np.argsort(-layers_of, kind="stable")]
        room = (columns + 1) // 2 if number == 0 else 1
        units += [unit for unit in map(tuple, strongest.tolist()) if unit not in units][:room]
        if len(units) >= columns:
            break
    every = np.stack(np.divmod(np.arange(finding.labels[0].size), channels), 1)
    units += [unit for unit in map(tuple, every[: 2 * columns].tolist()) if unit not in units]
    return Choice(np.array(units[:columns]), blocks, ranked[0] if ranked else None)


def unit_maps(
    finding: StructureFinding,
    source: Source = None,
    *,
    units: Sequence[tuple[int, int]] | np.ndarray | None = None,
    blocks: Sequence[int] | None = None,
    cluster: int | None = None,
    grid: tuple[int, int] | None = None,
    sort: bool = False,
    title: str = "Units by layer",
) -> Maps:
    """Figure 1: one column a unit (token, channel), one row a layer, each cell the unit's grouped ranks as contours.

    `source` is the store or the activations (sample, layer, token, channel) of the finding, or their grouped ranks as
    bytes; a finding that holds its grouped ranks needs none. Tokens and blocks count within the finding. `grid` is for
    samples on a plane, see `as_maps`; where samples are pictures, `sort` orders them in each column by the anchor of
    its first cluster, so that one sees how long the unit keeps that order. What is not given is chosen by `choose`.
    """
    if grid is not None and sort:
        raise SettingsError("samples on a plane keep their places", given="grid and sort", accepted="one of them")
    choice = choose(finding)
    shown = choice.units if units is None else _known_units(finding, units)
    rows = choice.blocks if blocks is None else tuple(known(b, len(finding.layers), "layer") for b in blocks)
    marked = choice.cluster if cluster is None else known(cluster, len(finding.sizes), "cluster")
    labels = finding.labels[list(rows)][:, shown[:, 0], shown[:, 1]]
    frames, bold = frame_colours(finding, labels)
    bins = ranked(finding, _columns(finding, source, rows, shown))
    if sort:
        order = _orders(finding, source, labels, marked, bins[:, 0])
        bins = np.take_along_axis(bins, order[:, None], 0)
    names = layer_names(finding)
    return Maps(
        title,
        as_maps(bins, grid),
        tuple(names[b] for b in rows),
        _unit_names(finding, shown),
        frames,
        labels == (-3 if marked is None else marked),
        np.zeros(labels.shape, bool),
        high=shown_bins(finding) - 1,
        caption=f"{_about_frames(finding, marked, bold)} {about_maps(len(bins), grid, sort)}",
    )


def anchor_values(finding: StructureFinding, source: Source, cluster: int) -> np.ndarray:
    """Activations (sample,) of a cluster's anchor."""
    layer, token, channel = finding.clusters[cluster][0]
    return _columns(finding, source, [layer], np.array([[token, channel]]))[:, 0, 0]


def _orders(
    finding: StructureFinding, source: Source, labels: np.ndarray, marked: int | None, first: np.ndarray
) -> np.ndarray:
    """Orders (sample, column): that of the marked cluster's anchor, else of the first cluster's, else of the first map.

    Columns of one cluster have one order and can be compared.
    """
    orders = []
    for column in range(labels.shape[1]):
        there = labels[:, column][labels[:, column] >= 0]
        if there.size:
            cluster = int(there[0]) if marked is None or marked not in there else marked
            values = ranked(finding, anchor_values(finding, source, cluster)[:, None])[:, 0]
        else:
            values = first[:, column]
        orders.append(np.argsort(values, kind="stable"))
    return np.stack(orders, 1)


def frame_colours(finding: StructureFinding, labels: np.ndarray) -> tuple[np.ndarray, int]:
    """Colours of the cells, the largest clusters first, and how many clusters have one."""
    there = np.unique(labels[labels >= 0])
    order = there[np.argsort(-finding.sizes[there], kind="stable")] if there.size else there
    colour = np.full(len(finding.sizes) + 1, THIN)
    colour[order[: len(CLUSTERS)]] = np.arange(min(len(order), len(CLUSTERS)))
    colour[-1] = BARE  # label -1, of no cluster, is the last
    return colour[labels], min(len(order), len(CLUSTERS))


def _about_frames(finding: StructureFinding, marked: int | None, bold: int) -> str:
    if marked is None:
        return "No two units do the same job: there are no clusters to frame."
    first, last = finding.spans[marked]
    names = layer_names(finding)
    where = f"in {names[first]}" if first == last else f"from {names[first]} to {names[last]}"
    skips = ", with a gap" if finding.inefficient[marked] else ""
    return (
        f"A coloured frame is a cluster ({bold} have a colour), a thin one another cluster, no frame none. "
        f"Red crosses: a cluster of {finding.sizes[marked]} units {where}{skips}."
    )


def _unit_names(finding: StructureFinding, units: np.ndarray) -> tuple[str, ...]:
    if len(finding.tokens) == 1:
        return tuple(f"unit {channel}" for _, channel in units)
    return tuple(f"t{finding.tokens[token]} · {channel}" for token, channel in units)


def _known_units(finding: StructureFinding, units: Sequence[tuple[int, int]] | np.ndarray) -> np.ndarray:
    _, tokens, channels = finding.labels.shape
    if not len(units):
        raise SettingsError("no units to show", given=units, accepted="(token, channel) pairs")
    return np.array([(known(t, tokens, "token"), known(c, channels, "channel")) for t, c in units])


def known(index: int, count: int, what: str) -> int:
    if not 0 <= index < count:
        raise SettingsError(
            f"the finding has no such {what}", given=int(index), accepted=f"0 to {count - 1}" if count else "none"
        )
    return int(index)


# -- Figure 2


def transformation_maps(values: np.ndarray, bins: int = 100, title: str = "From activations to grouped ranks") -> Maps:
    """Figure 2: one unit's activations (sample,), their ranks, and their grouped ranks, each as a square map."""
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    grouped = grouped_ranks(np.asarray(values)[:, None], bins)[:, 0]
    scale = [np.ptp(values) or 1, len(values) - 1, bins - 1]
    steps = [np.asarray(values) - np.min(values), ranks, grouped]
    maps = np.stack([as_maps(step / most) for step, most in zip(steps, scale, strict=True)])[None]
    none = np.zeros((1, 3), bool)
    text = (
        f"The {len(values):,} samples of one unit, row by row. Its values, their order, and the order in {bins} bins."
    )
    return Maps(
        title, maps, ("",), ("activation", "rank", "grouped rank"), np.full((1, 3), BARE), none, none, caption=text
    )
