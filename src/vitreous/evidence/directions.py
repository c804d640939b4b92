"""Embeddings of any kind as rows of length 1, checked: the dot product of two is their cosine."""

from __future__ import annotations

from typing import Any

import numpy as np

from vitreous.errors import SettingsError


def directions(embeddings: Any, what: str = "picture") -> np.ndarray:
    """Floats (row, channel), an array, tensor or site of a store -> float32, or float64 if they were.

    A row of zeros has no direction and stays zero. `what` a row is stands in errors.
    """
    rows = array_of(embeddings)
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "fiu":
        raise SettingsError(f"embeddings are numbers ({what}, channel)", given=f"{rows.dtype} {rows.shape}")
    rows = rows.astype(np.float64 if rows.dtype.itemsize >= 8 else np.float32)
    if not np.isfinite(rows).all():
        bad = int(np.flatnonzero(~np.isfinite(rows).all(1))[0])
        raise SettingsError("embeddings hold NaN or infinity", given=f"{what} {bad}")
    rows /= np.maximum(abs(rows).max(1, keepdims=True), np.finfo(rows.dtype).tiny)  # squares cannot overflow
    norms = np.sqrt(np.einsum("rc,rc->r", rows, rows, dtype=np.float64))[:, None]
    return (rows / np.where(norms > 0, norms, 1)).astype(rows.dtype)


def array_of(values: Any) -> np.ndarray:
    """An array from an array, a tensor on any device, a lazily read one, or a list."""
    import torch

    return np.asarray(values.detach().float().cpu() if isinstance(values, torch.Tensor) else values)
