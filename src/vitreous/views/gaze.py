"""Where a model looks: the attention that its class token pays to the patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SiteError
from vitreous.evidence.selectivity import other_pictures
from vitreous.views.panels import Curve, Group, Line, Pictures, Section, Tile
from vitreous.views.seen import Seen, block_of

if TYPE_CHECKING:
    from vitreous.images import ImageSet

OBJECTS = "objects of any kind"


@dataclass(frozen=True, eq=False)
class Gaze:
    """`maps` (sample, block, head, patch): how the attention that goes to patches is shared out, summing to 1.

    `lift` and `control` (block,): attention on objects over the area that they cover, with the masks of the pictures
    and with those of other pictures; 1 is what looking everywhere alike would give. `spread` (block, head): over how
    many patches attention is spread out, the exponential of the entropy, mean over pictures.
    """

    seen: Seen
    blocks: tuple[int, ...]
    maps: np.ndarray
    lift: np.ndarray
    control: np.ndarray
    spread: np.ndarray
    query: str

    def focused(self, at: int) -> int:
        """The head of a block whose maps are the least spread out."""
        return int(self.spread[at].argmin())


def read_gaze(seen: Seen, images: ImageSet, seed: int) -> Gaze:
    """Reads the patterns of the pictures that have them, and compares them with the masks."""
    if seen.attention is None:
        raise SiteError(f"no attention was recorded of {seen.name}", given=seen.name)
    store, prefix = seen.attention, seen.attention.prefix
    sites = tuple(site for site in store.sites if site.endswith("attn.pattern"))
    asks = [prefix.index("class")] if "class" in prefix else slice(len(prefix), None)
    maps = np.stack([store[site][:][:, :, asks, len(prefix) :].astype(np.float32).mean(2) for site in sites], 1)
    maps = maps / np.maximum(maps.sum(-1, keepdims=True), 1e-12)
    truth = seen.truth(images[: len(store)], seen.store.sites[-1])
    objects = truth.present[..., truth.names.index(OBJECTS)]
    others = objects[other_pictures(len(objects), np.random.default_rng([seed, 2]))]
    return Gaze(
        seen,
        tuple(map(block_of, sites)),
        maps,
        _lift(maps, objects),
        _lift(maps, others),
        np.exp(-(maps * np.log(np.maximum(maps, 1e-12))).sum(-1)).mean(0),
        "the class token" if "class" in prefix else "all patches together",
    )


def _lift(maps: np.ndarray, objects: np.ndarray) -> np.ndarray:
    on_objects = np.einsum("sbhp,sp->b", maps, objects.astype(np.float32)) / (maps.shape[0] * maps.shape[2])
    return on_objects / objects.mean()


def gaze_panel(gaze: Gaze, images: ImageSet, count: int = 4) -> Pictures:
    """Rows of pictures: the picture, then the most focused head of an early, a middle and a late block."""
    shown = sorted({0, len(gaze.blocks) // 2, len(gaze.blocks) - 1})
    heads = {at: gaze.focused(at) for at in shown}
    grid = gaze.seen.grid(gaze.seen.store.sites[-1])
    tiles = []
    for sample in range(min(count, len(gaze.maps))):
        picture = images[sample]
        pixels = np.asarray(picture.image)
        tiles.append(Tile(pixels, f"Scene {picture.id}: {picture.about['caption']}", "picture"))
        for at, head in heads.items():
            share = gaze.maps[sample, at, head]
            tiles.append(
                Tile(
                    pixels,
                    f"Attention of block {gaze.blocks[at]}, head {head} on {picture.id}; "
                    f"{share.max():.0%} of it on one patch",
                    f"block {gaze.blocks[at]}, head {head}",
                    gaze.seen.to_pixels(share, picture, grid),
                )
            )
    return Pictures(gaze.seen.name, tuple(tiles), columns=2 * (1 + len(shown)), series=gaze.seen.series)


def lift_curve(gazes: list[Gaze]) -> Curve:
    lines = []
    for gaze in gazes:
        lines.append(Line(gaze.seen.name, tuple(map(float, gaze.lift)), gaze.seen.series))
        lines.append(Line(f"{gaze.seen.name}, other masks", tuple(map(float, gaze.control)), gaze.seen.series, True))
    return Curve(
        "Attention on objects, relative to their area",
        tuple(map(float, gazes[0].blocks)),
        tuple(lines),
        "block",
        "times the even share",
        f"Mean over all heads and {len(gazes[0].maps)} pictures. At 1 objects get what their area would get by chance. "
        "Dotted: the same attention with the masks of other pictures, the control.",
        baseline=1.0,
    )


def spread_curve(gazes: list[Gaze]) -> Curve:
    lines = []
    for gaze in gazes:
        low, mean, high = (tuple(map(float, part)) for part in _range(gaze.spread))
        lines.append(Line(gaze.seen.name, mean, gaze.seen.series, low=low, high=high))
    return Curve(
        "How many patches share the attention",
        tuple(map(float, gazes[0].blocks)),
        tuple(lines),
        "block",
        "patches",
        f"Of {gazes[0].maps.shape[-1]}: few mean a focused gaze (exponential of the entropy). Line: mean of the heads; "
        "band: from the most to the least focused head.",
    )


def _range(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return values.min(1), values.mean(1), values.max(1)


def gaze_section(gazes: list[Gaze], images: ImageSet) -> Section:
    maps = tuple(gaze_panel(gaze, images) for gaze in gazes)
    return Section(
        "attention",
        "Where the models look",
        f"Bright parts get the attention of {gazes[0].query}; each map is scaled to its own peak. Of an early, a "
        "middle and a late block the most focused head is shown. Point at a picture to take the map away.",
        (
            Group("The same pictures, seen by each model", maps),
            Group("Do they look at the objects, and how closely?", (lift_curve(gazes), spread_curve(gazes)), columns=2),
        ),
        short="Attention",
    )
