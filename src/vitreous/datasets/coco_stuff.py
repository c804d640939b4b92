"""COCO-Stuff with 27 coarse classes, as the literature on unsupervised segmentation uses it.

The masks hold 182 fine ids (0 to 181; 255 is unlabelled). They are merged along the hierarchy that COCO-Stuff
publishes: 12 groups of things and 15 of stuff. Where the folder has the curated lists of that literature they are used.
"""

from __future__ import annotations

from pathlib import Path

from vitreous.datasets.parts import IGNORE, locate, mask_side, read_list, require, table
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.sources import Files, Folder, natural

CURATED = "Coco164kFull_Stuff_Coarse_7"
# Coarse class: its fine ids. The first twelve are things, which COCO numbers group by group.
COARSE = {
    "electronic-things": "71-76",
    "appliance-things": "77-82",
    "food-things": "51-60",
    "furniture-things": "61-70",
    "indoor-things": "83-90",
    "kitchen-things": "43-50",
    "accessory-things": "25-32",
    "animal-things": "15-24",
    "outdoor-things": "9-14",
    "person-things": "0",
    "sports-things": "33-42",
    "vehicle-things": "1-8",
    "ceiling-stuff": "101 102",
    "floor-stuff": "100 113-117",
    "food-stuff": "120 121 152 169",
    "furniture-stuff": "97 106 107 109 111 122 129 132 155 160 164",
    "raw-material-stuff": "99 131 138 142",
    "textile-stuff": "91 92 103 104 108 130 136 140 151 166 167",
    "wall-stuff": "170-176",
    "window-stuff": "179 180",
    "building-stuff": "94 95 127 150 157 165",
    "ground-stuff": "110 124 125 135 139 143 144 146 148 153 158",
    "plant-stuff": "93 96 118 123 128 133 141 162 168",
    "sky-stuff": "105 156",
    "solid-stuff": "126 134 149 159 161 181",
    "structural-stuff": "98 112 137 145 163",
    "water-stuff": "119 147 154 177 178",
}


def fine_to_coarse() -> dict[int, int]:
    """Fine id -> position in `COARSE`, for all 182."""
    pairs: dict[int, int] = {}
    for coarse, ids in enumerate(COARSE.values()):
        for part in ids.split():
            first, _, last = part.partition("-")
            pairs |= dict.fromkeys(range(int(first), int(last or first) + 1), coarse)
    return pairs


def load(root: Path, split: str) -> ImageSet:
    folder = f"{split}2017"
    base = locate(root, ("cocostuff", "coco"), (f"images/{folder}", folder))
    images = f"images/{folder}" if (base / "images" / folder).is_dir() else folder
    masks = _first(base, (f"annotations/{folder}", f"stuffthingmaps/{folder}", f"stuffthingmaps_trainval2017/{folder}"))
    curated = (base / "curated" / folder / f"{CURATED}.txt").is_file()
    if curated:
        ids = read_list(base / "curated" / folder, CURATED)
    else:
        ids = sorted((path.stem for path in (base / masks).glob("*.png")), key=natural)
    names = require(base, [f"{images}/{i}.jpg" for i in ids], "pictures")
    files = require(base, [f"{masks}/{i}.png" for i in ids], "masks")
    source = Files(Folder(base), names, {"mask": mask_side(files, table(fine_to_coarse()), "coco-stuff 27")})
    name = f"cocostuff27/{split}" + (" (curated)" if curated else "")
    return ImageSet(source, tuple(ids), mask_classes=tuple(COARSE), ignore=IGNORE, name=name)


def _first(base: Path, folders: tuple[str, ...]) -> str:
    for folder in folders:
        if next((base / folder).glob("*.png"), None) is not None:
            return folder
    raise ImageError(
        "no label maps (PNG)",
        given=str(base),
        accepted=folders,
        remedy="unpack stuffthingmaps_trainval2017.zip into stuffthingmaps/",
    )
