"""How far a mean over pictures can be trusted: percentile bootstrap over samples, seeded.

A sample (a picture, a text) is drawn as a whole, with all its tokens and pixels: those of one picture are alike, and
counting them as if they were independent would make every interval too narrow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError

LEVEL = 0.95
REPEATS = 2000
BLOCK = 2**22  # numbers held at a time


@dataclass(frozen=True)
class Estimate:
    """A value and the interval that holds `level` of its bootstrap values; `samples` is what was drawn from."""

    value: float
    low: float
    high: float
    samples: int
    level: float = LEVEL

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def mean_interval(values: Any, *, level: float = LEVEL, repeats: int = REPEATS, seed: int = 0) -> Estimate:
    """The mean of one number a sample (sample,); NaN marks samples that have none and are left out."""
    numbers = np.asarray(values, np.float64)
    if numbers.ndim != 1 or np.isinf(numbers).any():
        raise SettingsError("values are finite and (sample,)", given=numbers.shape)
    numbers = numbers[~np.isnan(numbers)]
    drawn = np.concatenate([numbers[rows].mean(1) for rows in draws(len(numbers), repeats, seed)])
    return interval(float(numbers.mean()), drawn, len(numbers), level)


def bootstrap(
    statistic: Callable[[np.ndarray], float],
    samples: int,
    *,
    level: float = LEVEL,
    repeats: int = REPEATS,
    seed: int = 0,
    centred: bool = False,
) -> Estimate:
    """Any statistic of positions (sample,), which may hold one position several times.

    A statistic that chooses something to suit its samples is larger on draws, which hold fewer different ones.
    `centred` takes this off: as far as the middle of the draws lies from the value.
    """
    value = float(statistic(np.arange(samples)))
    drawn = np.array([statistic(rows) for block in draws(samples, repeats, seed) for rows in block], np.float64)
    return interval(value, drawn + (value - np.median(drawn)) if centred else drawn, samples, level)


def draws(samples: int, repeats: int, seed: int) -> list[np.ndarray]:
    """Positions int (repeat, sample) with replacement, in blocks; the same seed gives the same ones."""
    if samples < 1:
        raise SettingsError("there is no sample to draw from", given=samples)
    if repeats < 1:
        raise SettingsError("at least one bootstrap sample is needed", given=repeats)
    rng = np.random.default_rng(seed)
    rows = max(1, BLOCK // samples)
    return [rng.integers(0, samples, (min(rows, repeats - k), samples)) for k in range(0, repeats, rows)]


def interval(value: float, drawn: np.ndarray, samples: int, level: float) -> Estimate:
    if not 0 < level < 1:
        raise SettingsError("a level lies between 0 and 1", given=level)
    low, high = np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2))
    return Estimate(value, float(low), float(high), samples, level)
