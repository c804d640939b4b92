"""Pictures of a cut: colours by picture, layer and model (AlignedCut, Figure 4), likeness to one patch (Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitreous.errors import SettingsError
from vitreous.images import ImageSet
from vitreous.lenses.align_cut import Spectral
from vitreous.views.panels import Box, Pictures, Tile

SIDE = 64  # pixels of a tile


def color_mosaic(
    spectral: Spectral,
    shades: np.ndarray,
    images: ImageSet,
    *,
    pictures: Sequence[int] = (0, 1, 2),
    layers: Sequence[str] | None = None,
    title: str = "Patches coloured by concept",
) -> Pictures:
    """A row a picture and model: the picture, then its patches in the colours of `shades` (node, 3), layer by layer."""
    models = list(dict.fromkeys(model for model, _ in spectral.blocks))
    by_model = {m: [n for k, n in spectral.blocks if k == m and (layers is None or n in layers)] for m in models}
    if not all(by_model.values()):
        raise SettingsError("no such layers", given=layers, accepted=[" ".join(key) for key in spectral.blocks])
    most = max(map(len, by_model.values()))
    tiles = []
    for place in pictures:
        for model in models:
            tiles.append(Tile(_shown(images, place), f"picture {place}", model or "picture"))
            for layer in by_model[model]:
                part = spectral.of(model, layer, shades)[place]
                tiles.append(Tile(_enlarged(_grid(part)), f"picture {place}, {model} {layer}", _short(layer)))
            tiles += [Tile(np.full((SIDE, SIDE, 3), 255, np.uint8), "") for _ in range(most - len(by_model[model]))]
    caption = "Patches of one colour lie together in the space of eigenvectors, in whatever picture, layer or model."
    return Pictures(title, tuple(tiles), most + 1, caption)


def likeness(
    spectral: Spectral,
    images: ImageSet,
    at: tuple[str, str, int, int],
    *,
    pictures: Sequence[int] = (0, 1, 2, 3),
    title: str = "Likeness to one patch",
) -> Pictures:
    """Cosine of the eigenvectors of every patch to those of patch `at` (model, layer, picture, patch), same layer."""
    model, layer, picture, patch = at
    rows = spectral.of(model, layer)
    if not (0 <= picture < len(rows) and 0 <= patch < rows.shape[1]):
        raise SettingsError("no such patch", given=at, accepted=f"{len(rows)} pictures of {rows.shape[1]} patches")
    unit = rows / np.maximum(np.linalg.norm(rows, axis=2, keepdims=True), np.finfo(np.float32).tiny)
    values = unit @ unit[picture, patch]
    side = len(_grid(values[0]))
    tiles = []
    for place in dict.fromkeys([picture, *pictures]):
        image = _shown(images, place)
        cell = image.shape[0] / side
        row, column = divmod(patch, side)
        frame = Box(column * cell, row * cell, (column + 1) * cell, (row + 1) * cell)
        heat = _enlarged(_grid(values[place])[..., None])[..., 0]
        boxes = (frame,) if place == picture else ()
        tiles.append(Tile(image, f"picture {place}", f"picture {place}", heat, boxes))
    return Pictures(title, tuple(tiles), min(5, len(tiles)), f"{model} {layer}", (-1.0, 1.0))


def _grid(patches: np.ndarray) -> np.ndarray:
    """(patch, …) -> (row, column, …) of a square picture."""
    side = round(len(patches) ** 0.5)
    if side * side != len(patches):
        raise SettingsError("patches do not fill a square", given=len(patches), remedy="cut with tokens='patches'")
    return patches.reshape(side, side, *patches.shape[1:])


def _enlarged(picture: np.ndarray) -> np.ndarray:
    """Whole pixels, at SIDE or the next size that is a multiple."""
    times = -(-SIDE // len(picture))
    return np.kron(picture, np.ones((times, times, 1), picture.dtype))


def _shown(images: ImageSet, place: int) -> np.ndarray:
    return np.asarray(images[place].image.convert("RGB").resize((SIDE, SIDE)))


def _short(layer: str) -> str:
    return layer.removeprefix("blocks.").removesuffix(".attn.out")
