"""From what a model gives to classes: its own head, a linear probe trained here, or anything that is handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.baselines.probe import fit_probe
from vitreous.checks import is_number, whole_numbers
from vitreous.errors import ImageError, ModelError, SettingsError
from vitreous.hooks import evaluating
from vitreous.images import ImageSet
from vitreous.models.subject import Subject

BATCH = 16
LEAST = 4  # pictures of a class that a test can say anything about
TRAINED = 0.5  # share of the pictures that a probe is fitted on if it is given none of its own


@dataclass(frozen=True, eq=False)
class Head:
    """`kind` is own, probe or given. `read` makes (sample, class) of the model's output, classes as in `names`."""

    kind: str
    names: tuple[str, ...]
    read: Callable[[Tensor], Tensor]
    linear: tuple[np.ndarray, np.ndarray] | None = None

    def logits(self, subject: Subject, x: Tensor) -> Tensor:
        found = self.read(subject(x))
        if found.ndim != 2 or found.shape[1] != len(self.names):
            raise ModelError(
                "a head gives (sample, class)", given=tuple(found.shape), accepted=f"(sample, {len(self.names)})"
            )
        return found.float()


#: "own", "probe", a function from the model's output to (sample, class), (weight, bias), or a head that was opened.
Given = str | Callable[[Tensor], Tensor] | tuple[Any, Any] | Head | None


def check_subject(subject: Subject) -> None:
    """Refuses models that see no pictures, and models that are not themselves at the moment."""
    if subject.modality != "image" or subject.preprocess is None:
        raise ModelError(f"{subject.name} reads texts; an audit looks at pictures", given=subject.family.name)
    if subject.hooks:
        raise SettingsError(
            "the model carries hooks", given=subject.hooked[:3], remedy="leave vt.steer or a patch first"
        )


def check_alpha(alpha: float) -> None:
    if not is_number(alpha) or not 0 < alpha < 1:
        raise SettingsError("alpha lies between 0 and 1", given=alpha)


