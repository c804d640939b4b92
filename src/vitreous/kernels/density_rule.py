"""What clusters are asked for, and the sample that stands for many points: the same on every route.

How small a sample may be is a matter of `min_cluster_size` scaled down to it. Of a planted mixture with one cluster of
two fifths of the points, drawn again and again, that cluster fell apart in 15 of 28 samples where a cluster had 20
points at least, in none of 12 at 30, and in 1 of 22 at 41. Clusters that are split by chance cost far more than the few
small ones that a larger number leaves out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vitreous.checks import whole
from vitreous.errors import SettingsError

SELECTIONS = ("leaf", "eom")
DIMS = 64
SMALL = 1024  # points that are not worth a projection
SAMPLE = 16_384  # points of a sample at least: clusters of the paper's size have 41 or more in it
SCALED_SIZE = 30  # min_cluster_size in a sample at least
SCALED_SAMPLES = 5  # min_samples in a sample at least, if that many were asked for


@dataclass(frozen=True)
class Rule:
    """`min_samples` counts the point itself; `sample` points are clustered if there are at least twice as many."""

    min_cluster_size: int
    min_samples: int
    selection: str
    sample: int


def checked_rule(count: int, size: int, samples: int | None, selection: str, dims: int, sample: int) -> Rule:
    """The rule for so many points; `min_samples` is `min_cluster_size` unless given."""
    whole(2, min_cluster_size=size)
    whole(1, dims=dims, sample=sample, **({} if samples is None else {"min_samples": samples}))
    if selection not in SELECTIONS:
        raise SettingsError("no such way to select clusters", given=selection, accepted=SELECTIONS)
    rule = Rule(size, size if samples is None else samples, selection, sample)
    if count >= 2 * size:
        refuse_too_few(rule, count)
    return rule


def refuse_too_few(rule: Rule, count: int) -> None:
    if rule.min_samples > count:
        raise SettingsError(
            "min_samples is more than there are points", given=rule.min_samples, accepted=f"1 to {count}"
        )


def drawn_sample(count: int, rule: Rule, seed: int) -> tuple[np.ndarray, Rule] | None:
    """Rows of a sample, in order, and the rule scaled to it; None where all points are clustered."""
    refuse_too_few(rule, count)
    size = min(count, max(rule.sample, math.ceil(SCALED_SIZE * count / rule.min_cluster_size)))
    if 2 * size > count:
        return None
    chosen = np.sort(np.random.default_rng((seed, 1)).choice(count, size, replace=False))
    scale = size / count
    few = max(round(rule.min_samples * scale), min(rule.min_samples, SCALED_SAMPLES))
    return chosen, Rule(max(round(rule.min_cluster_size * scale), 2), few, rule.selection, size)
