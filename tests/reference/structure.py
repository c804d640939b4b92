"""Section 3.3 of the structure paper, straight from its formulas, one unit and one pair at a time."""

from __future__ import annotations

import numpy as np


def grouped_ranks(F: np.ndarray, beta: int) -> np.ndarray:
    B, H = F.shape
    out = np.empty((B, H), int)
    for h in range(H):
        order = sorted(range(B), key=lambda s, h=h: (F[s, h], s))
        for rank, s in enumerate(order):
            out[s, h] = rank * beta // B
    return out


def unit_clusters(F: np.ndarray, beta: int, threshold: float) -> np.ndarray:
    B, H = F.shape
    ranks = grouped_ranks(F, beta)
    alive = [h for h in range(H) if len(set(F[:, h].tolist())) > 1]
    component = {h: h for h in alive}
    changed = True
    while changed:
        changed = False
        for a in alive:
            for b in alive:
                if np.abs(ranks[:, a] - ranks[:, b]).sum() < threshold * B and component[a] != component[b]:
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
