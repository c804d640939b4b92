"""Sections 3.3 to 3.5 of the structure paper, one cluster, one layer and one sample at a time."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from reference.structure import unit_clusters


def clusters(F: np.ndarray, beta: int, threshold: float) -> list[list[tuple[int, int, int]]]:
    """(sample, layer, token, channel) -> members (layer, token, channel) of each cluster, in flat order."""
    labels = unit_clusters(F.reshape(len(F), -1), beta, threshold)
    shape = F.shape[1:]
    return [
        [tuple(int(i) for i in np.unravel_index(h, shape)) for h in np.flatnonzero(labels == c)]
        for c in range(labels.max() + 1)
    ]


def total(f: Tensor, found: list[list[tuple[int, int, int]]], main: Tensor, gamma: float, reduce: str) -> Tensor:
    """f (sample, layer, token, channel) with gradient, main loss averaged over the batch."""
    batch = len(f)
    kept = []
    for members in found:
        first, token, channel = members[0]
        last = max(layer for layer, _, _ in members)
        for layer in range(first + 1, last + 1):
            loss = sum((f[n, layer, token, channel] - f[n, first, token, channel].detach()) ** 2 for n in range(batch))
            if loss / batch <= main:
                kept.append(loss if reduce == "sum" else loss / batch)
    return main + gamma * sum(kept) / len(kept) if kept else main + 0 * f.sum()
