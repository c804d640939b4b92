"""A brain that we know: simulated regions that answer to known things in scenes, and where those things are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.responses import Responses
from vitreous.scenery.scene import ATTRIBUTES
from vitreous.scenery.textures import BACKGROUND_TEXTURES

if TYPE_CHECKING:
    from vitreous.images import ImageSet

BACKGROUND, NOTHING = "background", "nothing"
REGIONS = ("shape", "colour", BACKGROUND, NOTHING)


def attribute_maps(images: ImageSet, attribute: str) -> np.ndarray:
    """uint8 (sample, row, column) of scenes: 0 on the background, else 1 + index of the object's shape, colour, texture
    or size. For "background" it is the other way round: 0 on objects, else 1 + index of the background's texture."""
    if attribute != BACKGROUND and attribute not in ATTRIBUTES:
        raise SettingsError("scenes have no such attribute", given=attribute, accepted=(*ATTRIBUTES, BACKGROUND))
    found = []
    for picture in images:
        if picture.instances is None or "objects" not in picture.about:
            raise SettingsError("only scenes know what they show", given=picture.id, remedy="vt.scenes(n)")
        found.append(_numbers(picture.about, attribute)[picture.instances])
    return np.stack(found)


def _numbers(about: Any, attribute: str) -> np.ndarray:
    """uint8 (layer,): what each instance is, the background first."""
    if attribute == BACKGROUND:
        own = 1 + tuple(BACKGROUND_TEXTURES).index(about["background"]["texture"])
        return np.array([own] + [0] * len(about["objects"]), np.uint8)
    names = ATTRIBUTES[attribute]
    return np.array([0] + [1 + names.index(thing[attribute]) for thing in about["objects"]], np.uint8)


def scene_responses(
    images: ImageSet, *, each: int = 12, noise: float = 0.3, repeats: int = 4, seed: int = 0
) -> Responses:
    """A simulated brain of four regions of `each` responses, measured `repeats` times with noise.

    A response of the region "shape" is a random mixture of how much of the picture each shape covers; of "colour",
    each colour of objects; of "background", each texture of the background; of "nothing" it is noise alone. Each has
    deviation 1, its noise in one measurement `noise`. So a method that finds regions can be scored: what a region
    speaks for is known, and one region speaks for nothing.
    """
    if each < 1 or repeats < 2 or not noise >= 0:
        raise SettingsError(
            "a region has responses, at least two repeats, and noise from 0 on",
            given={"each": each, "repeats": repeats, "noise": noise},
        )
    generator = np.random.default_rng(seed)
    parts = []
    for region in REGIONS[:-1]:
        areas = _areas(attribute_maps(images, region))
        mixed = areas @ generator.standard_normal((areas.shape[1], each))
        parts.append((mixed - mixed.mean(0)) / np.maximum(mixed.std(0), 1e-12))
    signal = np.concatenate([*parts, np.zeros((len(images), each))], 1)
    spread = np.repeat([noise] * len(parts) + [1.0], each)
    measured = signal[:, None] + spread * generator.standard_normal((len(images), repeats, signal.shape[1]))
    rois = {name: np.arange(len(REGIONS) * each) // each == k for k, name in enumerate(REGIONS)}
    return Responses(measured.mean(1), rois, measured, name="simulated regions")


def _areas(maps: np.ndarray) -> np.ndarray:
    """(sample, value) shares of the picture, of values that occur, each at mean 0 and deviation 1; 0 is left out."""
    values = [v for v in np.unique(maps) if v]
    shares = np.stack([(maps == v).mean((1, 2)) for v in values], 1)
    return (shares - shares.mean(0)) / np.maximum(shares.std(0), 1e-12)
