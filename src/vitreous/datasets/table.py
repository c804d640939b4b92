"""The one table of data sets. A new one is a loader and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType

from vitreous.datasets.cifar import load as load_cifar
from vitreous.datasets.cityscapes import load as load_cityscapes
from vitreous.datasets.coco_stuff import load as load_coco_stuff
from vitreous.datasets.dtd import load as load_dtd
from vitreous.datasets.imagenet import load as load_imagenet
from vitreous.datasets.imagenet_segmentation import load as load_imagenet_segmentation
from vitreous.datasets.pets import load as load_pets
from vitreous.datasets.potsdam import load as load_potsdam
from vitreous.datasets.voc import load as load_voc
from vitreous.errors import ImageError
from vitreous.images import ImageSet
from vitreous.images.imageset import OnError, checked


@dataclass(frozen=True)
class Layout:
    """A published folder layout. `splits[0]` is taken when none is asked for."""

    name: str
    load: Callable[[Path, str], ImageSet]
    splits: tuple[str, ...]
    folder: str
    licence: str


_DTD = ("test", "train", "val", *(f"{s}{k}" for s in ("train", "val", "test") for k in range(1, 11)))
_ROWS = (
    Layout(
        "voc2012",
        load_voc,
        ("val", "train", "trainval"),
        "VOCdevkit/VOC2012 with JPEGImages, SegmentationClass, ImageSets/Segmentation/SPLIT.txt; "
        "SegmentationObject and Annotations where there are any",
        "Flickr terms, research",
    ),
    Layout(
        "cocostuff27",
        load_coco_stuff,
        ("val", "train"),
        "images/SPLIT2017 (or SPLIT2017), annotations/SPLIT2017 or stuffthingmaps/SPLIT2017; "
        "curated/SPLIT2017/Coco164kFull_Stuff_Coarse_7.txt where there is one",
        "annotations CC BY 4.0, pictures Flickr terms",
    ),
    Layout(
        "cityscapes",
        partial(load_cityscapes, classes=19),
        ("val", "train", "test"),
        "leftImg8bit/SPLIT/CITY/*_leftImg8bit.png, gtFine/SPLIT/CITY/*_gtFine_labelIds.png",
        "non-commercial research, registration",
    ),
    Layout(
        "cityscapes27",
        partial(load_cityscapes, classes=27),
        ("val", "train", "test"),
        "as cityscapes",
        "non-commercial research, registration",
    ),
    Layout(
        "potsdam3",
        load_potsdam,
        ("test", "train", "unlabelled", "all"),
        "imgs/*.mat and gt/*.mat (or both *.png), labelled_train.txt, labelled_test.txt, unlabelled_train.txt",
        "ISPRS benchmark terms, research",
    ),
    Layout(
        "imagenet",
        load_imagenet,
        ("val", "train"),
        "SPLIT/SYNSET/*.JPEG (also below ILSVRC/Data/CLS-LOC), or val/*.JPEG with LOC_val_solution.csv, val.txt or the "
        "devkit's ILSVRC2012_validation_ground_truth.txt and meta.mat",
        "non-commercial research",
    ),
    Layout(
        "imagenet-segmentation",
        load_imagenet_segmentation,
        ("all",),
        "gtsegs_ijcv.mat, or images/ID.jpg with masks/ID.png (0 background, 1 object)",
        "non-commercial research",
    ),
    Layout(
        "cifar10",
        load_cifar,
        ("test", "train"),
        "cifar-10-batches-py with data_batch_1..5 and test_batch, or cifar-10-batches-bin with the same as .bin",
        "free for research, cite Krizhevsky 2009",
    ),
    Layout("dtd", load_dtd, _DTD, "images/CLASS/*.jpg, labels/SPLITk.txt (k from 1 to 10)", "research"),
    Layout(
        "pets",
        load_pets,
        ("test", "trainval", "all"),
        "images/*.jpg, annotations/trimaps/*.png, annotations/{list,trainval,test}.txt; "
        "annotations/xmls where there are any",
        "CC BY-SA 4.0",
    ),
)
#: Name -> layout.
LAYOUTS: Mapping[str, Layout] = MappingProxyType({row.name: row for row in _ROWS})


def dataset(name: str, root: str | Path, split: str | None = None, *, on_error: OnError = "raise") -> ImageSet:
    """A data set in its published folder layout; `root` may be that folder or the one it was unpacked into.

    Missing files are named at once, damaged ones when they are read, or left out and listed with `on_error="skip"`.
    """
    if name not in LAYOUTS:
        raise ImageError("no such data set", given=name, accepted=list(LAYOUTS), remedy="vt.ImageSet.open for your own")
    layout = LAYOUTS[name]
    wanted = layout.splits[0] if split is None else split
    if wanted not in layout.splits:
        raise ImageError(f"no such split of {name}", given=wanted, accepted=layout.splits)
    return checked(layout.load(Path(root), wanted), on_error)
