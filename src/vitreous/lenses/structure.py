"""Structuring hidden features via clustering of unit-level activation patterns (under review, 2025).

Which hidden units do the same job? Two units do if, over many samples, they order the samples alike. Each unit's
values are turned into ranks, the ranks into a few bins, and units whose bins differ by less than one a sample on
average are joined.

    paper       here          axes          what it is
    F           features      sample unit   activations; a unit is (layer, token, channel), layer-major
    B_cluster   samples       -             how many samples
    β           bins          -             how many bins
    F̂           transformed   unit sample   grouped ranks, floor(rank(F) β / B)
    M           distances     unit unit     L1 distances of transformed features
    τ           threshold     -             M < threshold · B joins two units
    C           labels        unit          connected components of two or more units

Table 13 leaves steps of F̂ out: "rank" has the ordinal ranks without bins, "raw" the activations as they are,
"normalised_raw" each unit's activations at mean 0 and deviation 1 over the samples. The threshold means the same for
all: the mean difference a sample, in whatever F̂ is measured in.

Where we differ: a unit that is constant over the samples would tie with every other constant unit; such dead units are
never joined. Everything else is exact: the distance matrix is never filled, but the components are those it would give.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.checks import flag
from vitreous.errors import SettingsError
from vitreous.kernels.l1 import distances as l1_distances
from vitreous.kernels.l1 import pair_distances
from vitreous.kernels.near_pairs import near_components
from vitreous.kernels.ranks import ordinal_ranks, rank_bins
from vitreous.lenses.structure_finding import Copies as Copies
from vitreous.lenses.structure_finding import StructureFinding as StructureFinding
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from vitreous.store import Store

TRANSFORMS = ("grouped_rank", "rank", "raw", "normalised_raw")
MOST_BINS = 256
BLOCK = 1024  # units whose distances to as many others are held at a time


def grouped_ranks(features: np.ndarray, bins: int = 100) -> np.ndarray:
    """Section 3.3: floats (sample, unit) -> uint8 (sample, unit), ordinal ranks over samples with ties by sample."""
    features = _checked(features, bins)
    return rank_bins(features, bins).T


def unit_clusters(
    features: np.ndarray, bins: int = 100, threshold: float = 1.0, *, transform: str = "grouped_rank"
) -> np.ndarray:
    """Section 3.3: floats (sample, unit) -> int64 (unit,): cluster 0, 1, ... in the order of first units, -1 for none.

    A cluster has two units or more. Dead units belong to none. `bins` matters to grouped ranks only.
    """
    features = _checked(features, bins, transform)
    alive = (features != features[:1]).any(0)
    # neighbouring samples are often alike, and the bounds that spare most of the work want them mixed
    places = np.random.default_rng(0).permutation(len(features))
    part = features if alive.all() else features[:, alive]
    labels = np.full(len(alive), -1)
    labels[alive] = _labels(transformed(part, transform, bins, places), threshold)
    return labels


def structure(
    source: Store | str | Path | np.ndarray,
    *,
    layers: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    bins: int = 100,
    threshold: float = 1.0,
    transform: str = "grouped_rank",
    keep_nearly_dead: bool = True,
    distances: bool = False,
    keep_transformed: bool = False,
    progress: bool = True,
) -> StructureFinding:
    """Clusters of units across layers.

    The source is a store that holds `blocks.*.resid.out`, its folder, or activations (sample, layer, token, channel),
    in an array or a tensor.
    `layers` and `tokens` choose among those that were recorded; all by default. `keep_transformed` keeps what
    `vt.compare` needs to compare layers: a byte a unit and sample, or eight for transforms other than "grouped_rank".

    >>> finding = vt.structure(store, tokens=[0])
    >>> finding.largest, finding.inefficient.sum(), finding.counts
    """
    flag(keep_nearly_dead=keep_nearly_dead, distances=distances, keep_transformed=keep_transformed, progress=progress)
    features, about = _features(source, layers, tokens)
    samples, *shape = features.shape
    flat = _checked(features.reshape(samples, math.prod(shape)), bins, transform)
    dead = (flat == flat[:1]).all(0)
    if dead.all():
        raise SettingsError("every unit is constant over the samples", given=shape, remedy="record samples that differ")
    nearly = _nearly_constant(flat) & ~dead
    usable = ~dead if keep_nearly_dead else ~(dead | nearly)
    if not usable.any():
        remedy = "keep_nearly_dead=True, or record samples that differ"
        raise SettingsError("every unit is dead or nearly so, and those are left out", given=shape, remedy=remedy)
    places = np.random.default_rng(0).permutation(samples)
    rows = transformed(flat, transform, bins, places)
    labels = np.full(len(rows), -1)
    labels[usable] = _labels(rows if usable.all() else rows[usable], threshold, progress)
    matrix = l1_distances(rows, rows) if distances else None
    sums, farthest = _totals(rows, progress) if matrix is None else (matrix.sum(1), matrix.max())
    settings = {"samples": samples, "transform": transform, "bins": int(bins), "threshold": float(threshold)}
    settings |= {"keep_nearly_dead": bool(keep_nearly_dead), "source": about["source"]}
    return StructureFinding(
        labels=labels.reshape(shape),
        dead=dead.reshape(shape),
        nearly_dead=nearly.reshape(shape),
        to_anchor=_to_anchor(rows, labels).reshape(shape),
        differences=255 * sums.reshape(shape[0], -1).mean(1) / len(rows) / (farthest or 1),
        farthest=float(farthest),
        layers=about["layers"],
        tokens=about["tokens"],
        settings=settings,
        distances=matrix,
        transformed=np.ascontiguousarray(rows[:, places]) if keep_transformed else None,
    )


# -- the steps


def transformed(features: np.ndarray, transform: str, bins: int, places: np.ndarray) -> np.ndarray:
    """F̂: (sample, unit) -> (unit, sample), sample s at places[s]: bytes for grouped ranks, else float64."""
    if transform == "grouped_rank":
        return rank_bins(features, bins, places)
    if transform == "rank":
        return ordinal_ranks(features, places)
    rows = np.empty((features.shape[1], len(features)))
    rows[:, places] = features.T
    if transform == "normalised_raw":
        low, high = rows.min(1, keepdims=True), rows.max(1, keepdims=True)
        rows /= np.maximum(np.maximum(-low, high), np.finfo(float).tiny)  # squares of what is left cannot overflow
        rows -= rows.mean(1, keepdims=True)
        spread = np.sqrt(np.einsum("us,us->u", rows, rows) / rows.shape[1])[:, None]
        rows /= np.where(low == high, 1, spread)  # dead units stay at 0
    return rows


def _labels(rows: np.ndarray, threshold: float, progress: bool = False) -> np.ndarray:
    """(unit, sample) of transformed features -> int64 (unit,): clusters of two or more, -1 for none."""
    if not isinstance(threshold, Real) or isinstance(threshold, bool) or not 0 < threshold < np.inf:
        raise SettingsError("threshold must be positive", given=threshold, accepted="a number above 0")
    root = near_components(rows, threshold * rows.shape[1], progress)
    anchors, member, sizes = np.unique(root, return_inverse=True, return_counts=True)
    number = np.full(len(anchors), -1)
    number[sizes > 1] = np.arange((sizes > 1).sum())
    return number[member]


def _totals(rows: np.ndarray, progress: bool) -> tuple[np.ndarray, float]:
    """The sum of each unit's distances to all units (unit,), and the largest distance of any two."""
    parts = [slice(first, first + BLOCK) for first in range(0, len(rows), BLOCK)]
    pairs = [(i, j) for n, i in enumerate(parts) for j in parts[n:]]
    sums, farthest = np.zeros(len(rows)), 0.0
    for i, j in tqdm(pairs, "differences", delay=1, leave=False, disable=not progress):
        block = l1_distances(rows[i], rows[j])
        sums[i] += block.sum(1)
        if i != j:
            sums[j] += block.sum(0)
        farthest = max(farthest, float(block.max()))
    return sums, farthest


