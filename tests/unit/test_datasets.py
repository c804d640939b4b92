"""Every published layout, read from a miniature copy with the real folder names and file formats."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import types
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from picture_files import pixels, png, some, write
from PIL import Image
from scipy.io import savemat

from vitreous.datasets import LAYOUTS, Layout, cifar, cityscapes, coco_stuff, dataset, imagenet
from vitreous.datasets.parts import IGNORE, translate
from vitreous.errors import ImageError


def jpeg(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(array).save(out, "JPEG", quality=95)
    return out.getvalue()


def palette_png(labels: np.ndarray) -> bytes:
    """A label map as VOC stores it: positions in a colour palette."""
    image = Image.fromarray(labels.astype(np.uint8))
    image.putpalette(np.random.default_rng(3).integers(0, 256, 768, dtype=np.uint8).tobytes())
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def ids_map(*ids: int, height: int = 12, width: int = 16) -> np.ndarray:
    """A label map (height, width) that holds these ids."""
    return np.resize(np.array(ids), (height, width))


def seen(labels: np.ndarray) -> set[int]:
    return set(np.unique(labels).tolist())


def lines(*words: str) -> bytes:
    return ("\n".join(words) + "\n").encode()


# ------------------------------------------------------------------------------------------------------------- table


def test_every_row_is_complete():
    assert list(LAYOUTS) == [
        "voc2012", "cocostuff27", "cityscapes", "cityscapes27", "potsdam3", "imagenet", "imagenet-segmentation",
        "cifar10", "dtd", "pets",
    ]  # fmt: skip
    for name, row in LAYOUTS.items():
        assert isinstance(row, Layout)
        assert row.name == name
        assert row.splits
        assert row.folder
        assert row.licence
    with pytest.raises(TypeError):
        LAYOUTS["mine"] = None  # type: ignore[index]


@pytest.mark.parametrize("name", LAYOUTS)
def test_wrong_folders_are_named(tmp_path, name):
    with pytest.raises(ImageError) as caught:
        dataset(name, tmp_path / "nowhere")
    assert "'nowhere'" in str(caught.value)
    write(tmp_path, {"unrelated.txt": b""})
    with pytest.raises(ImageError, match="not the published layout") as caught:
        dataset(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "unrelated.txt" in str(caught.value)


@pytest.mark.parametrize("name", LAYOUTS)
def test_unknown_splits_show_the_known_ones(tmp_path, name):
    with pytest.raises(ImageError, match=f"no such split of {name}") as caught:
        dataset(name, tmp_path, "trian")
    assert LAYOUTS[name].splits[0] in str(caught.value)


def test_unknown_names_show_the_nearest(tmp_path):
    with pytest.raises(ImageError, match="no such data set") as caught:
        dataset("voc2021", tmp_path)
    assert "nearest:  voc2012" in str(caught.value)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-3, 300), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_tables_translate_or_refuse(labels, seed):
    ids = np.random.default_rng(seed).choice([-1, 0, 1, 2, 255], 256).astype(np.int16)
    array = np.array([labels])
    wrong = [k for k in labels if not 0 <= k < 256 or ids[k] == -1]
    if wrong:
        with pytest.raises(ImageError, match="ids that this data set does not have"):
            translate(array, ids, "m.png")
    else:
        assert translate(array, ids, "m.png").tolist() == [[ids[k] for k in labels]]


# --------------------------------------------------------------------------------------------------------------- voc


def voc_xml(*boxes: tuple[str, float, float, float, float]) -> bytes:
    items = "".join(
        f"<object><name>{n}</name><difficult>{int(n == 'dog')}</difficult><bndbox><xmin>{a}</xmin><ymin>{b}</ymin>"
        f"<xmax>{c}</xmax><ymax>{d}</ymax></bndbox></object>"
        for n, a, b, c, d in boxes
    )
    return f"<annotation><folder>VOC2012</folder>{items}</annotation>".encode()


@pytest.fixture
def voc(tmp_path):
    base = "VOCdevkit/VOC2012"
    ids = ["2007_000033", "2007_000042", "2008_000009"]
    files = {f"{base}/JPEGImages/{i}.jpg": jpeg(some(1, seed=k)[0]) for k, i in enumerate(ids)}
    files |= {f"{base}/SegmentationClass/{i}.png": palette_png(ids_map(0, 12, 15, 255)) for i in ids}
    files |= {f"{base}/SegmentationObject/{i}.png": palette_png(ids_map(0, 1, 2, 255)) for i in ids}
    files[f"{base}/Annotations/{ids[0]}.xml"] = voc_xml(("dog", 2, 3, 8, 9), ("person", 1, 1, 16, 12.5))
    files[f"{base}/Annotations/{ids[1]}.xml"] = voc_xml()
    files[f"{base}/ImageSets/Segmentation/train.txt"] = lines(*ids[:2])
    files[f"{base}/ImageSets/Segmentation/val.txt"] = lines(ids[2])
    return write(tmp_path, files)


@pytest.mark.parametrize("inside", ["", "VOCdevkit", "VOCdevkit/VOC2012"])
def test_voc(voc, inside):
    images = dataset("voc2012", voc / inside, "train")
    assert images.ids == ("2007_000033", "2007_000042")
    assert (images.labels, images.ignore, images.name) == (None, 255, "voc2012/train")
    assert (len(images.mask_classes), images.mask_classes[12], images.mask_classes[15]) == (21, "dog", "person")
    picture = images[0]
    assert seen(picture.mask) == {0, 12, 15, 255}
    assert seen(picture.instances) == {0, 1, 2}
    assert ((picture.mask == 255) <= (picture.instances == 0)).all()
    assert picture.boxes.tolist() == [[1, 2, 8, 9], [0, 0, 16, 12.5]]
    assert [o["name"] for o in picture.about["objects"]] == ["dog", "person"]
    assert [o["difficult"] for o in picture.about["objects"]] == [True, False]
    json.dumps(picture.about)
    assert images[1].boxes.shape == (0, 4)
    assert dataset("voc2012", voc)[0].boxes is None
    assert pickle.loads(pickle.dumps(images)).fingerprint == images.fingerprint


def test_voc_with_parts_missing(voc):
    base = voc / "VOCdevkit" / "VOC2012"
    with pytest.raises(ImageError, match="no list for this split") as caught:
        dataset("voc2012", voc, "trainval")
    assert "accepted: train, val" in str(caught.value)
    (base / "SegmentationClass" / "2007_000042.png").unlink()
    with pytest.raises(ImageError, match="1 of 2 masks are missing") as caught:
        dataset("voc2012", voc, "train")
    assert "['SegmentationClass/2007_000042.png']" in str(caught.value)
    (base / "JPEGImages" / "2008_000009.jpg").unlink()
    with pytest.raises(ImageError, match="1 of 1 pictures are missing"):
        dataset("voc2012", voc, "val")
    (base / "ImageSets" / "Segmentation" / "val.txt").write_text("\n")
    with pytest.raises(ImageError, match="an empty list"):
        dataset("voc2012", voc, "val")


def test_voc_with_damage(voc):
    base = voc / "VOCdevkit" / "VOC2012"
    write(base, {"SegmentationClass/2007_000033.png": palette_png(ids_map(0, 21))})
    with pytest.raises(ImageError, match=r"ids that this data set does not have: \[21\]") as caught:
        dataset("voc2012", voc, "train")[0]
    assert "2007_000033.png" in str(caught.value)
    write(base, {"Annotations/2007_000042.xml": b"<annotation>"})
    with pytest.raises(ImageError, match="an annotation that is not XML"):
        dataset("voc2012", voc, "train")[1]
    images = dataset("voc2012", voc, "train", on_error="skip")
    assert (len(images), [name for name, _ in images.skipped]) == (0, ["2007_000033", "2007_000042"])
    write(base, {"Annotations/2007_000042.xml": b"<annotation><object><name>cat</name></object></annotation>"})
    with pytest.raises(ImageError, match="a box that has no four sides"):
        dataset("voc2012", voc, "train")[1]
    sides = b"<bndbox><xmin>left</xmin><ymin>1</ymin><xmax>2</xmax><ymax>2</ymax></bndbox>"
    of_words = b"<annotation><object><name>cat</name>" + sides + b"</object></annotation>"
    write(base, {"Annotations/2007_000042.xml": of_words})
    with pytest.raises(ImageError, match="a box that has no four sides"):
        dataset("voc2012", voc, "train")[1]


def test_a_mask_of_another_size_is_named(voc):
    write(
        voc / "VOCdevkit/VOC2012", {"SegmentationClass/2008_000009.png": palette_png(ids_map(0, height=16, width=12))}
    )
    with pytest.raises(ImageError, match="mask of picture '2008_000009' is not as large as its picture"):
        dataset("voc2012", voc, "val")[0]


# -------------------------------------------------------------------------------------------------------- COCO-Stuff


def test_the_coarse_classes_take_each_fine_id_once():
    pairs = coco_stuff.fine_to_coarse()
    assert sorted(pairs) == list(range(182))
    assert sum(len(ids.split()) for ids in coco_stuff.COARSE.values()) < 182
    names = list(coco_stuff.COARSE)
    assert len(names) == 27
    known = {0: "person", 2: "vehicle", 16: "animal", 38: "sports", 43: "kitchen", 56: "food-things", 61: "furniture"}
    known |= {72: "electronic", 81: "appliance", 83: "indoor", 26: "accessory", 9: "outdoor"}
    known |= {95: "building", 105: "sky", 123: "plant", 148: "ground", 154: "water", 168: "plant", 170: "wall"}
    known |= {180: "window", 181: "solid", 112: "structural", 101: "ceiling", 116: "floor", 99: "raw-material"}
    assert all(names[pairs[fine]].startswith(start) for fine, start in known.items())


def coco(root: Path, images: str, masks: str) -> Path:
    ids = ["000000000139", "000000000285", "000000001000"]
    files = {f"{images}/{i}.jpg": jpeg(some(1, seed=k)[0]) for k, i in enumerate(ids)}
    return write(root, files | {f"{masks}/{i}.png": png(ids_map(0, 181, 255).astype(np.uint8)) for i in ids})


def test_coco_stuff_with_the_curated_list(tmp_path):
    coco(tmp_path, "images/val2017", "annotations/val2017")
    write(tmp_path, {"curated/val2017/Coco164kFull_Stuff_Coarse_7.txt": lines("000000001000", "000000000139")})
    images = dataset("cocostuff27", tmp_path)
    assert images.ids == ("000000001000", "000000000139")
    assert images.name == "cocostuff27/val (curated)"
    assert seen(images[0].mask) == {9, 24, 255}
    assert images.mask_classes[9] == "person-things"
    write(tmp_path, {"curated/val2017/Coco164kFull_Stuff_Coarse_7.txt": lines("000000001000", "000000000140")})
    with pytest.raises(ImageError, match="1 of 2 pictures are missing"):
        dataset("cocostuff27", tmp_path)


@pytest.mark.parametrize(
    ("images", "masks"), [("val2017", "stuffthingmaps/val2017"), ("images/val2017", "stuffthingmaps/val2017")]
)
def test_coco_stuff_as_published(tmp_path, images, masks):
    found = dataset("cocostuff27", coco(tmp_path, images, masks))
    assert found.ids == ("000000000139", "000000000285", "000000001000")
    assert found.name == "cocostuff27/val"
    (tmp_path / images / "000000000285.jpg").unlink()
    with pytest.raises(ImageError, match="1 of 3 pictures are missing"):
        dataset("cocostuff27", tmp_path)


def test_coco_stuff_without_label_maps(tmp_path):
    write(tmp_path, {"val2017/000000000139.jpg": b"", "annotations/instances_val2017.json": b"{}"})
    with pytest.raises(ImageError, match=r"no label maps \(PNG\)") as caught:
        dataset("cocostuff27", tmp_path)
    assert "stuffthingmaps_trainval2017.zip" in str(caught.value)


# -------------------------------------------------------------------------------------------------------- Cityscapes


@pytest.fixture
def streets(tmp_path):
    stems = ["val/munster/munster_000010_000019", "val/frankfurt/frankfurt_000000_000294"]
    every = np.arange(-1, 34) % 256  # -1 is the licence plate
    files = {}
    for k, stem in enumerate(stems):
        files[f"leftImg8bit/{stem}_leftImg8bit.png"] = png(some(1, seed=k)[0])
        files[f"gtFine/{stem}_gtFine_labelIds.png"] = png(ids_map(*every).astype(np.uint8))
        files[f"gtFine/{stem}_gtFine_instanceIds.png"] = png(ids_map(7, 24, 24000, 26001).astype(np.uint16))
        files[f"gtFine/{stem}_gtFine_polygons.json"] = b"{}"
    return write(tmp_path, files)


def test_cityscapes(streets):
    images = dataset("cityscapes", streets)
    assert images.ids == ("frankfurt_000000_000294", "munster_000010_000019")
    assert (images[0].about["city"], images.ignore) == ("frankfurt", 255)
    assert images.mask_classes == (
        "road", "sidewalk", "building", "wall", "fence", "pole", "traffic_light", "traffic_sign", "vegetation",
        "terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
    )  # fmt: skip
    published = {7: 0, 8: 1, 11: 2, 12: 3, 13: 4, 17: 5, 19: 6, 20: 7, 21: 8, 22: 9, 23: 10, 24: 11, 25: 12, 26: 13}
    published |= {27: 14, 28: 15, 31: 16, 32: 17, 33: 18}
    raw = ids_map(*(np.arange(-1, 34) % 256))
    assert (images[0].mask == np.vectorize(lambda k: published.get(k, 255))(raw)).all()
    assert seen(images[0].instances) == {0, 24000, 26001}


def test_cityscapes_with_27_classes(streets):
    images = dataset("cityscapes27", streets, "val")
    raw = ids_map(*(np.arange(-1, 34) % 256))
    assert (images[0].mask == np.where((raw >= 7) & (raw <= 33), raw - 7, 255)).all()
    assert len(images.mask_classes) == 27
    assert (images.mask_classes[2], images.mask_classes[26]) == ("parking", "bicycle")
    assert images.fingerprint != dataset("cityscapes", streets).fingerprint, "other masks, other fingerprint"


def test_cityscapes_with_parts_missing(streets):
    with pytest.raises(ImageError, match="no pictures for this split") as caught:
        dataset("cityscapes", streets, "train")
    assert "accepted: val" in str(caught.value)
    (streets / "gtFine/val/munster/munster_000010_000019_gtFine_instanceIds.png").unlink()
    assert dataset("cityscapes", streets)[1].instances is None
    (streets / "gtFine/val/munster/munster_000010_000019_gtFine_labelIds.png").unlink()
    with pytest.raises(ImageError, match="1 of 2 masks are missing"):
        dataset("cityscapes", streets)


def test_cityscapes_ids_that_are_no_label_ids(streets):
    write(streets, {"gtFine/val/munster/munster_000010_000019_gtFine_labelIds.png": png(ids_map(40).astype(np.uint8))})
    with pytest.raises(ImageError, match=r"does not have: \[40\]"):
        dataset("cityscapes", streets)[1]


def test_the_order_of_cityscapes_classes_is_the_order_of_their_ids():
    ids = cityscapes.ids(tuple(cityscapes.NAMES))
    assert [ids[k] for k in (7, 33)] == [0, 26]
    assert (ids[:7] == IGNORE).all()


# ----------------------------------------------------------------------------------------------------------- Potsdam


def mat(**variables) -> bytes:
    out = io.BytesIO()
    savemat(out, variables)
    return out.getvalue()


def tiles(root: Path, **masks) -> Path:
    rgbi = np.dstack([some(1)[0], np.full((12, 16), 7, np.uint8)])
    files = {f"imgs/{k}.mat": mat(img=rgbi) for k in (3, 20, 100)}
    files |= {f"gt/{k}.mat": mat(gt=ids_map(0, 1, 2, 3, 4, 5, 255).astype(np.uint8)) for k in (3, 20)}
    return write(root, files | {"labelled_train.txt": lines("20"), "labelled_test.txt": lines("3")})


def test_potsdam_from_matlab_files(tmp_path):
    images = dataset("potsdam3", tiles(tmp_path), "test")
    assert images.ids == ("3",)
    assert (pixels(images[0]) == some(1)[0]).all()
    assert images[0].about["decoded"] == ["infrared left out"]
    expected = {0: 0, 4: 0, 1: 1, 5: 1, 2: 2, 3: 2, 255: 255}
    assert (images[0].mask == np.vectorize(expected.get)(ids_map(0, 1, 2, 3, 4, 5, 255))).all()
    assert images.mask_classes == ("road or car", "building or clutter", "vegetation or tree")
    every = dataset("potsdam3", tmp_path, "all")
    assert every.ids == ("3", "20", "100")
    assert (every[0].mask is None, every[2].mask is None) == (False, True)


def test_potsdam_with_parts_missing(tmp_path):
    tiles(tmp_path)
    with pytest.raises(ImageError, match="no list for this split") as caught:
        dataset("potsdam3", tmp_path, "unlabelled")
    assert "labelled_test, labelled_train" in str(caught.value)
    (tmp_path / "gt" / "20.mat").unlink()
    with pytest.raises(ImageError, match="1 of 1 masks are missing"):
        dataset("potsdam3", tmp_path, "train")
    write(tmp_path, {"imgs/3.mat": b"not matlab at all, but long enough to look at" * 10})
    with pytest.raises(ImageError, match="not a MATLAB file that can be read") as caught:
        dataset("potsdam3", tmp_path, "test")[0]
    assert "3.mat" in str(caught.value)
    write(tmp_path, {"imgs/3.mat": mat(other=np.zeros(3))})
    with pytest.raises(ImageError, match="without the variable 'img'"):
        dataset("potsdam3", tmp_path, "test")[0]
    write(tmp_path, {"imgs/3.mat": mat(img=np.zeros((4, 4)))})
    with pytest.raises(ImageError, match="a tile is"):
        dataset("potsdam3", tmp_path, "test")[0]


@pytest.mark.parametrize("gt", [np.full((12, 16), 0.5), np.full((12, 16), -1.0), np.zeros((2, 12, 16))])
def test_potsdam_masks_are_whole_numbers(tmp_path, gt):
    tiles(tmp_path)
    write(tmp_path, {"gt/3.mat": mat(gt=gt)})
    with pytest.raises(ImageError, match="a mask is"):
        dataset("potsdam3", tmp_path, "test")[0]
    write(tmp_path, {"gt/3.mat": mat(gt=ids_map(0, 5).astype(float))})
    assert seen(dataset("potsdam3", tmp_path, "test")[0].mask) == {0, 1}


def test_potsdam_from_png_tiles(tmp_path):
    colours = [(255, 255, 255), (0, 0, 255), (0, 255, 255), (0, 255, 0), (255, 255, 0), (255, 0, 0)]
    coloured = np.array(colours, np.uint8)[ids_map(0, 1, 2, 3, 4, 5)]
    write(tmp_path, {"imgs/a.png": png(some(1)[0]), "imgs/b.png": png(some(1)[0])})
    write(tmp_path, {"gt/a.png": png(coloured), "gt/b.png": png(ids_map(0, 1, 2, 3, 4, 5).astype(np.uint8))})
    images = dataset("potsdam3", tmp_path, "all")
    assert images.ids == ("a", "b")
    assert (images[0].mask == images[1].mask).all()
    assert seen(images[0].mask) == {0, 1, 2}
    write(tmp_path, {"gt/a.png": png(coloured // 2)})
    with pytest.raises(ImageError, match="colours that ISPRS does not use"):
        dataset("potsdam3", tmp_path, "all")[0]
    (tmp_path / "imgs" / "a.png").unlink()
    (tmp_path / "imgs" / "b.png").unlink()
    with pytest.raises(ImageError, match="no tiles"):
        dataset("potsdam3", tmp_path, "all")


# ---------------------------------------------------------------------------------------------------------- ImageNet


def test_the_standard_classes():
    assert len(imagenet.synsets()) == len(set(imagenet.class_names())) == 1000
    assert list(imagenet.synsets()) == sorted(imagenet.synsets())
    assert imagenet.class_names()[0].startswith("tench")
    assert imagenet.class_names()[134] == "crane (n02012849)"


@pytest.mark.parametrize("inside", ["", "ILSVRC/Data/CLS-LOC"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_imagenet_in_synset_folders(tmp_path, inside, split):
    names = ["n02099601/n02099601_10.JPEG", "n02099601/n02099601_9.JPEG", "n01440764/n01440764_1.JPEG"]
    write(tmp_path / inside, {f"{split}/{name}": jpeg(some(1)[0]) for name in names})
    images = dataset("imagenet", tmp_path, split)
    assert images.ids == (names[2], names[1], names[0])
    assert images.labels.tolist() == [0, 207, 207], "standard labels, although only two classes are there"
    assert images.classes[207] == "golden retriever"
    assert images[0].about["wnid"] == "n01440764"


FLAT = {f"val/ILSVRC2012_val_{k:08d}.JPEG": jpeg(some(1)[0]) for k in (1, 2, 10)}


def test_imagenet_flat_with_kaggles_answers(tmp_path):
    rows = ["ImageId,PredictionString", "ILSVRC2012_val_00000010,n01440764 1 2 3 4 n01440764 5 6 7 8"]
    rows += ["ILSVRC2012_val_00000001,n02099601 1 2 3 4", "ILSVRC2012_val_00000002,n01443537 1 2 3 4"]
    write(tmp_path / "ILSVRC/Data/CLS-LOC", FLAT)
    write(tmp_path, {"LOC_val_solution.csv": lines(*rows)})
    images = dataset("imagenet", tmp_path)
    assert images.ids[2] == "ILSVRC2012_val_00000010.JPEG"
    assert images.labels.tolist() == [207, 1, 0]


def test_imagenet_flat_with_a_list_of_labels(tmp_path):
    write(tmp_path, FLAT)
    write(
        tmp_path,
        {"val.txt": lines(*(f"ILSVRC2012_val_{k:08d}.JPEG {label}" for k, label in ((2, 1), (1, 207), (10, 0))))},
    )
    assert dataset("imagenet", tmp_path).labels.tolist() == [207, 1, 0]
    write(tmp_path, {"val.txt": lines("ILSVRC2012_val_00000001.JPEG 3")})
    with pytest.raises(ImageError, match=r"val\.txt does not know 2 of the pictures"):
        dataset("imagenet", tmp_path)
    for wrong in ("ILSVRC2012_val_00000001.JPEG", "a b", "a 1000"):
        write(tmp_path, {"val.txt": lines(wrong)})
        with pytest.raises(ImageError, match=r"val\.txt is not as published"):
            dataset("imagenet", tmp_path)


def test_imagenet_flat_with_the_devkit_whose_numbers_are_its_own(tmp_path):
    kit = "ILSVRC2012_devkit_t12/data"
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
    rows = [
        (np.uint16(1), "n02099601", "golden"),
        (np.uint16(2), "n01440764", "tench"),
        (np.uint16(3), "n01443537", "gold"),
    ]
    write(tmp_path, FLAT | {f"{kit}/ILSVRC2012_validation_ground_truth.txt": lines(*"1322222223")})
    with pytest.raises(ImageError, match="files of the devkit are missing"):
        dataset("imagenet", tmp_path)
    write(tmp_path, {f"{kit}/meta.mat": mat(synsets=np.array(rows, kind).reshape(-1, 1))})
    assert dataset("imagenet", tmp_path).labels.tolist() == [207, 1, 1]


def test_imagenet_that_cannot_be_used(tmp_path):
    write(tmp_path, FLAT)
    with pytest.raises(ImageError, match="there is no file of labels") as caught:
        dataset("imagenet", tmp_path)
    assert "LOC_val_solution.csv, val.txt" in str(caught.value)
    write(tmp_path, {"train/n00000001/a.JPEG": b"", "train/cats/b.JPEG": b""})
    with pytest.raises(ImageError, match="not among the 1,000") as caught:
        dataset("imagenet", tmp_path, "train")
    assert "['cats', 'n00000001']" in str(caught.value)
    (tmp_path / "other" / "val").mkdir(parents=True)
    with pytest.raises(ImageError, match="no pictures in here"):
        dataset("imagenet", tmp_path / "other")


# ---------------------------------------------------------------------------------------------- ImageNet-segmentation


def check_segmentation(images) -> None:
    assert images.ids == ("n01440764_18", "n01443537_7")
    assert images.mask_classes == ("background", "object")
    for k, picture in enumerate(images):
        assert (pixels(picture) == some(2)[k]).all()
        assert (picture.mask == ids_map(0, 1, 1 - k)).all()


def test_imagenet_segmentation_in_folders(tmp_path):
    for k, i in enumerate(("n01440764_18", "n01443537_7")):
        write(
            tmp_path, {f"images/{i}.png": png(some(2)[k]), f"masks/{i}.png": png(ids_map(0, 1, 1 - k).astype(np.uint8))}
        )
    check_segmentation(dataset("imagenet-segmentation", tmp_path))
    write(tmp_path, {"masks/n01443537_7.png": png(ids_map(0, 2).astype(np.uint8))})
    with pytest.raises(ImageError, match=r"does not have: \[2\]"):
        dataset("imagenet-segmentation", tmp_path)[1]
    (tmp_path / "masks" / "n01440764_18.png").unlink()
    with pytest.raises(ImageError, match="1 of 2 masks are missing"):
        dataset("imagenet-segmentation", tmp_path)


def cells(*values) -> np.ndarray:
    out = np.empty((1, len(values)), object)
    out[0] = values
    return out


def test_imagenet_segmentation_in_an_old_matlab_file(tmp_path):
    value = {
        "img": cells(*some(2)),
        "gt": cells(*(cells(ids_map(0, 1, 1 - k).astype(np.uint8)) for k in range(2))),
        "id": cells("n01440764_18", "n01443537_7"),
        "target": cells("n01440764", "n01443537"),
    }
    write(tmp_path, {"gtsegs_ijcv.mat": mat(value=value)})
    for root in (tmp_path, tmp_path / "gtsegs_ijcv.mat"):
        images = dataset("imagenet-segmentation", root)
        check_segmentation(images)
        assert images[1].about == {"wnid": "n01443537"}


def test_imagenet_segmentation_in_a_matlab_file_of_something_else(tmp_path):
    write(tmp_path, {"gtsegs_ijcv.mat": mat(value={"img": cells(*some(1))})})
    with pytest.raises(ImageError, match=r"not gtsegs_ijcv\.mat as published"):
        dataset("imagenet-segmentation", tmp_path)
    three = {"img": cells(*some(1)), "gt": cells(cells(ids_map(0, 1, 2))), "id": cells("a"), "target": cells("b")}
    write(tmp_path, {"gtsegs_ijcv.mat": mat(value=three)})
    with pytest.raises(ImageError, match="a mask with more than an object and its background") as caught:
        dataset("imagenet-segmentation", tmp_path)
    assert "picture 0" in str(caught.value)


class FakeFile(dict):
    """As much of an h5py file as a MATLAB 7.3 cell array needs: names and references, arrays turned round."""

    def __init__(self, path, mode):
        assert mode == "r"
        super().__init__(json.loads(Path(path).read_bytes()[520:]))

    def __getitem__(self, key):
        return np.array(super().__getitem__(str(key)))


def fake_hdf5(tmp_path: Path) -> Path:
    """The published structure as JSON behind the signature of an HDF5 file with MATLAB's header."""
    parts: dict[str, list] = {f"value/{field}": [[], []] for field in ("img", "gt", "id", "target")}
    items: dict[str, list] = {}

    def put(array) -> str:
        items[f"#{len(items)}"] = np.asarray(array).tolist()
        return f"#{len(items) - 1}"

    for k, wnid in enumerate(("n01440764", "n01443537")):
        mask = put(ids_map(0, 1, 1 - k).T)
        parts["value/img"][k] = [put(some(2)[k].transpose(2, 1, 0))]
        parts["value/gt"][k] = [put([[mask]])]
        parts["value/id"][k] = [put([[ord(c)] for c in wnid + ("_18", "_7")[k]])]
        parts["value/target"][k] = [put([[ord(c)] for c in wnid])]
    header = b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n"
    return write(tmp_path, {"gtsegs_ijcv.mat": header + json.dumps(parts | items).encode()})


