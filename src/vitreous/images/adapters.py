"""Data sets of other libraries as a source of pictures.

A library is only looked at when the program has imported it already: whoever holds one of its data sets has.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import ImageError
from vitreous.images.arrays import array_contents, eight_bits
from vitreous.images.decode import Decoded, decode, to_rgb
from vitreous.images.sources import Marks, Source
from vitreous.progress import tqdm


@dataclass(frozen=True)
class Adapted:
    """What a data set of another library amounts to."""

    source: Source
    count: int
    labels: np.ndarray | None
    classes: tuple[str, ...] | None
    name: str


def adapt(dataset: Any, image: str | int | None, label: str | int | None) -> Adapted:
    """Finds out which library a data set comes from, by its class and not by its looks."""
    hugging = sys.modules.get("datasets")
    if hugging is not None and isinstance(dataset, hugging.Dataset):
        return _from_hugging_face(dataset, hugging, image, label)
    if hugging is not None and isinstance(dataset, hugging.DatasetDict | hugging.IterableDatasetDict):
        raise ImageError("a data set with several splits", accepted=list(dataset), remedy="pass one: dataset['train']")
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is not None and isinstance(dataset, torch_data.Dataset):
        if isinstance(dataset, torch_data.IterableDataset):
            raise ImageError("a stream of pictures has no fixed order", given=type(dataset).__name__)
        return _from_torch(dataset, image, label)
    raise ImageError(
        "no known source of pictures",
        given=type(dataset).__name__,
        accepted="folder, zip, picture file, list of files, array, list of arrays or PIL pictures, torchvision or "
        "Hugging Face data set with a length",
    )


# ---------------------------------------------------------------------------------------------------- Hugging Face


@dataclass(frozen=True, eq=False)
class HuggingFace:
    """Rows whose picture column gives encoded bytes (or the path of a file)."""

    rows: Any
    column: str

    def _bytes(self, at: int) -> tuple[bytes, str]:
        cell = self.rows[at][self.column]
        if cell is None:
            raise ImageError(f"row {at} has no picture", given=self.column)
        if cell["bytes"] is not None:
            return cell["bytes"], f"row {at}, column {self.column!r}"
        try:
            return Path(cell["path"]).read_bytes(), cell["path"]
        except OSError as error:
            raise ImageError(f"a file that cannot be read ({error.strerror})", given=cell["path"]) from error

    def image(self, at: int) -> Decoded:
        return decode(*self._bytes(at))

    def marks(self, at: int) -> Marks:
        return Marks(about={"row": at})

    def contents(self, at: int) -> Iterator[bytes]:
        yield self._bytes(at)[0]


def _from_hugging_face(dataset: Any, hugging: Any, image: str | int | None, label: str | int | None) -> Adapted:
    columns = dataset.features
    image = _column(columns, image, hugging.Image, "image")
    if image is None:
        raise ImageError("no column holds pictures", accepted=list(columns), remedy="cast one to datasets.Image()")
    label = _column(columns, label, hugging.ClassLabel, "label")
    plain = dataset.with_format(None)
    classes = tuple(columns[label].names) if label and isinstance(columns[label], hugging.ClassLabel) else None
    labels = None if label is None else np.asarray(plain.select_columns([label]).with_format("numpy")[:][label])
    if labels is not None and (labels == -1).all():
        labels = None  # the way to say that a test split has none
    rows = plain.select_columns([image]).cast_column(image, hugging.Image(decode=False))
    name = "/".join(str(part) for part in (dataset.info.dataset_name, dataset.split) if part) or "dataset"
    return Adapted(HuggingFace(rows, image), len(dataset), labels, classes, name)


def _column(columns: Any, given: str | int | None, kind: type, argument: str) -> str | None:
    """The column that is asked for, or the only one of its kind."""
    if given is not None:
        if given not in columns:
            raise ImageError("no such column", given=given, accepted=list(columns))
        return str(given)
    fitting = [name for name, feature in columns.items() if isinstance(feature, kind)]
    if len(fitting) > 1:
        raise ImageError(f"several columns could be the {argument}", accepted=fitting, remedy=f"say {argument}=...")
    return fitting[0] if fitting else None


# ----------------------------------------------------------------------------------------------------------- torch


@dataclass(frozen=True, eq=False)
class Torch:
    """Items of a map-style data set: a picture, or a tuple or dict that has it at `image`.

    A target that is itself a picture is the mask. One thread reads at a time, as data sets may keep files open.
    """

    dataset: Any
    image_at: str | int
    target_at: str | int | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_lock", threading.Lock())

    def __getstate__(self) -> tuple[Any, ...]:
        return self.dataset, self.image_at, self.target_at

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for name, value in zip(("dataset", "image_at", "target_at"), state, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()

    def item(self, at: int) -> tuple[Any, Any]:
        """(picture, target or None)."""
        with self._lock:  # type: ignore[attr-defined]
            item: Any = self.dataset[at]
        if not isinstance(item, tuple | list | dict):
            return item, None
        parts: Any = item
        try:
            return parts[self.image_at], None if self.target_at is None else parts[self.target_at]
        except (KeyError, IndexError, TypeError):
            names = list(item) if isinstance(item, dict) else [str(k) for k in range(len(item))]
            wanted = (self.image_at, self.target_at)
            raise ImageError(
                "an item has no such part", given=wanted, accepted=names, remedy="image=, label="
            ) from None

    def image(self, at: int) -> Decoded:
        from PIL import Image as pil

        image, _ = self.item(at)
        if isinstance(image, pil.Image):
            return to_rgb(image, f"item {at}")
        if isinstance(image, np.ndarray):
            return to_rgb(pil.fromarray(eight_bits(image, f"item {at}", image.shape)), f"item {at}")
        raise ImageError(
            f"item {at} is not a picture",
            given=type(image).__name__,
            accepted="PIL picture or array (row, column, colour)",
            remedy="make the data set without transform=, the model's own preprocessing comes later",
        )

    def marks(self, at: int) -> Marks:
        from PIL import Image as pil

        target = self.item(at)[1]
        return Marks(mask=np.asarray(target) if isinstance(target, pil.Image) else None, about={"item": at})

    def contents(self, at: int) -> Iterator[bytes]:
        return array_contents(np.asarray(self.image(at).image), self.marks(at))


def _from_torch(dataset: Any, image: str | int | None, label: str | int | None) -> Adapted:
    from PIL import Image as pil

    count = len(dataset)
    first = dataset[0] if count else None
    if label is None and isinstance(first, tuple | list) and len(first) > 1:
        label = 1
    source = Torch(dataset, 0 if image is None else image, label)
    name = type(dataset).__name__
    if count == 0 or label is None or isinstance(source.item(0)[1], pil.Image):
        return Adapted(source, count, None, None, name)
    labels, classes = _known_labels(dataset) if label == 1 else (None, None)
    return Adapted(source, count, _read_labels(source, count) if labels is None else labels, classes, name)


def _known_labels(dataset: Any) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels and class names that need no picture decoded, for the torchvision classes that keep them."""
    from torch.utils.data import Subset

    if isinstance(dataset, Subset):
        labels, classes = _known_labels(dataset.dataset)
        return None if labels is None else labels[np.asarray(dataset.indices, np.int64)], classes
    vision = sys.modules.get("torchvision.datasets")
    if vision is None or not isinstance(dataset, vision.DatasetFolder | vision.CIFAR10 | vision.MNIST):
        return None, None
    if dataset.target_transform is not None:
        return None, None
    return np.asarray(dataset.targets), tuple(map(str, dataset.classes))


def _read_labels(source: Torch, count: int) -> np.ndarray:
    labels = [source.item(at)[1] for at in tqdm(range(count), desc="reading labels", delay=1, leave=False)]
    if not all(isinstance(value, int | np.integer) for value in labels):
        kinds = sorted({type(value).__name__ for value in labels})
        raise ImageError("a target is not a whole number", given=kinds, remedy="say label=... or wrap the data set")
    return np.array(labels, np.int64)
