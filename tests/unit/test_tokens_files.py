"""Segments as files, read again by other means; run lengths against what COCO's own text would be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from tests.reference.run_lengths import decompress, mask_of

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.kernels.run_lengths import compress, run_lengths
from vitreous.lenses.tokens_files import label_names, label_picture, voc_colours


def test_run_lengths_go_down_the_columns():
    mask = np.array([[0, 1, 1], [0, 1, 0]], bool)
    assert run_lengths(mask) == [2, 3, 1]
    assert run_lengths(~mask) == [0, 2, 3, 1]
    assert run_lengths(np.zeros((2, 3), bool)) == [6]
    assert run_lengths(np.ones((2, 3), bool)) == [0, 6]
    with pytest.raises(SettingsError, match=r"a mask is \(row, column\)"):
        run_lengths(np.zeros(4, bool))


def test_compressed_text_is_cocos():
    """Worked out by hand: 6 is one digit; 40 is 8 + 32 and then 1; the fourth is a difference to the second."""
    assert compress([6]) == "6"
    assert compress([0, 40]) == "0" + chr(48 + 8 + 32) + "1"
    assert compress([1, 2, 3, 1]) == "123" + chr(48 + 31)  # -1: all bits set, the highest is the sign
    assert compress([1, 20]) == "1" + chr(48 + 20 + 32) + "0"  # 20 needs a second digit to be positive
    assert decompress("0X1") == [0, 40]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault of the masks
@given(arrays(bool, st.tuples(st.integers(1, 40), st.integers(1, 40))))
def test_masks_come_back(mask):
    lengths = run_lengths(mask)
    assert sum(lengths) == mask.size and all(length > 0 for length in lengths[1:])
    assert decompress(compress(lengths)) == lengths
    np.testing.assert_array_equal(mask_of(lengths, mask.shape), mask)


def test_the_colours_are_vocs():
    assert voc_colours()[[0, 1, 2, 3, 15, 255]].tolist() == [
        [0, 0, 0],
        [128, 0, 0],
        [0, 128, 0],
        [128, 128, 0],
        [192, 128, 128],
        [224, 224, 192],
    ]


def test_too_many_labels_for_a_picture():
    with pytest.raises(SettingsError, match="more labels than a label picture holds"):
        label_picture(np.array([[0, 255]]))


@pytest.mark.parametrize(
    ("ids", "names"),
    [
        (("a/one.jpg", "two", "THREE.PNG"), ["a/one.png", "two.png", "THREE.png"]),
        (("frame.001", "frame.002"), ["frame.001.png", "frame.002.png"]),
        (("cat.jpg", "cat.png", "dog.jpg"), ["cat.jpg.png", "cat.png.png", "dog.jpg.png"]),
        (("cat", "cat.png"), ["cat.png", "cat.png.png"]),
    ],
)
def test_no_two_pictures_have_one_label_file(ids, names):
    assert label_names(ids) == names


@pytest.mark.parametrize("name", ["../outside", "a/../../b.jpg", "/rooted"])
def test_labels_stay_in_their_folder(tiny, tmp_path, name):
    images = vt.ImageSet.from_arrays(np.zeros((2, 32, 32, 3), np.uint8), ids=["inside", name])
    found = vt.segment(vt.token_maps(tiny, images, progress=False), 2)
    with pytest.raises(SettingsError, match=f"leads out of the folder\n  given:    '{name}'"):
        found.save(tmp_path / "segments")
    assert not list(tmp_path.rglob("*.png"))


def test_segments_are_written_and_read_again(tiny, tmp_path):
    subject = vt.wrap(tiny.module, preprocess=vt.Preprocess(size=(32, 32), resize=32))
    pictures = np.random.default_rng(0).integers(0, 256, (2, 32, 48, 3), np.uint8)
    images = vt.ImageSet.from_arrays(pictures, ids=["a/one.jpg", "two"])
    found = vt.segment(vt.token_maps(subject, images, progress=False), 3)
    written = found.save(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in written] == [
        "labels/a/one.png",
        "labels/two.png",
        "segments.json",
        "segments.npz",
    ]
    labels = found.labels()
    for path, expected in zip(written, labels, strict=False):
        with Image.open(path) as picture:
            assert picture.mode == "P"
            np.testing.assert_array_equal(np.asarray(picture), np.where(expected < 0, 255, expected))
    said = json.loads((tmp_path / "segments.json").read_text())
    assert [image["file_name"] for image in said["images"]] == ["a/one.jpg", "two"]
    again = [np.full(expected.shape, -1) for expected in labels]
    for one in said["annotations"]:
        rle = one["segmentation"]
        mask = mask_of(decompress(rle["counts"]), rle["size"])
        left, top, width, height = one["bbox"]
        assert one["area"] == mask.sum() == mask[top : top + height, left : left + width].sum()
        again[one["image_id"] - 1][mask] = one["category_id"] - 1
    for mine, expected in zip(again, labels, strict=True):
        np.testing.assert_array_equal(mine, expected)
    with np.load(tmp_path / "segments.npz") as stored:
        np.testing.assert_array_equal(stored["clusters"], found.clusters)
        assert stored["trees"].shape == (2, 15, 4) and json.loads(stored["about"].tobytes())["settings"]["k"] == 3
