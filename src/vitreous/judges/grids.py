"""What a judge is shown: the nine pictures that a unit responds to most, three by three (section B.1)."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.directions import array_of
from vitreous.kernels.topk import TopK
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from PIL.Image import Image

    from vitreous.images import ImageSet

SIDE = 3
SHOWN = SIDE * SIDE
CELL = 336  # pixels of a cell, as in the paper
POOLS = ("max", "mean")
GAP = 6  # white pixels between cells

Tops = Mapping[str, np.ndarray]
"""Of every method the pictures of its units, int (unit, 9); a unit with a negative number is never shown."""


def top_pictures(
    activations: Any,
    count: int = SHOWN,
    *,
    pool: str = "max",
    active_in: int = 1,
    batch_size: int = 256,
    progress: bool = True,
) -> np.ndarray:
    """int64 (unit, count): the pictures with a unit's largest activations, strongest first; equal ones by number.

    `activations` (sample, token, unit) or (sample, unit), an array, tensor or site of a store: a picture counts with
    its largest token, or with the mean of all (`pool="mean"`). Units above zero in fewer than `active_in` pictures, and
    units that are the same in all, are not to be judged and hold -1. A sparse unit is above zero in less than `count`
    pictures and is shown with some that do not activate it; `active_in=count` leaves such units out.
    """
    shape = tuple(activations.shape)
    if len(shape) not in (2, 3) or 0 in shape:
        raise SettingsError("activations are (sample, token, unit) or (sample, unit)", given=shape)
    if not 1 <= count <= shape[0] or active_in < 0:
        raise SettingsError("as many pictures as are shown must be there", given={"pictures": shape[0], "shown": count})
    if pool not in POOLS:
        raise SettingsError("no such way to pool tokens", given=pool, accepted=POOLS)
    top = TopK(shape[-1], count)
    above, low, high = np.zeros(shape[-1], np.int64), np.full(shape[-1], np.inf), np.full(shape[-1], -np.inf)
    for start in tqdm(range(0, shape[0], batch_size), "top pictures", disable=not progress, delay=1, leave=False):
        values = _pooled(array_of(activations[start : start + batch_size]), pool)
        if np.isnan(values).any():
            raise SettingsError("activations hold NaN", given=f"pictures {start} to {start + len(values) - 1}")
        top.update(values)
        above += (values > 0).sum(0)
        low, high = np.minimum(low, values.min(0)), np.maximum(high, values.max(0))
    return np.where(((above >= active_in) & (high > low))[:, None], top.result().ids, -1)


def draw(pictures: Sequence[Image], cell: int = CELL) -> np.ndarray:
    """Nine pictures -> uint8 (row, column, colour). Each is cut to a square around its middle, as models see it."""
    from PIL import Image, ImageOps

    side = SIDE * cell + (SIDE - 1) * GAP
    canvas = Image.new("RGB", (side, side), "white")
    for k, picture in enumerate(pictures):
        row, column = divmod(k, SIDE)
        tile = ImageOps.fit(picture.convert("RGB"), (cell, cell), Image.Resampling.BICUBIC)
        canvas.paste(tile, (column * (cell + GAP), row * (cell + GAP)))
    return np.asarray(canvas)


def digest(grid: np.ndarray) -> str:
    """A hash (hex) of the pixels: two grids that look the same have the same."""
    return hashlib.sha256(str(grid.shape).encode() + np.ascontiguousarray(grid).tobytes()).hexdigest()


def png(grid: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(grid).save(file, "PNG", compress_level=3)
    return file.getvalue()


@dataclass(frozen=True, eq=False)
class Grid:
    """A drawn grid and the hash of its pixels."""

    pixels: np.ndarray
    digest: str


def unit_grid(images: ImageSet, pictures: np.ndarray, cell: int) -> Grid:
    pixels = draw([images[int(k)].image for k in pictures], cell)
    return Grid(pixels, digest(pixels))


def checked_tops(tops: Tops | Sequence[Tops], pictures: int) -> list[dict[str, np.ndarray]]:
    """One mapping a data set, every array int (unit, 9) of numbers below `pictures`."""
    sets = [tops] if isinstance(tops, Mapping) else list(tops)
    out = [{name: np.asarray(of) for name, of in one.items()} for one in sets]
    for name, of in ((name, of) for one in out for name, of in one.items()):
        if of.ndim != 2 or of.shape[1] != SHOWN or of.dtype.kind not in "iu":
            raise SettingsError(
                f"a unit is shown by the numbers of {SHOWN} pictures",
                given=f"{name}: {of.dtype} {of.shape}",
                accepted=f"whole numbers (unit, {SHOWN})",
                remedy="judges.grids.top_pictures finds them",
            )
        if of.size and of.max() >= pictures:
            raise SettingsError(
                "no such picture", given=f"{name}: {int(of.max())}", accepted=f"numbers below {pictures}"
            )
    return out


def can_be_shown(tops: np.ndarray) -> np.ndarray:
    """Units whose nine pictures are all there."""
    return np.flatnonzero((tops >= 0).all(1))


def _pooled(values: np.ndarray, pool: str) -> np.ndarray:
    if values.ndim == 2:
        return values
    return values.max(1) if pool == "max" else values.mean(1, dtype=np.float32)
