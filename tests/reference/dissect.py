"""Slow twin of `vitreous.evidence.dissect`: soft WPMI, one unit, word and picture after the other."""

from __future__ import annotations

import math

import numpy as np


def soft_wpmi(
    images: np.ndarray,
    texts: np.ndarray,
    activations: np.ndarray,
    top: int,
    temperature: float,
    ends: tuple[float, float],
    weight: float,
) -> np.ndarray:
    """(picture, channel), (text, channel), (picture, unit) -> scores (unit, text)."""
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    fits = np.exp(temperature * images @ texts.T)
    fits /= fits.sum(1, keepdims=True)
    units = activations.shape[1]
    likely = np.zeros((units, len(texts)))
    for u in range(units):
        strongest = sorted(range(len(images)), key=lambda i: (-activations[i, u], i))[:top]
        for t in range(len(texts)):
            for place, i in enumerate(strongest):
                belongs = ends[0] - place / top * (ends[0] - ends[1])
                likely[u, t] += math.log(1 + belongs * (fits[i, t] - 1))
    out = np.zeros_like(likely)
    for t in range(len(texts)):
        prior = math.log(sum(math.exp(likely[u, t]) for u in range(units)) / units)
        out[:, t] = likely[:, t] - weight * prior
    return out
