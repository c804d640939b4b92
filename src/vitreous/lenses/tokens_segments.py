"""Segmentation without training (ULTra, section 4.1): tokens whose maps are alike make a segment.

    paper     here        axes                what it is
    S̃         maps        token row column    maps of the patch tokens, each scaled to [0, 1]
    Class     labels      row column          the cluster whose summed map is largest, eq. 6 and 7
    k, ζ      k           -                   how many clusters, or
              threshold   -                   where the tree is cut, as a share of its height
    M, τ      object_mask row column          where a map is at least τ, eq. 12

Scaling is done on the patch grid, before maps are enlarged. The paper does not say in what ζ = 0.4 is measured: here it
is a share of the height at which all tokens are one cluster, which means the same for every linkage.

Beyond the paper, `scale="lift"` first divides what a patch counts for a token by what it counts for tokens on average.
Patches that count for all of them, such as a face, are bright in every map, and the segment with the most tokens would
swallow them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitreous.checks import is_number
from vitreous.errors import SettingsError
from vitreous.finding import Finding, shades
from vitreous.lenses.tokens_finding import MODES, Mode, TokenMaps

LINKAGES = ("ward", "average", "complete", "single", "weighted", "centroid", "median")
Linkage = Literal["ward", "average", "complete", "single", "weighted", "centroid", "median"]
SCALES = ("minmax", "lift", "none")
Scale = Literal["minmax", "lift", "none"]
WEIGHINGS = ("sum", "mean")


@dataclass(frozen=True, eq=False)
class Segments(Finding):
    """Clusters of tokens and the label maps that they give.

    `trees` are scipy's linkage matrices (merge, 4), one a picture; `clusters` int (picture, patch token) numbers from 0
    in the order of first tokens. The trees are kept: `segments.at(k=7)` cuts them elsewhere and computes no map again.
    """

    maps: TokenMaps
    trees: tuple[np.ndarray, ...]
    clusters: np.ndarray
    settings: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.trees)

    def __repr__(self) -> str:
        counts = sorted(set(self.counts.tolist()))
        return (
            f"Segments({len(self)} pictures, {counts[0]} to {counts[-1]} clusters, {self.settings['linkage']} linkage)"
        )

    def __getitem__(self, key: int | slice) -> Segments:
        """The same for fewer pictures."""
        which = np.atleast_1d(np.arange(len(self))[key])
        trees = tuple(self.trees[k] for k in which)
        return replace(self, maps=self.maps[which], trees=trees, clusters=self.clusters[which])

    def at(self, k: int | None = None, threshold: float | None = None) -> Segments:
        """The same trees cut into k clusters, or at another share of their height."""
        if (k is None) == (threshold is None):
            raise SettingsError("either k or a threshold", given={"k": k, "threshold": threshold})
        clusters = _cut(self.trees, k, threshold, self.clusters.shape[1])
        return replace(self, clusters=clusters, settings={**self.settings, "k": k, "threshold": threshold})

    @property
    def counts(self) -> np.ndarray:
        """(picture,): clusters."""
        return self.clusters.max(1) + 1

    @cached_property
    def summed(self) -> tuple[np.ndarray, ...]:
        """Eq. 6: float32 (cluster, row, column) of each picture, on the patch grid."""
        scaled = _scaled(self.maps, self.settings["scale"])
        found = []
        for maps, clusters in zip(scaled, self.clusters, strict=True):
            member = np.eye(clusters.max() + 1, dtype=np.float32)[clusters]  # token, cluster
            if self.settings["weigh"] == "mean":
                member /= member.sum(0)
            found.append(np.einsum("tc,trk->crk", member, maps))
        return tuple(found)

    @property
    def grid(self) -> np.ndarray:
        """Eq. 7 on the patch grid: int (picture, row, column)."""
        return np.stack([summed.argmax(0) for summed in self.summed])

    def labels(self, mode: Mode = "bilinear") -> list[np.ndarray]:
        """Eq. 7: int32 (height, width) of each picture in its original pixels, -1 where the crop cut it off.

        As large as the model's input if the pictures' own sizes are not known.
        """
        if mode not in MODES:
            raise SettingsError("unknown mode", given=mode, accepted=MODES)
        found = []
        for k, summed in enumerate(self.summed):
            large = self.maps.enlarge(k, summed, mode)
            outside = np.isnan(large[0])
            found.append(np.where(outside, -1, np.nan_to_num(large).argmax(0)).astype(np.int32))
        return found

    def facts(self) -> dict[str, Any]:
        made = {name: self.settings[name] for name in ("k", "threshold", "linkage", "scale")}
        return {"pictures": len(self), "segments a picture": round(float(self.counts.mean()), 2)} | made

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a picture and segment: how many tokens are in its cluster, and its share of the patches."""
        picture = np.repeat(np.arange(len(self)), self.counts)
        segment = np.concatenate([np.arange(count) for count in self.counts])
        tokens = [np.bincount(row, minlength=n) for row, n in zip(self.clusters, self.counts, strict=True)]
        shares = [np.bincount(g.ravel(), minlength=n) / g.size for g, n in zip(self.grid, self.counts, strict=True)]
        found: dict[str, Any] = {"picture": np.array(self.maps.ids)[picture], "segment": segment}
        return found | {"tokens": np.concatenate(tokens), "share": np.concatenate(shares)}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [(self.maps.ids[k], shades(labels)) for k, labels in enumerate(self.grid[:6])]

    def save(self, folder: str | Path) -> list[Path]:
        """Writes label pictures as VOC's (`labels/ID.png`), COCO's run lengths (`segments.json`), clusters (npz)."""
        from vitreous.lenses.tokens_files import save_segments

        return save_segments(self, folder)


