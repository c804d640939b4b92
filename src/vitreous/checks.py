"""Arguments of the wrong kind are refused before anything is computed, each by its name."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from vitreous.errors import SettingsError


def whole(least: int, **given: Any) -> None:
    """Every one of these is a whole number, not smaller than that."""
    for name, value in given.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise SettingsError(f"{name} is a whole number", given=value, accepted=f"from {least} on")


def number(above: bool = False, **given: Any) -> None:
    """Every one of these is a number from 0 on, or above 0."""
    for name, value in given.items():
        if not is_number(value) or not (value > 0 if above else value >= 0) or value == float("inf"):
            raise SettingsError(f"{name} is a number", given=value, accepted="above 0" if above else "from 0 on")


def flag(**given: Any) -> None:
    """Every one of these is True or False: a word such as "no" would count as True."""
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_):
            raise SettingsError(f"{name} is True or False", given=value)


def whole_numbers(what: str, given: Any) -> np.ndarray:
    """int64 (given,), which may be none."""
    found = np.asarray(given).reshape(-1)
    if found.size and found.dtype.kind not in "iu":
        raise SettingsError(f"{what} are whole numbers", given=given)
    return found.astype(np.int64)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number)
