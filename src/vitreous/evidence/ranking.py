"""Who wins when units of several methods are compared two at a time: section B.1 of the disentanglement paper.

A presentation shows one unit of each of two methods, as grid A and grid B; every two units are shown twice, the second
time the other way round. Several judges vote on each presentation, the majority wins it, and a method's rate is the
share of presentations that it wins. Methods are ranked by rate, with bootstrap intervals.

How it is read. The paper's Table 3 settles what the text leaves open: its rates are whole multiples of 1/2700 (nine
opponents, 50 pairs, two orders, three data sets) and many are odd multiples, so the two orders count apart; and they
add up to half the number of methods, so next to nothing was dropped. (Those of its second model are multiples of
1/1800, as two data sets would give.) `swaps="agree"` is the stricter rule: two units are compared once, and dropped
if the winner changes with the order.

The widths in Table 3 are those of presentations drawn one by one. The two orders of the same two units are no
independent evidence, so here units are drawn with both their presentations; `resample="presentation"` is the former.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.finding import Finding

SWAPS = ("separate", "agree")
RESAMPLES = ("pair", "presentation")
BLOCK = 64  # bootstrap samples held at a time
SURE = 0.95  # of the intervals


@dataclass(frozen=True, eq=False)
class Schedule:
    """What is shown. `dataset` and `pair` (presentation,): presentations of the same two units share a pair.

    `methods` (presentation, 2) numbers into `names`, and `units` (presentation, 2): grid A, then grid B.
    """

    names: tuple[str, ...]
    dataset: np.ndarray
    pair: np.ndarray
    methods: np.ndarray
    units: np.ndarray

    def __len__(self) -> int:
        return len(self.pair)


@dataclass(frozen=True, eq=False)
class Ranking(Finding):
    """Methods by how often they won; all arrays in the order of `methods`.

    `kind` says who judged and heads every output. `rates` (method,) of those decided, NaN where nothing was;
    `intervals` (method, 2) hold 95 % of the bootstrap; `ranks` (method,) from 1, equal rates share one, -1 for NaN;
    `rank_intervals` (method, 2) likewise. `wins` (method, method): how often the row beat the column. `dropped` counts
    ties.

    How far to trust it: `unanimous`, the share of presentations on which all judges agree; `first` (judge,), the share
    of votes for grid A, 0.5 without bias; `consistent` (judge,), how often a judge keeps its winner when the grids
    change places; `judge_rates` (judge, method), what each alone would give. NaN where there is nothing to count.
    """

    kind: str
    methods: tuple[str, ...]
    judges: tuple[str, ...]
    rates: np.ndarray
    intervals: np.ndarray
    ranks: np.ndarray
    rank_intervals: np.ndarray
    wins: np.ndarray
    dropped: int
    unanimous: float
    first: np.ndarray
    consistent: np.ndarray
    judge_rates: np.ndarray
    settings: Mapping[str, Any]

    def facts(self) -> dict[str, Any]:
        counted = {"judged by": self.kind, "decided": int(self.wins.sum()), "dropped": self.dropped}
        return counted | {"unanimous": self.unanimous}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a method, in the order of `methods`."""
        low, high = self.intervals.T
        found = {"method": list(self.methods), "rank": self.ranks, "win rate": self.rates, "low": low, "high": high}
        return found | {"wins": self.wins.sum(1), "losses": self.wins.sum(0)}

    def table(self) -> str:
        """One line a method, best first."""
        width = max(len(name) for name in ("method", *self.methods))
        lines = [f"{'method':<{width}}  {self.kind}  win rate (%)  95 % interval"]
        for m in np.lexsort((np.arange(len(self.ranks)), np.where(self.ranks < 0, len(self.ranks) + 1, self.ranks))):
            low, high = 100 * self.intervals[m]
            rank = str(self.ranks[m]) if self.ranks[m] > 0 else "-"
            interval = f"[{low:.1f}, {high:.1f}]"
            lines.append(
                f"{self.methods[m]:<{width}}  {rank:>{len(self.kind)}}  {100 * self.rates[m]:>12.2f}  {interval}"
            )
        lines.append(f"{int(self.wins.sum())} decided, {self.dropped} dropped; judges: {', '.join(self.judges)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain values; NaN becomes None."""
        out: dict[str, Any] = {}
        for name, value in self.__dict__.items():
            out[name] = _plain(value.tolist() if isinstance(value, np.ndarray) else value)
        return out


def schedule(
    units: Mapping[str, Sequence[int] | np.ndarray] | Sequence[Mapping[str, Sequence[int] | np.ndarray]],
    *,
    pairs: int = 50,
    seed: int = 0,
) -> Schedule:
    """`pairs` pairs of units for every two methods, each in both orders; one mapping a data set.

    `units` are those that can be shown. A method's units are drawn without replacement; where there are fewer than
    `pairs` some come again, but never against the same opponent. Draws depend on the names of the two methods only:
    adding a method, or more data sets, leaves the others' pairs as they were.
    """
    sets = [units] if isinstance(units, Mapping) else list(units)
    if pairs < 1 or not sets:
        raise SettingsError("at least one pair of units and one data set are needed", given={"pairs": pairs})
    names = tuple(sets[0])
    if len(names) < 2 or any(set(one) != set(names) for one in sets):
        raise SettingsError("two or more methods, the same in every data set", given=[list(one) for one in sets])
    rows: list[tuple[int, int, int, int, int, int]] = []
    pair = 0
    for dataset, one in enumerate(sets):
        for a, b in combinations(range(len(names)), 2):
            for u, v in _drawn(one, names[a], names[b], pairs, seed, dataset):
                rows += [(dataset, pair, a, b, u, v), (dataset, pair, b, a, v, u)]
                pair += 1
    table = np.array(rows, np.int64)
    return Schedule(names, table[:, 0], table[:, 1], table[:, 2:4], table[:, 4:6])


def consensus(votes: np.ndarray) -> np.ndarray:
    """int8 votes (presentation, judge), 1 for grid A, -1 for B, 0 for none -> (presentation,), 0 where they tie."""
    return np.sign(np.asarray(votes, np.int64).sum(1)).astype(np.int8)


def rank(
    shown: Schedule,
    votes: np.ndarray,
    judges: Sequence[str],
    *,
    kind: str,
    swaps: str = "separate",
    resample: str = "pair",
    repeats: int = 1000,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> Ranking:
    """The ranking that votes (presentation, judge) give: 1 for grid A, -1 for grid B, 0 for no answer."""
    votes = _checked(shown, votes, judges, swaps, resample, repeats)
    won, lost = _outcomes(shown, consensus(votes), swaps)
    wins = np.zeros((len(shown.names),) * 2, np.int64)
    there = won >= 0
    np.add.at(wins, (won[there], lost[there]), 1)
    rates = _rates(wins.sum(1), wins.sum(0))
    group = np.arange(len(won)) if resample == "presentation" or swaps == "agree" else shown.pair
    drawn = _bootstrap(won, lost, group, len(shown.names), repeats, seed)
    given = {"swaps": swaps, "resample": resample, "repeats": repeats, "bootstrap_seed": seed}
    alone = [_outcomes(shown, votes[:, j], swaps) for j in range(votes.shape[1])]
    of = [[np.bincount(part[part >= 0], minlength=len(wins)) for part in outcome] for outcome in alone]
    return Ranking(
        kind=kind,
        methods=shown.names,
        judges=tuple(judges),
        rates=rates,
        intervals=_middle(drawn),
        ranks=ranks_of(rates),
        rank_intervals=_middle(np.array([_nan_ranks(row) for row in drawn])),
        wins=wins,
        dropped=int((~there).sum()),
        unanimous=_unanimous(votes),
        first=_share((votes > 0).sum(0), (votes != 0).sum(0)),
        consistent=np.array([_consistent(shown, votes[:, j]) for j in range(votes.shape[1])]),
        judge_rates=np.array([_rates(w, x) for w, x in of]),
        settings={**(settings or {}), **given, "pairs": int(shown.pair.max()) + 1},
    )


def ranks_of(rates: np.ndarray) -> np.ndarray:
    """1 for the highest rate; equal rates share the better rank; -1 for NaN."""
    better = (rates[None, :] > rates[:, None]).sum(1)
    return np.where(np.isnan(rates), -1, 1 + better)


# -- the steps


def _drawn(
    one: Mapping[str, Sequence[int] | np.ndarray], a: str, b: str, pairs: int, seed: int, dataset: int
) -> list[tuple[int, int]]:
    """(unit of a, unit of b), drawn in the order of the two names so that their order does not matter."""
    low, high = sorted((a, b))
    left, right = (np.unique(np.asarray(one[name], np.int64)) for name in (low, high))
    for name, candidates in ((low, left), (high, right)):
        if not len(candidates):
            raise SettingsError("a method without a unit that can be shown", given=name)
    words = hashlib.sha256(f"{low}\n{high}".encode()).digest()
    rng = np.random.default_rng([seed, dataset, *np.frombuffer(words, np.uint32).tolist()])
    if min(len(left), len(right)) >= pairs:
        chosen = rng.permutation(left)[:pairs], rng.permutation(right)[:pairs]
    else:
        every = len(left) * len(right)
        i, j = np.divmod(rng.choice(every, min(pairs, every), replace=False), len(right))
        chosen = left[i], right[j]
    u, v = chosen if (a, b) == (low, high) else chosen[::-1]
    return list(zip(u.tolist(), v.tolist(), strict=True))


def _outcomes(shown: Schedule, winner: np.ndarray, swaps: str) -> tuple[np.ndarray, np.ndarray]:
    """The methods that won and lost each comparison, -1 where nobody did: by presentation, or by pair."""
    a, b = shown.methods.T
    if swaps == "separate":
        won, lost = np.where(winner > 0, a, b), np.where(winner > 0, b, a)
        return np.where(winner == 0, -1, won), np.where(winner == 0, -1, lost)
    smaller = np.where(a < b, winner, -winner).astype(np.int64)  # 1: the method with the smaller number
    shows = np.bincount(shown.pair)
    total = np.bincount(shown.pair, weights=smaller).astype(np.int64)
    low, high = np.zeros((2, len(shows)), np.int64)
    low[shown.pair], high[shown.pair] = np.minimum(a, b), np.maximum(a, b)
    decided = abs(total) == shows
    won, lost = np.where(total > 0, low, high), np.where(total > 0, high, low)
    return np.where(decided, won, -1), np.where(decided, lost, -1)


def _bootstrap(
    won: np.ndarray, lost: np.ndarray, group: np.ndarray, methods: int, repeats: int, seed: int
) -> np.ndarray:
    """Rates (repeat, method) of groups drawn with replacement."""
    groups = int(group.max()) + 1
    there = won >= 0
    plus, minus = np.zeros((2, groups, methods))
    np.add.at(plus, (group[there], won[there]), 1)
    np.add.at(minus, (group[there], lost[there]), 1)
    rng = np.random.default_rng(seed)
    rates = []
    for start in range(0, repeats, BLOCK):
        size = min(BLOCK, repeats - start)
        drawn = rng.integers(0, groups, (size, groups)) + groups * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * groups).reshape(size, groups).astype(np.float64)
        rates.append(_rates(counts @ plus, counts @ minus))
    return np.concatenate(rates)


def _rates(wins: np.ndarray, losses: np.ndarray) -> np.ndarray:
    return _share(wins, wins + losses)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    out = np.full(np.shape(whole), np.nan)
    return np.divide(part, whole, out=out, where=np.asarray(whole) > 0)


def _middle(drawn: np.ndarray) -> np.ndarray:
    """(repeat, method) -> (method, 2): what holds 95 %, NaN for a method that never had a rate."""
    ends = (0.5 - SURE / 2, 0.5 + SURE / 2)
    kept = [column[np.isfinite(column)] for column in drawn.T]
    return np.array([np.quantile(c, ends) if len(c) else (np.nan, np.nan) for c in kept])


def _nan_ranks(rates: np.ndarray) -> np.ndarray:
    found = ranks_of(rates).astype(np.float64)
    return np.where(found < 0, np.nan, found)


def _unanimous(votes: np.ndarray) -> float:
    several = (votes != 0).sum(1) > 1
    same = abs(votes.sum(1)) == (votes != 0).sum(1)
    return float(same[several].mean()) if several.any() else float("nan")


def _consistent(shown: Schedule, votes: np.ndarray) -> float:
    """Of pairs with a vote in every order, the share with one winner."""
    there = votes != 0
    full = np.bincount(shown.pair[there], minlength=int(shown.pair.max()) + 1) == np.bincount(shown.pair)
    decided = (_outcomes(shown, votes, "agree")[0] >= 0)[full]
    return float(decided.mean()) if full.any() else float("nan")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and value != value else value


def _checked(
    shown: Schedule, votes: np.ndarray, judges: Sequence[str], swaps: str, resample: str, repeats: int
) -> np.ndarray:
    votes = np.asarray(votes)
    if votes.shape != (len(shown), len(judges)) or not len(judges) or not np.isin(votes, (-1, 0, 1)).all():
        raise SettingsError(
            "votes are 1, -1 or 0, (presentation, judge)",
            given=votes.shape,
            accepted=f"{(len(shown), len(judges))}, one judge or more",
        )
    if swaps not in SWAPS:
        raise SettingsError("unknown rule for the two orders", given=swaps, accepted=SWAPS)
    if resample not in RESAMPLES:
        raise SettingsError("nothing of that kind to resample", given=resample, accepted=RESAMPLES)
    if repeats < 1:
        raise SettingsError("at least one bootstrap sample is needed", given=repeats)
    return votes.astype(np.int8)