def _to_anchor(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean difference of each unit to the first of its cluster; NaN for units of none."""
    out = np.full(len(labels), np.nan)
    members = np.flatnonzero(labels >= 0)
    _, anchors = np.unique(labels[members], return_index=True)
    out[members] = pair_distances(rows, members, members[anchors][labels[members]]) / rows.shape[1]
    return out


def _nearly_constant(flat: np.ndarray, share: float = 0.01) -> np.ndarray:
    """Whether a unit has its median value on all but about a hundredth of the samples."""
    return (flat != np.median(flat, axis=0, keepdims=True).astype(flat.dtype)).mean(0) <= share


# -- what was given


def _array(given: Any) -> np.ndarray:
    """Tensors of any device, precision and graph too; whoever has one has imported torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.Tensor):
        given = given.detach().cpu()
        given = given.float() if given.dtype == torch.bfloat16 else given
    return np.asarray(given)


def _checked(features: np.ndarray, bins: int, transform: str = "grouped_rank") -> np.ndarray:
    features = _array(features)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        raise SettingsError(
            "features are numbers (sample, unit)", given=f"{features.dtype} {features.shape}", accepted="a 2-D array"
        )
    if transform not in TRANSFORMS:
        raise SettingsError("unknown transform", given=transform, accepted=TRANSFORMS)
    if not isinstance(bins, int | np.integer) or not 2 <= bins <= MOST_BINS:
        raise SettingsError("bins out of range", given=bins, accepted=f"a whole number from 2 to {MOST_BINS}")
    if transform == "grouped_rank" and len(features) < bins:
        raise SettingsError(
            "fewer samples than bins",
            given=f"{len(features)} samples, {bins} bins",
            remedy="record more samples, or use fewer bins",
        )
    if len(features) < 2:
        raise SettingsError("fewer than two samples", given=len(features), remedy="record more samples")
    if features.dtype.kind in "iu" or features.dtype.itemsize > 8:
        features = features.astype(np.float64)
    if not np.isfinite(features).all():
        unit = int(np.flatnonzero(~np.isfinite(features).all(0))[0])
        raise SettingsError("features hold NaN or infinity", given=f"unit {unit}", remedy="leave such units out")
    return features


