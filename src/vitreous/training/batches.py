"""Batches of a training run. What comes when depends on the seed and the epoch alone, so a run can be taken up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import SettingsError
from vitreous.training.recipes import Recipe
from vitreous.training.spiral import TEST, TRAIN, as_pictures, spiral

if TYPE_CHECKING:
    from vitreous.images import ImageSet

Batch = tuple[Tensor, Tensor]
SCENES = {"train": (8192, 0), "test": (1024, 8192)}  # how many, and the number of the first
TRAIN_SPLITS, TEST_SPLITS = ("train", "trainval"), ("test", "val")  # the first that a data set has
TEST_BATCH = 2048
TEST_BYTES = 4 << 30  # test pictures that are kept on the device
MOST_READ = 200_000  # pictures that are read once for their fingerprint before a run begins


class Batches(Protocol):
    """Inputs and labels on the device; every epoch has `steps` batches of one size."""

    steps: int
    classes: int
    fingerprints: dict[str, str]

    def train(self, start: int, end: int) -> Iterator[Iterator[Batch]]:
        """The batches of each epoch from `start` to `end`."""
        ...

    def test(self) -> Iterator[Batch]: ...


def order(count: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng((seed, epoch)).permutation(count)


@dataclass(frozen=True)
class Share:
    """This process among all that train together: it takes samples `rank`, `rank + ranks`, ... of each batch."""

    rank: int = 0
    ranks: int = 1

    def of(self, batch: np.ndarray) -> np.ndarray:
        return batch[self.rank :: self.ranks]


def open_batches(recipe: Recipe, data: Any, device: torch.device, share: Share, workers: int | None) -> Batches:
    """`data` is a folder in the layout of the recipe's data set, or (train, test) pictures of your own."""
    if recipe.size is None:
        return Points(recipe, device, share)
    train, test = _pictures(recipe, data)
    for images in (train, test):
        if images.labels is None or not images.classes:
            raise SettingsError("pictures to train on need labels and classes", given=repr(images))
    if train.classes != test.classes:
        raise SettingsError("training and test pictures have different classes", given=(train.classes, test.classes))
    return Pictures(recipe, train, test, device, share, workers)


def _pictures(recipe: Recipe, data: Any) -> tuple[ImageSet, ImageSet]:
    if isinstance(data, tuple | list):
        from vitreous.images import ImageSet

        if len(data) != 2 or not all(isinstance(images, ImageSet) for images in data):
            given = [type(images).__name__ for images in data]
            raise SettingsError("pictures of your own are two image sets, (train, test)", given=given)
        return data[0], data[1]
    if recipe.data == "scenes":
        return _scenes(recipe, "train"), _scenes(recipe, "test")
    if data is None:
        raise SettingsError(
            f"the recipe {recipe.name} trains on {recipe.data}, which is not bundled",
            remedy=f"say where it lies: --data FOLDER with {recipe.data} as its authors publish it",
        )
    if not isinstance(data, str | Path):
        raise SettingsError("data is a folder, or (train, test) pictures", given=type(data).__name__)
    from vitreous.datasets import dataset

    train, test = splits_of(recipe.data)
    return dataset(recipe.data, Path(data), split=train), dataset(recipe.data, Path(data), split=test)


def _scenes(recipe: Recipe, split: str) -> ImageSet:
    """Labelled with the colour of the largest object: a network finds that in minutes, its shape it does not."""
    from vitreous.scenery import ATTRIBUTES, scenes

    count, first = SCENES[split]
    made = scenes(count, recipe.size or 64, recipe.seed, first=first)
    largest = [max(p.about["objects"], key=lambda thing: (thing["pixels"], thing["depth"])) for p in made]
    labels = [ATTRIBUTES["colour"].index(thing["colour"]) for thing in largest]
    return replace(made, labels=np.asarray(labels), classes=ATTRIBUTES["colour"], name=f"{made.name}-colours")


def splits_of(data: str) -> tuple[str, str]:
    """What to train on and what to test on, by name: layouts list their splits in an order of their own."""
    from vitreous.datasets import LAYOUTS

    if data not in LAYOUTS:
        raise SettingsError("no such data set", given=data, accepted=("spiral", "scenes", *LAYOUTS))
    splits = LAYOUTS[data].splits
    train = [name for name in TRAIN_SPLITS if name in splits]
    test = [name for name in TEST_SPLITS if name in splits]
    if not train or not test:
        raise SettingsError("a data set without a split to train on and one to test on", given=f"{data}: {splits}")
    return train[0], test[0]


def steps_of(count: int, batch: int) -> int:
    if count < batch:
        raise SettingsError("fewer samples than one batch", given=f"{count} samples, batch {batch}", remedy="batch=")
    return count // batch


class Points:
    """The spiral, which fits on any device as a whole."""

    def __init__(self, recipe: Recipe, device: torch.device, share: Share) -> None:
        self.recipe, self.device, self.share = recipe, device, share
        generator = np.random.default_rng(recipe.seed)
        (x, y), (tx, ty) = spiral(TRAIN, generator), spiral(TEST, generator)
        self._train = [torch.from_numpy(a).to(device) for a in (as_pictures(x), y)]
        self._test = [torch.from_numpy(a).to(device) for a in (as_pictures(tx), ty)]
        self.steps, self.classes = steps_of(TRAIN, recipe.batch), 2
        self.fingerprints = {"spiral": f"seed {recipe.seed}, {TRAIN} + {TEST} points"}

    def train(self, start: int, end: int) -> Iterator[Iterator[Batch]]:
        for epoch in range(start, end):
            rows = order(TRAIN, self.recipe.seed, epoch)[: self.steps * self.recipe.batch]
            parts = [self.share.of(part) for part in rows.reshape(self.steps, -1)]
            places = torch.from_numpy(np.stack(parts)).to(self.device)
            yield ((self._train[0][p], self._train[1][p]) for p in places)

    def test(self) -> Iterator[Batch]:
        yield from zip(*(part.split(TEST_BATCH) for part in self._test), strict=True)


