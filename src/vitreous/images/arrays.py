"""Pictures, masks, boxes and labels that are given in memory: what is accepted, and the source that holds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import ImageError
from vitreous.images.decode import Decoded, to_rgb
from vitreous.images.sources import Marks

Maps = Sequence[np.ndarray | None] | np.ndarray | None
Held = np.ndarray | Sequence[np.ndarray | Decoded]  # arrays (row, column[, colour]) uint8, or pictures made upright


@dataclass(frozen=True, eq=False)
class Arrays:
    """Pictures in memory."""

    images: Held
    ids: tuple[str, ...]
    masks: Maps = None
    instances: Maps = None
    boxes: Sequence[np.ndarray | None] | None = None
    about: Sequence[Mapping[str, Any]] | None = None

    def image(self, at: int) -> Decoded:
        from PIL import Image as pil

        held = self.images[at]
        if isinstance(held, Decoded):
            return Decoded(held.image.copy(), held.notes)
        return to_rgb(pil.fromarray(held), self.ids[at])

    def marks(self, at: int) -> Marks:
        mask, instances, boxes = (
            None if side is None else side[at] for side in (self.masks, self.instances, self.boxes)
        )
        return Marks(mask, instances, boxes, {} if self.about is None else self.about[at])

    def contents(self, at: int) -> Iterator[bytes]:
        marks = self.marks(at)
        yield from array_contents(np.asarray(self.image(at).image), marks)


def array_contents(pixels: np.ndarray, marks: Marks) -> Iterator[bytes]:
    """Shapes and values, in one type each: the same labels hash the same in every integer type."""
    parts = ((pixels, np.uint8), (marks.mask, np.int64), (marks.instances, np.int64), (marks.boxes, np.float64))
    for array, kind in parts:
        yield b"none" if array is None else str(array.shape).encode()
        if array is not None:
            yield array.astype(kind, order="C").tobytes()


def pictures_from_arrays(images: Any) -> Held:
    """Checks pictures that are an array (sample, row, column[, colour]) or a list of arrays or Pillow pictures."""
    from PIL import Image as pil

    if isinstance(images, np.ndarray):
        return _stack_of_pictures(images)
    if isinstance(images, str | bytes) or not isinstance(images, Sequence):
        raise ImageError(
            "pictures are given as an array or a list",
            given=type(images).__name__,
            accepted="array (sample, row, column, colour), list of arrays, list of PIL pictures",
        )
    checked: list[np.ndarray | Decoded] = []
    for k, image in enumerate(images):
        if isinstance(image, pil.Image):
            checked.append(to_rgb(image, f"picture {k}"))
        elif isinstance(image, np.ndarray):
            checked.append(eight_bits(image, f"picture {k}", image.shape))
        else:
            raise ImageError(
                f"picture {k} is neither an array nor a PIL picture",
                given=type(image).__name__,
                remedy="convert tensors with .permute(1, 2, 0).numpy()",
            )
    return checked


def _stack_of_pictures(images: np.ndarray) -> np.ndarray:
    if images.ndim not in (3, 4) or (images.ndim == 3 and images.shape[2] in (3, 4)):
        raise ImageError(
            "this is not the shape of an array of pictures",
            given=images.shape,
            accepted="(sample, row, column, colour), or (sample, row, column) for grey ones",
            remedy="for one picture write image[None]",
        )
    return images if len(images) == 0 else eight_bits(images, "the array", images.shape[1:])


def eight_bits(array: np.ndarray, what: str, shape: tuple[int, ...]) -> np.ndarray:
    """uint8 as it is, whole numbers in 0..255, floats in [0, 1] scaled by 255; anything else is refused."""
    if len(shape) not in (2, 3) or 0 in shape or (len(shape) == 3 and shape[2] not in (3, 4)):
        turned = len(shape) == 3 and shape[0] in (1, 3, 4)
        raise ImageError(
            f"{what} does not have the shape of a picture",
            given=shape,
            accepted="(row, column), (row, column, 3) or (row, column, 4)",
            remedy="the colours come last: array.transpose(1, 2, 0)" if turned else None,
        )
    if array.dtype == np.uint8:
        view = array.view()
        view.flags.writeable = False
        return view
    if array.dtype.kind not in "fiu" or array.dtype == np.uint16:
        raise ImageError(f"{what} has values of type {array.dtype}", accepted="uint8, or float in [0, 1]")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ImageError(f"{what} has values that are NaN or infinite", remedy="look at np.isfinite(array)")
    low, high = float(array.min()), float(array.max())
    limit = 1 if array.dtype.kind == "f" else 255
    if low < 0 or high > limit:
        raise ImageError(
            f"{what} has {array.dtype} values outside of [0, {limit}]",
            given=f"{low:g} to {high:g}",
            accepted="uint8 in [0, 255] or float in [0, 1]",
            remedy="undo the normalisation, or divide by the largest possible value",
        )
    scaled = np.rint(array.astype(np.float32) * 255) if array.dtype.kind == "f" else array
    out = scaled.astype(np.uint8)
    out.flags.writeable = False
    return out


def size_of(held: np.ndarray | Decoded) -> tuple[int, int]:
    """(height, width) of a picture that `pictures_from_arrays` has checked."""
    return (held.image.height, held.image.width) if isinstance(held, Decoded) else held.shape[:2]


def check_about(about: Sequence[Mapping[str, Any]]) -> None:
    """Everything in `about` must survive JSON, because stores and reports write it."""
    for k, entry in enumerate(about):
        try:
            json.dumps(entry, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ImageError(f"about[{k}] cannot be written as JSON: {error}", given=entry) from None


def check_labels(labels: Any, count: int, classes: tuple[str, ...] | None) -> np.ndarray:
    array = np.asarray(labels)
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        raise ImageError(
            f"labels are whole numbers, one for each of {count} pictures", given=(array.shape, array.dtype)
        )
    if count and array.min() < 0:
        raise ImageError("labels count from 0", given=int(array.min()))
    if classes is not None and count and array.max() >= len(classes):
        raise ImageError(f"a label beyond the {len(classes)} classes", given=int(array.max()))
    array = array.astype(np.int64)
    array.flags.writeable = False
    return array


def check_map(found: np.ndarray | None, size: tuple[int, int], what: str) -> None:
    if found is None:
        return
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iub":
        raise ImageError(f"{what} is not an array of whole numbers", given=type(found).__name__)
    if found.shape != size:
        raise ImageError(
            f"{what} is not as large as its picture",
            given=found.shape,
            accepted=f"{size} (height, width)",
            remedy="masks belong to the upright picture: one that EXIF turns needs its mask turned as well",
        )


def check_boxes(boxes: Any, what: str) -> np.ndarray | None:
    if boxes is None:
        return None
    array = np.asarray(boxes, np.float64).reshape(-1, 4) if np.size(boxes) == 0 else np.asarray(boxes, np.float64)
    if array.ndim != 2 or array.shape[1] != 4 or not np.isfinite(array).all():
        raise ImageError(f"{what} is not (box, 4)", given=array.shape, accepted="x0, y0, x1, y1 in pixels")
    if (array[:, 2:] < array[:, :2]).any():
        raise ImageError(f"{what} ends before it begins", accepted="x0 <= x1 and y0 <= y1", remedy="not x, y, w, h")
    return array
