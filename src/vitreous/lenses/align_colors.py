"""Eigenvectors made visible: coordinates, colours and nested groups that mean the same in every picture and layer.

All three are fitted on a sample of nodes and carried to the others by the nearest sampled one (AlignedCut, C.5: with
t-SNE more than one neighbour would average what lies apart).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.checks import is_number, number, whole
from vitreous.errors import SettingsError
from vitreous.finding import Finding
from vitreous.lenses.align_cut import Spectral
from vitreous.lenses.align_nodes import unit_length

SAMPLE = 4000
PERPLEXITY = 60.0
PIECE = 16_384
OUTSIDE = 0.01  # share of nodes that may lie beyond either end of a colour


def _rows(spectral: Spectral | np.ndarray) -> np.ndarray:
    """(node, eigenvector), each of length one: the first eigenvectors of two nodes of one group are proportional."""
    vectors = spectral.eigenvectors if isinstance(spectral, Spectral) else np.asarray(spectral, np.float32)
    if vectors.ndim != 2 or not np.isfinite(vectors).all():
        raise SettingsError("eigenvectors are finite numbers (node, eigenvector)", given=vectors.shape)
    return unit_length(vectors)


def _finite(placed: np.ndarray) -> np.ndarray:
    if not np.isfinite(placed).all():
        raise SettingsError("coordinates are finite numbers", given=f"{placed.shape}, some are not")
    return placed


def _sampled(rows: np.ndarray, n_sample: int, least: int, seed: int) -> np.ndarray:
    whole(least, n_sample=n_sample)
    whole(0, seed=seed)
    if len(rows) < least:
        raise SettingsError("too few nodes", given=len(rows), accepted=f"{least} or more")
    chosen = np.random.default_rng(seed).choice(len(rows), min(n_sample, len(rows)), replace=False)
    return np.sort(chosen)


def nearest(rows: np.ndarray, sample: np.ndarray) -> np.ndarray:
    """int64 (row,): the nearest row of `sample` (both of unit length); the first of several."""
    found = [(part @ sample.T).argmax(1) for part in np.array_split(rows, max(1, len(rows) // PIECE))]
    return np.concatenate(found)


def spectral_tsne(
    spectral: Spectral | np.ndarray,
    dims: int = 3,
    *,
    n_sample: int = SAMPLE,
    perplexity: float = PERPLEXITY,
    seed: int = 0,
) -> np.ndarray:
    """float32 (node, dims), dims 2 or 3: t-SNE of a sample of nodes, one neighbour for the rest.

    The paper samples 100,000 nodes; a few thousand give the same picture in seconds.
    """
    from sklearn.manifold import TSNE

    if dims not in (2, 3):
        raise SettingsError("a map has two or three dimensions", given=dims)
    number(above=True, perplexity=perplexity)
    rows = _rows(spectral)
    chosen = _sampled(rows, n_sample, 5, seed)
    sample = rows[chosen]
    perplexity = min(perplexity, (len(sample) - 1) / 3)
    moved = TSNE(dims, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1).fit_transform(sample)
    placed = moved[nearest(rows, sample)]
    placed[chosen] = moved
    return placed.astype(np.float32)


def colors(placed: np.ndarray) -> np.ndarray:
    """Coordinates (node, 3) -> uint8 (node, 3), the RGB cube; nodes that lie together have one colour everywhere."""
    placed = _finite(np.asarray(placed, np.float64))
    if placed.ndim != 2 or placed.shape[1] != 3:
        raise SettingsError("colours need three dimensions", given=placed.shape, remedy="vt.spectral_tsne(…, dims=3)")
    low, high = np.quantile(placed, [OUTSIDE, 1 - OUTSIDE], axis=0)
    share = (placed - low) / np.maximum(high - low, np.finfo(float).tiny)
    return np.round(255 * np.clip(share, 0, 1)).astype(np.uint8)


@dataclass(frozen=True, eq=False)
class Groups(Finding):
    """Nested groups of nodes. `groups(k)` gives int64 (node,) for any number of groups up to the sample's size: with
    one more, one group is parted and the others stay."""

    merges: np.ndarray
    owner: np.ndarray

    def __call__(self, k: int) -> np.ndarray:
        from scipy.cluster.hierarchy import fcluster

        most = len(self.merges) + 1
        whole(1, k=k)
        if k > most:
            raise SettingsError("no such number of groups", given=k, accepted=f"1 to {most}")
        labels = fcluster(self.merges, k, criterion="maxclust")
        _, first, numbers = np.unique(labels, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[numbers][self.owner]

    def facts(self) -> dict[str, Any]:
        return {
            "nodes": len(self.owner),
            "nodes in the tree": len(self.merges) + 1,
            "most groups": len(self.merges) + 1,
        }

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a parting, the widest first: into how many groups, how far apart, and the sampled nodes below it."""
        widest = self.merges[::-1]
        return {"groups": np.arange(2, len(widest) + 2), "distance": widest[:, 2], "nodes": widest[:, 3].astype(int)}


