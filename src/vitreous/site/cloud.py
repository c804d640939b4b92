"""The universal space as columns: one entry a patch of a picture at a layer of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.cards.plain import packed
from vitreous.cards.sheet import SURE
from vitreous.errors import VitreousError

if TYPE_CHECKING:
    from vitreous.examination import Examination

MOST = 1_000_000
NONE = 255
TILES = 6  # pictures that show a concept


def cloud_arrays(examination: Examination, most: int = MOST) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is said once (count, layers, concepts) and the columns, little-endian, each (point,) or (point, 3).

    With more nodes than `most`, whole (picture, patch) columns are kept, so that no path over the layers has a gap.
    """
    spectral = examination.spectral
    layers = list(dict.fromkeys(layer for _, layer in spectral.blocks))
    names = [entry.name for entry in examination.models]
    close = np.asarray(examination.pictures.close)
    number = np.uint16 if close.max(initial=0) <= np.iinfo(np.uint16).max else np.uint32
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("node", "model", "layer", "picture", "token")}
    share = min(1.0, most / max(1, len(spectral)))
    for (model, layer), (first, _, pictures, patches) in spectral.blocks.items():
        kept = _kept(pictures, patches, share)
        picture, patch = np.divmod(kept, patches)
        parts["node"].append(first + kept)
        parts["model"].append(np.full(len(kept), names.index(model), np.uint8))
        parts["layer"].append(np.full(len(kept), layers.index(layer), np.uint8))
        parts["picture"].append(close[picture].astype(number))
        parts["token"].append((patch + len(examination.model(model).prefix)).astype(np.uint16))
    columns = {name: np.concatenate(part) for name, part in parts.items()}
    node = columns.pop("node")
    arrays = {
        "x": examination.places[node, 0].astype(np.float32),
        "y": examination.places[node, 1].astype(np.float32),
        "colour": examination.colours[node],
        **columns,
        "concept": examination.concepts[node].astype(np.uint8),
    }
    head = {"count": len(node), "layers": layers, "concepts": _concepts(arrays)}
    words = [_words(examination, name) for name in names]
    if labels := sorted({word for found in words for word in found.values()})[:NONE]:
        prefixes = [len(entry.prefix) for entry in examination.models]
        spots = zip(*(arrays[name].tolist() for name in ("model", "picture", "token")), strict=True)
        given = [words[model].get((picture, token - prefixes[model])) for model, picture, token in spots]
        numbers = {word: number for number, word in enumerate(labels)}
        arrays["label"] = np.array([NONE if word is None else numbers.get(word, NONE) for word in given], np.uint8)
        head["labels"] = labels
    return head, arrays


def _words(examination: Examination, model: str) -> dict[tuple[int, int], str]:
    """(picture, patch) -> the name of the unit that answers most to it, where it is among a named unit's strongest."""
    best: dict[tuple[int, int], tuple[float, str]] = {}
    for block in examination.model(model).blocks:
        try:
            labels, found = examination.labels(model, block), examination.profile(model, block)
        except VitreousError:
            continue  # without words, or damaged: the page of the lens says so
        for unit, name in enumerate(labels.names):
            if name is None or not labels.chance[unit] <= SURE or not found.std[unit] > 0:
                continue
            strength = (found.close_values[unit] - found.mean[unit]) / found.std[unit]
            columns = (found.close_pictures[unit], found.close_patches[unit], strength)
            for picture, patch, high in zip(*(column.tolist() for column in columns), strict=True):
                if picture >= 0 and high > best.get((picture, patch), (-np.inf, ""))[0]:
                    best[picture, patch] = (high, name)
    return {spot: name for spot, (_, name) in best.items()}


def cloud_data(examination: Examination) -> dict[str, Any]:
    """The same as one value that JSON can hold."""
    head, arrays = cloud_arrays(examination)
    return head | {name: packed(values) for name, values in arrays.items()}


def _kept(pictures: int, patches: int, share: float) -> np.ndarray:
    """Numbers of the (picture, patch) columns that stay: the same ones wherever there are as many."""
    count = pictures * patches
    if share >= 1:
        return np.arange(count)
    drawn = np.random.default_rng(0).permutation(count)[: max(1, int(share * count))]
    return np.sort(drawn)


def _concepts(arrays: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """A name and a few pictures for each concept: the points nearest to its middle, one a picture."""
    found = []
    for concept in range(int(arrays["concept"].max(initial=0)) + 1):
        mine = np.flatnonzero(arrays["concept"] == concept)
        tiles: list[dict[str, Any]] = []
        if len(mine):
            spot = np.stack([arrays["x"][mine], arrays["y"][mine]], 1)
            away = np.linalg.norm(spot - np.median(spot, axis=0), axis=1)
            seen: set[int] = set()
            for k in mine[np.argsort(away, kind="stable")]:
                picture = int(arrays["picture"][k])
                if picture not in seen:
                    seen.add(picture)
                    tiles.append({"picture": picture, "token": int(arrays["token"][k]), "value": None, "heat": None})
                if len(tiles) == TILES:
                    break
        found.append({"name": f"concept {concept + 1}", "tiles": tiles})
    return found
