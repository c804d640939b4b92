"""Slow twin of `vitreous.evidence.monosemanticity`: section B.2 read line by line, pair by pair."""

from __future__ import annotations

import numpy as np


def ms_score(embeddings: np.ndarray, activations: np.ndarray, top: int) -> np.ndarray:
    """embeddings (sample, token, channel), activations (sample, token, unit) -> (unit,)."""
    out = []
    for unit in range(activations.shape[2]):
        a = activations[:, :, unit].astype(np.float64)
        if a.max() <= 0 or a.max() == a.min():  # never active, or always alike: no image weighs anything
            out.append(np.nan)
            continue
        best = sorted(range(len(a)), key=lambda image: (-a[image].max(), image))[:top]
        weights, vectors = [], []
        for image in best:
            token = int(a[image].argmax())
            e = embeddings[image, token].astype(np.float64)
            vectors.append(e / np.linalg.norm(e))
            weights.append((a[image, token] - a.min()) / (a.max() - a.min()))
        over, under = 0.0, 0.0
        for i in range(len(best)):
            for j in range(len(best)):
                if i != j:
                    over += weights[i] * weights[j] * float(vectors[i] @ vectors[j])
                    under += weights[i] * weights[j]
        out.append(over / under if under > 0 else np.nan)
    return np.array(out)