def _features(
    source: Store | str | Path | np.ndarray, layers: Sequence[int] | None, tokens: Sequence[int] | None
) -> tuple[np.ndarray, dict[str, Any]]:
    """(sample, layer, token, channel); the names of the layers, the numbers of the tokens, and the source."""
    from vitreous.store import Store

    source = Store.open(source) if isinstance(source, str | Path) else source
    if isinstance(source, Store):
        names = _stream(source)
        which = _layers(layers, names)
        kept = _chosen(tokens, source[names[which[0]]].shape[1], "token")
        made = {"model": dict(source.manifest.model), "data": dict(source.manifest.data)}
        features = _read(source, [names[i] for i in which], kept)
        return features, {"layers": tuple(names[i] for i in which), "tokens": kept, "source": made}
    array = _array(source)
    if array.ndim != 4:
        raise SettingsError(
            "activations are (sample, layer, token, channel)",
            given=array.shape or type(source).__name__,
            accepted="a 4-D array, or a store of vt.record",
        )
    names = tuple(f"layer {i}" for i in range(array.shape[1]))
    which, kept = _layers(layers, names), _chosen(tokens, array.shape[2], "token")
    about = {"layers": tuple(names[i] for i in which), "tokens": kept, "source": None}
    return array[:, list(which)][:, :, list(kept)], about


def _is_place(index: object) -> bool:
    """True and False are no places: somebody meant a mask."""
    return isinstance(index, int | np.integer) and not isinstance(index, bool)


def _layers(layers: Sequence[int] | None, names: tuple[str, ...]) -> tuple[int, ...]:
    which = _chosen(layers, len(names), "layer")
    if len(which) < 2:
        raise SettingsError(
            "structure looks across layers and needs two or more",
            given=names[which[0]],
            remedy="choose or record more layers; vt.unit_clusters joins units of one layer",
        )
    if list(which) != sorted(which):
        raise SettingsError(
            "layers go from first to last: an anchor is the first of its cluster",
            given=list(which),
            accepted=str(sorted(which)),
        )
    return which


def _stream(store: Store) -> tuple[str, ...]:
    if not len(store):
        raise SettingsError("the store holds no samples", given=store, remedy="record(...) again to fill it")
    names = tuple(site for site in store.sites if site.endswith(".resid.out"))
    if not names:
        raise SettingsError("the store holds no blocks.*.resid.out", given=store.sites)
    return names


def _read(store: Store, names: list[str], tokens: tuple[int, ...]) -> np.ndarray:
    shapes = {name: store[name].shape[1:] for name in names}
    if len(set(shapes.values())) > 1:
        raise SettingsError(
            "layers differ in shape, and units are compared by (layer, token, channel)",
            given=shapes,
            remedy="choose layers= of one stage",
        )
    kept = store.tokens(names[0])[:, list(tokens)]
    if (kept != kept[:1]).any():
        raise SettingsError(
            "the store holds other tokens of each sample, so that a token is no unit",
            given=f"tokens {kept[0].tolist()} of the first sample, {kept[-1].tolist()} of the last",
            remedy='record(..., tokens="all")',
        )
    if store.lengths is not None and (shortest := int(store.lengths.min())) <= kept.max():
        raise SettingsError(
            "some texts are shorter than that: padding is no activation",
            given=f"token {kept.max()}; the shortest text has {shortest}",
            remedy=f"choose tokens= below {shortest}, or record longer texts",
        )
    return np.stack([np.asarray(store[name][:, list(tokens)], np.float32) for name in names], 1)


def _chosen(indices: Sequence[int] | None, count: int, what: str) -> tuple[int, ...]:
    """Indices as numbers from 0; all if none are asked for."""
    indices = range(count) if indices is None else indices
    if not isinstance(indices, Iterable) or isinstance(indices, str) or not all(map(_is_place, indices)):
        raise SettingsError(f"{what}s are a list of numbers", given=indices, accepted=f"such as [0, {count - 1}]")
    if wrong := [index for index in indices if not -count <= index < count]:
        raise SettingsError(f"no such {what}", given=wrong[0], accepted=f"{-count} to {count - 1}")
    found = tuple(range(count)[index] for index in indices)
    if not found or len(set(found)) < len(found):
        raise SettingsError(f"at least one {what} is needed, and none twice", given=list(indices))
    return found