class Pictures:
    """Pictures with timm's augmentation, prepared by worker processes. A picture's randomness is its own."""

    def __init__(
        self, recipe: Recipe, train: ImageSet, test: ImageSet, device: torch.device, share: Share, workers: int | None
    ) -> None:
        from timm.data import create_transform

        self.recipe, self.device, self.share = recipe, device, share
        self.steps, self.classes = steps_of(len(train), recipe.batch), len(train.classes or ())
        self.fingerprints = {images.name: identity(images) for images in (train, test)}
        self._workers = default_workers(share.ranks) if workers is None else workers
        common = {"input_size": (3, recipe.size, recipe.size), "use_prefetcher": True}
        augment = keep_a_bit(create_transform(**common, is_training=True, **recipe.augmentation))
        self._train = Augmented(train, augment, recipe.seed)
        self._test = Augmented(test, create_transform(**common, crop_pct=recipe.crop), recipe.seed)
        self._tested: list[Batch] = []

    def train(self, start: int, end: int) -> Iterator[Iterator[Batch]]:
        recipe = self.recipe
        keys = (
            [(epoch, int(i)) for i in self.share.of(part)]
            for epoch in range(start, end)
            for part in order(len(self._train), recipe.seed, epoch)[: self.steps * recipe.batch].reshape(self.steps, -1)
        )
        stream = iter(self._loader(self._train, list(keys) if end - start == 1 else _Endless(keys)))
        for _ in range(start, end):
            yield (self._move(next(stream)) for _ in range(self.steps))

    def test(self) -> Iterator[Batch]:
        """Prepared once, since nothing about them is random, unless they would fill the device."""
        count = len(self._test)
        keys = [[(0, i) for i in range(n, min(n + TEST_BATCH, count))] for n in range(0, count, TEST_BATCH)]
        fit = count * 3 * (self.recipe.size or 0) ** 2 <= TEST_BYTES
        if fit and not self._tested:
            self._tested = [(x.to(self.device), y.to(self.device)) for x, y in self._loader(self._test, keys)]
        for x, y in self._tested if fit else self._loader(self._test, keys):
            yield self._move((x, y))

    def _loader(self, pictures: Augmented, keys: Any) -> Any:
        from torch.utils.data import DataLoader

        return DataLoader(
            pictures,  # type: ignore[arg-type]
            batch_sampler=keys,
            num_workers=self._workers,
            collate_fn=_collate,
            pin_memory=self.device.type == "cuda",
            prefetch_factor=4 if self._workers else None,
        )

    def _move(self, batch: Batch) -> Batch:
        x, y = (part.to(self.device, non_blocking=True) for part in batch)
        return normalised(x), y


class _Endless:
    """A batch sampler over a generator that is used once."""

    def __init__(self, keys: Iterator[list[tuple[int, int]]]) -> None:
        self.keys = keys

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self.keys


class Augmented:
    """(epoch, position) -> uint8 (colour, row, column) and label, the same in whichever process it is made."""

    def __init__(self, images: ImageSet, transform: Any, seed: int) -> None:
        self.images, self.transform, self.seed = images, transform, seed
        assert images.labels is not None
        self.labels = images.labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Any, int]:
        epoch, position = key
        with borrowed_randomness((self.seed * 1_000_003 + epoch) * 10_000_019 + position):
            return self.transform(self.images[position].image), int(self.labels[position])


@contextmanager
def borrowed_randomness(seed: int) -> Iterator[None]:
    """timm's augmentation draws from generators that the process shares: they are set here and put back.

    A worker process has nobody to share with, and is spared the putting back.
    """
    from torch.utils.data import get_worker_info

    alone = get_worker_info() is not None
    before = None if alone else (random.getstate(), np.random.get_state(), torch.get_rng_state())  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        if before is not None:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            torch.set_rng_state(before[2])


def _collate(items: list[tuple[Any, int]]) -> Batch:
    return torch.stack([torch.as_tensor(x) for x, _ in items]), torch.tensor([y for _, y in items])


def normalised(x: Tensor) -> Tensor:
    """Mean and deviation 0.5 of Table 3."""
    return x.float().div_(127.5).sub_(1)


def keep_a_bit(transform: Any) -> Any:
    """timm's strongest posterising leaves no bit of a colour, which Pillow 13 refuses: one is left here."""
    from timm.data.auto_augment import RandAugment

    for part in transform.transforms:
        for op in part.ops if isinstance(part, RandAugment) else ():
            if op.name.startswith("Posterize"):
                op.level_fn = partial(_at_least_one, op.level_fn)
    return transform


def _at_least_one(level: Any, *arguments: Any) -> tuple[int]:
    return (max(1, level(*arguments)[0]),)


def identity(images: ImageSet) -> str:
    """What tells these pictures from others: their fingerprint; of very many, that of names and labels alone."""
    if len(images) <= MOST_READ:
        return images.fingerprint
    import hashlib

    assert images.labels is not None
    whole = hashlib.sha256("\n".join(images.ids).encode())
    whole.update(np.asarray(images.labels, np.int64).tobytes())
    return f"{len(images)} names and labels {whole.hexdigest()}"


def default_workers(ranks: int = 1) -> int:
    """For each of so many processes."""
    import os

    return max(1, min(16, (os.cpu_count() or 1) // ranks))
