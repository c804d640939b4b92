"""One unit's incoming weights divided among its sub-units, so that they sum back to it exactly.

Equations 3 to 5 of "Interpretability Without Tradeoffs" (ELUDe). A set of sub-units wins input j if its weakest
representative there, times rho, still beats the strongest outside. Such a set is a prefix of the sub-units sorted by
|r_j|, so K - 1 comparisons replace the 2^K sets. If exactly one prefix shorter than K wins, its members take the weight
in equal parts; otherwise all K do. Who takes part in what is a matrix of bits, and the shares follow from it: a weight
of zero is never divided by.

Exact means: the parts, added one by one in any order in the weight's own precision, give the weight bit for bit. Each
part is a whole number of the weight's last binary place, rounded towards zero, and the last taker gets the rest: no
partial sum is ever rounded, and a part is within K last places of the formula's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from torch import Tensor

RHOS = tuple(round(0.05 * step, 2) for step in range(1, 21))


class Split(NamedTuple):
    """`members` bool (sub-unit, input): who takes part; `rho` and its `score`, mean activation at home less abroad."""

    members: np.ndarray
    rho: float
    score: float


def split_weights(
    weight: np.ndarray | Tensor, bias: float | Tensor, representatives: np.ndarray | Tensor, rho: float
) -> tuple[np.ndarray, np.ndarray]:
    """Weight (input,) and bias of one unit -> weights (sub-unit, input) and biases (sub-unit,), eq. 3 to 5.

    `representatives` (sub-unit, input) are eq. 2's, and `rho` in (0, 1] the margin. The bias is divided by the mean
    share. Half precision is taken as float32, which holds it exactly.

    >>> weights, biases = vt.split_weights(weight, bias, representatives, rho=0.5)
    >>> assert (sum(weights) == weight).all() and sum(biases) == bias
    """
    weight, bias = _vector(weight), float(_array(bias))
    if not np.isfinite(bias):
        raise SettingsError("the bias is not finite", given=bias)
    return divide(weight, bias, winners(_checked(representatives, len(weight)), rho))


def winners(representatives: np.ndarray, rho: float) -> np.ndarray:
    """Eq. 3: representatives (sub-unit, input) -> bool (sub-unit, input), who takes part; all where nobody wins."""
    if not 0 < rho <= 1:
        raise SettingsError("rho out of range", given=rho, accepted="more than 0, at most 1")
    return _members(*_ranked(representatives), rho)


def shares(members: np.ndarray) -> np.ndarray:
    """Eq. 4 as parts of one: 0, 1/|S| or 1/K for every sub-unit and input."""
    return members / members.sum(0)


def divide(weight: np.ndarray, bias: float, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (sub-unit, input) and biases (sub-unit,) of those who take part; they sum back exactly."""
    share = shares(members)
    biases = _parts(np.asarray(bias, weight.dtype)[None], share.mean(1, keepdims=True))
    return _parts(weight, share), biases[:, 0]


def search_rho(weight: np.ndarray, bias: float, representatives: np.ndarray, means: np.ndarray) -> Split:
    """The rho of 0.05, 0.10, ... 1.00 whose sub-units are most active on their own clusters and least on others.

    `means` (cluster, input) is the mean input on each cluster. Activations are linear, so that the mean activation of
    sub-unit c on cluster g needs nothing else; it is scaled by what the whole unit has there. The smallest rho wins a
    tie.
    """
    contributions = weight.astype(np.float64) * means  # (cluster, input)
    own = contributions.sum(1) + float(bias)
    scale = np.where(own == 0, 1, np.abs(own))
    ranked = _ranked(representatives)
    best: Split | None = None
    before: np.ndarray | None = None
    for rho in RHOS:
        members = _members(*ranked, rho)
        if before is not None and np.array_equal(members, before):
            continue
        before = members
        share = shares(members)
        active = (share @ contributions.T + float(bias) * share.mean(1, keepdims=True)) / scale
        score = _home_less_abroad(active)
        if best is None or score > best.score:
            best = Split(members, rho, score)
    assert best is not None
    return best


def dead_subunits(members: np.ndarray) -> np.ndarray:
    """bool (sub-unit,): whether it has no input that it need not share with all, and is the same as another."""
    pooled = ~(members & ~members.all(0)).any(1)
    return pooled & (pooled.sum() > 1)


# -- the steps


def _ranked(representatives: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each input the rank of every sub-unit by |r|, and the values of |r| in falling order."""
    size = np.abs(representatives.astype(np.float64))
    order = np.argsort(-size, axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(order))[:, None], 0)
    return rank, np.take_along_axis(size, order, 0)


def _members(rank: np.ndarray, falling: np.ndarray, rho: float) -> np.ndarray:
    wins = rho * falling[:-1] > falling[1:]  # (K - 1, input): whether the first m win
    length = np.where(wins.sum(0) == 1, wins.argmax(0) + 1 if len(wins) else 1, len(rank))
    return rank < length


def _parts(total: np.ndarray, share: np.ndarray) -> np.ndarray:
    """(input,) by shares (sub-unit, input) -> (sub-unit, input) that add up to it exactly in any order of adding."""
    step = np.spacing(np.abs(total)).astype(np.float64)
    parts = np.trunc(total / step * share) * step
    last = len(share) - 1 - (share[::-1] > 0).argmax(0)
    column = np.arange(total.size)
    parts[last, column] = 0
    parts[last, column] = total - parts.sum(0)
    return parts.astype(total.dtype)


def _home_less_abroad(active: np.ndarray) -> float:
    """Mean of the diagonal less mean of the rest of (sub-unit, cluster)."""
    count = len(active)
    home = np.trace(active)
    return float(home / count - (active.sum() - home) / max(1, count * (count - 1)))


# -- what was given


def _vector(weight: Any) -> np.ndarray:
    weight = _array(weight)
    if weight.ndim != 1 or weight.dtype.kind != "f":
        raise SettingsError("the weight of one unit is floats (input,)", given=f"{weight.dtype} {weight.shape}")
    if not np.isfinite(weight).all():
        raise SettingsError("the weight is not finite", given=float(weight[~np.isfinite(weight)][0]))
    return weight.astype(np.float32) if weight.dtype.itemsize < 4 else weight


def _array(given: Any) -> np.ndarray:
    """Of an array, or a tensor, which may be a model's own parameter on any device and in bfloat16."""
    from torch import Tensor

    if isinstance(given, Tensor):
        given = given.detach().cpu()
        given = given.float() if given.is_floating_point() and given.element_size() < 4 else given
    return np.asarray(given)


def _checked(representatives: Any, inputs: int) -> np.ndarray:
    given = _array(representatives)
    if given.ndim != 2 or given.shape[1] != inputs or not len(given):
        raise SettingsError(
            "representatives are (sub-unit, input), one sub-unit or more", given=given.shape, accepted=f"(K, {inputs})"
        )
    if not np.isfinite(given).all():
        raise SettingsError("representatives are not finite", given=float(given[~np.isfinite(given)][0]))
    return given
