"""Numbers, maps and names as cards hold them."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

DIGITS = 5


def plain(value: Any) -> Any:
    """A number of five digits, or None for what is no number; arrays become lists."""
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    number = float(value)
    return float(f"{number:.{DIGITS}g}") if np.isfinite(number) else None


def packed(values: np.ndarray) -> str:
    """An array as base64 of its bytes, little-endian."""
    array = np.ascontiguousarray(values)
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode()


def shade(colour: np.ndarray) -> str:
    """uint8 (3,) -> #rrggbb."""
    return "#" + "".join(f"{int(part):02x}" for part in colour)


def number(value: float | None) -> str:
    """For a sentence."""
    return "none" if value is None else f"{value:.3g}"
