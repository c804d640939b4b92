"""Potsdam-3: aerial tiles whose six classes are merged in pairs, from MATLAB files or PNG tiles."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.datasets.matlab import read_variable
from vitreous.datasets.parts import (
    IGNORE,
    WRONG,
    locate,
    optional,
    optional_sides,
    read_list,
    require,
    table,
    translate,
)
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.decode import Decoded, decode, decode_mask
from vitreous.images.decode import load as load_picture
from vitreous.images.sources import Files, Folder, Side, natural

LISTS = {"train": "labelled_train", "test": "labelled_test", "unlabelled": "unlabelled_train"}
CLASSES = ("road or car", "building or clutter", "vegetation or tree")
# impervious surface, building, low vegetation, tree, car, clutter
THREE = {0: 0, 4: 0, 1: 1, 5: 1, 2: 2, 3: 2}
# The colours that ISPRS publishes for the six, in the same order
COLOURS = ((255, 255, 255), (0, 0, 255), (0, 255, 255), (0, 255, 0), (255, 255, 0), (255, 0, 0))


def load(root: Path, split: str) -> ImageSet:
    base = locate(root, ("processed", "potsdam", "potsdamraw/processed"), ("imgs",))
    ending = ".mat" if next((base / "imgs").glob("*.mat"), None) is not None else ".png"
    if split == "all":
        ids = sorted((path.stem for path in (base / "imgs").glob(f"*{ending}")), key=natural)
    else:
        ids = read_list(base, LISTS[split])
    if not ids:
        raise ImageError("no tiles", given=str(base / "imgs"), accepted="imgs/*.mat or imgs/*.png")
    names = require(base, [f"imgs/{i}{ending}" for i in ids], "tiles")
    wanted = [f"gt/{i}{ending}" for i in ids]
    masks = require(base, wanted, "masks") if split in ("train", "test") else optional(base, wanted)
    ids_of = table(THREE)
    read = partial(read_matlab_mask if ending == ".mat" else read_png_mask, ids=ids_of)
    sides = optional_sides(mask=Side(masks, read, "potsdam 3"))
    source = Files(Folder(base), names, sides, decode=read_matlab_tile if ending == ".mat" else decode)
    return ImageSet(source, tuple(ids), mask_classes=CLASSES, ignore=IGNORE, name=f"potsdam3/{split}")


def read_matlab_tile(data: bytes, name: str) -> Decoded:
    """The first three of (row, column, red green blue infrared)."""
    from PIL import Image as pil

    tile = read_variable(data, name, "img")
    if tile.ndim != 3 or tile.shape[2] not in (3, 4) or tile.dtype != np.uint8:
        raise ImageError("a tile is (row, column, 3 or 4) uint8", given=(name, tile.shape, str(tile.dtype)))
    notes = ("infrared left out",) if tile.shape[2] == 4 else ()
    return Decoded(pil.fromarray(np.ascontiguousarray(tile[..., :3])), notes)


def read_matlab_mask(data: bytes, name: str, ids: np.ndarray) -> np.ndarray:
    return translate(_whole(read_variable(data, name, "gt"), name), ids, name)


def read_png_mask(data: bytes, name: str, ids: np.ndarray) -> np.ndarray:
    """Six ids as grey values, or the colours that ISPRS publishes."""
    image = load_picture(data, name)
    if image.mode not in ("RGB", "RGBA"):
        return translate(decode_mask(data, name), ids, name)
    pixels = np.asarray(image.convert("RGB"))
    labels = np.full(pixels.shape[:2], WRONG)
    for k, colour in enumerate(COLOURS):
        labels[(pixels == colour).all(-1)] = k
    if (labels == WRONG).any():
        strange = np.unique(pixels[labels == WRONG], axis=0)[:3].tolist()
        raise ImageError(f"colours that ISPRS does not use: {strange}", given=name, accepted=f"{COLOURS}")
    return translate(labels, ids, name)


def _whole(labels: Any, name: str) -> np.ndarray:
    """MATLAB stores numbers as doubles unless told otherwise."""
    numbers = labels.ndim == 2 and labels.size and labels.dtype.kind in "uif"
    if not numbers or not np.array_equal(labels, np.rint(labels)) or labels.min() < 0:
        raise ImageError("a mask is (row, column) of whole numbers", given=(name, labels.shape, str(labels.dtype)))
    return labels.astype(np.int64)
