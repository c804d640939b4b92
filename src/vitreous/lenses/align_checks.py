"""What `vt.align` and `vt.ncut` refuse before they read: devices that are not here, affinities that are none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.checks import number, whole
from vitreous.errors import SettingsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ROUNDING = 1e-5  # of a cosine
PREDICT = ("together", "alone")


@dataclass(frozen=True)
class Asked:
    """How `vt.align` was asked to learn: every number that decides what comes out, kept with the result."""

    width: int
    lambda_eigen: float
    lambda_zero: float
    lambda_cov: float
    lambda_agree: float
    nodes: int
    eigenvectors: int
    held_out: float
    epochs: int
    patience: int
    batch: int
    lr: float
    sites: str
    tokens: str
    predict: str
    seed: int

    def __post_init__(self) -> None:
        whole(1, width=self.width, nodes=self.nodes, eigenvectors=self.eigenvectors)
        whole(1, epochs=self.epochs, patience=self.patience, batch=self.batch)
        whole(0, seed=self.seed)
        number(lambda_eigen=self.lambda_eigen, lambda_zero=self.lambda_zero, lambda_cov=self.lambda_cov)
        number(lambda_agree=self.lambda_agree, held_out=self.held_out)
        number(above=True, lr=self.lr)
        if self.predict not in PREDICT:
            raise SettingsError("unknown way to predict", given=self.predict, accepted=PREDICT)
        if self.eigenvectors >= self.nodes:
            raise SettingsError(
                "the constraint keeps fewer eigenvectors than nodes", given=f"{self.eigenvectors} of {self.nodes}"
            )


def regions(rois: Any) -> None:
    if rois is not None and not isinstance(rois, Mapping):
        raise SettingsError("regions are masks by name", given=type(rois).__name__, accepted="{name: bool (response,)}")


def device_of(name: str | None) -> torch.device:
    """The device of this name, the processor if there is no name."""
    import torch

    there = ["cpu", *(f"cuda:{n}" for n in range(torch.cuda.device_count()))]
    accepted = [*there, "cuda"] if len(there) > 1 else there
    if torch.backends.mps.is_available():
        accepted.append("mps")
    if name is not None and str(name) not in accepted:
        raise SettingsError("no such device", given=str(name), accepted=accepted)
    return torch.device(name or "cpu")


def folder_for(out: str | Path | None) -> Path | None:
    """Where something will be kept, before anything is computed for it."""
    if out is None:
        return None
    if not isinstance(out, str | Path):
        raise SettingsError("out is a folder", given=out)
    if (folder := Path(out)).is_file():
        raise SettingsError("out is a folder", given=str(folder), remedy="this is a file: choose another name")
    return folder


def checked_affinity(affinity: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of one's own, whose answers are looked at: a number from 0 on for every cosine."""

    def checked(cosines: Tensor) -> Tensor:
        import torch

        shape = cosines.shape
        found = affinity(cosines)
        if not isinstance(found, torch.Tensor):
            raise SettingsError("an affinity gives a tensor, as it gets one", given=type(found).__name__)
        if found.shape != shape or not bool((found >= -ROUNDING).all()):
            least = float(found.min()) if found.numel() else None
            raise SettingsError(
                "an affinity has a number from 0 on for every cosine",
                given=f"{tuple(found.shape)} for {tuple(shape)}, smallest {least}",
            )
        return found

    return checked
