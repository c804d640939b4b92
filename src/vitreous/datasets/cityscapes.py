"""Cityscapes, with the 19 classes of its benchmark or the 27 that unsupervised segmentation uses."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from vitreous.datasets.parts import IGNORE, locate, mask_side, optional, optional_sides, require, table
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.decode import decode_mask
from vitreous.images.sources import Files, Folder, Side, natural

FIRST = 7  # ids 0 to 6 are void; then come, in the order of their ids:
NAMES = (
    "road sidewalk parking rail_track building wall fence guard_rail bridge tunnel pole polegroup traffic_light "
    "traffic_sign vegetation terrain sky person rider car truck bus caravan trailer train motorcycle bicycle"
).split()
NOT_EVALUATED = {"parking", "rail_track", "guard_rail", "bridge", "tunnel", "polegroup", "caravan", "trailer"}
NINETEEN = tuple(name for name in NAMES if name not in NOT_EVALUATED)


def load(root: Path, split: str, classes: Literal[19, 27]) -> ImageSet:
    base = locate(root, ("cityscapes",), ("leftImg8bit",))
    left = base / "leftImg8bit" / split
    names = sorted((p.relative_to(base).as_posix() for p in left.glob("*/*_leftImg8bit.png")), key=natural)
    if not names:
        there = sorted(p.name for p in (base / "leftImg8bit").iterdir() if p.is_dir())
        raise ImageError("no pictures for this split in leftImg8bit", given=split, accepted=there)
    stems = [name.removeprefix("leftImg8bit/").removesuffix("_leftImg8bit.png") for name in names]
    masks = require(base, [f"gtFine/{stem}_gtFine_labelIds.png" for stem in stems], "masks")
    objects = optional(base, [f"gtFine/{stem}_gtFine_instanceIds.png" for stem in stems])
    kept = tuple(NAMES) if classes == 27 else NINETEEN
    sides = optional_sides(
        mask=mask_side(masks, ids(kept), f"cityscapes {classes}"),
        instances=Side(objects, read_objects, "cityscapes"),
    )
    facts = [{"city": stem.split("/")[1]} for stem in stems]
    source = Files(Folder(base), tuple(names), sides, facts)
    short = tuple(stem.split("/", 2)[2] for stem in stems)
    return ImageSet(source, short, mask_classes=kept, ignore=IGNORE, name=f"cityscapes{classes}/{split}")


def ids(kept: tuple[str, ...]) -> np.ndarray:
    """labelIds on disk -> positions in `kept`; void and the classes left out are ignored."""
    pairs = {FIRST + k: kept.index(name) for k, name in enumerate(NAMES) if name in kept}
    return table(pairs, {*range(FIRST + len(NAMES)), IGNORE})


def read_objects(data: bytes, name: str) -> np.ndarray:
    """Objects have ids from 1000 on (class times 1000 plus a number); what is smaller is a class without objects."""
    found = decode_mask(data, name).astype(np.int32)
    return np.where(found >= 1000, found, 0)
