"""One scene: the picture, exact masks, and everything that is true about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Integral
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.scenery.draws import Draws
from vitreous.scenery.layout import SIZES, Layout, lay_out
from vitreous.scenery.paint import Painted, paint
from vitreous.scenery.palette import COLOURS
from vitreous.scenery.shapes import SHAPES
from vitreous.scenery.textures import BACKGROUND_TEXTURES, OBJECT_TEXTURES

ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "shape": tuple(SHAPES),
    "colour": tuple(COLOURS),
    "texture": tuple(OBJECT_TEXTURES),
    "size": tuple(SIZES),
}
"""What an object is described by, and the names each can take."""

MOST_OBJECTS = 8
SMALLEST, LARGEST = 32, 512


@dataclass(frozen=True)
class SceneObject:
    """One object, as planned and as seen.

    `depth` counts from 0, the farthest; the object owns the pixels `instances == depth + 1`. `centre` (x, y) and
    `radius` are in pixels, `rotation` in degrees clockwise. `box` (x0, y0, x1, y1) holds the visible part, x1 and y1
    excluded; `visible` is the share of the whole object that is hidden neither by others nor by the border.
    """

    shape: str
    colour: str
    texture: str
    size: str
    depth: int
    centre: tuple[float, float]
    radius: float
    rotation: int
    box: tuple[int, int, int, int]
    pixels: int
    visible: float

    @property
    def phrase(self) -> str:
        """Such as `large red striped star`."""
        return f"{self.size} {self.colour} {self.texture} {self.shape}"


@dataclass(frozen=True, eq=False)
class Scene:
    """`image` uint8 (row, column, colour); `mask` uint8 (row, column), 0 background, else 1 + index of the shape;
    `instances` uint8 (row, column), 0 background, else 1 + depth of the object; `objects` from back to front."""

    seed: int
    index: int
    image: np.ndarray
    mask: np.ndarray
    instances: np.ndarray
    objects: tuple[SceneObject, ...]
    background_colour: str
    background_texture: str

    @property
    def main(self) -> SceneObject:
        """The object with the most visible pixels; of two that tie, the nearer."""
        return max(self.objects, key=lambda thing: (thing.pixels, thing.depth))

    @property
    def label(self) -> int:
        """Index of the main object's shape."""
        return ATTRIBUTES["shape"].index(self.main.shape)

    @property
    def caption(self) -> str:
        """The objects, most visible first, then the background."""
        things = sorted(self.objects, key=lambda thing: (-thing.pixels, -thing.depth))
        phrases = [f"a {thing.phrase}" for thing in things]
        listed = " and ".join([part for part in (", ".join(phrases[:-1]), phrases[-1]) if part])
        article = "an" if self.background_colour[0] in "aeiou" else "a"
        return f"{listed} on {article} {self.background_colour} {self.background_texture} background"

    def map(self, attribute: str) -> np.ndarray:
        """uint8 (row, column): 0 background, else 1 + index of the object's shape, colour, texture or size."""
        if attribute not in ATTRIBUTES:
            raise SettingsError("objects have no such attribute", given=attribute, accepted=tuple(ATTRIBUTES))
        names = ATTRIBUTES[attribute]
        values = [0] + [1 + names.index(str(asdict(thing)[attribute])) for thing in self.objects]
        return np.asarray(values, np.uint8)[self.instances]

    def about(self) -> dict[str, Any]:
        """Everything that is known, as plain values: caption, background, objects from back to front."""
        return {
            "seed": self.seed,
            "index": self.index,
            "caption": self.caption,
            "background": {"colour": self.background_colour, "texture": self.background_texture},
            "objects": [asdict(thing) for thing in self.objects],
        }


def vocabulary() -> tuple[str, ...]:
    """Every word that can stand in a caption, each once, in a fixed order."""
    glue = ("a", "an", "and", "on", "background")
    names = (*SIZES, *COLOURS, *OBJECT_TEXTURES, *SHAPES, *BACKGROUND_TEXTURES)
    return tuple(dict.fromkeys((*glue, *names)))


def _box(where: np.ndarray) -> tuple[int, int, int, int]:
    """Around the true pixels, (x0, y0, x1, y1); empty at the origin if there are none."""
    rows, columns = np.flatnonzero(where.any(1)), np.flatnonzero(where.any(0))
    if not len(rows):
        return 0, 0, 0, 0
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _seen(layout: Layout, painted: Painted, size: int) -> tuple[SceneObject, ...]:
    """The planned objects with what the picture shows of them."""
    counts = np.bincount(painted.owner.ravel(), minlength=len(layout.objects) + 1)
    return tuple(
        SceneObject(
            thing.shape,
            thing.colour,
            thing.texture,
            thing.size,
            depth,
            (round(thing.x * size, 3), round(thing.y * size, 3)),
            round(thing.radius * size, 3),
            thing.rotation,
            _box(painted.owner == depth + 1),
            int(counts[depth + 1]),
            round(min(int(counts[depth + 1]) / whole, 1.0), 4),
        )
        for depth, (thing, whole) in enumerate(zip(layout.objects, painted.whole, strict=True))
    )


def check_settings(seed: int, size: int, objects: tuple[int, int]) -> None:
    """Refuses what cannot be drawn."""
    if not isinstance(seed, Integral) or not isinstance(size, Integral):
        raise SettingsError("seed and size are whole numbers", given={"seed": seed, "size": size})
    if not 0 <= seed < 2**64:
        raise SettingsError("the seed of a scene is out of range", given=seed, accepted="0 to 2**64 - 1")
    if not SMALLEST <= size <= LARGEST:
        raise SettingsError(
            "scenes are not drawn at this size",
            given=size,
            accepted=f"{SMALLEST} to {LARGEST} pixels",
            remedy="draw at an accepted size and resize",
        )
    if len(objects) != 2 or not 1 <= objects[0] <= objects[1] <= MOST_OBJECTS:
        raise SettingsError(
            "not a range of numbers of objects",
            given=objects,
            accepted=f"(fewest, most) with 1 <= fewest <= most <= {MOST_OBJECTS}",
        )


def render_scene(seed: int, index: int, size: int = 64, objects: tuple[int, int] = (3, 6)) -> Scene:
    """Scene number `index` of a seed, alone: the same as in any larger set, so that processes can share the work.

    What is in the scene does not depend on `size`; the sensor noise does.
    """
    check_settings(seed, size, objects)
    if not 0 <= index < 2**63:
        raise SettingsError("the index of a scene is out of range", given=index, accepted="0 to 2**63 - 1")
    draws = Draws(seed, index)
    layout = lay_out(draws, objects)
    painted = paint(layout, size, draws, seed, index)
    shapes = np.asarray([0] + [1 + ATTRIBUTES["shape"].index(thing.shape) for thing in layout.objects], np.uint8)
    return Scene(
        seed,
        index,
        painted.image,
        shapes[painted.owner],
        painted.owner,
        _seen(layout, painted, size),
        layout.background_colour,
        layout.background_texture,
    )
