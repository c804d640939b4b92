"""Does what a unit adds to a class go with the label where it should not? A difference, and how often luck gives it.

The effects of a unit on a class, one a picture, are told apart by who belongs (the pictures of the class) and who does
not. Their difference of means is the suspicion. Under the null hypothesis the label says nothing about these effects,
so that labels can be exchanged between pictures, within `strata` where there are any. Correction for many tests is
statsmodels'.
"""

from __future__ import annotations

import numpy as np

from vitreous.errors import SettingsError

BLOCK = 512  # exchanges drawn in one go


def difference(effects: np.ndarray, member: np.ndarray) -> np.ndarray:
    """effects (picture, unit), member bool (picture,) -> (unit,): mean of those that belong minus mean of the rest."""
    return _contrast(member[None])[0] @ effects


def exchange_test(
    effects: np.ndarray,
    member: np.ndarray,
    *,
    strata: np.ndarray | None = None,
    two_sided: bool = False,
    repeats: int = 10_000,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """(unit,) differences and p-values: how often exchanged labels give as much, the observed order counted as one."""
    effects, member = np.asarray(effects, np.float64), np.asarray(member, bool)
    if effects.ndim != 2 or member.shape != (len(effects),):
        raise SettingsError("effects (picture, unit) and one member a picture", given=(effects.shape, member.shape))
    if not 0 < member.sum() < len(member):
        raise SettingsError("some pictures belong and some do not", given=f"{int(member.sum())} of {len(member)}")
    if repeats < 1:
        raise SettingsError("repeats is at least 1", given=repeats)
    observed = difference(effects, member)
    size = np.abs(observed) if two_sided else observed
    rng = np.random.default_rng(seed)
    order = np.zeros(len(member), np.int64) if strata is None else np.unique(strata, return_inverse=True)[1]
    places = np.argsort(order, kind="stable")
    tolerance = 1e-12 * np.abs(effects).max(0, initial=0)
    as_much = np.ones(effects.shape[1])
    for start in range(0, repeats, BLOCK):
        drawn = rng.random((min(BLOCK, repeats - start), len(member)))
        mixed = np.empty(drawn.shape, bool)
        mixed[:, places] = member[np.argsort(drawn + order, axis=1)]  # strata stay together, each in a new order
        found = _contrast(mixed) @ effects
        as_much += ((np.abs(found) if two_sided else found) >= size - tolerance).sum(0)
    return observed, as_much / (repeats + 1)


def corrected(p: np.ndarray, method: str = "fdr_bh") -> np.ndarray:
    """p-values of many tests, of any shape, corrected together; `method` is one of statsmodels' multipletests."""
    from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

    try:
        return multipletests(np.ravel(p), method=method)[1].reshape(np.shape(p))
    except ValueError:
        accepted = ("fdr_bh", "fdr_by", "holm", "bonferroni", "hommel", "sidak")
        raise SettingsError("no such correction", given=method, accepted=accepted) from None


def _contrast(members: np.ndarray) -> np.ndarray:
    """bool (draw, picture) -> weights whose product with effects is the difference of means."""
    inside = members / members.sum(1, keepdims=True)
    return inside - ~members / (~members).sum(1, keepdims=True)
