"""What `vt.align` and `vt.ncut` refuse before they read: numbers of the wrong kind, devices that are not here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ROUNDING = 1e-5  # of a cosine


def whole(least: int, **given: Any) -> None:
    """Every one of these is a whole number, not smaller than that."""
    for name, value in given.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise SettingsError(f"{name} is a whole number", given=value, accepted=f"from {least} on")


def number(above: bool = False, **given: Any) -> None:
    """Every one of these is a number from 0 on, or above 0."""
    for name, value in given.items():
        kind = isinstance(value, int | float | np.number)
        if not kind or not (value > 0 if above else value >= 0) or value == float("inf"):
            raise SettingsError(f"{name} is a number", given=value, accepted="above 0" if above else "from 0 on")


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


def checked_affinity(affinity: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """A function of one's own, whose answers are looked at: a number from 0 on for every cosine."""

    def checked(cosines: Tensor) -> Tensor:
        shape = cosines.shape
        found = affinity(cosines)
        if found.shape != shape or not bool((found >= -ROUNDING).all()):
            least = float(found.min()) if found.numel() else None
            raise SettingsError(
                "an affinity has a number from 0 on for every cosine",
                given=f"{tuple(found.shape)} for {tuple(shape)}, smallest {least}",
            )
        return found

    return checked
