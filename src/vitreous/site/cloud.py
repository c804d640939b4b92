"""The universal space as columns: one entry a patch of a picture at a layer of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.cards.plain import packed

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
    parts: dict[str, list[np.ndarray]] = {name: [] for name in ("node", "model", "layer", "picture", "token")}
    share = min(1.0, most / max(1, len(spectral)))
    for (model, layer), (first, _, pictures, patches) in spectral.blocks.items():
        kept = _kept(pictures, patches, share)
        picture, patch = np.divmod(kept, patches)
        parts["node"].append(first + kept)
        parts["model"].append(np.full(len(kept), names.index(model), np.uint8))
        parts["layer"].append(np.full(len(kept), layers.index(layer), np.uint8))
        parts["picture"].append(close[picture].astype(np.uint16))
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
    return head, arrays


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