def check_labels(images: ImageSet) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels 0 to C - 1 and the names of the classes; refuses sets that an audit can say nothing about."""
    if images.labels is None:
        raise ImageError(
            "an audit needs labelled pictures",
            given=images.name,
            remedy="one folder a class, two or more; or labels=... with arrays",
        )
    present, labels, counts = np.unique(images.labels, return_inverse=True, return_counts=True)
    names = tuple(images.classes[k] if images.classes else f"class {k}" for k in present.tolist())
    if len(present) < 2:
        raise ImageError("an audit compares classes, and there is one", given=names)
    few = {name: int(n) for name, n in zip(names, counts, strict=True) if n < LEAST}
    if few:
        raise ImageError(
            f"a class needs {LEAST} pictures or more for a test",
            given=dict(list(few.items())[:5]),
            remedy="add pictures of these classes, or leave them out",
        )
    return labels, names


def open_head(
    subject: Subject, given: Given, images: ImageSet, train: ImageSet | None, targets: Sequence[int] | None, seed: int
) -> tuple[Head, ImageSet]:
    """The head, and the pictures to audit: all of them, or those that a probe was not fitted on."""
    _, names = check_labels(images)
    if isinstance(given, Head):
        if given.names != names:
            raise ImageError("the head is for other classes", given=names, accepted=given.names)
        return given, images
    if given is None:
        given = "own" if _has_own(subject) else "probe"
    if given not in ("own", "probe") if isinstance(given, str) else not (isinstance(given, tuple) or callable(given)):
        raise SettingsError("unknown head", given=given, accepted=("own", "probe", "a function", "(weight, bias)"))
    if given == "own":
        return _own(subject, images, names, targets), images
    if given == "probe":
        return _probe(subject, images, train, names, seed)
    if isinstance(given, tuple):
        weight, bias = _arrays(given, len(names))
        return Head("given", names, _linear(weight, bias, subject), (weight, bias)), images
    assert callable(given)
    return Head("given", names, given), images


def outputs_of(subject: Subject, images: ImageSet) -> np.ndarray:
    """float32 (sample, channel): what the model gives, of tokens the class token, or their mean where there is none."""
    assert subject.preprocess is not None
    parts = []
    with torch.inference_mode(), evaluating(subject.module):
        for _, x in images.batches(subject.preprocess, BATCH):
            parts.append(_pooled(subject(torch.from_numpy(x)), subject).float().cpu().numpy())
    return np.concatenate(parts)


def _pooled(out: Tensor, subject: Subject) -> Tensor:
    if out.ndim != 3:
        return out
    return out[:, 0] if subject.prefix else out.mean(1)


def _has_own(subject: Subject) -> bool:
    """Outputs of a classifier on top; projections have no bias."""
    from torch import nn

    return isinstance(subject.head, nn.Linear) and subject.head.bias is not None


def _own(subject: Subject, images: ImageSet, names: tuple[str, ...], targets: Sequence[int] | None) -> Head:
    if subject.head is None and not subject.root_path:
        raise ModelError(f"{subject.name} has no classifier on top", given=subject.family.name, remedy="head='probe'")
    assert subject.preprocess is not None
    with torch.inference_mode(), evaluating(subject.module):
        count = subject([images[0].image]).shape[-1]
    assert images.labels is not None
    chosen = (np.unique(images.labels) if targets is None else whole_numbers("targets", targets)).tolist()
    if targets is None and images.classes is not None and len(images.classes) != count:
        raise SettingsError(
            f"{subject.name} has {count} classes and the pictures {len(images.classes)}",
            given=list(images.classes)[:5],
            remedy="targets=... says which output each class of the pictures is; or head='probe'",
        )
    if len(chosen) != len(names) or not all(0 <= k < count for k in chosen) or len(set(chosen)) < len(chosen):
        raise SettingsError("one output of the model for each class", given=chosen[:10], accepted=f"0 to {count - 1}")
    places = torch.tensor(chosen, device=subject.device)
    return Head("own", names, lambda out: out.index_select(-1, places))


def _linear(weight: np.ndarray, bias: np.ndarray, subject: Subject) -> Callable[[Tensor], Tensor]:
    W, b = (torch.from_numpy(part).to(subject.device) for part in (weight, bias))

    def read(out: Tensor) -> Tensor:
        x = _pooled(out, subject).float()
        if x.shape[-1] != W.shape[1]:
            raise SettingsError("a linear head is for other channels", given=tuple(W.shape), accepted=f"{x.shape[-1]}")
        return torch.nn.functional.linear(x, W, b)

    return read


def _arrays(given: tuple[Any, ...], classes: int) -> tuple[np.ndarray, np.ndarray]:
    parts = [np.asarray(part) for part in given]
    if [part.shape[:1] for part in parts] != [(classes,)] * 2 or [part.ndim for part in parts] != [2, 1]:
        raise SettingsError(
            "a linear head is (weight (class, channel), bias (class,))",
            given=tuple(part.shape for part in parts),
            accepted=f"{classes} classes",
        )
    if wrong := [str(part.dtype) for part in parts if part.dtype.kind not in "fiu" or not np.isfinite(part).all()]:
        raise SettingsError("a linear head is of finite numbers", given=wrong)
    weight, bias = (part.astype(np.float32) for part in parts)
    return weight, bias


def _probe(
    subject: Subject, images: ImageSet, train: ImageSet | None, names: tuple[str, ...], seed: int
) -> tuple[Head, ImageSet]:
    if train is None:
        order = np.random.default_rng((seed, 8)).permutation(len(images))
        cut = round(TRAINED * len(images))
        train, images = images[np.sort(order[:cut])], images[np.sort(order[cut:])]
        if check_labels(images)[1] != names or check_labels(train)[1] != names:
            raise ImageError("too few pictures to fit a probe on half of them", given=len(order), remedy="train=...")
    labels, trained = check_labels(train)
    if trained != names:
        raise ImageError("the probe is trained on other classes", given=trained, accepted=names)
    probe = fit_probe(outputs_of(subject, train), labels)
    arrays = probe.weight.astype(np.float32), probe.bias.astype(np.float32)
    return Head("probe", names, _linear(*arrays, subject), arrays), images
