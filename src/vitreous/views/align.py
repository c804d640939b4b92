"""Pictures of a cut: colours by picture, layer and model (AlignedCut, Figure 4), likeness to one patch (Figure 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitreous.axes import Size
from vitreous.errors import SettingsError
from vitreous.images import ImageSet
from vitreous.lenses.align_cut import Spectral
from vitreous.lenses.align_nodes import unit_length
from vitreous.preprocess import Preprocess
from vitreous.views.panels import Box, Pictures, Tile
from vitreous.views.patches import enlarged, patch_box

SIDE = 64  # pixels of a tile
SQUARE = (SIDE, SIDE)
Crops = Mapping[str, Preprocess]  # model -> how it cuts pictures; without it a picture is shown whole


def color_mosaic(
    spectral: Spectral,
    shades: np.ndarray,
    images: ImageSet,
    *,
    pictures: Sequence[int] = (0, 1, 2),
    layers: Sequence[str] | None = None,
    crops: Crops | None = None,
    title: str = "Patches coloured by concept",
) -> Pictures:
    """A row a picture and model: the picture, then its patches in the colours of `shades` (node, 3), layer by layer."""
    crops = crops or {}
    models = list(dict.fromkeys(model for model, _ in spectral.blocks))
    by_model = {m: [n for k, n in spectral.blocks if k == m and (layers is None or n in layers)] for m in models}
    if not all(by_model.values()):
        raise SettingsError("no such layers", given=layers, accepted=[" ".join(key) for key in spectral.blocks])
    most = max(map(len, by_model.values()))
    tiles = []
    for place in pictures:
        for model in models:
            tiles.append(Tile(shown(images, place, crops.get(model)), f"picture {place}", model or "picture"))
            for layer in by_model[model]:
                part = spectral.of(model, layer, shades)[place].reshape(*spectral.grid(model, layer), 3)
                tiles.append(Tile(enlarged(part, SQUARE), f"picture {place}, {model} {layer}", short_layer(layer)))
            tiles += [Tile(np.full((SIDE, SIDE, 3), 255, np.uint8), "") for _ in range(most - len(by_model[model]))]
    caption = "Patches of one colour lie together in the space of eigenvectors, in whatever picture, layer or model."
    return Pictures(title, tuple(tiles), most + 1, caption)


def region_mosaic(
    shades: Mapping[str, np.ndarray],
    images: ImageSet,
    grid: tuple[int, int],
    *,
    pictures: Sequence[int] = (0, 1, 2),
    crop: Preprocess | None = None,
    title: str = "Cut by what speaks for one region",
) -> Pictures:
    """Figure 2: a row a picture, then its patches in the colours of each region (`vt.colors_by_region`)."""
    tiles = []
    for place in pictures:
        tiles.append(Tile(shown(images, place, crop), f"picture {place}", "picture"))
        for name, part in shades.items():
            tiles.append(Tile(enlarged(part[place].reshape(*grid, 3), SQUARE), f"picture {place}, {name}", name))
    caption = "Colours mean the same down a column, not along a row."
    return Pictures(title, tuple(tiles), len(shades) + 1, caption)


def likeness(
    spectral: Spectral,
    images: ImageSet,
    at: tuple[str, str, int, int],
    *,
    pictures: Sequence[int] = (0, 1, 2, 3),
    slots: Sequence[tuple[str, str]] | None = None,
    crops: Crops | None = None,
    title: str = "Likeness to one patch",
) -> Pictures:
    """Cosine of the eigenvectors of every patch to those of patch `at` (model, layer, picture, patch), which is framed.

    A row a slot (model, layer); by default the slot of the patch alone.
    """
    model, layer, picture, patch = at
    rows = np.asarray(spectral.of(model, layer))
    if not (0 <= picture < len(rows) and 0 <= patch < rows.shape[1]):
        raise SettingsError("no such patch", given=at, accepted=f"{len(rows)} pictures of {rows.shape[1]} patches")
    chosen = unit_length(rows[picture, patch])
    places = list(dict.fromkeys([picture, *pictures]))
    tiles = []
    for name, other in [(model, layer)] if slots is None else slots:
        grid = spectral.grid(name, other)
        values = unit_length(np.asarray(spectral.of(name, other))) @ chosen
        for place in places:
            image = shown(images, place, (crops or {}).get(name))
            boxes = (patch_box(patch, grid, image.shape),) if (place, name, other) == (picture, model, layer) else ()
            heat = enlarged(values[place].reshape(grid), image.shape)
            said = f"picture {place}" if slots is None else f"{name} {short_layer(other)}"
            tiles.append(Tile(image, f"picture {place}, {name} {other}", said, heat, boxes))
    asked = f"{model} {layer}: bright is like the framed patch; what is unlike it, or the opposite, is dark."
    return Pictures(title, tuple(tiles), min(5, len(places)) if slots is None else len(places), asked, (0.0, 1.0))


def framed(
    images: ImageSet,
    place: int,
    patch: int,
    grid: tuple[int, int],
    name: str,
    crop: Preprocess | None = None,
    reach: int | None = None,
) -> Tile:
    """A picture with one patch framed; with `reach` only so many patches around it."""
    image = shown(images, place, crop, 2 * SIDE)
    frame = patch_box(patch, grid, image.shape)
    if reach is not None:
        high, wide = (min(2 * reach + 1, n) * m // n for n, m in zip(grid, image.shape[:2], strict=True))
        top, left = (
            int(np.clip(middle - part / 2, 0, whole - part))
            for middle, part, whole in zip(
                ((frame.y0 + frame.y1) / 2, (frame.x0 + frame.x1) / 2), (high, wide), image.shape[:2], strict=True
            )
        )
        image = image[top : top + high, left : left + wide]
        frame = Box(frame.x0 - left, frame.y0 - top, frame.x1 - left, frame.y1 - top)
    return Tile(image, f"picture {place}, patch {patch}", name, None, (frame,))


def shown(images: ImageSet, place: int, crop: Preprocess | None = None, side: int = SIDE) -> np.ndarray:
    """A picture, or the part of it that a model sees, in a square."""
    image = images[place].image.convert("RGB")
    if crop is not None:
        frame = crop.frame(Size(image.height, image.width))
        image = image.resize((frame.resized.width, frame.resized.height))
        image = image.crop((frame.left, frame.top, frame.left + frame.size.width, frame.top + frame.size.height))
    return np.asarray(image.resize((side, side)))


def short_layer(layer: str) -> str:
    return layer.removeprefix("blocks.").removesuffix(".attn.out")
