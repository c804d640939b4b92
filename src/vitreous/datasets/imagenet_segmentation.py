"""ImageNet-segmentation (Guillaumin et al. 2014): one object against its background, a MATLAB file or two folders."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.datasets.matlab import is_hdf5, open_hdf5, read_variable
from vitreous.datasets.parts import IGNORE, locate, mask_side, require, table
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.arrays import array_contents
from vitreous.images.decode import Decoded
from vitreous.images.sources import Files, Folder, Marks, existing, list_folder, pick_pictures

FILE = "gtsegs_ijcv.mat"
CLASSES = ("background", "object")


def load(root: Path, split: str) -> ImageSet:
    del split  # there is only one
    path = existing(root, "data set")
    if path.is_dir():
        base = locate(path, (), (FILE, "images"))
        path = base / FILE
        if not path.is_file():
            return _from_folders(base)
    if is_hdf5(path):
        source = Cells(path)
        return ImageSet(source, source.ids(), mask_classes=CLASSES, ignore=IGNORE, name="imagenet-segmentation")
    return _from_old_matlab(path)


def _from_folders(base: Path) -> ImageSet:
    pictures, _ = pick_pictures(list_folder(base / "images", recursive=True))
    if not pictures:
        raise ImageError("no pictures in here", given=str(base / "images"))
    stems = [str(Path(name).with_suffix("")) for name in pictures]
    names = require(base, [f"images/{name}" for name in pictures], "pictures")
    masks = require(base, [f"masks/{stem}.png" for stem in stems], "masks")
    ids = table({0: 0, 1: 1})
    source = Files(Folder(base), names, {"mask": mask_side(masks, ids, "object")})
    return ImageSet(source, tuple(stems), mask_classes=CLASSES, ignore=IGNORE, name="imagenet-segmentation")


def _from_old_matlab(path: Path) -> ImageSet:
    cells = read_variable(path.read_bytes(), str(path), "value").ravel()
    try:
        value = cells[0]
        pictures = list(value["img"].ravel())
        masks = [np.asarray(cell.ravel()[0]) for cell in value["gt"].ravel()]
        ids = [str(cell.item()) for cell in value["id"].ravel()]
        about = [{"wnid": str(cell.item())} for cell in value["target"].ravel()]
    except (LookupError, ValueError) as error:
        raise ImageError(f"not {FILE} as published ({error})", given=str(path)) from error
    return ImageSet.from_arrays(
        pictures,
        ids=ids,
        masks=[_checked(mask, f"{path}, picture {at}") for at, mask in enumerate(masks)],
        about=about,
        mask_classes=CLASSES,
        ignore=IGNORE,
        name="imagenet-segmentation",
    )


def _checked(mask: np.ndarray, where: str) -> np.ndarray:
    """uint8 (row, column) of 0 and 1."""
    if not np.isin(mask, (0, 1)).all():
        raise ImageError("a mask with more than an object and its background", given=where)
    return mask.astype(np.uint8)


class Cells:
    """The HDF5 file: /value/img, /value/gt, /value/id and /value/target hold references, one for each picture.

    MATLAB stores arrays column by column, so they come out turned; of several annotations the first is taken.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.RLock()
        self._open: tuple[int, Any] | None = None

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _file(self) -> Any:
        if self._open is None or self._open[0] != os.getpid():
            self._open = os.getpid(), open_hdf5(self.path)
        return self._open[1]

    def _cell(self, field: str, at: int) -> Any:
        file = self._file()
        return file[file[f"value/{field}"][at, 0]]

    def _text(self, field: str, at: int) -> str:
        return "".join(chr(code) for code in np.asarray(self._cell(field, at)).ravel())

    def ids(self) -> tuple[str, ...]:
        with self._lock:
            try:
                return tuple(self._text("id", at) for at in range(len(self._file()["value/img"])))
            except (KeyError, OSError) as error:
                raise ImageError(f"not {FILE} as published ({error})", given=str(self.path)) from error

    def image(self, at: int) -> Decoded:
        from PIL import Image as pil

        with self._lock:
            pixels = np.asarray(self._cell("img", at))
        if pixels.ndim == 2:
            return Decoded(pil.fromarray(np.ascontiguousarray(pixels.T)).convert("RGB"))
        return Decoded(pil.fromarray(np.ascontiguousarray(pixels.transpose(2, 1, 0))).convert("RGB"))

    def marks(self, at: int) -> Marks:
        with self._lock:
            file = self._file()
            mask = np.asarray(file[self._cell("gt", at)[0, 0]]).T
            wnid = self._text("target", at)
        return Marks(mask=_checked(mask, f"{self.path}, picture {at}"), about={"wnid": wnid})

    def contents(self, at: int) -> Iterator[bytes]:
        return array_contents(np.asarray(self.image(at).image), self.marks(at))
