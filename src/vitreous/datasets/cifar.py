"""CIFAR-10, from the Python or the binary release."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from vitreous.datasets.parts import locate, read_list, require
from vitreous.datasets.pickles import DAMAGE, OnlyArrays
from vitreous.errors import ImageError
from vitreous.images import ImageSet

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
BATCHES = {"train": [f"data_batch_{k}" for k in range(1, 6)], "test": ["test_batch"]}
PIXELS = 3 * 32 * 32


def load(root: Path, split: str) -> ImageSet:
    inside = ("cifar-10-batches-py", "cifar-10-batches-bin")
    base = locate(root, inside, ("data_batch_1", "test_batch", "data_batch_1.bin", "test_batch.bin"))
    binary = (base / "data_batch_1.bin").exists() or (base / "test_batch.bin").exists()
    names = require(base, [name + (".bin" if binary else "") for name in BATCHES[split]], "batches")
    parts = [(read_binary if binary else read_pickle)(base / name) for name in names]
    pixels = np.concatenate([rows for rows, _ in parts]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = np.concatenate([numbers for _, numbers in parts])
    ids = [f"{split}/{k:05d}" for k in range(len(labels))]
    images = np.ascontiguousarray(pixels)
    return ImageSet.from_arrays(images, ids=ids, labels=labels, classes=_classes(base), name=f"cifar10/{split}")


def read_binary(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one label byte and 3,072 colour bytes (all red, all green, all blue)."""
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % (1 + PIXELS):
        raise ImageError(f"not a whole number of records of {1 + PIXELS} bytes", given=str(path))
    rows = data.reshape(-1, 1 + PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def read_pickle(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        batch = OnlyArrays(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except DAMAGE as error:
        raise ImageError(f"not a batch of CIFAR-10 ({error})", given=str(path)) from error
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= set(batch):
        raise ImageError("a batch without b'data' and b'labels'", given=str(path))
    rows, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    if rows.dtype != np.uint8 or rows.shape != (len(labels), PIXELS):
        raise ImageError(f"b'data' is (picture, {PIXELS}) uint8", given=(str(path), rows.shape, str(rows.dtype)))
    return rows, labels


def _classes(base: Path) -> tuple[str, ...]:
    """The names that come along, or the ten that everybody knows."""
    if (base / "batches.meta.txt").is_file():
        return tuple(read_list(base, "batches.meta"))
    return CLASSES
