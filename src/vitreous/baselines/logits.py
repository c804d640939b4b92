"""Classifiers, as baselines use them: refuse what is none, bring samples in batches, give logits (sample, class)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import ModelError, SettingsError
from vitreous.images import ImageSet
from vitreous.models.subject import Subject, check_subject
from vitreous.progress import tqdm

SEVERAL = (ImageSet, list, tuple, np.ndarray, Tensor)


def check_classifier(subject: Subject) -> None:
    """A bare backbone gives features: their numbers are no classes."""
    check_subject(subject)
    if subject.modality != "image":
        raise ModelError(f"{subject.name} takes text: it has no picture to explain", given=subject.family.name)
    if subject.head is None and not subject.root_path:
        raise ModelError(
            f"{subject.name} has no classifier on top, so it has no classes",
            given=subject.family.name,
            remedy="load it with its head, or wrap a module that puts one on the backbone",
        )


def logits_of(subject: Subject, x: Tensor) -> Tensor:
    """(sample, class)."""
    logits = subject(x)
    if logits.ndim != 2:
        raise ModelError(f"{subject.name} gives no (sample, class)", given=tuple(logits.shape))
    return logits


def classes_of(targets: int | Sequence[int] | np.ndarray, samples: int, count: int) -> np.ndarray:
    """int64 (sample,) from one class for all or one each; refuses what the model does not have."""
    asked = np.asarray(targets)
    if asked.dtype.kind not in "iu":
        raise SettingsError("classes are whole numbers", given=asked.dtype)
    if asked.ndim > 1 or (asked.ndim == 1 and len(asked) != samples):
        raise SettingsError("one class, or one for each sample", given=asked.shape, accepted=f"({samples},)")
    if asked.size and not (asked.min() >= 0 and asked.max() < count):
        wrong = int(asked.min() if asked.min() < 0 else asked.max())
        raise SettingsError("the model has no such class", given=wrong, accepted=f"0 to {count - 1}")
    return np.broadcast_to(asked, samples).astype(np.int64)


def count_of(inputs: ImageSet | Any) -> int:
    """How many samples: of a set, a list or an array; one picture alone is one."""
    if inputs is None or isinstance(inputs, str | Path):
        raise SettingsError("pictures are an image set, a list or an array", given=inputs, remedy="vt.ImageSet.open")
    if isinstance(inputs, np.ndarray | Tensor) and inputs.dtype in (np.uint8, torch.uint8):
        raise SettingsError(
            "an array is taken as it is, and bytes have not been prepared for a model",
            given=f"uint8 {tuple(inputs.shape)}",
            remedy="vt.ImageSet.from_arrays(pictures) is prepared as the model asks for",
        )
    count = len(inputs) if isinstance(inputs, SEVERAL) else 1
    if not count:
        raise SettingsError("no pictures were given", given=f"{type(inputs).__name__} of length 0")
    return count


def batches(
    subject: Subject, inputs: ImageSet | Any, batch_size: int, progress: bool, what: str
) -> Iterator[tuple[slice, Tensor]]:
    """(positions, model input) of an `ImageSet`, or of anything that `subject.inputs` takes."""
    if not isinstance(batch_size, int | np.integer) or batch_size < 1:
        raise SettingsError("batch_size is at least 1", given=batch_size)
    count = count_of(inputs)
    with tqdm(total=count, desc=what, disable=not progress, delay=1) as bar:
        done = 0
        for x in _loaded(subject, inputs, batch_size, count):
            yield slice(done, done + len(x)), x
            done += len(x)
            bar.update(len(x))


def _loaded(subject: Subject, inputs: ImageSet | Any, batch_size: int, count: int) -> Iterator[Tensor]:
    if isinstance(inputs, ImageSet):
        assert subject.preprocess is not None
        yield from (subject.inputs(x) for _, x in inputs.batches(subject.preprocess, batch_size))
    elif isinstance(inputs, SEVERAL):
        yield from (subject.inputs(inputs[k : k + batch_size]) for k in range(0, count, batch_size))
    else:
        yield subject.inputs(inputs)
