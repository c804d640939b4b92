"""The way back: COCO's text to lengths, lengths to the mask."""

from __future__ import annotations

import numpy as np


def mask_of(lengths: list[int], size: tuple[int, int]) -> np.ndarray:
    """The mask again: bool (row, column)."""
    inside = np.arange(len(lengths)) % 2 == 1
    flat = np.repeat(inside, lengths)
    return flat.reshape(size, order="F")


def decompress(text: str) -> list[int]:
    """COCO's text as lengths."""
    lengths: list[int] = []
    value = shift = 0
    for letter in text:
        digit = ord(letter) - 48
        value |= (digit & 31) << shift
        shift += 5
        if digit & 32:
            continue
        if digit & 16:
            value -= 1 << shift
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = shift = 0
    return lengths
