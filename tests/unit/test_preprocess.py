"""Preprocessing equals what the libraries publish, and maps find their way back to the right pixels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from vitreous.axes import Grid, Size
from vitreous.errors import ImageError, SettingsError
from vitreous.preprocess import INTERPOLATIONS, Frame, Preprocess

SHAPES = [(48, 48), (60, 91), (91, 60), (57, 58), (33, 200), (200, 31), (257, 301), (64, 67), (67, 64)]
STEPS = [
    Preprocess(Size(32, 32), 32),
    Preprocess(Size(32, 32), 37),
    Preprocess(Size(28, 28), Size(28, 28)),
    Preprocess(Size(28, 42), Size(33, 50)),
    Preprocess(Size(32, 32), 37, rounding="down"),
]


def picture(height: int, width: int, seed: int = 0) -> Image.Image:
    """Smooth enough that resampling methods hardly differ."""
    small = np.random.default_rng(seed).integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def noise(height: int, width: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8))


# ----------------------------------------------------------------------------------------- what the libraries publish


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize(("size", "share"), [(48, 1.0), (48, 0.9), (49, 0.875)])
def test_bitwise_as_timm(shape, interpolation, size, share):
    from timm.data import create_transform

    theirs = create_transform((3, size, size), is_training=False, interpolation=interpolation, crop_pct=share)
    ours = Preprocess(Size(size, size), int(size / share), interpolation=interpolation)
    image = noise(*shape)
    assert np.array_equal(ours(image), theirs(image).numpy())


def test_bitwise_as_timm_with_another_mean_and_squashed():
    from timm.data import create_transform

    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    theirs = create_transform((3, 48, 48), is_training=False, mean=mean, std=std, crop_pct=1.0, crop_mode="squash")
    ours = Preprocess(Size(48, 48), Size(48, 48), mean, std, "bilinear")
    image = noise(70, 51)
    assert np.array_equal(ours(image), theirs(image).numpy())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("size", "resize"), [(56, 64), (56, 56), (55, 64)])
def test_bitwise_as_torchvisions_classification_preset(shape, size, resize):
    from torchvision.transforms._presets import ImageClassification

    image = noise(*shape)
    ours = Preprocess(Size(size, size), resize, interpolation="bilinear")
    assert np.array_equal(ours(image), ImageClassification(crop_size=size, resize_size=resize)(image).numpy())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["ViT", "CLIP", "Bit"])
def test_close_to_hugging_face(shape, kind):
    import transformers

    if kind == "ViT":
        theirs = transformers.ViTImageProcessor(size={"height": 48, "width": 48})
        ours = Preprocess(Size(48, 48), Size(48, 48), (0.5,) * 3, (0.5,) * 3, "bilinear")
    else:
        crop = {"height": 40, "width": 40}
        processor = transformers.CLIPImageProcessor if kind == "CLIP" else transformers.BitImageProcessor
        theirs = processor(size={"shortest_edge": 45}, crop_size=crop)
        ours = Preprocess(Size(40, 40), 45, tuple(theirs.image_mean), tuple(theirs.image_std), rounding="down")
    image = picture(*shape)
    levels = (theirs(image, return_tensors="np")["pixel_values"][0] - ours(image)) * np.array(ours.std)[:, None, None]
    assert np.abs(levels).max() * 255 < 2.5, "they resize on tensors, which rounds a little differently"
    assert np.abs(levels).mean() * 255 < 0.25


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_every_interpolation_is_pillows(interpolation):
    image = noise(50, 70)
    steps = Preprocess(Size(20, 30), Size(20, 30), (0, 0, 0), (1, 1, 1), interpolation)
    expected = np.asarray(image.resize((30, 20), Image.Resampling[interpolation.upper()]))
    assert (steps.to_uint8(steps(image)) == expected).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(20, 90), st.integers(20, 90), st.sampled_from(STEPS))
def test_the_normalisation_can_be_undone(height, width, steps):
    image = noise(height, width)
    frame = steps.frame(Size(height, width))
    resized = np.asarray(image.resize((frame.resized.width, frame.resized.height), Image.Resampling.BICUBIC))
    x = steps(image)
    assert x.dtype == np.float32
    assert x.shape == (3, *steps.size)
    h, w = steps.size
    assert (steps.to_uint8(x) == resized[frame.top : frame.top + h, frame.left : frame.left + w]).all()


# ---------------------------------------------------------------------------------------------------------- frames


def test_the_frame_of_a_landscape_a_portrait_and_odd_sizes():
    steps = Preprocess(Size(224, 224), 256)
    assert steps.frame(Size(480, 640)) == Frame(Size(480, 640), Size(256, 341), 16, 58, Size(224, 224))
    assert steps.frame(Size(640, 480)) == Frame(Size(640, 480), Size(341, 256), 58, 16, Size(224, 224))
    assert steps.frame(Size(333, 334)) == Frame(Size(333, 334), Size(256, 256), 16, 16, Size(224, 224))


def test_a_middle_between_two_pixels_is_rounded_as_asked():
    even, down = (Preprocess(Size(224, 224), 256, rounding=r) for r in ("even", "down"))
    original = Size(256, 259)  # 35 columns too many
    assert (even.frame(original).left, down.frame(original).left) == (18, 17)
    original = Size(256, 257)  # 33 columns too many
    assert (even.frame(original).left, down.frame(original).left) == (16, 16)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", STEPS)
def test_a_map_that_is_linear_over_the_picture_comes_back(shape, steps):
    """Each cell of the map holds where it lies in the picture; every pixel must then find its own place."""
    frame, grid = steps.frame(Size(*shape)), Grid(*(side // 4 for side in steps.size))
    boxes = np.array([frame.patch_box(grid, p) for p in range(grid.patches)]).reshape(*grid, 4)
    x, y = boxes[..., [0, 2]].mean(-1), boxes[..., [1, 3]].mean(-1)
    back = frame.to_pixels(np.stack([x, y]))
    assert back.shape == (2, *shape)
    rows, columns = np.mgrid[: shape[0], : shape[1]] + 0.5
    inside = (columns > x.min()) & (columns < x.max()) & (rows > y.min()) & (rows < y.max())
    assert inside.sum() > 0.2 * min(shape) ** 2
    assert np.abs(back[0] - columns)[inside].max() < 1e-3 * max(shape)
    assert np.abs(back[1] - rows)[inside].max() < 1e-3 * max(shape)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("steps", STEPS)
def test_pixels_belong_to_the_patch_whose_box_holds_them(shape, steps):
    """The slow twin of `to_pixels(..., "nearest")`: looks through all boxes for each pixel."""
    frame, grid = steps.frame(Size(*shape)), Grid(*(side // 4 for side in steps.size))
    back = frame.to_pixels(np.arange(grid.patches).reshape(grid), "nearest")
    rows, columns = np.mgrid[: shape[0], : shape[1]] + 0.5
    expected, clear = np.full(shape, -1), np.ones(shape, bool)
    for patch in range(grid.patches):
        x0, y0, x1, y1 = frame.patch_box(grid, patch)
        expected[(columns >= x0) & (columns < x1) & (rows >= y0) & (rows < y1)] = patch
        for edge, at in ((x0, columns), (x1, columns), (y0, rows), (y1, rows)):
            clear &= np.abs(at - edge) > 1e-3 * max(
                shape
            )  # a pixel whose middle lies on an edge belongs to either side
    assert clear.mean() > 0.3
    assert (np.nan_to_num(back, nan=-1).astype(int) == expected)[clear].all()


def test_what_the_crop_cut_away_is_not_a_number():
    back = Preprocess(Size(32, 32), 32).frame(Size(32, 96)).to_pixels(np.ones((4, 4)))
    assert np.isnan(back[:, :32]).all()
    assert (back[:, 32:64] == 1).all()
    assert np.isnan(back[:, 64:]).all()


@settings(max_examples=80, deadline=None)
@given(st.integers(8, 80), st.integers(8, 80), st.sampled_from(STEPS), st.integers(0, 1000))
def test_masks_go_to_the_input_as_pillow_would_take_them(height, width, steps, seed):
    mask = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    frame = steps.frame(Size(height, width))
    resized = Image.fromarray(mask).resize((frame.resized.width, frame.resized.height), Image.Resampling.NEAREST)
    h, w = steps.size
    theirs = np.asarray(resized)[frame.top : frame.top + h, frame.left : frame.left + w]
    ours = frame.to_input(mask)
    assert ours.dtype == mask.dtype
    assert ours.shape == theirs.shape
    y = (np.arange(h) + frame.top + 0.5) * height / frame.resized.height
    x = (np.arange(w) + frame.left + 0.5) * width / frame.resized.width
    rows, columns = (np.abs(at - np.rint(at)) > 1e-2 for at in (y, x))  # on an edge either side is right
    assert (ours == theirs)[rows][:, columns].all()


@settings(max_examples=60, deadline=None)
@given(st.integers(8, 30), st.integers(8, 30), st.sampled_from(STEPS[:4]), st.integers(0, 1000))
def test_masks_survive_the_way_there_and_back_when_the_input_is_larger(height, width, steps, seed):
    mask = np.random.default_rng(seed).integers(0, 200, (height, width))
    frame = steps.frame(Size(height, width))
    back = frame.to_pixels(frame.to_input(mask), "nearest")
    seen = ~np.isnan(back)
    wide = frame.resized.height >= 2 * height and frame.resized.width >= 2 * width
    assert (back == mask)[seen].mean() >= (1.0 if wide else 0.5)


def test_a_planted_object_is_found_again_through_preprocessing():
    """The brightest patch of what the model sees, carried back, lies on the object in the original picture."""
    for shape, (y, x) in (((90, 160), (60, 100)), ((161, 91), (70, 15)), ((123, 77), (61, 38))):
        array = np.zeros((*shape, 3), np.uint8)
        array[y : y + 14, x : x + 14] = 255
        steps = Preprocess(Size(64, 64), 72, (0, 0, 0), (1, 1, 1))
        seen = steps(Image.fromarray(array))[0].reshape(16, 4, 16, 4).mean((1, 3))
        back = steps.frame(Size(*shape)).to_pixels(seen)
        inside = array[..., 0] > 0
        assert np.nanmean(back[inside]) > 0.7
        assert np.nanmean(back[~inside]) < 0.05
        top, left = np.unravel_index(np.nanargmax(back), shape)
        assert inside[top, left]


def test_maps_may_have_any_axes_in_front():
    frame = Preprocess(Size(8, 8), 8).frame(Size(10, 20))
    maps = np.random.default_rng(0).normal(size=(2, 0, 4, 4))
    assert frame.to_pixels(maps).shape == (2, 0, 10, 20)
    maps = np.random.default_rng(0).normal(size=(2, 3, 4, 4))
    back = frame.to_pixels(maps, "bicubic")
    assert back.dtype == np.float32
    assert np.array_equal(back[1, 2], frame.to_pixels(maps[1, 2], "bicubic"), equal_nan=True)


def test_patches_tile_what_the_model_sees():
    frame, grid = Preprocess(Size(32, 32), 37).frame(Size(91, 60)), Grid(4, 8)
    boxes = np.array([frame.patch_box(grid, p) for p in range(32)])
    assert np.allclose((boxes[:, 2:] - boxes[:, :2]).prod(1).sum(), 32 * 32 * 91 * 60 / np.prod(frame.resized))
    assert np.allclose(boxes[1:8, 0], boxes[:7, 2])
    assert np.allclose(boxes[8:, 1], boxes[:-8, 3])
    assert boxes.min() >= 0
    assert (boxes[:, 2] <= 60).all()
    assert (boxes[:, 3] <= 91).all()


# ------------------------------------------------------------------------------------------------------ other sizes


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (Preprocess(Size(224, 224), 256), (Size(112, 112), 128)),
        (Preprocess(Size(224, 224), 224), (Size(112, 112), 112)),
        (Preprocess(Size(224, 224), Size(224, 224)), (Size(112, 112), Size(112, 112))),
        (Preprocess(Size(224, 224), Size(256, 256)), (Size(112, 112), Size(128, 128))),
    ],
)
def test_another_size_keeps_the_share_that_is_cut_away(steps, expected):
    other = steps.at(112)
    assert (other.size, other.resize) == expected
    assert steps.at(*steps.size) == steps
    assert other.at(224) == steps


def test_another_size_keeps_everything_else():
    steps = Preprocess(Size(32, 32), 36, (0.1,) * 3, (0.2,) * 3, "bilinear", "a file", "down")
    other = steps.at(64, 96)
    assert (other.size, other.resize) == (Size(64, 96), 72)
    assert (other.mean, other.std, other.interpolation) == (steps.mean, steps.std, "bilinear")
    assert (other.source, other.rounding) == ("a file", "down")


def test_plain_tuples_are_taken_for_sizes():
    steps = Preprocess((32, 48), [40, 60])
    assert (steps.size, steps.resize) == (Size(32, 48), Size(40, 60))
    assert isinstance(Preprocess((32, 48), np.int64(50)).resize, int)


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"interpolation": "cubic"}, "unknown interpolation"),
        ({"resize": 0}, "sizes must be positive"),
        ({"size": (0, 4)}, "sizes must be positive"),
        ({"resize": (0, 4)}, "sizes must be positive"),
        ({"std": (1, 1, 0)}, "std above 0"),
        ({"std": (1, 1, float("nan"))}, "std above 0"),
        ({"mean": (1, 1)}, "three values"),
        ({"rounding": "up"}, "unknown rounding"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments, words):
    with pytest.raises(SettingsError, match=words):
        Preprocess(**{"size": Size(4, 4), "resize": 4, **arguments})


def test_a_crop_larger_than_the_picture_is_refused():
    with pytest.raises(ImageError, match="the crop is larger than the resized picture") as caught:
        Preprocess(Size(32, 64), 32)(noise(40, 50))
    assert "picture (40, 50), resized (32, 40), crop (32, 64)" in str(caught.value)


def test_only_rgb_pictures_are_preprocessed():
    with pytest.raises(ImageError, match="only RGB pictures"):
        Preprocess(Size(4, 4), 4)(Image.new("L", (8, 8)))


def test_masks_of_another_size_are_refused():
    with pytest.raises(ImageError, match="not as large as its picture"):
        Preprocess(Size(4, 4), 4).frame(Size(8, 8)).to_input(np.zeros((9, 8), int))


@pytest.mark.parametrize("patch", [-1, 16])
def test_patches_that_do_not_exist_are_refused(patch):
    with pytest.raises(SettingsError, match="no such patch"):
        Preprocess(Size(4, 4), 4).frame(Size(8, 8)).patch_box(Grid(4, 4), patch)
