"""The pictures, and what is known about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.colours import paint_parts
from vitreous.views.panels import Group, Pictures, Section, Tile

if TYPE_CHECKING:
    from vitreous.images import ImageSet


def scene_panel(images: ImageSet, count: int = 8) -> Pictures:
    """Scenes beside the exact masks of their objects, one colour an object."""
    tiles = []
    for picture in images[: min(count, len(images))]:
        if picture.instances is None:
            raise SettingsError("a scene has an instance map", given=picture.id)
        pixels = np.asarray(picture.image)
        tiles.append(Tile(pixels, f"Scene {picture.id}: {picture.about['caption']}"))
        objects = len(picture.about["objects"])
        tiles.append(
            Tile(paint_parts(picture.instances), f"Mask of the {objects} objects of {picture.id}", f"{objects} objects")
        )
    return Pictures(
        "Scenes and their exact masks",
        tuple(tiles),
        columns=8,
        caption="Each scene, as large as the models get it, beside the mask of its objects; every object's shape, "
        "colour, texture and size is known. The first reads: "
        f"“{images[0].about['caption']}”.",
    )


def scene_section(images: ImageSet) -> Section:
    return Section(
        "pictures",
        "The pictures, and what is true about them",
        f"{len(images)} scenes were drawn for this report. Because they are drawn, the owner of every pixel is known, "
        "so each claim below can be checked against the truth instead of against somebody's impression.",
        (Group("", (scene_panel(images),)),),
        short="Pictures",
    )
