"""Where the object is: masks of the set, boxes, a mask model or one map a picture, as the model sees the pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from vitreous.baselines.masks import MaskModel, input_masks, object_masks
from vitreous.errors import ImageError, SettingsError
from vitreous.images import ImageSet
from vitreous.models.subject import Subject

SOFT = 64  # of a picture's side: the rim around an object

Masks = Literal["masks", "instances", "boxes"] | MaskModel | Sequence[np.ndarray] | np.ndarray | None


def grown_masks(
    subject: Subject, images: ImageSet, seen: ImageSet, masks: Masks, rim: int | None, progress: bool
) -> np.ndarray | None:
    """bool (picture, row, column) of the model's input, with the rim."""
    if masks is None:
        return None
    if rim is not None and (isinstance(rim, bool) or not isinstance(rim, int) or rim < 0):
        raise SettingsError("rim is a number of pixels", given=rim, accepted="0 or more")
    assert subject.preprocess is not None
    if isinstance(masks, str) or callable(masks):
        found = object_masks(seen, masks, progress=progress)
    else:
        if len(masks) != len(images):
            raise ImageError("one mask a picture", given=len(masks), accepted=str(len(images)))
        by_id = dict(zip(images.ids, masks, strict=True))
        found = [_fitting(np.asarray(by_id[name]), seen, name) for name in seen.ids]
    placed = input_masks(found, subject.preprocess).astype(bool)
    if not placed.any() or placed.all():
        raise ImageError(
            "a mask needs both the object and the rest",
            given="all pixels are " + ("object" if placed.any() else "ground"),
        )
    return _grown(placed, max(1, round(max(placed.shape[1:]) / SOFT)) if rim is None else rim)


def _grown(masks: np.ndarray, by: int) -> np.ndarray:
    """All that lies within `by` pixels, by rows and by columns."""
    from scipy.ndimage import maximum_filter

    return maximum_filter(masks, (1, 2 * by + 1, 2 * by + 1)) if by else masks


def _fitting(mask: np.ndarray, images: ImageSet, name: str) -> np.ndarray:
    picture = images[name].image
    if mask.shape != (picture.height, picture.width):
        raise ImageError(
            f"the mask of picture {name!r} is of another size",
            given=mask.shape,
            accepted=f"({picture.height}, {picture.width})",
        )
    if mask.dtype != bool and not np.isin(np.unique(mask), (0, 1)).all():
        raise ImageError(f"the mask of picture {name!r} is not of 0 and 1", given=np.unique(mask)[:5].tolist())
    return mask.astype(bool)
