"""The patches that are most like a patch, over pictures, layers and models: near in the universal space."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import StoreError
from vitreous.examination.files import AGAIN
from vitreous.explorer.album import NotThereError

if TYPE_CHECKING:
    from vitreous.lenses.align_cut import Spectral


class Neighbourhood:
    """Nodes of a cut, each as a direction. Of every picture in every model only the nearest patch counts: its layers
    and its neighbours in the picture say nearly the same. `close` are the numbers of the pictures that are in it."""

    def __init__(self, spectral: Spectral, close: Sequence[int]) -> None:
        self.close = tuple(close)
        self.rows = _directions(spectral.eigenvectors)
        self.blocks = list(spectral.blocks.items())
        if not np.isfinite(self.rows).all() or any(place[2] > len(self.close) for _, place in self.blocks):
            raise StoreError("the universal space is damaged", given="align", remedy=AGAIN)

    def site(self, model: str, block: int) -> str:
        """The name under which a block of a model is in the cut."""
        named = [layer for (name, layer), _ in self.blocks if name == model]
        for layer in named:
            if block_of(layer) == block:
                return layer
        raise NotThereError("the universal space has no such layer", given=f"{model}, {block}", accepted=named)

    def node(self, model: str, block: int, picture: int, patch: int) -> int:
        first, _, pictures, patches = dict(self.blocks)[model, self.site(model, block)]
        if picture not in self.close[:pictures]:
            shown = [str(k) for k in self.close[:pictures]]
            raise NotThereError("this picture is not in the universal space", given=str(picture), accepted=shown)
        if not 0 <= patch < patches:
            raise NotThereError("no such patch", given=patch, accepted=f"0 to {patches - 1}")
        return first + self.close.index(picture) * patches + patch

    def nearest(self, vector: np.ndarray, count: int, but: tuple[str, int] | None = None) -> list[dict[str, Any]]:
        """The nearest patch of each picture in each model, nearest first; `but` leaves out a picture in a model."""
        direction = _directions(vector.reshape(1, -1))[0]
        best: dict[tuple[str, int], tuple[float, int, int]] = {}
        for (model, layer), (first, last, pictures, patches) in self.blocks:
            alike = (self.rows[first:last] @ direction).reshape(pictures, patches)
            strongest = alike.argmax(1)
            values = alike[np.arange(pictures), strongest]
            for picture in np.argsort(-values, kind="stable")[: count + 1].tolist():
                found = (float(values[picture]), block_of(layer), int(strongest[picture]))
                at = (model, self.close[picture])
                best[at] = max(best.get(at, found), found)
        if but is not None:
            best.pop(but, None)
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:count]
        return [
            {"model": model, "layer": block, "picture": picture, "patch": patch, "similarity": round(value, 4)}
            for (model, picture), (value, block, patch) in ranked
        ]


def block_of(layer: str) -> int:
    """`blocks.5.attn.out` -> 5."""
    found = re.match(r"blocks\.(\d+)\.", layer)
    if found is None:
        raise StoreError("a layer of the universal space is no block", given=layer[:80])
    return int(found[1])


def _directions(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.maximum(lengths, np.finfo(np.float32).tiny)).astype(np.float32)
