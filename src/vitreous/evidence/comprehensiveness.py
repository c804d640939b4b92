"""Do scores name the words that a summary rests on? Comprehensiveness, eq. 16 and 17 of the tokens paper.

The k % of the context with the highest scores is taken out, and the log-probability of the summary is looked at:

    paper     here                axes         what it is
    x, y      -                   token        context and summary
    λ         scores              token        how much each context token counts, eq. 13
    R_k       -                   token        the k % of the context with the highest scores
    S(x, y)   support             -            log π(y | x), eq. 16, as `log_probability` gives it
    Comp_k    values              text rate    (S(x, y) - S(x ∖ R_k, y)) / |S(x, y)|, eq. 17

Eq. 17 as printed divides by S(x, y) itself. That is the logarithm of a probability and below 0, so a summary that
becomes less likely would score below 0, while the text says that larger values mean more necessary words. Here it is
divided by |S|: 0 if nothing happens, 1 if the summary costs twice as many nats. `as_printed` turns the sign round.

Words taken out are gone, and the words after them move up. `random` sets of the same size are the control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.evidence.bootstrap import Estimate, mean_interval

#: Positions of the context that are kept, one array for each question -> the summary's log-probability for each.
LogProbability = Callable[[Sequence[np.ndarray]], Any]
RATES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True, eq=False)
class Comprehensiveness:
    """`values` float64 (text, rate) by the scores, `random` (text, rate, draw) by chance; `support` (text,) is S(x, y).

    Estimates are means over texts with an interval over texts.
    """

    rates: np.ndarray
    values: np.ndarray
    random: np.ndarray
    support: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    @property
    def as_printed(self) -> np.ndarray:
        """Eq. 17 with its own sign, (text, rate)."""
        return self.values * np.sign(self.support)[:, None]

    def curve(self, **settings: Any) -> tuple[Estimate, ...]:
        """One estimate a rate (Figure 17)."""
        return tuple(mean_interval(column, **settings) for column in self.values.T)

    def random_curve(self, **settings: Any) -> tuple[Estimate, ...]:
        return tuple(mean_interval(column, **settings) for column in self.random.mean(2).T)

    def gap(self, **settings: Any) -> tuple[Estimate, ...]:
        """By the scores less by chance, text by text."""
        return tuple(mean_interval(column, **settings) for column in (self.values - self.random.mean(2)).T)


def comprehensiveness(
    texts: Iterable[tuple[Any, LogProbability]],
    *,
    rates: Sequence[float] = RATES,
    fixed: Sequence[int] = (),
    draws: int = 5,
    seed: int = 0,
) -> Comprehensiveness:
    """Eq. 17 of pairs (scores (token,), log-probability of the summary), one a text.

    `fixed` are positions that stay whatever their score, such as that of the token a text begins with. Of equal scores
    the earlier word goes first.
    """
    shares = np.asarray(rates, np.float64)
    if shares.ndim != 1 or not shares.size or not ((shares > 0) & (shares < 1)).all():
        raise SettingsError("rates are shares of the context, above 0 and below 1", given=list(np.ravel(shares)))
    if draws < 1:
        raise SettingsError("at least one random set is needed", given=draws)
    rng = np.random.default_rng(seed)
    values, control, supports = [], [], []
    for scores, log_probability in texts:
        lam = _scores(scores, fixed)
        free = np.setdiff1d(np.arange(len(lam)), np.asarray(fixed, int))
        falling = free[np.argsort(-lam[free], kind="stable")]
        orders = [falling, *(rng.permutation(free) for _ in range(draws))]
        kept = [np.arange(len(lam)), *(_without(len(lam), order, share) for share in shares for order in orders)]
        support = _answers(log_probability, kept)
        drop = (support[0] - support[1:]) / abs(support[0])
        by_rate = drop.reshape(len(shares), 1 + draws)
        values.append(by_rate[:, 0])
        control.append(by_rate[:, 1:])
        supports.append(support[0])
    if not values:
        raise SettingsError("no texts were given")
    return Comprehensiveness(shares, np.stack(values), np.stack(control), np.array(supports))


def _without(length: int, order: np.ndarray, share: float) -> np.ndarray:
    """Positions that stay when the first ones of an order are taken out: a share of what may go, at least one."""
    gone = order[: max(1, round(share * len(order)))]
    return np.setdiff1d(np.arange(length), gone)


def _answers(log_probability: LogProbability, kept: Sequence[np.ndarray]) -> np.ndarray:
    found = np.asarray(log_probability(kept), np.float64)
    if found.shape != (len(kept),) or not np.isfinite(found).all():
        raise SettingsError(
            "one finite log-probability for each question", given=found.shape, accepted=f"({len(kept)},)"
        )
    if found[0] >= 0:
        raise SettingsError(
            "the log-probability of the summary is below 0",
            given=float(found[0]),
            remedy="the sum of logs, not a mean of p",
        )
    return found


def _scores(scores: Any, fixed: Sequence[int]) -> np.ndarray:
    lam = np.asarray(scores, np.float64)
    if lam.ndim != 1 or not np.isfinite(lam).all():
        raise SettingsError("scores are finite and (token,)", given=lam.shape)
    if outside := [k for k in fixed if not 0 <= k < len(lam)]:
        raise SettingsError("a fixed word is none of the context", given=outside[0], accepted=f"0 to {len(lam) - 1}")
    if len(lam) - len(set(fixed)) < 2:
        raise SettingsError("a context needs two words that may be taken out", given=f"{len(lam)} tokens")
    return lam
