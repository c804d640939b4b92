"""Ways to cut a picture up, for tokens_segments: the lens, and what it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from tokens_inputs import PATCHES, Shown, maps_of, size_for
from vitreous.preprocess import Frame

Labels = dict[int, np.ndarray]  # label maps (row, column) of one picture, by the number of segments


def lens(
    subject: vt.Subject,
    shown: Shown,
    ks: Sequence[int],
    folder: Path,
    method: str,
    linkage: str = "ward",
    weights: np.ndarray | None = None,
) -> Labels:
    """`linkage` is one of vt.segment's; "ward, mean" weighs clusters equally, "ward, lift" scales maps by lift."""
    (found,) = maps_of(subject, shown, method, [subject.depth - 1], folder, weights)
    name, _, more = linkage.partition(", ")
    weigh, scale = ("sum", "lift") if more == "lift" else (more or "sum", "minmax")
    cut = vt.segment(found, k=ks[0], linkage=name, weigh=weigh, scale=scale)
    return {k: cut.at(k=k).labels()[0] for k in ks}


def features(subject: vt.Subject, shown: Shown) -> np.ndarray:
    """(row, column, channel)."""
    size = size_for(subject, shown.image, PATCHES)
    return vt.patch_features(subject, [shown.image], size=size, progress=False)[0]


def kmeans(subject: vt.Subject, shown: Shown, ks: Sequence[int]) -> Labels:
    z = features(subject, shown)
    size = shown.image.height, shown.image.width
    return {k: vt.kmeans_segments(z[None], k).at(size)[0] for k in ks}


def by_pixels(shown: Shown, ks: Sequence[int], *, colour: bool) -> Labels:
    """k-means of place, and of colour where asked, on a grid of about 40 x 40 points."""
    pixels = shown.pixels / 255.0
    height, width = pixels.shape[:2]
    rows, columns = (np.linspace(0, n - 1, 40).round().astype(int) for n in (height, width))
    place = np.stack(np.meshgrid(rows / height, columns / width, indexing="ij"), -1)
    values = np.concatenate([place, pixels[rows[:, None], columns]], -1) if colour else place
    return {k: _nearest(_clusters(values, k), height, width) for k in ks}


def _clusters(values: np.ndarray, k: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    flat = values.reshape(-1, values.shape[-1])
    return KMeans(k, n_init=3, random_state=0).fit_predict(flat).reshape(values.shape[:2])


def _nearest(labels: np.ndarray, height: int, width: int) -> np.ndarray:
    rows, columns = (np.arange(n) * m // n for n, m in zip((height, width), labels.shape, strict=True))
    return labels[rows[:, None], columns]


def class_map(subject: vt.Subject, shown: Shown, make: Callable[..., Any]) -> Labels:
    """Two segments: where a class's map is above Otsu's threshold, and the rest."""
    size = vt.Size(*size_for(subject, shown.image, PATCHES))
    assert subject.preprocess is not None
    x = torch.from_numpy(subject.preprocess.at(*size)(shown.image))[None]
    found = make(subject, x, progress=False).maps[0]
    return {2: _halves(found, size, shown)}


def saliency(subject: vt.Subject, shown: Shown) -> Labels:
    """What dinov2s_saliency was trained for."""
    size = vt.Size(*size_for(subject, shown.image, PATCHES))
    assert subject.preprocess is not None
    x = torch.from_numpy(subject.preprocess.at(*size)(shown.image))[None]
    with torch.inference_mode():
        heat = subject.module.heat(x)[0].numpy()
    wanted = vt.Size(shown.image.height, shown.image.width)
    return {2: (Frame(wanted, size, 0, 0, size).to_pixels(heat) > 0).astype(int)}


def _halves(found: np.ndarray, size: vt.Size, shown: Shown) -> np.ndarray:
    wanted = vt.Size(shown.image.height, shown.image.width)
    large = Frame(wanted, size, 0, 0, size).to_pixels(found)
    return (large > otsu(large)).astype(int)


def otsu(values: np.ndarray, bins: int = 128) -> float:
    """The threshold that leaves the least variance inside the two halves."""
    counts, edges = np.histogram(values, bins)
    middles = (edges[1:] + edges[:-1]) / 2
    below, total = counts.cumsum(), (counts * middles).cumsum()
    above = below[-1] - below
    apart = np.where(
        (below > 0) & (above > 0),
        below * above * (total / np.maximum(below, 1) - (total[-1] - total) / np.maximum(above, 1)) ** 2,
        -1,
    )
    best = np.flatnonzero(apart >= apart.max() * (1 - 1e-9))  # between two heaps all thresholds are as good
    return float(edges[1 + best[len(best) // 2]])
