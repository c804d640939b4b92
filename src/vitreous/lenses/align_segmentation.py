"""What patches of each layer know about objects, before and after alignment (AlignedCut, Figures 2, 5, 6 and 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.oracle import IGNORE, OracleScore, oracle_segmentation, patch_classes
from vitreous.finding import Finding, columns
from vitreous.lenses.align_colors import colors, spectral_tsne
from vitreous.lenses.align_cut import ncut
from vitreous.lenses.align_finding import ChannelAlign
from vitreous.lenses.align_nodes import Block, Nodes, Read, finite, open_nodes, square
from vitreous.progress import tqdm

READ = 64  # pictures read at a time
SHUFFLED = "shuffled patches"


@dataclass(frozen=True, eq=False)
class LayerScores(Finding):
    """`scores` by (reading, model, layer); a reading is a name such as "before" or "after"."""

    scores: Mapping[tuple[str, str, str], OracleScore]
    settings: dict[str, Any]

    @property
    def readings(self) -> list[str]:
        return list(dict.fromkeys(reading for reading, _, _ in self.scores))

    def best(self, reading: str, model: str) -> dict[str, float]:
        """Layer -> mIoU at its best threshold."""
        found = {layer: s.best for (r, m, layer), s in self.scores.items() if (r, m) == (reading, model)}
        if not found:
            raise SettingsError(
                "no such reading of a model",
                given=f"{reading}, {model}",
                accepted=[" ".join(key) for key in self.scores],
            )
        return found

    def facts(self) -> dict[str, Any]:
        layers = {(model, layer) for _, model, layer in self.scores}
        return {
            "readings": self.readings,
            "layers": len(layers),
            "best mIoU": max(s.best for s in self.scores.values()),
        }

    def columns_of_rows(self) -> dict[str, Any]:
        """The rows of `records`."""
        return columns(self.records())

    def records(self) -> list[dict[str, Any]]:
        """A row a reading, model and layer."""
        return [
            {
                "reading": reading,
                "model": model,
                "layer": layer,
                "mIoU": score.best,
                "threshold": score.threshold,
                "majority": score.majority,
                "empty": score.empty,
            }
            for (reading, model, layer), score in self.scores.items()
        ]


def segmentation_by_layer(
    sources: Any,
    truths: Sequence[np.ndarray] | np.ndarray | Mapping[str, Any],
    readings: Mapping[str, ChannelAlign | Read | None] | None = None,
    *,
    n_eig: int = 10,
    sites: str = "blocks.*.attn.out",
    classes: int | None = None,
    background: int = 0,
    ignore: int | Sequence[int] | None = IGNORE,
    shuffled: bool = True,
    seed: int = 0,
    progress: bool = True,
    **cut: Any,
) -> LayerScores:
    """Oracle segmentation of every layer, each cut on its own over all pictures (Figure 5).

    `sources` is what `vt.ncut` takes. `truths` are class maps (row, column) in the model's input (`vt.input_labels`),
    or {model: class maps} where models see different crops. `readings` names ways to look at a layer: None as it is, an
    alignment, or any `read` function, such as `alignment.reader("V4")`. With `shuffled` there is a reading of patches
    in random order too, which says what the oracle makes of nothing.

    >>> readings = {"before": None, "after": alignment, "without the constraint": other}
    >>> scores = vt.segmentation_by_layer(stores, vt.input_labels(images, subject.preprocess), readings)
    >>> scores.best("after", "text")
    """
    readings = {"before": None} if readings is None else readings
    blocks = open_nodes(sources, sites=sites, same_width=False).blocks
    found: dict[tuple[str, str, str], OracleScore] = {}
    given: dict[str, Any] = {"classes": classes, "background": background, "ignore": ignore}
    work = [(name, read, block) for name, read in readings.items() for block in blocks]
    for name, read, block in tqdm(work, desc="segmentation", unit="layer", disable=not progress, delay=1):
        truth = _truth_of(truths, block)
        reading = read.transform if isinstance(read, ChannelAlign) else read
        one = replace(block, read=reading)
        spectral = ncut(Nodes((one,), one.channels), n_eig, seed=seed, progress=False, **cut)
        vectors = spectral.eigenvectors.reshape(len(block.array), *(block.grid or square(block.shape[1])), -1)
        found[name, block.model, block.layer] = oracle_segmentation(vectors, truth, **given)
        if shuffled and read is None:
            mixed = np.random.default_rng(seed).permutation(spectral.eigenvectors).reshape(vectors.shape)
            found[SHUFFLED, block.model, block.layer] = oracle_segmentation(mixed, truth, **given)
    return LayerScores(found, {"n_eig": n_eig, "seed": seed, "readings": list(readings), **given, **cut})


def _truth_of(truths: Any, block: Block) -> Any:
    truth = truths[block.model] if isinstance(truths, Mapping) else truths
    if len(truth) != len(block.array):
        raise SettingsError(
            "there are not as many class maps as pictures",
            given=f"{len(truth)} maps, {len(block.array)} pictures of {block.model} {block.layer}",
        )
    return truth


@dataclass(frozen=True, eq=False)
class RegionMeans(Finding):
    """`mean` (slot, class, response): mean of B_i over the pixels of each class, in the units of the responses.

    `slots` are (model, layer), `classes` names; `spread` (response,) is how much each response varies over pictures.
    """

    slots: tuple[tuple[str, str], ...]
    classes: tuple[str, ...]
    mean: np.ndarray
    spread: np.ndarray
    rois: Mapping[str, np.ndarray]

    def facts(self) -> dict[str, Any]:
        return {"slots": len(self.slots), "classes": list(self.classes), "regions": list(self.by_roi())}

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a slot, class and region."""
        rows = [
            {"model": slot[0], "layer": slot[1], "class": name, "region": roi, "mean": float(means[k, c])}
            for roi, means in self.by_roi().items()
            for k, slot in enumerate(self.slots)
            for c, name in enumerate(self.classes)
        ]
        return columns(rows)

    def by_roi(self) -> dict[str, np.ndarray]:
        """Region -> (slot, class): mean over its responses, each in its own deviations; without regions, `all`."""
        scaled = self.mean / self.spread
        regions = self.rois or {"all": np.ones(scaled.shape[2], bool)}
        return {name: scaled[:, :, mask].mean(2) for name, mask in regions.items() if mask.any()}


