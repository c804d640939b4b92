"""Segments as files that other programs read: label pictures as PASCAL VOC's, run lengths as COCO's, and one npz."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.images.decode import SUFFIXES
from vitreous.kernels.run_lengths import compress, run_lengths
from vitreous.provenance import json_bytes, replace_file

if TYPE_CHECKING:
    from vitreous.lenses.tokens_segments import Segments

UNSEEN = 255  # VOC's number for pixels that do not count


def save_segments(segments: Segments, folder: str | Path) -> list[Path]:
    """Writes `labels/ID.png`, `segments.json` and `segments.npz`, and gives their paths."""
    folder = Path(folder)
    labels, names = segments.labels(), label_names(segments.maps.ids)
    written = []
    for name, found in zip(names, labels, strict=True):
        path = folder / "labels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, label_picture(found))
        written.append(path)
    replace_file(folder / "segments.json", json_bytes(coco(labels, segments.maps.ids)))
    file = io.BytesIO()
    about = np.frombuffer(json_bytes({"ids": list(segments.maps.ids), "settings": dict(segments.settings)}), np.uint8)
    arrays = {"clusters": segments.clusters, "grid": segments.grid, "trees": np.stack(segments.trees), "about": about}
    np.savez(file, allow_pickle=False, **arrays)
    replace_file(folder / "segments.npz", file.getvalue())
    return [*written, folder / "segments.json", folder / "segments.npz"]


def label_names(ids: Sequence[str]) -> list[str]:
    """A file for each picture: its own name as a PNG, or with .png behind it where two would get the same one."""
    paths = [PurePosixPath(name) for name in ids]
    if outside := [name for name, path in zip(ids, paths, strict=True) if path.is_absolute() or ".." in path.parts]:
        remedy = "give the pictures other ids"
        raise SettingsError("the id of a picture leads out of the folder", given=outside[0], remedy=remedy)
    short = [path.with_suffix("") if path.suffix.lower() in SUFFIXES else path for path in paths]
    chosen = short if len(set(short)) == len(short) else paths
    return [f"{path}.png" for path in chosen]


def label_picture(labels: np.ndarray) -> bytes:
    """A PNG whose pixels are the labels, 255 where there is none, shown in the colours that VOC uses."""
    from PIL import Image

    if labels.max() >= UNSEEN:
        raise SettingsError("more labels than a label picture holds", given=int(labels.max()) + 1, accepted="up to 255")
    picture = Image.fromarray(np.where(labels < 0, UNSEEN, labels).astype(np.uint8))
    picture.putpalette(voc_colours().ravel().tolist())
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


def voc_colours() -> np.ndarray:
    """uint8 (256, colour): the bits of a number, dealt to red, green and blue in turn, fill each from the top."""
    numbers = np.arange(256)
    colours = np.zeros((256, 3), np.uint8)
    for place in range(8):
        for colour in range(3):
            bit = (numbers >> (3 * place + colour)) & 1
            colours[:, colour] |= (bit << (7 - place)).astype(np.uint8)
    return colours


def coco(labels: list[np.ndarray], ids: tuple[str, ...]) -> dict[str, Any]:
    """COCO's layout: one annotation a segment, with compressed run lengths. Category k + 1 is segment k."""
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (name, found) in enumerate(zip(ids, labels, strict=True), 1):
        height, width = found.shape
        images.append({"id": number, "file_name": name, "height": height, "width": width})
        for label in np.unique(found[found >= 0]).tolist():
            mask = found == label
            rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
            top, left = int(rows[0]), int(columns[0])
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": label + 1,
                    "segmentation": {"size": [height, width], "counts": compress(run_lengths(mask))},
                    "area": int(mask.sum()),
                    "bbox": [left, top, int(columns[-1]) - left + 1, int(rows[-1]) - top + 1],
                    "iscrowd": 0,
                }
            )
    most = max(int(found.max()) for found in labels) + 1
    categories = [{"id": k + 1, "name": f"segment {k}"} for k in range(most)]
    return {"images": images, "annotations": annotations, "categories": categories}
