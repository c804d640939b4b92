"""Pictures in a fixed order, with the labels, masks and boxes that belong to them."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload
from zipfile import is_zipfile

import numpy as np

from vitreous.errors import ImageError, SettingsError
from vitreous.images.adapters import adapt
from vitreous.images.arrays import (
    Arrays,
    check_about,
    check_boxes,
    check_labels,
    check_map,
    pictures_from_arrays,
    size_of,
)
from vitreous.images.sources import Archive, Files, Folder, Source, existing, folder_labels, list_folder, pick_pictures
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from PIL.Image import Image

OnError = Literal["raise", "skip"]
AHEAD = 2  # batches that are decoded while the caller works on one
THREADS = 4  # Pillow decodes and resizes without the interpreter's lock


@dataclass(frozen=True, eq=False)
class Picture:
    """One picture, upright 8-bit RGB, and what is known about it.

    `mask` (height, width) holds class ids and `instances` (height, width) object ids with 0 for background; `boxes`
    (box, 4) are x0, y0, x1, y1 in pixels; `about` is anything else that JSON can hold.
    """

    id: str
    image: Image
    label: int | None = None
    mask: np.ndarray | None = None
    instances: np.ndarray | None = None
    boxes: np.ndarray | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Pictures in a fixed order. Nothing is decoded before it is asked for; the set never changes.

    `images[3]` and `images["cat/7.jpg"]` are a `Picture`; a slice, positions, a bool array or a list of ids give a
    smaller set. `skipped` holds (id, reason) of what `on_error="skip"` left out, `ignore` is the mask id that counts
    for nothing. Make one with `ImageSet.open` or a `from_...` method.
    """

    source: Source
    ids: tuple[str, ...]
    labels: np.ndarray | None = None  # any whole numbers are taken, int64 is kept
    classes: tuple[str, ...] | None = None
    mask_classes: tuple[str, ...] | None = None
    ignore: int | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    name: str = "pictures"
    index: np.ndarray | None = None  # positions in `source`; None means all of them

    def __post_init__(self) -> None:
        if len(set(self.ids)) != len(self.ids):
            seen: set[str] = set()
            twice = next(i for i in self.ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise ImageError("two pictures have the same id", given=twice, remedy="every id must be given once")
        if self.labels is not None:
            object.__setattr__(self, "labels", check_labels(self.labels, len(self.ids), self.classes))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        parts = [f"{len(self)} pictures"]
        parts += [f"{len(self.classes)} classes"] if self.classes else []
        parts += [f"{len(self.mask_classes)} mask classes"] if self.mask_classes else []
        parts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        return f"ImageSet({self.name!r}: {', '.join(parts)})"

    def __iter__(self) -> Iterator[Picture]:
        return (self[k] for k in range(len(self)))

    @overload
    def __getitem__(self, key: int | np.integer | str) -> Picture: ...
    @overload
    def __getitem__(self, key: slice | range | np.ndarray | list | tuple) -> ImageSet: ...
    def __getitem__(self, key):
        if isinstance(key, str):
            return self._picture(self._position(key))
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            if not -len(self) <= key < len(self):
                raise IndexError(f"picture {key} of a set of {len(self)}")
            return self._picture(int(key) % len(self))
        return self._select(key)

    def _at(self, position: int) -> int:
        return position if self.index is None else int(self.index[position])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: k for k, name in enumerate(self.ids)}

    def _position(self, name: str) -> int:
        if name not in self._positions:
            raise ImageError("no picture with this id", given=name, accepted=self.ids)
        return self._positions[name]

    def _picture(self, position: int) -> Picture:
        at = self._at(position)
        decoded, marks = self.source.image(at), self.source.marks(at)
        size = decoded.image.height, decoded.image.width
        for part, found in (("mask", marks.mask), ("instances", marks.instances)):
            check_map(found, size, f"{part} of picture {self.ids[position]!r}")
        about = {**marks.about, "decoded": list(decoded.notes)} if decoded.notes else marks.about
        label = None if self.labels is None else int(self.labels[position])
        return Picture(self.ids[position], decoded.image, label, marks.mask, marks.instances, marks.boxes, about)

    def _select(self, key: Any) -> ImageSet:
        chosen = _chosen(self, key)
        index = chosen if self.index is None else self.index[chosen]
        ids = tuple(self.ids[k] for k in chosen)
        return replace(self, ids=ids, index=index, labels=None if self.labels is None else self.labels[chosen])

    @cached_property
    def fingerprint(self) -> str:
        """A hash (hex) of ids, pictures, labels, masks and boxes in their order; the same wherever the files lie."""
        whole = hashlib.sha256(b"vitreous pictures 1\n")
        for position in _progress(range(len(self)), "fingerprint of pictures"):
            one = hashlib.sha256()
            for part in (self.ids[position].encode(), *self.source.contents(self._at(position))):
                one.update(len(part).to_bytes(8, "little"))
                one.update(part)
            label = b"none" if self.labels is None else str(self.labels[position]).encode()
            whole.update(one.digest() + label + b"\n")
        return whole.hexdigest()

    def batches(
        self, preprocess: Callable[[Image], np.ndarray], batch_size: int, start: int = 0
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(positions, float32 (sample, colour, row, column)) from batch number `start` on.

        Batch k always holds samples k * batch_size up to (k + 1) * batch_size. The next batches are decoded in threads
        meanwhile; closing the generator ends them.
        """
        if batch_size < 1 or start < 0:
            raise SettingsError("batch_size is at least 1 and start at least 0", given=(batch_size, start))
        chunks = (
            np.arange(first, min(first + batch_size, len(self)))
            for first in range(start * batch_size, len(self), batch_size)
        )
        return _ahead(partial(self._prepared, preprocess), chunks)

    def _prepared(self, preprocess: Callable[[Image], np.ndarray], position: int) -> np.ndarray:
        try:
            return np.asarray(preprocess(self.source.image(self._at(position)).image), np.float32)
        except Exception as error:
            error.add_note(f"while preparing picture {self.ids[position]!r}")
            raise

    def readable(self) -> ImageSet:
        """The set without pictures (or masks) that cannot be read; each is named in `skipped`. Decodes everything."""
        faults: list[str | None] = []
        with ThreadPoolExecutor(THREADS) as pool:
            for first in _progress(range(0, len(self), 256), "checking pictures (x 256)"):
                faults += pool.map(self._fault, range(first, min(first + 256, len(self))))
        skipped = [(name, fault) for name, fault in zip(self.ids, faults, strict=True) if fault is not None]
        kept = [fault is None for fault in faults]
        return replace(self[kept], skipped=(*self.skipped, *skipped))

    def _fault(self, position: int) -> str | None:
        try:
            self._picture(position)
        except ImageError as error:
            return str(error).splitlines()[0]
        return None

    @classmethod
    def from_arrays(
        cls,
        images: np.ndarray | Sequence[np.ndarray] | Sequence[Image],
        *,
        ids: Sequence[str] | None = None,
        labels: Sequence[int] | np.ndarray | None = None,
        classes: Sequence[str] | None = None,
        masks: Sequence[np.ndarray | None] | np.ndarray | None = None,
        instances: Sequence[np.ndarray | None] | np.ndarray | None = None,
        boxes: Sequence[np.ndarray | None] | None = None,
        about: Sequence[Mapping[str, Any]] | None = None,
        mask_classes: Sequence[str] | None = None,
        ignore: int | None = None,
        name: str = "arrays",
    ) -> ImageSet:
        """Pictures in memory: (sample, row, column, colour) uint8, or float in [0, 1], or lists of different sizes.

        Arrays of uint8 are not copied: do not change them afterwards.
        """
        pictures = pictures_from_arrays(images)
        names = tuple(map(str, ids)) if ids is not None else tuple(f"{k:06d}" for k in range(len(pictures)))
        sides = {"ids": names, "labels": labels, "masks": masks, "instances": instances, "boxes": boxes, "about": about}
        for side, given in sides.items():
            if given is not None and len(given) != len(pictures):
                raise ImageError(f"{side} must have one entry for each of {len(pictures)} pictures", given=len(given))
        for part, maps in (("masks", masks), ("instances", instances)):
            for k, found in enumerate(() if maps is None else maps):
                check_map(found, size_of(pictures[k]), f"{part}[{k}]")
        rectangles = None if boxes is None else [check_boxes(b, f"boxes[{k}]") for k, b in enumerate(boxes)]
        if about is not None:
            check_about(about)
        source = Arrays(pictures, names, masks, instances, rectangles, about)
        numbers = None if labels is None else check_labels(labels, len(pictures), _names(classes))
        return cls(source, names, numbers, _names(classes), _names(mask_classes), ignore, name=name)

    @classmethod
    def from_folder(
        cls, path: str | Path, *, on_error: OnError = "raise", recursive: bool = True, labels: str = "auto"
    ) -> ImageSet:
        """Picture files in a folder, in natural order (2 before 10), only listed and not opened.

        `labels`: "auto" takes the folder names when every picture lies exactly one folder deep and there are at least
        two such folders; "folders" always takes the first folder; "none" takes none.
        """
        root = existing(path, "folder")
        if not root.is_dir():
            raise ImageError("not a folder", given=str(path), remedy="ImageSet.open reads zips and single pictures")
        return _from_names(Folder(root), list_folder(root, recursive), "", root.name, labels, on_error)

    @classmethod
    def from_zip(
        cls, path: str | Path, *, prefix: str = "", on_error: OnError = "raise", labels: str = "auto"
    ) -> ImageSet:
        """Picture files in a zip, read in place; only names that start with `prefix`, which ids then leave out."""
        archive = Archive(existing(path, "zip"))
        names = archive.names()
        inside = [name[len(prefix) :] for name in names if name.startswith(prefix)]
        if prefix and not inside:
            folders = sorted({name.rpartition("/")[0] + "/" for name in names if "/" in name})
            raise ImageError("nothing in the zip starts with this prefix", given=prefix, accepted=folders)
        return _from_names(archive, inside, prefix, archive.path.stem, labels, on_error)

    @classmethod
    def from_files(cls, paths: Sequence[str | Path], *, on_error: OnError = "raise") -> ImageSet:
        """Picture files in the order given; ids are the paths below the folder that all of them share."""
        files = [existing(path, "picture file") for path in paths]
        if not files:
            raise ImageError("an empty list of picture files")
        shared = Path(os.path.commonpath([file.parent for file in files]))
        names = tuple(file.relative_to(shared).as_posix() for file in files)
        return checked(cls(Files(Folder(shared), names), names, name=shared.name), on_error)

    @classmethod
    def from_dataset(cls, dataset: Any, *, image: str | int | None = None, label: str | int | None = None) -> ImageSet:
        """A torchvision (or other map-style torch) data set without transforms, or a Hugging Face `Dataset`.

        `image` and `label` name the column, key or position where it is not clear from the data set.
        """
        found = adapt(dataset, image, label)
        ids = tuple(f"{k:06d}" for k in range(found.count))
        return cls(found.source, ids, found.labels, found.classes, name=found.name)

    @classmethod
    def open(cls, source: Any, **kwargs: Any) -> ImageSet:
        """Anything that holds pictures; `kwargs` go to the `from_...` method that fits."""
        if isinstance(source, ImageSet):
            return source
        if isinstance(source, str | Path):
            path = existing(source)
            if path.is_dir():
                return cls.from_folder(path, **kwargs)
            return cls.from_zip(path, **kwargs) if is_zipfile(path) else cls.from_files([path], **kwargs)
        if isinstance(source, np.ndarray):
            return cls.from_arrays(source, **kwargs)
        if isinstance(source, list | tuple):
            if source and all(isinstance(path, str | Path) for path in source):
                return cls.from_files(source, **kwargs)
            return cls.from_arrays(source, **kwargs)
        return cls.from_dataset(source, **kwargs)


def _progress(steps: range, what: str) -> Iterator[int]:
    return iter(tqdm(steps, desc=what, delay=1, leave=False))


def _ahead(load: Callable[[int], np.ndarray], chunks: Iterator[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Stacks of what `load` gives for each chunk of positions; `AHEAD` chunks are under way while one is used."""
    waiting: deque[tuple[np.ndarray, list[Future[np.ndarray]]]] = deque()
    pool = ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1), "vitreous-pictures")
    try:
        for chunk in chunks:
            waiting.append((chunk, [pool.submit(load, int(k)) for k in chunk]))
            if len(waiting) > AHEAD:
                yield _stacked(*waiting.popleft())
        while waiting:
            yield _stacked(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _stacked(positions: np.ndarray, futures: list[Future[np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    arrays = [future.result() for future in futures]
    if len(shapes := {array.shape for array in arrays}) > 1:
        raise ImageError("preprocessing gave pictures of different sizes", given=sorted(shapes))
    return positions, np.stack(arrays)


def _names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(map(str, names))


def _chosen(images: ImageSet, key: Any) -> np.ndarray:
    """Positions that a slice, positions, a bool array or ids stand for."""
    if isinstance(key, slice):
        return np.arange(len(images))[key]
    if not isinstance(key, np.ndarray) and isinstance(key, Iterable):
        key = list(key)
    if isinstance(key, list) and key and all(isinstance(k, str) for k in key):
        return np.array([images._position(k) for k in key], np.int64)
    array = np.asarray(key if np.size(key) else np.empty(0, np.int64))
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise ImageError("pictures are not chosen by this", given=key, accepted="int, id, slice, positions, bools")
    if array.dtype.kind == "b":
        if len(array) != len(images):
            raise ImageError(f"a choice by bools needs one for each of {len(images)} pictures", given=len(array))
        return np.flatnonzero(array)
    if len(array) and not (-len(images) <= array.min() and array.max() < len(images)):
        raise ImageError(f"positions outside of a set of {len(images)} pictures", given=array.tolist()[:20])
    return array.astype(np.int64) % max(1, len(images))


def _from_names(
    files: Folder | Archive, names: Sequence[str], prefix: str, name: str, labels: str, on_error: str
) -> ImageSet:
    pictures, unknown = pick_pictures(names)
    if unknown and on_error != "skip":
        raise ImageError(
            f"{len(unknown)} files are neither pictures nor side-cars that are passed over",
            given=unknown[:5],
            remedy="remove or convert them, or on_error='skip' to leave them out",
        )
    if not pictures:
        raise ImageError("no pictures in here", given=files.where(prefix), accepted="files named .jpg, .png, ...")
    numbers, classes = folder_labels(pictures, labels)
    skipped = tuple((other, "not named like a picture") for other in unknown)
    source = Files(files, tuple(prefix + picture for picture in pictures))
    return checked(ImageSet(source, tuple(pictures), numbers, classes, skipped=skipped, name=name), on_error)


def checked(images: ImageSet, on_error: str) -> ImageSet:
    """What `on_error` asks for: all pictures, each checked when it is read, or those that can be read."""
    if on_error not in ("raise", "skip"):
        raise SettingsError("unknown on_error", given=on_error, accepted=("raise", "skip"))
    return images.readable() if on_error == "skip" else images
