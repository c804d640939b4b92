"""Slow twin of `vitreous.evidence.dissect`: soft WPMI, one set of pictures, word and picture after the other."""

from __future__ import annotations

import math

import numpy as np


def likelihoods(
    images: np.ndarray, texts: np.ndarray, tops: np.ndarray, temperature: float, ends: tuple[float, float]
) -> np.ndarray:
    """(picture, channel), (text, channel), pictures (set, top) -> log p(t | B) (set, text)."""
    images = images / np.linalg.norm(images, axis=1, keepdims=True)
    texts = texts / np.linalg.norm(texts, axis=1, keepdims=True)
    fits = np.exp(temperature * images @ texts.T)
    fits /= fits.sum(1, keepdims=True)
    out = np.zeros((len(tops), len(texts)))
    for u, pictures in enumerate(tops):
        for t in range(len(texts)):
            for place, i in enumerate(pictures):
                belongs = ends[0] - place / len(pictures) * (ends[0] - ends[1])
                out[u, t] += math.log(1 + belongs * (fits[i, t] - 1))
    return out


def scores(units: np.ndarray, prior: np.ndarray, weight: float) -> np.ndarray:
    """log p(t | B) - weight log p(t), with p(t) the mean of p(t | B) over the sets of `prior` (set, text)."""
    out = np.zeros_like(units)
    for t in range(units.shape[1]):
        mean = sum(math.exp(one) for one in prior[:, t]) / len(prior)
        out[:, t] = units[:, t] - weight * math.log(mean)
    return out


def chances(units: np.ndarray, random: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The share of random sets, the unit counted as one, that some text fits as far above what is usual for it."""
    mean, spread = random.mean(0), random.std(0)
    out = []
    for u, t in enumerate(first):
        mine = (units[u, t] - mean[t]) / spread[t]
        as_far = sum(max((one - mean) / spread) >= mine for one in random)
        out.append((1 + as_far) / (1 + len(random)))
    return np.array(out)
