"""Section 3.3 of the structure paper, straight from its formulas, one unit and one pair at a time."""

from __future__ import annotations

from math import fsum

import numpy as np


def grouped_ranks(F: np.ndarray, beta: int) -> np.ndarray:
    return ranks(F) * beta // len(F)


def ranks(F: np.ndarray) -> np.ndarray:
    B, H = F.shape
    out = np.empty((B, H), int)
    for h in range(H):
        order = sorted(range(B), key=lambda s, h=h: (F[s, h], s))
        for rank, s in enumerate(order):
            out[s, h] = rank
    return out


def transformed(F: np.ndarray, transform: str, beta: int) -> np.ndarray:
    """Section 3.3, and the variants of Table 13."""
    if transform == "grouped_rank":
        return grouped_ranks(F, beta)
    if transform == "rank":
        return ranks(F)
    if transform == "raw":
        return F.astype(float)
    out = np.zeros(F.shape)
    for h in range(F.shape[1]):
        column = [float(v) for v in F[:, h]]
        mean = fsum(column) / len(column)
        deviation = (fsum((v - mean) ** 2 for v in column) / len(column)) ** 0.5
        if min(column) < max(column):
            out[:, h] = [(v - mean) / deviation for v in column]
    return out


def distances(F: np.ndarray, transform: str, beta: int) -> np.ndarray:
    hat = transformed(F, transform, beta)
    return np.array([[fsum(abs(a - b) for a, b in zip(p, q, strict=True)) for q in hat.T] for p in hat.T])


def unit_clusters(F: np.ndarray, beta: int, threshold: float, transform: str = "grouped_rank") -> np.ndarray:
    B, H = F.shape
    hat = transformed(F, transform, beta)
    near = {(a, b) for a in range(H) for b in range(H) if np.abs(hat[:, a] - hat[:, b]).sum() < threshold * B}
    alive = [h for h in range(H) if len(set(F[:, h].tolist())) > 1]
    component = {h: h for h in alive}
    changed = True
    while changed:
        changed = False
        for a in alive:
            for b in alive:
                if (a, b) in near and component[a] != component[b]:
                    low = min(component[a], component[b])
                    component[a] = component[b] = low
                    changed = True
    labels, number = np.full(H, -1), 0
    for h in alive:
        members = [k for k in alive if component[k] == component[h]]
        if h == members[0] and len(members) > 1:
            labels[members] = number
            number += 1
    return labels


def layer_differences(F: np.ndarray, transform: str, beta: int, layers: int) -> list[np.ndarray]:
    """Of each layer, the grey values of its units against all units: section 4.2, a row of Table 8 each."""
    M = distances(F, transform, beta)
    grey = 255 * (M - M.min()) / (M.max() - M.min())
    return [part.ravel() for part in np.split(grey, layers)]
