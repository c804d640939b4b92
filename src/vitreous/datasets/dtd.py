"""Describable Textures: 47 classes, ten published divisions into train, val and test."""

from __future__ import annotations

from pathlib import Path

from vitreous.datasets.parts import locate, numbers, read_list, require
from vitreous.images import ImageSet
from vitreous.images.sources import Files, Folder


def load(root: Path, split: str) -> ImageSet:
    base = locate(root, ("dtd",), ("images",))
    names = read_list(base / "labels", split if split[-1].isdigit() else f"{split}1")
    files = require(base, [f"images/{name}" for name in names], "pictures")
    classes = tuple(sorted(folder.name for folder in (base / "images").iterdir() if folder.is_dir()))
    labels = numbers([name.split("/")[0] for name in names], classes)
    return ImageSet(Files(Folder(base), files), tuple(names), labels, classes, name=f"dtd/{split}")
