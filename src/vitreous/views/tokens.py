"""What tokens stand for, over pictures: maps with the token marked (Figures 2 and 4), segments (Figure 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.colours import CLUSTERS
from vitreous.views.panels import Box, Pictures, Tile

if TYPE_CHECKING:
    from vitreous.images.imageset import Picture
    from vitreous.lenses.tokens_finding import TokenMaps

LEAST = 256  # pixels of the shorter side of a painted picture, so that outlines are thin
BRIGHT = 0.95  # share of a map below its brightest part
PAINT = 0.5  # how much of a segment's colour lies over the picture
DIMMED = 0.25  # brightness outside of a mask
OUTLINE, UNNAMED = (255, 255, 255), (40, 42, 48)


# -- maps


def token_tiles(
    image: np.ndarray,
    maps: np.ndarray,
    boxes: Sequence[Box | None],
    names: Sequence[str],
    *,
    tau: float | None = None,
) -> tuple[Tile, ...]:
    """One tile a token: the picture, bright where its map (token, row, column) is high, the token's patch framed.

    The brightest pixels are all equally bright: a few that stand out would leave the others in the dark. With `tau`, as
    many tiles again follow: the object mask of eq. 12, on maps brought to [0, 1].
    """
    if maps.shape[1:] != image.shape[:2] or not len(maps) == len(boxes) == len(names):
        raise SettingsError(
            "maps are as large as the picture, with a box and a name each",
            given=(maps.shape, image.shape, len(boxes), len(names)),
        )
    tiles = [
        Tile(image, f"map of {name}", name, heat.clip(max=np.nanquantile(heat, BRIGHT)), (box,) if box else ())
        for heat, box, name in zip(maps, boxes, names, strict=True)
    ]
    if tau is not None:
        for heat, box, name in zip(maps, boxes, names, strict=True):
            low, high = np.nanmin(heat), np.nanmax(heat)
            inside = np.nan_to_num((heat - low) / max(high - low, 1e-30), nan=-1) >= tau
            cut = np.where(inside[..., None], image, DIMMED * image).astype(np.uint8)
            tiles.append(Tile(cut, f"object mask of {name}", f"mask at {tau:g}", None, (box,) if box else ()))
    return tuple(tiles)


def token_panel(
    found: TokenMaps,
    picture: Picture,
    tokens: Sequence[int],
    *,
    sample: int = 0,
    tau: float | None = None,
    title: str = "What tokens stand for",
) -> Pictures:
    """Figure 2: the picture, then the maps of some tokens by their numbers, and their object masks in a second row.

    Only what the model saw of the picture is shown.
    """
    image = np.asarray(picture.image)
    tiles = _tiles(found, image, tokens, sample, tau)
    first = Tile(tiles[0].image, picture.id, picture.id)
    count = len(tokens)
    if tau is None:
        return Pictures(title, (first, *tiles), count + 1, _caption(found))
    return Pictures(title, (first, *tiles[:count], first, *tiles[count:]), count + 1, _caption(found))


def layer_panel(
    found: Sequence[TokenMaps],
    picture: Picture,
    tokens: Sequence[int],
    *,
    sample: int = 0,
    title: str = "The same tokens after one block after the other",
) -> Pictures:
    """Figure 4: a row for each token, a column for each block."""
    if not found:
        raise SettingsError("maps of at least one block are needed", given=0)
    image = np.asarray(picture.image)
    columns = [_tiles(one, image, tokens, sample, None) for one in found]
    tiles = []
    for row in range(len(tokens)):
        for one, column in zip(found, columns, strict=True):
            tile = column[row]
            caption = f"{tile.caption}, block {one.block}" if row == 0 or one is found[0] else ""
            tiles.append(Tile(tile.image, f"{tile.alt} after block {one.block}", caption, tile.heat, tile.boxes))
    return Pictures(title, tuple(tiles), len(found), _caption(found[0]))


def _tiles(
    found: TokenMaps, image: np.ndarray, tokens: Sequence[int], sample: int, tau: float | None
) -> tuple[Tile, ...]:
    if found.grid is None:
        raise SettingsError("texts have no picture", given=found, remedy="vitreous.views.token_text colours words")
    if found.frames is None:
        raise SettingsError(
            "maps of a tensor have no picture to go with them", given=found, remedy="make the maps from the pictures"
        )
    (maps,) = found[sample].of(tokens).upsample()
    first, frame = len(found.prefix), found.frames[sample]
    seen = np.isfinite(maps[0])
    (top, bottom), (left, right) = (np.flatnonzero(seen.any(k))[[0, -1]] for k in (1, 0))
    part = slice(top, bottom + 1), slice(left, right + 1)
    boxes: list[Box | None] = []
    names = []
    for token in tokens:
        patch = token - first
        x0, y0, x1, y1 = frame.patch_box(found.grid, max(patch, 0))
        boxes.append(Box(x0 - left, y0 - top, x1 - left, y1 - top) if patch >= 0 else None)
        where = f"patch {patch // found.grid.columns}, {patch % found.grid.columns}"
        names.append(where if patch >= 0 else found.prefix[token])
    return token_tiles(image[part], maps[:, *part], boxes, names, tau=tau)


def _caption(found: TokenMaps) -> str:
    kind = found.settings.get("target") or found.settings.get("method", "")
    return f"Bright: what counts for the framed token ({kind}). Each map is scaled to its own range."


# -- segments


def paint_segments(
    image: np.ndarray, labels: np.ndarray, *, colours: Mapping[int, int] | None = None, paint: float = PAINT
) -> np.ndarray:
    """uint8 (row, column, colour): segments in their colours over a picture, with outlines. Small ones are enlarged.

    `colours` says which colour a label has, by default its own number; negative labels and those without one are dark.
    """
    from PIL import Image

    if labels.shape != image.shape[:2] or labels.dtype.kind not in "iub":
        raise SettingsError(
            "labels are whole numbers, as large as the picture", given=f"{labels.dtype} {labels.shape}",
            accepted=f"{image.shape[:2]}",
        )  # fmt: skip
    factor = max(1.0, LEAST / min(labels.shape))
    size = (round(labels.shape[1] * factor), round(labels.shape[0] * factor))
    rows, columns = (
        (np.arange(n) / factor).astype(int).clip(max=m - 1) for n, m in zip(size[::-1], labels.shape, strict=True)
    )
    large = labels[rows[:, None], columns]
    pixels = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BICUBIC), np.float32)
    flat = (1 - paint) * pixels + paint * _colours(large, colours)
    flat[_edges(large)] = OUTLINE
    return np.round(flat).astype(np.uint8)


def segment_panel(
    images: Sequence[np.ndarray],
    rows: Mapping[str, Sequence[np.ndarray]],
    *,
    names: Sequence[str] = (),
    colours: Mapping[str, Sequence[Mapping[int, int]]] | None = None,
    title: str = "Segments",
    caption: str = "",
) -> Pictures:
    """Figure 3: pictures in the first row, then a row for the truth and for every method, as `rows` names them.

    `colours` gives, for a row, the colour of each label in each picture: with those of `pair_segments` a segment has
    the colour of the class that it is paired with, and is dark if there is none.
    """
    tiles = [Tile(image, _name(names, k), _name(names, k)) for k, image in enumerate(images)]
    for row, maps in rows.items():
        if len(maps) != len(images):
            raise SettingsError(f"row {row!r} needs one label map for each picture", given=len(maps))
        for k, (image, labels) in enumerate(zip(images, maps, strict=True)):
            chosen = colours[row][k] if colours and row in colours else None
            tiles.append(Tile(paint_segments(image, labels, colours=chosen), f"{_name(names, k)}, {row}", row))
    return Pictures(title, tuple(tiles), len(images), caption)


def _name(names: Sequence[str], k: int) -> str:
    return names[k] if names else f"picture {k}"


def _colours(labels: np.ndarray, colours: Mapping[int, int] | None) -> np.ndarray:
    palette = np.array([tuple(int(c[k : k + 2], 16) for k in (1, 3, 5)) for c in CLUSTERS], np.float32)
    out = np.empty((*labels.shape, 3), np.float32)
    for label in np.unique(labels):
        colour = int(label) if colours is None else colours.get(int(label), -1)
        named = colour >= 0 and label >= 0
        out[labels == label] = palette[colour % len(palette)] if named else UNNAMED
    return out


def _edges(labels: np.ndarray) -> np.ndarray:
    """Two pixels wide, one on each side."""
    edge = np.zeros(labels.shape, bool)
    across, down = labels[:, :-1] != labels[:, 1:], labels[:-1] != labels[1:]
    edge[:, :-1] |= across
    edge[:, 1:] |= across
    edge[:-1] |= down
    edge[1:] |= down
    return edge
