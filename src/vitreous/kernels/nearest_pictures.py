"""For every place in every picture: which other pictures have a place most like it?

Likeness is the cosine of tokens less their mean. A picture counts by its best place; a place's own does not count.
"""

from __future__ import annotations

import numpy as np

from vitreous.errors import SettingsError

ROWS = 1024  # places that are compared with all others in one go


def nearest_pictures(tokens: np.ndarray, picture: np.ndarray, k: int) -> np.ndarray:
    """tokens (place, channel), picture (place,) in rising order -> int64 (place, k) numbers of pictures, best first.

    Of pictures that are as near as each other the first comes first.
    """
    numbers, starts, own = np.unique(picture, return_index=True, return_inverse=True)
    if (np.diff(picture) < 0).any():
        raise SettingsError("places come picture by picture, in rising order")
    if not 0 < k < len(numbers):
        raise SettingsError("neighbours are other pictures", given=k, accepted=f"1 to {len(numbers) - 1}")
    x = tokens - tokens.mean(0)
    x = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)).astype(np.float32)
    found = np.empty((len(x), k), np.int64)
    for at in range(0, len(x), ROWS):
        here = slice(at, at + ROWS)
        best = np.maximum.reduceat(x[here] @ x.T, starts, axis=1)
        best[np.arange(len(best)), own[here]] = -np.inf
        found[here] = numbers[np.argsort(-best, axis=1, kind="stable")[:, :k]]
    return found
