"""Where is the object? Masks for Point Game and Energy PG: given ones, boxes, or those of any mask model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from vitreous.axes import Size
from vitreous.checks import whole, whole_numbers
from vitreous.errors import ImageError, SettingsError
from vitreous.images import ImageSet
from vitreous.images.imageset import Picture
from vitreous.preprocess import Preprocess
from vitreous.progress import tqdm

#: Pictures uint8 (row, column, colour) in, one mask (row, column) of 0 and 1 each out. `MobileSam` is one.
MaskModel = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
GIVEN = ("masks", "instances", "boxes")


def object_masks(
    images: ImageSet,
    source: Literal["masks", "instances", "boxes"] | MaskModel = "masks",
    *,
    classes: Sequence[int] | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> list[np.ndarray]:
    """One bool mask (row, column) for each picture, as large as the picture.

    `source` is the set's own "masks" (every class but 0 and the ignored one, or only `classes`), its "instances", the
    pixels inside any of its "boxes", or a model that is shown the pictures.

    >>> masks = vt.object_masks(images, vt.MobileSam())
    >>> seen = vt.input_masks(masks, subject.preprocess)        # as large as the model's input, like finding.at()
    """
    if source not in GIVEN if isinstance(source, str) else not callable(source):
        given = source if isinstance(source, str) else type(source).__name__
        raise SettingsError("no such source of masks", given=given, accepted=(*GIVEN, "a mask model"))
    if classes is not None and source != "masks":
        what = source if isinstance(source, str) else "a mask model"
        raise SettingsError("only a set's own masks know classes", given=f"classes={classes} of {what}")
    only = None if classes is None else whole_numbers("classes", classes)
    whole(1, batch_size=batch_size)
    with tqdm(total=len(images), desc="masks", disable=not progress, delay=1) as bar:
        found = []
        for mask in _read(images, source, only) if isinstance(source, str) else _asked(images, source, batch_size):
            found.append(mask)
            bar.update()
    return found


def mask_files(images: ImageSet, folder: str | Path) -> list[np.ndarray]:
    """One bool mask (row, column) for each picture from PNG files with the pictures' names; what is not 0 is object.

    The mask of `cat/7.jpg` is `cat/7.png`, or `7.png` where that is not there.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ImageError("no folder of masks here", given=str(folder), accepted="a folder of PNG files")
    if not any(root.rglob("*.png")):
        raise ImageError("no masks in this folder", given=root.name, accepted="PNG files with the pictures' names")
    found: list[Path] = []
    for name in images.ids:
        inside = Path(name).with_suffix(".png")
        places = [path for path in (root / inside, root / inside.name) if path.is_file()]
        if not places:
            raise ImageError(f"picture {name!r} has no mask", given=root.name, accepted=inside.as_posix())
        found.append(places[0])
    if len(set(found)) < len(found):
        twice = next(path for path in found if found.count(path) > 1)
        raise ImageError(
            "two pictures have the same mask", given=twice.name, remedy="masks in folders like the pictures'"
        )
    return [_mask_file(path) for path in found]


def _mask_file(path: Path) -> np.ndarray:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            values = np.asarray(opened.convert("RGB") if opened.mode in ("RGBA", "LA") else opened)
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"a mask cannot be read: {error}", given=path.name) from None
    return values != 0 if values.ndim == 2 else (values != 0).any(-1)


def input_masks(masks: Sequence[np.ndarray], preprocess: Preprocess) -> np.ndarray:
    """bool (sample, row, column) as large as the model's input: resized and cut like the pictures themselves."""
    return _to_input(masks, preprocess).astype(bool)


def input_labels(images: ImageSet, preprocess: Preprocess) -> np.ndarray:
    """Class maps (sample, row, column) of a set with masks, resized and cut like the pictures, labels never mixed.

    >>> vt.segmentation_by_layer(store, vt.input_labels(images, subject.preprocess), ignore=images.ignore)
    """
    maps = [picture.mask for picture in images]
    if missing := [images.ids[k] for k, found in enumerate(maps) if found is None]:
        raise ImageError("some pictures have no masks", given=missing[0], remedy="leave them out, or vt.object_masks")
    return _to_input([found for found in maps if found is not None], preprocess)


def _to_input(maps: Sequence[np.ndarray], preprocess: Preprocess) -> np.ndarray:
    return np.stack([preprocess.frame(Size(*one.shape)).to_input(one) for one in maps])


def _read(images: ImageSet, source: str, classes: np.ndarray | None) -> Iterator[np.ndarray]:
    for picture in images:
        given = {"masks": picture.mask, "instances": picture.instances, "boxes": picture.boxes}[source]
        if given is None:
            raise ImageError(
                f"picture {picture.id!r} has no {source}", given=images.name, remedy="another source, or a mask model"
            )
        if source == "boxes":
            yield _inside(given, picture)
        elif source == "instances":
            yield given > 0
        elif classes is not None:
            yield np.isin(given, classes)
        else:
            yield (given != 0) & (given != (0 if images.ignore is None else images.ignore))


def _inside(boxes: np.ndarray, picture: Picture) -> np.ndarray:
    """Pixels whose middle lies in a box (x0, y0, x1, y1)."""
    y = np.arange(picture.image.height)[:, None] + 0.5
    x = np.arange(picture.image.width)[None, :] + 0.5
    mask = np.zeros((picture.image.height, picture.image.width), bool)
    for x0, y0, x1, y1 in boxes:
        mask |= (x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)
    return mask


def _asked(images: ImageSet, model: MaskModel, batch_size: int) -> Iterator[np.ndarray]:
    for first in range(0, len(images), batch_size):
        part = [np.asarray(picture.image) for picture in images[first : first + batch_size]]
        answers = model(part)
        if not isinstance(answers, list | tuple | np.ndarray) or len(answers) != len(part):
            given = len(answers) if isinstance(answers, list | tuple | np.ndarray) else type(answers).__name__
            raise SettingsError("a mask model gives one mask for each picture", given=given, accepted=str(len(part)))
        for picture, mask in zip(part, answers, strict=True):
            if np.shape(mask) != picture.shape[:2] or not np.isin(mask, (0, 1)).all():
                raise SettingsError(
                    "a mask is as large as its picture, 1 on the object and 0 elsewhere",
                    given=f"{np.asarray(mask).dtype} {np.shape(mask)}",
                    accepted=f"{picture.shape[:2]}",
                )
            yield np.asarray(mask, bool)
