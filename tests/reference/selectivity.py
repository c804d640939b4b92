"""Slow twin of `vitreous.evidence.selectivity`: AUC by counting pairs."""

from __future__ import annotations

import numpy as np


def auc(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """(row, unit), bool (row, concept) -> (unit, concept): pairs won, a tie counting half."""
    out = np.full((values.shape[1], present.shape[1]), np.nan)
    for unit in range(values.shape[1]):
        for concept in range(present.shape[1]):
            with_it = values[present[:, concept], unit]
            without = values[~present[:, concept], unit]
            won = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in with_it for b in without)
            if len(with_it) and len(without):
                out[unit, concept] = won / (len(with_it) * len(without))
    return out