def test_imagenet_segmentation_as_published(tmp_path, monkeypatch):
    fake = types.ModuleType("h5py")
    fake.File = lambda path, mode: NumbersAsBytes(path, mode)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "h5py", fake)
    images = dataset("imagenet-segmentation", fake_hdf5(tmp_path))
    check_segmentation(images)
    assert images[0].about == {"wnid": "n01440764"}
    assert pickle.loads(pickle.dumps(images)).fingerprint == images.fingerprint


class NumbersAsBytes(FakeFile):
    def __getitem__(self, key):
        found = super().__getitem__(key)
        return found.astype(np.uint8) if found.dtype.kind == "i" else found


def test_imagenet_segmentation_in_a_real_hdf5_file(tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not a dependency")
    with h5py.File(tmp_path / "gtsegs_ijcv.mat", "w", userblock_size=512) as file:
        fields = {
            name: file.create_dataset(f"value/{name}", (2, 1), h5py.ref_dtype) for name in ("img", "gt", "id", "target")
        }
        for k, wnid in enumerate(("n01440764", "n01443537")):
            mask = file.create_dataset(f"#refs#/m{k}", data=ids_map(0, 1, 1 - k).T.astype(np.uint8))
            inner = file.create_dataset(f"#refs#/g{k}", (1, 1), h5py.ref_dtype)
            inner[0, 0] = mask.ref
            fields["gt"][k, 0] = inner.ref
            fields["img"][k, 0] = file.create_dataset(f"#refs#/i{k}", data=some(2)[k].transpose(2, 1, 0)).ref
            for name, text in (("id", wnid + ("_18", "_7")[k]), ("target", wnid)):
                codes = np.array([[ord(c)] for c in text], np.uint16)
                fields[name][k, 0] = file.create_dataset(f"#refs#/{name}{k}", data=codes).ref
    check_segmentation(dataset("imagenet-segmentation", tmp_path))


def test_imagenet_segmentation_without_h5py(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImageError, match="read with h5py, which is not installed") as caught:
        dataset("imagenet-segmentation", fake_hdf5(tmp_path))
    assert "pip install h5py" in str(caught.value)


# ------------------------------------------------------------------------------------------------------------- CIFAR


class Python2(pickle._Pickler):  # type: ignore[name-defined]
    """Writes bytes as Python 2 wrote its strings, which is how CIFAR-10 was published."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def save_string(self, obj):
        self.write(b"T" + struct.pack("<i", len(obj)) + obj)
        self.memoize(obj)

    dispatch[bytes] = save_string


def python2(value) -> bytes:
    out = io.BytesIO()
    Python2(out, 2).dump(value)
    return out.getvalue().replace(b"cnumpy._core.multiarray", b"cnumpy.core.multiarray")


def cifar_rows(count: int, seed: int) -> tuple[np.ndarray, list[int]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8), rng.integers(0, 10, count).tolist()


def as_picture(row: np.ndarray) -> np.ndarray:
    return row.reshape(3, 32, 32).transpose(1, 2, 0)


@pytest.mark.parametrize("how", [python2, lambda batch: pickle.dumps(batch, 2), pickle.dumps])
def test_cifar_from_pickles(tmp_path, how):
    batches = {f"data_batch_{k}": cifar_rows(4, k) for k in range(1, 6)} | {"test_batch": cifar_rows(3, 9)}
    for name, (rows, labels) in batches.items():
        batch = {b"batch_label": b"x", b"labels": labels, b"data": rows, b"filenames": [b"a.png"] * len(rows)}
        write(tmp_path, {f"cifar-10-batches-py/{name}": how(batch)})
    test, train = dataset("cifar10", tmp_path), dataset("cifar10", tmp_path / "cifar-10-batches-py", "train")
    assert (len(test), len(train), test.classes[3]) == (3, 20, "cat")
    assert test.labels.tolist() == batches["test_batch"][1]
    assert train.labels.tolist() == [y for k in range(1, 6) for y in batches[f"data_batch_{k}"][1]]
    assert (test.ids[0], train.ids[19]) == ("test/00000", "train/00019")
    assert (pixels(test[1]) == as_picture(batches["test_batch"][0][1])).all()
    assert (pixels(train[4]) == as_picture(batches["data_batch_2"][0][0])).all()


def test_cifar_from_the_binary_release_is_the_same(tmp_path):
    rows, labels = cifar_rows(3, 9)
    write(tmp_path, {"cifar-10-batches-py/test_batch": python2({b"labels": labels, b"data": rows})})
    binary = np.column_stack([np.array(labels, np.uint8), rows]).tobytes()
    names = lines(*cifar.CLASSES, "")
    write(tmp_path, {"cifar-10-batches-bin/test_batch.bin": binary, "cifar-10-batches-bin/batches.meta.txt": names})
    one, two = (dataset("cifar10", tmp_path / f"cifar-10-batches-{kind}") for kind in ("py", "bin"))
    assert one.fingerprint == two.fingerprint
    assert one.classes == two.classes
    with pytest.raises(ImageError, match="5 of 5 batches are missing"):
        dataset("cifar10", tmp_path / "cifar-10-batches-bin", "train")
    write(tmp_path, {"cifar-10-batches-bin/test_batch.bin": binary[:-1]})
    with pytest.raises(ImageError, match="not a whole number of records of 3073 bytes"):
        dataset("cifar10", tmp_path / "cifar-10-batches-bin")


class Attack:
    def __reduce__(self):
        return os.system, ("touch pwned",)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pickle.dumps({b"data": Attack()}), "system is not allowed in a data file"),
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval is not allowed"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "bytes in encoding rot13"),
        (b"junk", "not a batch of CIFAR-10"),
        (b"", "not a batch of CIFAR-10"),
        (pickle.dumps([1, 2]), "a batch without"),
        (pickle.dumps({b"data": np.zeros((2, 3072)), b"labels": [0, 1]}), "b'data' is"),
        (pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}), "b'data' is"),
        (pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}), "a label beyond the 10 classes"),
    ],
)
def test_pickles_that_hold_anything_else_are_refused(tmp_path, monkeypatch, value, words):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"test_batch": value})
    with pytest.raises(ImageError, match=words):
        dataset("cifar10", tmp_path)
    assert not (tmp_path / "pwned").exists()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
def test_damaged_batches_are_named(tmp_path, at, value, cut):
    rows, labels = cifar_rows(1, 0)
    data = bytearray(python2({b"labels": labels, b"data": rows}))
    data[at % 120] = value  # the part that is not pixels
    write(tmp_path, {"test_batch": bytes(data[: max(1, cut % len(data)) if cut % 2 else len(data)])})
    try:
        assert len(dataset("cifar10", tmp_path)) == 1
    except ImageError as error:
        assert "given:" in str(error)


# ---------------------------------------------------------------------------------------------------------- textures


@pytest.mark.parametrize("inside", ["", "dtd"])
def test_dtd(tmp_path, inside):
    names = [f"{c}/{c}_{k:04d}.jpg" for c in ("zigzagged", "banded", "cracked") for k in (2, 4, 10)]
    files = {f"images/{name}": jpeg(some(1)[0]) for name in names}
    files |= {
        "labels/train1.txt": lines(*names[::2]),
        "labels/train10.txt": lines(names[1]),
        "labels/test2.txt": lines(names[3]),
    }
    write(tmp_path / inside, files | {"labels/labels_joint_anno.txt": b"x"})
    images = dataset("dtd", tmp_path, "train")
    assert images.ids == tuple(names[::2]), "in the order of the list"
    assert images.classes == ("banded", "cracked", "zigzagged")
    assert images.labels.tolist() == [2, 2, 0, 1, 1]
    assert dataset("dtd", tmp_path, "train1").fingerprint == images.fingerprint
    assert dataset("dtd", tmp_path, "train10").ids == (names[1],)
    with pytest.raises(ImageError, match="no list for this split") as caught:
        dataset("dtd", tmp_path, "test")
    assert "test2, train1, train10" in str(caught.value)
    assert "'test1'" in str(caught.value)
    (tmp_path / inside / "images" / names[3]).unlink()
    with pytest.raises(ImageError, match="1 of 1 pictures are missing"):
        dataset("dtd", tmp_path, "test2")


# -------------------------------------------------------------------------------------------------------------- pets


@pytest.fixture
def pets(tmp_path):
    rows = ["Abyssinian_100 1 1 1", "american_bulldog_7 2 2 1", "Bengal_3 3 1 2"]
    files = {f"images/{row.split()[0]}.jpg": jpeg(some(1)[0]) for row in rows}
    files |= {f"annotations/trimaps/{row.split()[0]}.png": png(ids_map(1, 2, 3).astype(np.uint8)) for row in rows}
    files["annotations/list.txt"] = lines("#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids", *rows)
    files["annotations/trainval.txt"] = lines(*rows[:2])
    files["annotations/test.txt"] = lines(rows[2])
    files["annotations/xmls/Abyssinian_100.xml"] = voc_xml(("cat", 3, 4, 10, 11))
    files["annotations/README"] = b"x"
    return write(tmp_path, files)


def test_pets(pets):
    images = dataset("pets", pets, "trainval")
    assert images.ids == ("Abyssinian_100", "american_bulldog_7")
    assert images.classes == ("Abyssinian", "american bulldog", "Bengal")
    assert images.labels.tolist() == [0, 1]
    assert [p.about["species"] for p in images] == ["cat", "dog"]
    assert images[0].boxes.tolist() == [[2, 3, 10, 11]]
    assert images[1].boxes is None
    assert (images[0].mask == np.array([3, 1, 0, 3])[ids_map(1, 2, 3)]).all()
    assert (images.mask_classes, images.ignore) == (("background", "pet"), 3)
    assert dataset("pets", pets).labels.tolist() == [2]
    assert dataset("pets", pets, "all").ids == ("Abyssinian_100", "american_bulldog_7", "Bengal_3")


def test_pets_with_parts_missing(pets):
    (pets / "annotations" / "list.txt").unlink()
    assert dataset("pets", pets).classes == ("Abyssinian", "american bulldog", "Bengal")
    (pets / "annotations" / "trainval.txt").unlink()
    assert dataset("pets", pets).classes == ("breed 1", "breed 2", "Bengal")
    with pytest.raises(ImageError, match="no list for this split") as caught:
        dataset("pets", pets, "all")
    assert "accepted: test" in str(caught.value)
    write(pets, {"annotations/test.txt": lines("Bengal_3 3 1 2", "Bengal_4 3 1 2")})
    with pytest.raises(ImageError, match="1 of 2 pictures are missing"):
        dataset("pets", pets)
    for wrong in ("Bengal_3 3 1", "Bengal_3 x 1 2", "Bengal_3 3 9 2"):
        write(pets, {"annotations/test.txt": lines(wrong)})
        with pytest.raises(ImageError, match="not 'id breed species number'"):
            dataset("pets", pets)


def test_pictures_that_are_not_what_their_name_says_are_read(pets):
    """Some of the published .jpg files are PNG or GIF inside."""
    write(pets, {"images/Bengal_3.jpg": png(some(1)[0])})
    assert (pixels(dataset("pets", pets)[0]) == some(1)[0]).all()
