"""One model's recordings of a set of pictures, as the views read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.axes import Grid, Size
from vitreous.errors import SiteError
from vitreous.evidence.planted import Concepts, scene_concepts
from vitreous.preprocess import Frame, Preprocess

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.images.imageset import Picture
    from vitreous.store import Store

BATCH = 64  # samples read at a time


@dataclass(frozen=True, eq=False)
class Seen:
    """`store` holds activations of all pictures, `attention` patterns of the first ones (None: the model has none).

    `series` is the model's colour in the whole report.
    """

    name: str
    about: str
    series: int
    store: Store
    attention: Store | None
    preprocess: Preprocess

    def sites(self, ending: str) -> tuple[str, ...]:
        """Recorded sites such as `mlp.hidden`, in the order of the blocks."""
        return tuple(site for site in self.store.sites if site.endswith(f".{ending}"))

    def grid(self, site: str) -> Grid:
        grid = self.store.grid(site)
        if grid is None:
            raise SiteError(f"{self.name} has no patches at {site!r}", given=site)
        return grid

    def patches(self, site: str) -> np.ndarray:
        """(sample, patch, channel) as stored, in half precision by default."""
        return self.store[site][:, len(self.store.prefix) :]

    def batches(self, site: str) -> Iterator[np.ndarray]:
        """float32 (sample, token, channel), a few samples at a time."""
        return (batch.astype(np.float32) for batch in self.store[site].batches(BATCH))

    def frame(self, picture: Picture) -> Frame:
        return self.preprocess.frame(Size(picture.image.height, picture.image.width))

    def to_pixels(self, maps: np.ndarray, picture: Picture, grid: Grid) -> np.ndarray:
        """Values (..., patch) over a picture as maps (..., height, width) of its own pixels."""
        return self.frame(picture).to_pixels(maps.reshape(*maps.shape[:-1], *grid))

    def truth(self, images: ImageSet, site: str) -> Concepts:
        """What is true of every patch of scenes, as this model's grid cuts them."""
        pictures = list(images)
        maps = []
        for picture in pictures:
            if picture.instances is None:
                raise SiteError(
                    f"picture {picture.id!r} has no instance map: its truth is not known", given=images.name
                )
            maps.append(self.frame(picture).to_input(picture.instances))
        return scene_concepts(maps, [picture.about for picture in pictures], self.grid(site))


def block_of(site: str) -> int:
    """The number in `blocks.3.mlp.hidden`."""
    found = re.match(r"blocks\.(\d+)\.", site)
    if found is None:
        raise SiteError("only sites of blocks have a number", given=site, accepted="blocks.<i>.<name>")
    return int(found[1])
