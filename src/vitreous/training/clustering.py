"""From collected features to the alignment terms of section 3.4, where the features lie."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import SettingsError
from vitreous.kernels import device_clusters
from vitreous.lenses.structure import TRANSFORMS, transformed


def layer_pairs(layers: int) -> list[tuple[int, int]]:
    """(anchor's layer, aligned layer) for every pair of layers, in this order everywhere."""
    return [(first, second) for first in range(layers) for second in range(first + 1, layers)]


@dataclass(frozen=True, eq=False)
class Terms:
    """What one clustering found.

    `active` bool (pair of layers, token, channel): whether the unit of the second layer is aligned to the anchor in the
    first. `clusters` and `members` count clusters of two or more and the units in them.
    """

    active: Tensor
    clusters: Tensor
    members: Tensor


def find_terms(features: Tensor, *, bins: int, threshold: float, transform: str) -> Terms:
    """(sample, layer, token, channel) -> which units are aligned to which.

    The anchor of a cluster is its first unit, in layer min(c). Aligned are the units at its token and channel in every
    layer from min(c) + 1 to max(c), whether they are members or not. Units that are constant or not finite are in no
    cluster.
    """
    samples, *shape = features.shape
    flat = features.reshape(samples, -1)
    return _terms(unit_roots(flat, bins=bins, threshold=threshold, transform=transform), shape)


def unit_roots(flat: Tensor, *, bins: int, threshold: float, transform: str) -> Tensor:
    """(sample, unit) -> int64 (unit,): the smallest unit of each unit's cluster."""
    if transform not in TRANSFORMS:
        raise SettingsError("unknown transform", given=transform, accepted=TRANSFORMS)
    if transform == "grouped_rank" and len(flat) < bins:
        raise SettingsError(
            "fewer samples than bins",
            given=f"{len(flat)} samples, {bins} bins",
            remedy="cluster less often (every=) or use fewer bins",
        )
    limit = threshold * len(flat)
    if not flat.is_cuda:  # other devices have no products of bytes
        return _on_cpu(flat.cpu(), transform, bins, limit).to(flat.device)
    if transform != "grouped_rank":
        return device_clusters.float_components(_columns(flat, transform), limit, _usable(flat))
    if len(flat) > (most := device_clusters.most_samples(bins)):
        raise SettingsError(
            "too many samples to cluster on this device",
            given=f"{len(flat)} samples of {bins} bins",
            accepted=f"at most {most}",
            remedy="cluster more often (every=)",
        )
    rows, usable = device_clusters.rank_bins(flat, bins)
    return device_clusters.near_components(rows, limit, bins, usable)


def _columns(flat: Tensor, transform: str) -> Tensor:
    """(sample, unit) -> (unit, sample) of the ablation's transforms, on any device."""
    columns = torch.nan_to_num(flat).t()
    if transform == "rank":
        columns = columns.argsort(dim=1, stable=True).argsort(dim=1).to(torch.float32)
    elif transform == "normalised_raw":
        centred = columns - columns.mean(1, keepdim=True)
        columns = centred / columns.std(1, correction=0, keepdim=True).clamp_min(1e-12)
    return columns.contiguous()


def _usable(flat: Tensor) -> Tensor:
    """Units that are finite and not constant."""
    return torch.isfinite(flat).all(0) & (flat != flat[:1]).any(0)


def _on_cpu(flat: Tensor, transform: str, bins: int, limit: float) -> Tensor:
    """By the kernels of the lens. Samples come in the order of training, which is random enough for their bounds."""
    from vitreous.kernels.near_pairs import near_components

    kept = _usable(flat).nonzero()[:, 0]
    root = torch.arange(flat.shape[1])
    if len(kept):
        rows = transformed(flat[:, kept].float().numpy(), transform, bins, np.arange(len(flat)))
        root[kept] = kept[torch.from_numpy(near_components(rows, limit))]
    return root


def _terms(root: Tensor, shape: list[int]) -> Terms:
    layers, tokens, channels = shape
    units = torch.arange(len(root), device=root.device)
    size = torch.zeros_like(root).scatter_add_(0, root, torch.ones_like(root))
    last = torch.zeros_like(root).scatter_reduce_(0, root, units // (tokens * channels), "amax")
    anchors = (root == units) & (size > 1)
    reach = torch.where(anchors, last, -1).reshape(layers, tokens, channels)
    active = torch.stack([reach[first] >= second for first, second in layer_pairs(layers)])
    return Terms(active, anchors.sum(), torch.where(anchors, size, 0).sum())


def window(count: int, width: int, generator: torch.Generator) -> list[int]:
    """A random run of `width` neighbouring numbers below `count` (section 3.1)."""
    start = int(torch.randint(count - width + 1, (), generator=generator))
    return list(range(start, start + width))
