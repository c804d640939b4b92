"""Pictures in memory: what is accepted, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from picture_files import pixels, some
from PIL import Image

from vitreous.errors import ImageError
from vitreous.images import ImageSet


def test_arrays_come_back_as_they_were():
    array = some()
    masks = np.random.default_rng(1).integers(0, 3, (10, 12, 16))
    images = ImageSet.from_arrays(
        array,
        labels=range(10),
        classes="abcdefghij",
        masks=masks,
        instances=list(masks * 2),
        boxes=[[[0, 0, 3, 4]]] * 10,
        about=[{"k": k} for k in range(10)],
        mask_classes=("sky", "road", "car"),
        ignore=255,
        name="mine",
    )
    assert len(images) == 10
    assert images.labels.dtype == np.int64
    assert images.mask_classes == ("sky", "road", "car")
    assert (images.ignore, images.name, images.skipped) == (255, "mine", ())
    for k, picture in enumerate(images):
        assert (picture.id, picture.label) == (f"{k:06d}", k)
        assert picture.image.mode == "RGB"
        assert (pixels(picture) == array[k]).all()
        assert (picture.mask == masks[k]).all()
        assert (picture.instances == masks[k] * 2).all()
        assert picture.boxes.tolist() == [[0, 0, 3, 4]]
        assert picture.about == {"k": k}
    assert repr(images) == "ImageSet('mine': 10 pictures, 10 classes, 3 mask classes)"


def test_pictures_without_anything_else():
    picture = ImageSet.from_arrays(some(1))[0]
    assert (picture.label, picture.mask, picture.instances, picture.boxes, picture.about) == (
        None,
        None,
        None,
        None,
        {},
    )


def test_pictures_of_different_sizes_and_kinds():
    grey = some(1)[0, ..., 0]
    clear = np.zeros((5, 5, 4), np.uint8)
    images = ImageSet.from_arrays([some(1)[0], grey, clear])
    assert [pixels(p).shape for p in images] == [(12, 16, 3), (12, 16, 3), (5, 5, 3)]
    assert (pixels(images[1]) == grey[..., None]).all()
    assert (pixels(images[2]) == 255).all()
    assert images[2].about == {"decoded": ["transparency laid over white"]}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int64])
def test_floats_in_the_unit_interval_are_scaled(kind):
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    given_ = every.astype(kind) if kind == np.int64 else (every / 255).astype(kind)
    assert (pixels(ImageSet.from_arrays(given_)[0])[..., 0] == every[0]).all()


def test_pillow_pictures_are_copied():
    image = Image.fromarray(some(1)[0])
    images = ImageSet.from_arrays([image])
    before = images.fingerprint
    image.putpixel((0, 0), (0, 0, 0))
    images[0].image.putpixel((0, 0), (0, 0, 0))
    assert (pixels(images[0]) == some(1)[0]).all()
    assert ImageSet.from_arrays(some(1)).fingerprint == before


def test_pillow_pictures_with_exif_stand_upright_and_masks_fit_the_upright_picture():
    image = Image.fromarray(some(1)[0])
    image.getexif()[0x0112] = 6
    images = ImageSet.from_arrays([image], masks=[np.zeros((16, 12), int)])
    assert images[0].image.size == (12, 16)
    with pytest.raises(ImageError, match="not as large as its picture"):
        ImageSet.from_arrays([image], masks=[np.zeros((12, 16), int)])


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((12, 16, 3), np.uint8), r"image\[None\]"),
        (np.zeros((12, 16), np.uint8), r"image\[None\]"),
        (np.zeros((2, 3, 12, 16), np.uint8), "colours come last"),
        (np.zeros((2, 12, 16, 5), np.uint8), "does not have the shape of a picture"),
        (np.zeros((2, 0, 16, 3), np.uint8), "does not have the shape of a picture"),
        (np.full((1, 4, 4, 3), np.nan), "NaN or infinite"),
        (np.full((1, 4, 4, 3), np.inf), "NaN or infinite"),
        (np.full((1, 4, 4, 3), 1.5), r"outside of \[0, 1\]"),
        (np.full((1, 4, 4, 3), -0.1), r"outside of \[0, 1\]"),
        (np.full((1, 4, 4, 3), 256), r"outside of \[0, 255\]"),
        (np.full((1, 4, 4, 3), -1), r"outside of \[0, 255\]"),
        (np.zeros((1, 4, 4, 3), np.uint16), "type uint16"),
        (np.zeros((1, 4, 4, 3), bool), "type bool"),
        (np.zeros((1, 4, 4, 3), complex), "type complex128"),
        ("picture.png", "array or a list"),
        ([np.zeros((4, 4, 3), np.uint8), "b"], "picture 1 is neither"),
        ([np.zeros((4, 4, 3), np.uint8), np.full((4, 4), 2.0)], "picture 1 has float64 values"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(array, words):
    with pytest.raises(ImageError, match=words):
        ImageSet.from_arrays(array)


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ({"ids": ["a"]}, "ids must have one entry for each of 2 pictures"),
        ({"ids": ["a", "a"]}, "two pictures have the same id"),
        ({"labels": [0]}, "labels must have one entry"),
        ({"labels": [0, -1]}, "labels count from 0"),
        ({"labels": [0.0, 1.0]}, "labels are whole numbers"),
        ({"labels": [0, 2], "classes": ["a", "b"]}, "a label beyond the 2 classes"),
        ({"masks": np.zeros((3, 12, 16), int)}, "masks must have one entry"),
        ({"masks": np.zeros((2, 16, 12), int)}, r"masks\[0\] is not as large as its picture"),
        ({"masks": np.zeros((2, 12, 16))}, r"masks\[0\] is not an array of whole numbers"),
        ({"instances": [None, np.zeros((1, 1), int)]}, r"instances\[1\] is not as large"),
        ({"boxes": [None, [[1, 2, 3]]]}, r"boxes\[1\] is not \(box, 4\)"),
        ({"boxes": [None, [[5, 5, 3, 9]]]}, r"boxes\[1\] ends before it begins"),
        ({"about": [{}, {"a": {1, 2}}]}, r"about\[1\] cannot be written as JSON"),
        ({"about": [{}, {"a": float("nan")}]}, r"about\[1\] cannot be written as JSON"),
    ],
)
def test_sides_that_do_not_fit_are_refused(sides, words):
    with pytest.raises(ImageError, match=words):
        ImageSet.from_arrays(some(2), **sides)


def test_sides_may_be_missing_for_some_pictures():
    images = ImageSet.from_arrays(some(2), masks=[None, np.ones((12, 16), bool)], boxes=[None, []])
    assert images[0].mask is None
    assert images[1].mask.all()
    assert images[0].boxes is None
    assert images[1].boxes.shape == (0, 4)


def test_an_image_set_does_not_change():
    images = ImageSet.from_arrays(some(), labels=range(10))
    with pytest.raises(AttributeError):
        images.ids = ()
    with pytest.raises(ValueError, match="read-only"):
        images.labels[0] = 5
    with pytest.raises(TypeError):
        images[0] = None
