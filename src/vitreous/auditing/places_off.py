"""Places of a kind, found by a direction and a threshold, and a small patch that puts them at a mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import vitreous.auditing.patch_file as patch_file
import vitreous.hooks as hooks
from vitreous.auditing.heads import BATCH
from vitreous.auditing.switch import Patch
from vitreous.errors import ModelError, SettingsError
from vitreous.finding import Finding
from vitreous.hooks import evaluating
from vitreous.images import ImageSet
from vitreous.kernels.fill_holes import fill_holes
from vitreous.models.subject import Subject

FORMAT, VERSION = "vitreous places", 1
ARRAYS = ("classes", "weight", "bias", "levels")


@dataclass(frozen=True, eq=False)
class Places:
    """A place is found for class `classes[k]` if `weight[k]` (channel,) . (token - level of its position) + `bias[k]`
    is above zero. `levels` (position, channel); `prefix` tokens before the patches are never found."""

    site: str
    prefix: int
    classes: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    levels: np.ndarray

    def __len__(self) -> int:
        return len(self.classes)

    def some(self, rows: Sequence[int] | np.ndarray) -> Places:
        at = np.asarray(rows, np.int64)
        return Places(self.site, self.prefix, self.classes[at], self.weight[at], self.bias[at], self.levels)

    def scores(self, tokens: np.ndarray) -> np.ndarray:
        """tokens (picture, position, channel) -> (kind, picture, position)."""
        return np.moveaxis((tokens - self.levels) @ self.weight.T + self.bias, -1, 0)

    def moved(self, x: Tensor) -> Tensor:
        """x (sample, token, channel): places that are found are put at their level, all others keep their bits."""
        levels, weight, bias = (torch.from_numpy(v).to(x) for v in (self.levels, self.weight, self.bias))
        patches = x[:, self.prefix :]
        if patches.shape[1:] != levels.shape:
            raise SettingsError(
                "pictures of another size", given=tuple(patches.shape[1:]), accepted=str(tuple(levels.shape))
            )
        found = ((patches - levels) @ weight.mT + bias > 0).any(-1, keepdim=True)
        return torch.cat([x[:, : self.prefix], torch.where(found, levels, patches)], 1)


def put(subject: Subject, places: Places | None) -> Any:
    """The model with these places at their level, for the time of a `with`; None changes nothing."""
    return nullcontext() if places is None else hooks.patch(subject, {places.site: places.moved})


def prefix_of(subject: Subject, site: str) -> int:
    return len(subject.prefix) if subject.block_of(site) is not None else 0


def tokens_at(subject: Subject, site: str, images: ImageSet, painted: np.ndarray | None = None) -> np.ndarray:
    """float32 (picture, position, channel) without the prefix; where `painted` says, pictures are painted over."""
    assert subject.preprocess is not None
    parts, prefix = [], prefix_of(subject, site)
    with torch.inference_mode(), evaluating(subject.module), hooks.capture(subject, site, stop=True) as seen:
        for at, batch in images.batches(subject.preprocess, BATCH):
            x = subject.inputs(torch.from_numpy(batch))
            if painted is not None:
                x = fill_holes(x, torch.from_numpy(painted[at]).to(x.device))
            subject(x)
            parts.append(seen[site][:, prefix:].float().cpu().numpy())
    return np.concatenate(parts)


def share_of(masks: np.ndarray, positions: int, subject: Subject) -> np.ndarray:
    """(picture, position): how much of a patch lies on the object."""
    from vitreous.auditing.effects import patch_share

    return patch_share(torch.from_numpy(masks), subject, positions).numpy()


def fit(tokens: np.ndarray, tell: np.ndarray, objects: np.ndarray, penalty: float) -> tuple[np.ndarray, float]:
    """Logistic regression, both sides of equal weight: places that tell against the others and those on the object."""
    from sklearn.linear_model import LogisticRegression

    x, y = np.concatenate([tokens, objects]), np.concatenate([tell, np.zeros(len(objects), bool)])
    scale = np.maximum(x.std(0), 1e-6)
    fitted = LogisticRegression(C=penalty, class_weight="balanced", max_iter=500).fit(x / scale, y)
    return (fitted.coef_[0] / scale).astype(np.float32), float(fitted.intercept_[0])


@dataclass(frozen=True, eq=False)
class PlacesOff(Patch, Finding):
    """A patch: `model` is the hash of the model that was audited, `names` the classes whose places are put at a mean.

    >>> with patch.on(subject):
    ...     logits = subject(x)
    """

    model: str
    names: tuple[str, ...]
    places: Places

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"PlacesOff({', '.join(self.names)} at {self.places.site})"

    def facts(self) -> dict[str, Any]:
        return {"classes": ", ".join(self.names), "site": self.places.site, "model": self.model[:12]}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a class whose places are put at a mean: where a place is found, and the threshold."""
        rows = len(self.names)
        return {"site": [self.places.site] * rows, "class": list(self.names), "threshold": -self.places.bias}

    @contextmanager
    def on(self, owner: Subject) -> Iterator[None]:
        """Refused unless the model has the weights that were audited."""
        if (given := owner.fingerprint) != self.model:
            raise ModelError(
                "the weights are not those that were audited", given=given[:12], accepted=f"{self.model[:12]}..."
            )
        with put(owner, self.places):
            yield

    def save(self, path: str | Path) -> None:
        """One safetensors file: a direction and a threshold a class, and the mean of every position."""
        about: dict[str, Any] = {"model": self.model, "names": list(self.names)}
        about |= {"site": self.places.site, "prefix": self.places.prefix}
        arrays = {name: vars(self.places)[name] for name in ARRAYS}
        patch_file.write(path, patch_file.to_bytes(FORMAT, VERSION, about, arrays))

    @classmethod
    def load(cls, path: str | Path) -> PlacesOff:
        """What `save` wrote; anything else is refused."""

        def made(about: dict[str, Any], array: Callable[[str], np.ndarray]) -> PlacesOff:
            places = Places(about["site"], about["prefix"], **{name: array(name) for name in ARRAYS})
            return cls(about["model"], tuple(about["names"]), places)

        refusal, remedy = "not a patch of places, or a damaged one", "switch_off(...).save(...)"
        return patch_file.read(path, FORMAT, VERSION, made, refusal, remedy)
