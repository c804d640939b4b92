"""Many scenes as one set of pictures."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.progress import tqdm
from vitreous.scenery.scene import ATTRIBUTES, check_settings, render_scene

if TYPE_CHECKING:
    from vitreous.images import ImageSet


def scenes(n: int, size: int = 64, seed: int = 0, *, objects: tuple[int, int] = (3, 6), first: int = 0) -> ImageSet:
    """Scenes number `first` to `first + n - 1` of a seed, with labels, masks, instances, boxes and all attributes.

    The label is the shape of the object with the most visible pixels. Masks hold 0 for background and 1 + index of the
    shape; boxes are those of the visible parts, from back to front. `about` of a picture holds the caption, the
    background and every attribute of every object. A scene depends on the seed, its number, the size and `objects`,
    never on `n`.
    """
    from vitreous.images import ImageSet

    check_settings(seed, size, objects)
    if not isinstance(n, Integral) or not isinstance(first, Integral) or n < 1 or first < 0:
        raise SettingsError("not a number of scenes", given={"n": n, "first": first}, accepted="n >= 1 and first >= 0")
    images = np.empty((n, size, size, 3), np.uint8)
    masks, instances = np.empty((2, n, size, size), np.uint8)
    labels, boxes, about = np.empty(n, np.int64), [], []
    for k in tqdm(range(n), desc="scenes", delay=1, leave=False):
        scene = render_scene(seed, first + k, size, objects)
        images[k], masks[k], instances[k], labels[k] = scene.image, scene.mask, scene.instances, scene.label
        boxes.append(np.asarray([thing.box for thing in scene.objects], np.float64))
        about.append(scene.about())
    shapes = ATTRIBUTES["shape"]
    return ImageSet.from_arrays(
        images,
        ids=[f"scene-{seed}-{first + k:06d}" for k in range(n)],
        labels=labels,
        classes=shapes,
        masks=masks,
        instances=instances,
        boxes=boxes,
        about=about,
        mask_classes=("background", *shapes),
        name=f"scenes-{seed}",
    )
