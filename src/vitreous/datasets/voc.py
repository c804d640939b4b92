"""PASCAL VOC 2012: pictures with class masks, object masks and boxes."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from vitreous.datasets.parts import IGNORE, locate, mask_side, optional, optional_sides, read_list, require, table
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.decode import decode_mask
from vitreous.images.sources import Files, Folder, Side

CLASSES = (
    "background aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person "
    "pottedplant sheep sofa train tvmonitor"
).split()


def load(root: Path, split: str) -> ImageSet:
    base = locate(root, ("VOC2012", "VOCdevkit/VOC2012"), ("JPEGImages",))
    ids = [line.split()[0] for line in read_list(base / "ImageSets" / "Segmentation", split)]
    names = require(base, [f"JPEGImages/{i}.jpg" for i in ids], "pictures")
    masks = require(base, [f"SegmentationClass/{i}.png" for i in ids], "masks")
    boxes = optional(base, [f"Annotations/{i}.xml" for i in ids])
    sides = optional_sides(
        mask=mask_side(masks, table({k: k for k in range(len(CLASSES))}), "voc"),
        instances=Side(optional(base, [f"SegmentationObject/{i}.png" for i in ids]), read_objects, "voc"),
        boxes=Side(boxes, read_boxes, "voc"),
        about=Side(boxes, read_about, "voc"),
    )
    source = Files(Folder(base), names, sides)
    return ImageSet(source, tuple(ids), mask_classes=tuple(CLASSES), ignore=IGNORE, name=f"voc2012/{split}")


def read_objects(data: bytes, name: str) -> np.ndarray:
    """Object numbers; the border that VOC marks with 255 belongs to no object."""
    found = decode_mask(data, name)
    return np.where(found == IGNORE, 0, found)


def read_boxes(data: bytes, name: str) -> np.ndarray:
    """VOC counts pixels from 1 and names the last one inside; here boxes start at 0 and end behind the last pixel."""
    boxes = []
    for item in _objects(data, name):
        sides = (item.findtext(f"bndbox/{part}", "nan") for part in ("xmin", "ymin", "xmax", "ymax"))
        try:
            x0, y0, x1, y1 = map(float, sides)
        except ValueError:
            raise ImageError("an annotation with a box that has no four sides", given=name) from None
        boxes.append((x0 - 1, y0 - 1, x1, y1))
    array = np.array(boxes, np.float64).reshape(-1, 4)
    if not np.isfinite(array).all():
        raise ImageError("an annotation with a box that has no four sides", given=name)
    return array


def read_about(data: bytes, name: str) -> dict[str, list[dict[str, object]]]:
    """What each box holds, in the order of the boxes."""
    flags = ("difficult", "truncated", "occluded")
    objects = [
        {"name": item.findtext("name", ""), **{flag: item.findtext(flag, "0").strip() == "1" for flag in flags}}
        for item in _objects(data, name)
    ]
    return {"objects": objects}


def _objects(data: bytes, name: str) -> list[ElementTree.Element]:
    try:
        return ElementTree.fromstring(data).findall("object")
    except ElementTree.ParseError as error:
        raise ImageError(f"an annotation that is not XML ({error})", given=name) from None
