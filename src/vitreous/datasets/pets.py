"""Oxford-IIIT Pets: 37 breeds with masks; boxes of the heads where they are published."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vitreous.datasets.parts import locate, mask_side, optional, optional_sides, read_list, require, table
from vitreous.datasets.voc import read_boxes
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.sources import Files, Folder, Side

SPECIES = {1: "cat", 2: "dog"}
BOUNDARY = 3  # kept as it is and ignored; on disk the animal is 1 and the background 2
LISTS = {"all": "list", "trainval": "trainval", "test": "test"}


def load(root: Path, split: str) -> ImageSet:
    base = locate(root, ("oxford-iiit-pet",), ("annotations",))
    rows = _rows(base, LISTS[split])
    ids = [name for name, _, _ in rows]
    names = require(base, [f"images/{i}.jpg" for i in ids], "pictures")
    masks = require(base, [f"annotations/trimaps/{i}.png" for i in ids], "masks")
    sides = optional_sides(
        mask=mask_side(masks, table({2: 0, 1: 1, BOUNDARY: BOUNDARY}, ignored=()), "pets"),
        boxes=Side(optional(base, [f"annotations/xmls/{i}.xml" for i in ids]), read_boxes, "voc"),
    )
    facts = [{"species": SPECIES[species]} for _, _, species in rows]
    return ImageSet(
        Files(Folder(base), names, sides, facts),
        tuple(ids),
        np.array([number - 1 for _, number, _ in rows]),
        _breeds(base, rows),
        mask_classes=("background", "pet"),
        ignore=BOUNDARY,
        name=f"pets/{split}",
    )


def _rows(base: Path, name: str) -> list[tuple[str, int, int]]:
    """(id, breed from 1, species) of each line that is no comment."""
    rows = []
    for line in read_list(base / "annotations", name):
        if line.startswith("#"):
            continue
        words = line.split()
        if len(words) != 4 or not all(word.isdigit() for word in words[1:]) or int(words[2]) not in SPECIES:
            raise ImageError(f"a line of {name}.txt that is not 'id breed species number'", given=line)
        rows.append((words[0], int(words[1]), int(words[2])))
    return rows


def _breeds(base: Path, rows: list[tuple[str, int, int]]) -> tuple[str, ...]:
    """Names by number, from all lists that are there: a split need not hold every breed."""
    for name in LISTS.values():
        if (base / "annotations" / f"{name}.txt").is_file():
            rows = rows + _rows(base, name)
    names = {number: i.rpartition("_")[0].replace("_", " ") for i, number, _ in rows}
    return tuple(names.get(number, f"breed {number}") for number in range(1, max(names) + 1))
