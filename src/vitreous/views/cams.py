"""Class activation maps over pictures, as section 4.3 of the structure paper draws them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.views.panels import Pictures, Tile

if TYPE_CHECKING:
    from vitreous.baselines.gradcam import CamFinding
    from vitreous.images import ImageSet
    from vitreous.preprocess import Preprocess

IMAGE_WEIGHT = 0.7
DIMMED = 0.25  # brightness of what lies outside of a mask


def overlay(image: np.ndarray, cam: np.ndarray, weight: float = IMAGE_WEIGHT) -> np.ndarray:
    """uint8 (row, column, colour) and a map (row, column) -> both blended, blue where the map is low, red where high.

    The map is brought to [0, 1] by its own smallest and largest value; a flat one is blue all over.
    """
    from matplotlib import colormaps

    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        raise SettingsError("a picture is uint8 (row, column, colour)", given=(image.dtype, image.shape))
    if cam.shape != image.shape[:2] or not np.isfinite(cam).all():
        raise SettingsError(
            "a map is as large as its picture and finite", given=cam.shape, accepted=f"{image.shape[:2]}"
        )
    if not 0 <= weight <= 1:
        raise SettingsError("the picture's weight is between 0 and 1", given=weight)
    low, high = float(cam.min()), float(cam.max())
    heat = (cam - low) / (high - low) if high > low else np.zeros(cam.shape)
    colours = 255 * colormaps["jet"](heat)[..., :3]
    return np.round(weight * image + (1 - weight) * colours).astype(np.uint8)


def inputs_of(images: ImageSet, preprocess: Preprocess) -> list[np.ndarray]:
    """What the model saw of each picture, uint8 (row, column, colour): resized and cut, not normalised."""
    return [preprocess.to_uint8(preprocess(picture.image)) for picture in images]


def cam_panel(
    pictures: Sequence[np.ndarray],
    findings: Mapping[str, CamFinding],
    *,
    names: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    masks: np.ndarray | None = None,
    pairs: int = 2,
    title: str | None = None,
) -> Pictures:
    """Tiles of a picture stand in a row, `pairs` of rows side by side: picture, mask if there is one, each model's map.

    `pictures` are as large as each finding's `size`; `names` say what a picture is, `classes` what a model called it.
    """
    sizes = {tuple(finding.size) for finding in findings.values()} | {picture.shape[:2] for picture in pictures}
    counts = {len(pictures), *(len(finding) for finding in findings.values())}
    if len(sizes) != 1 or len(counts) != 1:
        raise SettingsError("maps are as many and as large as the pictures", given=(sorted(counts), sorted(sizes)))
    cams = {model: finding.at() for model, finding in findings.items()}
    tiles = []
    for k, picture in enumerate(pictures):
        name = names[k] if names else f"picture {k}"
        tiles.append(Tile(picture, name, name))
        if masks is not None:
            dimmed = np.where(masks[k][..., None], picture, DIMMED * picture).astype(np.uint8)
            tiles.append(Tile(dimmed, f"{name}, its mask", "mask"))
        for model, finding in findings.items():
            called = int(finding.targets[k])
            said = f"{model}: {classes[called] if classes else f'class {called}'}"
            tiles.append(Tile(overlay(picture, cams[model][k]), f"{name}, map of {said}", said))
    columns = pairs * (1 + (masks is not None) + len(findings))
    if title is None:
        predicted = all(np.array_equal(finding.targets, finding.predicted) for finding in findings.values())
        title = f"Where the evidence for the {'predicted ' if predicted else ''}class lies"
    return Pictures(title, tuple(tiles), columns, "Blue: little, red: much. Each map is scaled to its own range.")
