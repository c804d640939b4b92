"""How well responses are predicted: variance explained, and how much of it could be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.errors import SettingsError


def explained(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """R² of each response: (image, response) twice -> (response,). A constant response has none: not a number."""
    measured, predicted = np.asarray(measured, np.float64), np.asarray(predicted, np.float64)
    if measured.shape != predicted.shape or measured.ndim != 2:
        raise SettingsError(
            "measured and predicted responses are (image, response) alike",
            given=f"{measured.shape} and {predicted.shape}",
        )
    left = ((measured - predicted) ** 2).sum(0)
    there = ((measured - measured.mean(0)) ** 2).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(there > 0, 1 - left / there, np.nan)


@dataclass(frozen=True)
class Ceiling:
    """`reliability` (response,): correlation of two halves of the repeats, stepped up to all of them (Spearman-Brown).
    It is the share of variance over images that any prediction could explain."""

    reliability: np.ndarray
    splits: int


def noise_ceiling(repeats: np.ndarray, *, splits: int = 50, seed: int = 0) -> Ceiling:
    """(image, repeat, response), not a number where there is no repeat -> how reliable each response is.

    Each image's repeats are halved at random, `splits` times. Images with fewer than two repeats take no part.
    """
    repeats = np.asarray(repeats, np.float64)
    if repeats.ndim != 3:
        raise SettingsError("repeats are (image, repeat, response)", given=repeats.shape)
    usable = repeats[(np.isfinite(repeats).all(2).sum(1)) >= 2]
    if len(usable) < 3:
        raise SettingsError("too few images with two repeats", given=len(usable), accepted="3 or more")
    generator = np.random.default_rng(seed)
    found = [_halves(usable, generator) for _ in range(splits)]
    r = np.nanmean(found, axis=0)
    return Ceiling(2 * r / (1 + r), splits)


def _halves(repeats: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """(response,): correlation over images of the means of two random halves."""
    there = np.isfinite(repeats).all(2)
    keys = np.where(there, generator.random(there.shape), np.inf)
    rank = keys.argsort(1).argsort(1)
    half = there.sum(1, keepdims=True) // 2
    means = []
    for chosen in (rank < half, (rank >= half) & there):
        weights = chosen / chosen.sum(1, keepdims=True)
        means.append(np.einsum("nr,nrv->nv", weights, np.nan_to_num(repeats)))
    a, b = (m - m.mean(0) for m in means)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(0) / np.sqrt((a * a).sum(0) * (b * b).sum(0))
