"""Tests of significance straight from their definitions: every pair, every exchange."""

from __future__ import annotations

from itertools import product

import numpy as np


def t_statistic(a: list[float], b: list[float]) -> float:
    d = [x - y for x, y in zip(a, b, strict=True)]
    n, mean = len(d), sum(d) / len(d)
    return mean / (sum((x - mean) ** 2 for x in d) / (n - 1) / n) ** 0.5


def exchange_p(a: list[float], b: list[float]) -> float:
    """The share of all 2^n exchanges within pairs that give a mean difference as large as the observed one."""
    d = [x - y for x, y in zip(a, b, strict=True)]
    sums = [abs(sum(s * x for s, x in zip(signs, d, strict=True))) for signs in product((1, -1), repeat=len(d))]
    return float(np.mean([s >= abs(sum(d)) - 1e-9 for s in sums]))


def largest_gap(a: list[float], b: list[float]) -> float:
    return max(abs(sum(x <= v for x in a) / len(a) - sum(y <= v for y in b) / len(b)) for v in [*a, *b])


def wins(a: list[float], b: list[float]) -> float:
    return sum((x > y) + (x == y) / 2 for x in a for y in b)