def segment(
    maps: TokenMaps,
    k: int | None = None,
    threshold: float = 0.4,
    linkage: Linkage = "ward",
    scale: Scale = "minmax",
    *,
    weigh: Literal["sum", "mean"] = "sum",
) -> Segments:
    """Groups the maps of the patch tokens by hierarchical clustering, and pixels by the largest summed map.

    `k` is the number of clusters of every picture; without it each tree is cut at `threshold`, a share of its height.
    Eq. 6 sums the maps of a cluster, so that one of many tokens has the louder voice; `weigh="mean"` gives each cluster
    the same. `scale="lift"` asks what counts more for a token than for others.

    >>> segments = vt.segment(vt.token_maps(subject, images))
    >>> segments.labels()[0]           # (height, width), original pixels
    >>> segments.at(k=5).counts        # no map is computed again
    """
    for name, value, known in (("linkage", linkage, LINKAGES), ("scale", scale, SCALES), ("weigh", weigh, WEIGHINGS)):
        if value not in known:
            raise SettingsError(f"unknown {name}", given=value, accepted=known)
    if not isinstance(maps, TokenMaps):
        raise SettingsError("token maps are segmented", given=type(maps), remedy="vt.token_maps(subject, images)")
    if maps.grid is None:
        raise SettingsError("texts have no pixels to segment", given=maps)
    if not len(maps):
        raise SettingsError("no pictures were given", given=maps)
    if len(maps.patches) < 2:
        raise SettingsError("at least two patch tokens are needed", given=maps.tokens, remedy='tokens="all"')
    check_threshold(threshold)
    trees = tuple(_tree(one.reshape(len(one), -1), linkage) for one in _scaled(maps, scale))
    settings = {"k": k, "threshold": None if k else threshold, "linkage": linkage, "scale": scale, "weigh": weigh}
    return Segments(maps, trees, _cut(trees, k, None if k else threshold, len(maps.patches)), settings)


def object_mask(maps: np.ndarray, tau: float = 0.2, *, scale: bool = True) -> np.ndarray:
    """Eq. 12: where maps (..., row, column) are at least tau, each brought to [0, 1] first unless told otherwise.

    Pixels without a value, which the model never saw, are not part of an object.
    """
    if not is_number(tau) or (scale and not 0 <= tau <= 1):
        raise SettingsError(
            "tau is a share of a map's range", given=tau, accepted="0 to 1, any number with scale=False"
        )
    maps = np.asarray(maps)
    if maps.ndim < 2 or maps.dtype.kind not in "fiu":
        raise SettingsError("maps are numbers (..., row, column)", given=f"{maps.dtype} {maps.shape}")
    return np.nan_to_num(_ranged(maps) if scale else maps, nan=-np.inf) >= tau


def _scaled(maps: TokenMaps, scale: str) -> np.ndarray:
    """(picture, patch token, row, column)."""
    if scale == "minmax":
        return maps.scaled[:, maps.patches]
    found = maps.maps[:, maps.patches]
    return found if scale == "none" else _ranged(_lift(found))


def _lift(maps: np.ndarray) -> np.ndarray:
    """A map's share at a patch, divided by the mean share of all maps there; 0 where no map has any."""
    total = maps.sum((2, 3), keepdims=True)
    shares = maps / np.where(total > 0, total, 1)
    mean = shares.mean(1, keepdims=True)
    return shares / np.where(mean > 0, mean, 1)


def _ranged(maps: np.ndarray) -> np.ndarray:
    low, high = (edge(maps, axis=(-2, -1), keepdims=True) for edge in (np.nanmin, np.nanmax))
    return (maps - low) / np.where(high > low, high - low, 1)


def _tree(rows: np.ndarray, linkage: str) -> np.ndarray:
    """Distances come from one product of matrices: scipy would take every pair in turn."""
    from scipy.cluster.hierarchy import linkage as link

    rows = rows.astype(np.float64)
    rows -= rows.mean(0)
    norms = np.einsum("td,td->t", rows, rows)
    squared = norms[:, None] + norms - 2 * rows @ rows.T
    above = np.triu_indices(len(rows), 1)
    return link(np.sqrt(np.maximum(squared[above], 0)), linkage)


def _cut(trees: tuple[np.ndarray, ...], k: int | None, threshold: float | None, tokens: int) -> np.ndarray:
    from scipy.cluster.hierarchy import fcluster

    if k is not None:
        check_clusters(k, tokens)
        return np.stack([_in_order(fcluster(tree, k, "maxclust")) for tree in trees])
    share = check_threshold(threshold)
    return np.stack([_in_order(fcluster(tree, share * tree[:, 2].max(), "distance")) for tree in trees])


def check_threshold(threshold: Any) -> float:
    if not is_number(threshold) or not 0 <= threshold <= 1:
        raise SettingsError("threshold is a share of the tree's height", given=threshold, accepted="0 to 1")
    return float(threshold)


def check_clusters(k: Any, tokens: int) -> None:
    if not isinstance(k, int | np.integer) or isinstance(k, bool):
        raise SettingsError("k is a whole number", given=k, accepted=f"1 to {tokens}")
    if not 1 <= k <= tokens:
        raise SettingsError("more clusters than tokens, or none", given=k, accepted=f"1 to {tokens}")


def _in_order(labels: np.ndarray) -> np.ndarray:
    """Numbers from 0 in the order of first tokens."""
    _, first, member = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[member]
