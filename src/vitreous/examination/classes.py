"""What a model's output says in words: how likely each of some classes is, for steering to have something to move.

`scenes-text` is asked by its own text tower whether words are true of a picture; a model with a classifier is asked as
it is; any other is given a linear probe on the pictures' labels, with its accuracy on pictures it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import StoreError
from vitreous.examination.files import AGAIN, read_arrays, write_arrays

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

FORMAT, VERSION = "vitreous classes", 1
KINDS = ("words", "probe", "own")
WORDED = "bundled:scenes-text"
HELD_OUT = 0.3


@dataclass(frozen=True, eq=False)
class Classes:
    """`names` of classes and how to read them off the model's pooled output (sample, channel).

    `projection` (channel, channel) first, where there is one, and then to length 1; then `weight` (class, channel) and
    `bias` (class,). `kind` "words": each class is true or not, and several can be; "probe" and "own": one of all.
    `accuracy` is a probe's on held-out pictures, `chance` that of the most frequent class.
    """

    kind: str
    names: tuple[str, ...]
    weight: np.ndarray
    bias: np.ndarray
    projection: np.ndarray | None = None
    accuracy: float | None = None
    chance: float | None = None

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """(sample, channel) or (sample, token, channel) of the model's output -> float64 (sample, class)."""
        x = pooled(outputs)
        if self.kind == "own":
            logits = x
        else:
            if self.projection is not None:
                x = x @ self.projection.T
                x /= np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(float).tiny)
            logits = x @ self.weight.T + self.bias
        if self.kind == "words":
            return 1 / (1 + np.exp(-np.clip(logits, -60, 60)))
        shifted = np.exp(logits - logits.max(1, keepdims=True))
        return shifted / shifted.sum(1, keepdims=True)

    def save(self, path: Path) -> None:
        about = {"format": FORMAT, "version": VERSION, "kind": self.kind, "names": list(self.names)}
        about |= {"accuracy": self.accuracy, "chance": self.chance}
        arrays = {"weight": self.weight, "bias": self.bias}
        write_arrays(path, about, arrays if self.projection is None else arrays | {"projection": self.projection})

    @classmethod
    def load(cls, path: Path) -> Classes:
        about, arrays = read_arrays(path, "classes")
        try:
            if (about["format"], about["version"]) != (FORMAT, VERSION) or about["kind"] not in KINDS:
                raise KeyError(FORMAT)
            made = cls(
                about["kind"],
                tuple(map(str, about["names"])),
                arrays["weight"],
                arrays["bias"],
                arrays.get("projection"),
                about["accuracy"],
                about["chance"],
            )
        except (LookupError, TypeError):
            raise StoreError("not classes of this version", given=path.name, remedy=AGAIN) from None
        if made.kind != "own" and not len(made.weight) == len(made.bias) == len(made.names):
            raise StoreError("the parts of the classes do not fit together", given=path.name, remedy=AGAIN)
        return made


def pooled(outputs: Any) -> np.ndarray:
    """What a model gives as float64 (sample, channel); of tokens the first, the class token where there is one."""
    x = np.asarray(outputs, np.float64)
    return x[:, 0] if x.ndim == 3 else x


def find_classes(subject: Subject, images: ImageSet, embed: Callable[[], np.ndarray], seed: int) -> Classes | None:
    """The classes of a model, or None: it has no words, no classifier, and the pictures have no labels.

    `embed` gives the model's output for all pictures, and is called only if a probe is to be fitted.
    """
    if subject.name == WORDED:
        return _words()
    if (count := _classifier(subject)) is not None:
        names = images.classes if images.classes and len(images.classes) == count else None
        return Classes("own", tuple(names or (f"class {k}" for k in range(count))), np.zeros(0), np.zeros(0))
    if images.labels is None or len(np.unique(images.labels)) < 2:
        return None
    return _probe(pooled(embed()), images, seed)


def _classifier(subject: Subject) -> int | None:
    """Outputs of a classifier on top, None if the top is something else: projections have no bias."""
    from torch import nn

    head = subject.head
    return head.out_features if isinstance(head, nn.Linear) and head.bias is not None else None


def _words() -> Classes:
    """Colours, shapes and textures by the words tower of `scenes-text`."""
    import torch

    from vitreous.models.bundled import load_words
    from vitreous.scenery import ATTRIBUTES

    tower = load_words()
    names = (*ATTRIBUTES["colour"], *ATTRIBUTES["shape"], *ATTRIBUTES["texture"])
    with torch.no_grad():
        words = tower.text(tower.tokens(names)).numpy() * float(tower.phrase_scale.exp())
    bias = np.full(len(names), float(tower.phrase_bias.detach()), np.float32)
    return Classes("words", names, words, bias, tower.image_projection.weight.detach().numpy())


def _probe(x: np.ndarray, images: ImageSet, seed: int) -> Classes:
    """A linear probe; scored on a part of the pictures, then fitted on all."""
    from vitreous.baselines.probe import fit_probe

    assert images.labels is not None
    y = images.labels
    order = np.random.default_rng((seed, 6)).permutation(len(y))
    held = order[: max(1, round(HELD_OUT * len(y)))]
    kept = order[len(held) :]
    accuracy = None
    if len(np.unique(y[kept])) > 1:
        accuracy = float((fit_probe(x[kept], y[kept]).predict(x[held]) == y[held]).mean())
    probe = fit_probe(x, y)
    names = [images.classes[k] if images.classes else f"class {k}" for k in probe.labels.tolist()]
    chance = float(np.bincount(y[held] - y.min()).max() / len(held))
    return Classes("probe", tuple(names), probe.weight, probe.bias, None, accuracy, chance)