def region_means(
    alignment: ChannelAlign,
    sources: Any,
    masks: Sequence[np.ndarray] | np.ndarray | Mapping[str, Any],
    *,
    names: Sequence[str] = ("ground", "figure"),
    sites: str = "blocks.*.attn.out",
    ignore: int | Sequence[int] | None = IGNORE,
    progress: bool = True,
) -> RegionMeans:
    """What patches on objects and on the ground add to each response, at every layer (Figures 6, 7 and 16).

    `masks` (row, column) in the model's input: bool, or class ids with a name each in `names`. A patch counts for a
    class as much as it has pixels of it.

    >>> found = vt.region_means(alignment, stores, vt.input_masks(vt.object_masks(images), subject.preprocess))
    >>> found.by_roi()["V4"][:, 1] - found.by_roi()["V4"][:, 0]  # figure minus ground, a number a layer
    """
    blocks = [
        b for b in open_nodes(sources, sites=sites, same_width=False).blocks if (b.model, b.layer) in alignment.slots
    ]
    if not blocks:
        raise SettingsError(
            "no layer of these sources is in the alignment", accepted=[" ".join(slot) for slot in alignment.slots]
        )
    means = []
    for block in tqdm(blocks, desc="regions", unit="layer", disable=not progress, delay=1):
        grid = block.grid or square(block.shape[1])
        pixels = patch_classes(
            (
                np.asarray(mask, np.uint8) if np.asarray(mask).dtype == bool else mask
                for mask in _truth_of(masks, block)
            ),
            grid,
            classes=len(names),
            ignore=ignore,
        ).astype(np.float64)
        total = np.zeros((len(names), len(alignment.map_of(block.model, block.layer))))
        for start in range(0, len(pixels), READ):
            rows = slice(start, start + READ)
            part = finite(block.samples(rows), block, range(start, len(pixels)))
            total += np.einsum("npc,npd->cd", pixels[rows], part)
        weight = pixels.sum((0, 1))[:, None]
        if not (weight > 0).all():
            raise SettingsError(
                "no pixel is of this class", given=[n for n, w in zip(names, weight, strict=True) if not w]
            )
        means.append(alignment.in_response_space(total / weight, block.model, block.layer))
    slots = tuple((block.model, block.layer) for block in blocks)
    return RegionMeans(slots, tuple(names), np.stack(means), alignment.spread, dict(alignment.rois))


def colors_by_region(
    alignment: ChannelAlign,
    sources: Any,
    model: str,
    layer: str,
    rois: Sequence[str] | None = None,
    *,
    count: int | None = None,
    n_eig: int = 10,
    n_sample: int = 1000,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Figure 2: one layer cut by what speaks for each region alone, and by all: {region: uint8 (picture, patch, 3)}.

    `count` is that of `ChannelAlign.reader`. Colours of different regions have nothing to do with each other.
    """
    blocks = open_nodes(sources, sites=layer, same_width=False).blocks
    block = next((block for block in blocks if (block.model, block.layer) == (model, layer)), None)
    if block is None:
        raise SettingsError(
            "no such layer", given=f"{model} {layer}", accepted=[f"{b.model} {b.layer}" for b in blocks]
        )
    wanted = list(alignment.rois) if rois is None else list(rois)
    readings: dict[str, Read] = {roi: alignment.reader(roi, count) for roi in wanted} | {"all": alignment.transform}
    found = {}
    for name, read in readings.items():
        one = replace(block, read=read)
        spectral = ncut(Nodes((one,), one.channels), min(n_eig, len(one) - 1), seed=seed, progress=False)
        shades = colors(spectral_tsne(spectral, 3, n_sample=n_sample, seed=seed))
        found[name] = shades.reshape(*block.shape, 3)
    return found
