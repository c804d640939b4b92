"""Tests that say whether two sets of numbers differ, all two-sided: a statistic and a p-value each.

Paired ones (`paired_t`, `permutation`) take two lists of the same things in the same order and measure a - b; the
others take two lists of any lengths.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Any

import numpy as np

from vitreous.errors import SettingsError

BLOCK = 256  # sign patterns drawn in one go
SIGNS = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)  # (byte, bit): 1 or -1


@dataclass(frozen=True)
class Test:
    """What a test measured, and how often chance alone would give as much or more."""

    statistic: float
    p: float


def paired_t(a: Any, b: Any) -> Test:
    """Student's t of the differences a - b: (n,), (n,)."""
    differences = _differences(a, b, 2)
    mean = float(differences.mean())
    return t_of_differences(len(differences), mean, float(np.square(differences - mean).sum()))


def t_of_differences(count: int, mean: float, squares: float) -> Test:
    """The same for differences that were only added up: their number, mean, and sum of squares around it.

    Differences that are all zero give t = 0 and p = 1; all alike but not zero, infinite t and p = 0.
    """
    from scipy.special import stdtr

    error = sqrt(squares / (count - 1) / count)
    if error == 0:
        return Test(0.0, 1.0) if mean == 0 else Test(inf if mean > 0 else -inf, 0.0)
    t = mean / error
    return Test(t, float(2 * stdtr(count - 1, -abs(t))))


def permutation(a: Any, b: Any, *, pairs: int = 5000, repeats: int = 10_000, seed: int = 0) -> Test:
    """The mean of a - b on at most `pairs` pairs, drawn without replacement, against random exchanges within pairs.

    No pair is mixed with another: who is a and who is b is drawn anew for each, `repeats` times. The p-value counts the
    observed order as one of them, so it is never zero: at least 1 / (repeats + 1).
    """
    differences = _differences(a, b, 1)
    if pairs < 1 or repeats < 1:
        raise SettingsError("pairs and repeats are at least 1", given={"pairs": pairs, "repeats": repeats})
    rng = np.random.default_rng(seed)
    if len(differences) > pairs:
        differences = differences[rng.choice(len(differences), pairs, replace=False)]
    observed = abs(differences.sum()) * (1 - 1e-12)  # sums in another order are rounded otherwise: a tie is a tie
    # eight pairs a byte: the sum of eight signed differences is looked up, not computed
    eights = np.zeros((len(differences) + 7) // 8 * 8)
    eights[: len(differences)] = differences
    sums = SIGNS @ eights.reshape(-1, 8).T
    place = np.arange(sums.shape[1])
    extreme = 0
    for first in range(0, repeats, BLOCK):
        drawn = rng.integers(0, 256, (min(BLOCK, repeats - first), len(place)), np.uint8)
        extreme += int((abs(sums[drawn, place].sum(1)) >= observed).sum())
    return Test(float(differences.mean()), (extreme + 1) / (repeats + 1))


def kolmogorov_smirnov(a: Any, b: Any) -> Test:
    """The largest gap between the two distribution functions: (n,), (m,). With ties p is an upper bound."""
    from scipy.stats import ks_2samp

    found = ks_2samp(_numbers(a, "a", 1), _numbers(b, "b", 1))
    return Test(float(found.statistic), float(found.pvalue))


def mann_whitney(a: Any, b: Any) -> Test:
    """U of a: in how many of the n · m pairs a is larger, a tie counted half. Below n · m / 2, b tends to be larger."""
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(_numbers(a, "a", 1), _numbers(b, "b", 1))
    return Test(float(found.statistic), float(found.pvalue))


def p_text(p: float, least: float = 1e-300) -> str:
    """A p-value as tables show it: four digits, or "< 1e-300" where it is below what can be told from nothing."""
    return f"< {least:.0e}".replace("e-0", "e-") if p < least else f"{p:.4f}" if p >= 1e-3 else f"{p:.3e}"


def _differences(a: Any, b: Any, least: int) -> np.ndarray:
    first, second = _numbers(a, "a", least), _numbers(b, "b", least)
    if len(first) != len(second):
        raise SettingsError("paired numbers come in lists of one length", given=f"{len(first)} and {len(second)}")
    return first - second


def _numbers(given: Any, name: str, least: int) -> np.ndarray:
    numbers = np.asarray(given)
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiub":
        raise SettingsError(f"{name} is a list of numbers", given=f"{numbers.dtype} {numbers.shape}")
    if len(numbers) < least:
        raise SettingsError(
            f"{name} is too short to test", given=f"{len(numbers)} numbers", accepted=f"{least} or more"
        )
    numbers = numbers.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise SettingsError(f"{name} holds NaN or infinity", remedy="leave such pairs out before the test")
    return numbers
