"""Masks as run lengths, the way COCO writes them: down each column in turn, background first.

The compressed form writes each length as its difference to the one two before, in digits of five bits, lowest first, as
characters from "0" on; a bit says that more digits follow, and the last digit's highest bit is the sign.
"""

from __future__ import annotations

import numpy as np

from vitreous.errors import SettingsError


def run_lengths(mask: np.ndarray) -> list[int]:
    """bool (row, column) -> lengths of runs, the first of which is background and may be 0."""
    if mask.ndim != 2 or not mask.size:
        raise SettingsError("a mask is (row, column)", given=mask.shape)
    flat = np.concatenate([[False], np.asarray(mask, bool).ravel(order="F")])
    starts = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate([[0], starts, [flat.size - 1]])).tolist()


def compress(lengths: list[int]) -> str:
    """Lengths as COCO's text."""
    out = []
    for k, length in enumerate(lengths):
        left = length - (lengths[k - 2] if k > 2 else 0)
        while True:
            digit, left = left & 31, left >> 5
            done = left == (-1 if digit & 16 else 0)
            out.append(chr(48 + digit + (0 if done else 32)))
            if done:
                break
    return "".join(out)
