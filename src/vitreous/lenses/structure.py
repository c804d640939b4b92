"""Structuring hidden features via clustering of unit-level activation patterns (under review, 2025).

Which hidden units do the same job? Two units do if, over many samples, they order the samples alike. Each unit's
values are turned into ranks, the ranks into a few bins, and units whose bins differ by less than one a sample on
average are joined.

    paper       here        axes          what it is
    F           features    sample unit   activations; a unit is (layer, token, channel), layer-major
    B_cluster   samples     -             how many samples
    β           bins        -             how many bins
    F̂           -           sample unit   grouped ranks, floor(rank(F) β / B)
    M           -           unit unit     L1 distances of grouped ranks
    τ           threshold   -             M < threshold · B joins two units
    C           labels      unit          connected components of two or more units

Where we differ: a unit that is constant over the samples would tie with every other constant unit; such dead units are
never joined. Everything else is exact: the distance matrix is never filled, but the components are those it would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.kernels.l1 import distance_matrix, distance_sums, largest_distance
from vitreous.kernels.near_pairs import near_components
from vitreous.kernels.ranks import rank_bins

if TYPE_CHECKING:
    from vitreous.store import Store

MOST_BINS = 256


def grouped_ranks(features: np.ndarray, bins: int = 100) -> np.ndarray:
    """Section 3.3: floats (sample, unit) -> uint8 (sample, unit), ordinal ranks over samples with ties by sample."""
    features = _checked(features, bins)
    return rank_bins(features, bins).T


def unit_clusters(features: np.ndarray, bins: int = 100, threshold: float = 1.0) -> np.ndarray:
    """Section 3.3: floats (sample, unit) -> int64 (unit,): cluster 0, 1, ... in the order of first units, -1 for none.

    A cluster has two units or more. Dead units belong to none.
    """
    features = _checked(features, bins)
    if not threshold > 0:
        raise SettingsError("threshold must be positive", given=threshold)
    samples, units = features.shape
    alive = np.flatnonzero((features != features[:1]).any(0))
    labels = np.full(units, -1)
    if alive.size == 0:
        return labels
    # neighbouring samples are often alike, and the bounds that spare most of the work want them mixed
    places = np.random.default_rng(0).permutation(samples)
    part = features if alive.size == units else features[:, alive]
    root = near_components(rank_bins(part, bins, places), threshold * samples)
    anchors, member, sizes = np.unique(root, return_inverse=True, return_counts=True)
    number = np.full(len(anchors), -1)
    number[sizes > 1] = np.arange((sizes > 1).sum())
    labels[alive] = number[member]
    return labels


def _checked(features: np.ndarray, bins: int) -> np.ndarray:
    features = np.asarray(features)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise SettingsError(
            "features are numbers (sample, unit)", given=f"{features.dtype} {features.shape}", accepted="a 2-D array"
        )
    if not 2 <= bins <= MOST_BINS:
        raise SettingsError("bins out of range", given=bins, accepted=f"2 to {MOST_BINS}")
    if len(features) < bins:
        raise SettingsError(
            "fewer samples than bins", given=f"{len(features)} samples, {bins} bins", remedy="record more samples"
        )
    if features.dtype.kind in "iu" or features.dtype.itemsize > 8:
        features = features.astype(np.float64)
    if not np.isfinite(features).all():
        unit = int(np.flatnonzero(~np.isfinite(features).all(0))[0])
        raise SettingsError("features hold NaN or infinity", given=f"unit {unit}", remedy="leave such units out")
    return features


# -- the finding


@dataclass(frozen=True, eq=False)
class StructureFinding:
    """Clusters of units over layers, and the numbers of section 4.2.

    `labels` int64 (layer, token, channel): cluster or -1; `dead` bool, constant over all samples; `nearly_dead` bool,
    at one and the same value on all but about a hundredth of them: such units come out alike whatever the tie rule.
    `differences` (layer,) is the mean distance of a layer's units to all units on a scale of 0 to 255. `distances` is
    the whole matrix (unit, unit), if it was asked for.
    """

    labels: np.ndarray
    dead: np.ndarray
    nearly_dead: np.ndarray
    differences: np.ndarray
    layers: tuple[str, ...]
    tokens: tuple[int, ...]
    settings: Mapping[str, Any]
    distances: np.ndarray | None = None

    @cached_property
    def clusters(self) -> tuple[np.ndarray, ...]:
        """Members (member, (layer, token, channel)) of each cluster, in flat order: the first is its anchor."""
        order = np.argsort(self.labels, axis=None, kind="stable")
        sizes = np.bincount(self.labels.ravel() + 1, minlength=1)
        parts = np.split(order[sizes[0] :], np.cumsum(sizes[1:])[:-1]) if len(sizes) > 1 else []
        return tuple(np.stack(np.unravel_index(part, self.labels.shape), 1) for part in parts)

    @property
    def anchors(self) -> np.ndarray:
        """(cluster, (layer, token, channel)): the first member of each."""
        return np.array([members[0] for members in self.clusters]).reshape(-1, 3)

    @property
    def spans(self) -> np.ndarray:
        """(cluster, 2): first and last layer of each."""
        return np.array([(m[:, 0].min(), m[:, 0].max()) for m in self.clusters]).reshape(-1, 2)

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(members) for members in self.clusters], int)

    @property
    def largest(self) -> int:
        return int(self.sizes.max(initial=0))

    @property
    def inefficient(self) -> np.ndarray:
        """bool (cluster,): whether it skips a layer between its first and its last."""
        present = np.array([len(set(members[:, 0].tolist())) for members in self.clusters], int)
        return self.spans[:, 1] - self.spans[:, 0] + 1 > present

    @property
    def counts(self) -> np.ndarray:
        """(layer,): how many groups of alike units a layer has; a unit of no cluster is a group of its own."""
        return np.array([len(np.unique(layer[layer >= 0])) + int((layer < 0).sum()) for layer in self.labels])

    def histogram(self, width: int = 10, end: int = 200) -> tuple[np.ndarray, np.ndarray]:
        """Cluster sizes in bins of `width` up to `end`: (count, edge); larger ones are in the last bin."""
        edges = np.arange(0, end + width, width)
        counts, _ = np.histogram(np.minimum(self.sizes, end), edges)
        return counts, edges


def structure(
    source: Store | np.ndarray,
    *,
    layers: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    bins: int = 100,
    threshold: float = 1.0,
    keep_nearly_dead: bool = True,
    distances: bool = False,
) -> StructureFinding:
    """Clusters of units across layers.

    The source is a store that holds `blocks.*.resid.out`, or activations (sample, layer, token, channel). `layers` and
    `tokens` choose among those that were recorded; all by default.

    >>> finding = vt.structure(store, tokens=[0])
    >>> finding.largest, finding.inefficient.sum(), finding.counts
    """
    features, names, chosen = _features(source, layers, tokens)
    shape = features.shape[1:]
    flat = _checked(features.reshape(len(features), -1), bins)
    dead = (flat == flat[:1]).all(0)
    nearly = _nearly_constant(flat) & ~dead
    usable = np.flatnonzero(np.ones_like(dead) if keep_nearly_dead else ~nearly)
    labels = np.full(flat.shape[1], -1)
    labels[usable] = unit_clusters(flat[:, usable], bins, threshold)
    rows = rank_bins(flat, bins)
    matrix = distance_matrix(rows) if distances else None
    most = int(largest_distance(rows) if matrix is None else matrix.max())
    mean = distance_sums(rows, bins).reshape(shape[0], -1).mean(1) / flat.shape[1]
    return StructureFinding(
        labels.reshape(shape),
        dead.reshape(shape),
        nearly.reshape(shape),
        255 * mean / max(most, 1),
        names,
        chosen,
        {"bins": bins, "threshold": threshold, "samples": len(flat), "keep_nearly_dead": keep_nearly_dead},
        matrix,
    )


def _nearly_constant(flat: np.ndarray, share: float = 0.01) -> np.ndarray:
    """Whether a unit has its median value on all but about a hundredth of the samples."""
    return (flat != np.median(flat, axis=0, keepdims=True).astype(flat.dtype)).mean(0) <= share


def _features(
    source: Store | np.ndarray, layers: Sequence[int] | None, tokens: Sequence[int] | None
) -> tuple[np.ndarray, tuple[str, ...], tuple[int, ...]]:
    """(sample, layer, token, channel), the names of the layers and the numbers of the tokens."""
    if isinstance(source, np.ndarray):
        if source.ndim != 4:
            raise SettingsError("activations are (sample, layer, token, channel)", given=source.shape)
        every = tuple(f"layer {i}" for i in range(source.shape[1]))
        count = source.shape[2]
    else:
        every = tuple(site for site in source.sites if site.endswith(".resid.out"))
        if not every:
            raise SettingsError("the store holds no blocks.*.resid.out", given=source.sites)
        count = source[every[0]].shape[1]
    which = list(range(len(every))) if layers is None else [_within(i, len(every), "layer") for i in layers]
    chosen = tuple(range(count)) if tokens is None else tuple(_within(t, count, "token") for t in tokens)
    if len(which) < 1 or len(chosen) < 1:
        raise SettingsError("at least one layer and one token are needed", given=(layers, tokens))
    if isinstance(source, np.ndarray):
        return source[:, which][:, :, list(chosen)], tuple(every[i] for i in which), chosen
    parts = [np.asarray(source[every[i]][:, list(chosen)], np.float32) for i in which]
    return np.stack(parts, 1), tuple(every[i] for i in which), chosen


def _within(index: int, count: int, what: str) -> int:
    if not -count <= index < count:
        raise SettingsError(f"no such {what}", given=index, accepted=f"{-count} to {count - 1}")
    return range(count)[index]
