"""Overlays: colours, weights, and what belongs together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vitreous as vt
from vitreous.baselines.gradcam import CamFinding
from vitreous.render import to_png
from vitreous.views.cams import cam_panel, inputs_of, overlay

GREY = np.full((4, 6, 3), 100, np.uint8)


def finding(count: int = 3, size: tuple[int, int] = (4, 6)) -> CamFinding:
    maps = np.random.default_rng(0).random((count, 2, 3)).astype(np.float32)
    return CamFinding(maps, np.arange(count), np.arange(count), "blocks.2.resid.out", vt.Size(*size), {})


def test_low_is_blue_high_is_red_and_the_picture_weighs_seven_tenths():
    cam = np.zeros((4, 6))
    cam[1, 2] = 5.0
    drawn = overlay(GREY, cam)
    assert drawn[0, 0].tolist() == [70, 70, round(70 + 0.3 * 127.5)]  # the darkest blue of the map
    assert drawn[1, 2].tolist() == [round(70 + 0.3 * 127.5), 70, 70]
    np.testing.assert_array_equal(overlay(GREY, 100 * cam + 3), drawn)  # scaled to its own range
    np.testing.assert_array_equal(overlay(GREY, cam, weight=1), GREY)
    np.testing.assert_array_equal(overlay(GREY, np.full((4, 6), 2.0))[0, 0], drawn[0, 0])  # flat: blue


def test_a_row_shows_the_picture_its_mask_and_every_model():
    masks = np.zeros((3, 4, 6), bool)
    masks[:, 0, 0] = True
    panel = cam_panel([GREY] * 3, {"a": finding(), "b": finding()}, masks=masks, classes=("cat", "dog", "cow"))
    assert panel.columns == 8 and len(panel.tiles) == 12
    assert [tile.caption for tile in panel.tiles[:4]] == ["picture 0", "mask", "a: cat", "b: cat"]
    assert panel.tiles[1].image[0, 0, 0] == 100 and panel.tiles[1].image[1, 1, 0] == 25
    assert to_png(panel).startswith(b"\x89PNG")


def test_the_title_says_predicted_only_of_predicted_classes():
    predicted = finding()
    other = replace(predicted, targets=(predicted.predicted + 1) % 3)
    assert cam_panel([GREY] * 3, {"a": predicted}).title == "Where the evidence for the predicted class lies"
    assert cam_panel([GREY] * 3, {"a": predicted, "b": other}).title == "Where the evidence for the class lies"


def test_what_the_model_saw_is_what_is_drawn():
    images = vt.ImageSet.from_arrays(np.full((1, 8, 10, 3), 51, np.uint8))
    (seen,) = inputs_of(images, vt.Preprocess(vt.Size(4, 4), 4))
    assert seen.shape == (4, 4, 3) and (seen == 51).all()


@pytest.mark.parametrize(
    ("image", "cam", "weight", "says"),
    [
        (GREY / 255, np.zeros((4, 6)), 0.7, "a picture is uint8"),
        (GREY, np.zeros((6, 4)), 0.7, "a map is as large as its picture"),
        (GREY, np.full((4, 6), np.nan), 0.7, "a map is as large as its picture and finite"),
        (GREY, np.zeros((4, 6)), 1.5, "the picture's weight is between 0 and 1"),
    ],
)
def test_what_cannot_be_drawn_is_refused(image, cam, weight, says):
    with pytest.raises(vt.SettingsError, match=says):
        overlay(image, cam, weight)


def test_maps_of_other_pictures_are_refused():
    with pytest.raises(vt.SettingsError, match="as many and as large as the pictures"):
        cam_panel([GREY] * 2, {"a": finding()})
    with pytest.raises(vt.SettingsError, match="as many and as large as the pictures"):
        cam_panel([GREY] * 3, {"a": finding(size=(8, 8))})