def group_nodes(spectral: Spectral | np.ndarray, *, n_sample: int = SAMPLE, seed: int = 0) -> Groups:
    """Ward's tree over a sample of nodes, from which any number of groups can be cut without computing anew."""
    from scipy.cluster.hierarchy import linkage

    rows = _rows(spectral)
    chosen = _sampled(rows, n_sample, 2, seed)
    sample = rows[chosen]
    owner = nearest(rows, sample)
    owner[chosen] = np.arange(len(chosen))
    return Groups(linkage(sample, "ward"), owner)


@dataclass(frozen=True, eq=False)
class Concepts(Finding):
    """Spheres around centres that lie far apart. `centres` int64 (concept,) nodes; `members` bool (concept, node);
    `mean` and `std` (concept, channel) of whatever activations were given."""

    centres: np.ndarray
    members: np.ndarray
    mean: np.ndarray | None
    std: np.ndarray | None

    def facts(self) -> dict[str, Any]:
        inside = float(np.mean(self.members.any(0)))
        return {"concepts": len(self.centres), "nodes": self.members.shape[1], "share in a concept": inside}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a concept: its centre, how many nodes it has, and where activations were given the norms of their
        mean and deviation."""
        found = {"concept": np.arange(len(self.centres)), "centre": self.centres, "nodes": self.members.sum(1)}
        for name, values in (("mean", self.mean), ("deviation", self.std)):
            if values is not None:
                found[name] = np.linalg.norm(values, axis=1)
        return found


def concepts(
    placed: np.ndarray,
    count: int = 20,
    *,
    radius: float | None = None,
    activations: np.ndarray | None = None,
    seed: int = 0,
) -> Concepts:
    """Farthest-point centres among coordinates (node, dim), and the nodes within `radius` of each (section 3.3).

    The radius is by default half the smallest distance between two centres. `activations` (node, channel) are averaged
    over each sphere; a concept whose activations have a large mean and a small deviation is a consistent one.
    """
    whole(1, count=count)
    whole(0, seed=seed)
    if radius is not None and not is_number(radius):
        raise SettingsError("radius is a number", given=radius)
    placed = _finite(np.asarray(placed, np.float32))
    if placed.ndim != 2 or count > len(placed):
        raise SettingsError("concepts are chosen among nodes", given=f"{count} of {placed.shape}")
    centres = farthest_points(placed, count, seed)
    between = np.linalg.norm(placed[centres][:, None] - placed[centres][None], axis=2)
    if radius is None:
        radius = float(between[np.triu_indices(count, 1)].min()) / 2 if count > 1 else float("inf")
    if not radius > 0:
        raise SettingsError(
            "two centres lie in one place", given=f"{count} concepts", remedy="ask for fewer, or radius="
        )
    members = np.stack([np.linalg.norm(placed - placed[c], axis=1) <= radius for c in centres])
    if activations is None:
        return Concepts(centres, members, None, None)
    values = np.asarray(activations)
    if len(values) != len(placed):
        raise SettingsError("activations of other nodes", given=f"{len(values)}, coordinates of {len(placed)}")
    mean, std = (np.stack([measure(values[m]) for m in members]) for measure in (_mean, _std))
    return Concepts(centres, members, mean, std)


def _mean(values: np.ndarray) -> np.ndarray:
    return values.mean(0, dtype=np.float64)


def _std(values: np.ndarray) -> np.ndarray:
    return values.std(0, dtype=np.float64)


def farthest_points(placed: np.ndarray, count: int, seed: int = 0) -> np.ndarray:
    """int64 (count,): each is the node farthest from those before it; the first is random."""
    chosen = [int(np.random.default_rng(seed).integers(len(placed)))]
    away = np.linalg.norm(placed - placed[chosen[0]], axis=1)
    while len(chosen) < count:
        chosen.append(int(away.argmax()))
        away = np.minimum(away, np.linalg.norm(placed - placed[chosen[-1]], axis=1))
    return np.array(chosen)


def trajectories(spectral: Spectral, placed: np.ndarray, model: str) -> np.ndarray:
    """(layer, picture, patch, dim): where each patch lies at every layer of one model."""
    layers = [layer for name, layer in spectral.blocks if name == model]
    if not layers:
        raise SettingsError("no such model", given=model, accepted=sorted({name for name, _ in spectral.blocks}))
    parts = [spectral.of(model, layer, placed) for layer in layers]
    if len({part.shape for part in parts}) > 1:
        raise SettingsError("layers have different patches", given=[part.shape[:2] for part in parts])
    return np.stack(parts)


def transitions(layer_a: Any, layer_b: Any, mask: np.ndarray | None = None) -> np.ndarray:
    """(concept, concept): of the patches in concept A of one layer, the share that is in concept B of the other.

    `layer_a` and `layer_b` are bool (concept, patch), members of the same patches at two layers; `mask` (patch,) keeps
    some, such as those on objects. A row without patches is not a number; spheres may leave patches out, so that a row
    need not sum to one.
    """
    a, b = np.asarray(layer_a, bool), np.asarray(layer_b, bool)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise SettingsError("members of the same patches at two layers", given=f"{a.shape} and {b.shape}")
    if mask is not None:
        mask = np.asarray(mask, bool)
        if mask.shape != a.shape[1:]:
            raise SettingsError("a mask has a value for each patch", given=mask.shape, accepted=str(a.shape[1:]))
        a, b = a[:, mask], b[:, mask]
    both = a.astype(np.float64) @ b.T.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return both / a.sum(1, keepdims=True)
