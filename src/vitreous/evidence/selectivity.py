"""Does a unit respond to a concept? The area under the ROC curve, on pictures that had no say in the choice.

AUC is the chance that a random patch with the concept activates the unit more than a random patch without it, equal
activations counting half: 1 is a perfect detector, 0.5 is guessing. It needs no threshold and does not depend on how
rare the concept is, so concepts can be compared.

A unit has many chances to look good when its best concept is picked among many. So the concept is chosen on one half
of the pictures and the number is reported on the other; and the whole procedure is repeated with the truth of other
pictures laid over each picture. That keeps where things tend to lie, so a unit that only knows positions does no better
than its control.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.errors import SettingsError

UNITS = 64  # ranked at a time, so that memory does not grow with the number of units


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1 within each column of (row, unit), equal values sharing their mean rank, as float64."""
    if np.isnan(values).any():
        raise SettingsError("NaN has no rank", given=f"{int(np.isnan(values).sum())} of {values.size} values")
    across = np.ascontiguousarray(_keys(values).T)
    rows = across.shape[1]
    order = np.argsort(across, axis=1, kind="stable")  # of 16-bit numbers this is a radix sort
    placed = np.take_along_axis(across, order, 1)
    at = np.arange(rows)
    new = np.ones(across.shape, bool)
    new[:, 1:] = placed[:, 1:] != placed[:, :-1]
    first = np.maximum.accumulate(np.where(new, at, 0), axis=1)
    ends = np.ones(across.shape, bool)
    ends[:, :-1] = new[:, 1:]
    last = np.minimum.accumulate(np.where(ends, at, rows)[:, ::-1], axis=1)[:, ::-1]
    out = np.empty(across.shape)
    np.put_along_axis(out, order, (first + last) / 2 + 1, 1)
    return np.ascontiguousarray(out.T)


def _keys(values: np.ndarray) -> np.ndarray:
    """Half precision, as stores keep it, becomes int16 in the same order: it is sorted several times faster."""
    if values.dtype != np.float16:
        return values
    bits = (values + np.float16(0)).view(np.int16)  # adding 0 makes -0 the same number as 0
    return np.where(bits < 0, bits ^ np.int16(0x7FFF), bits)


def auc_of_ranks(ranked: np.ndarray, present: np.ndarray) -> np.ndarray:
    """AUC (unit, concept) of ranks (row, unit) for bool (row, concept), by the sum of ranks (Mann and Whitney 1947).

    Sums of ranks are halves of whole numbers, which float64 holds exactly: every machine gets the same bits. Most
    concepts are rare, so adding up their rows is as fast as a matrix product, and needs no threads.
    """
    with_it = present.sum(0).astype(np.float64)
    pairs = with_it * (len(present) - with_it)
    sums = np.stack([ranked[has].sum(0) for has in np.ascontiguousarray(present.T)], 1)
    above = sums - with_it * (with_it + 1) / 2
    return np.divide(above, pairs, out=np.full(above.shape, np.nan), where=pairs > 0)


def auc(values: np.ndarray, present: np.ndarray) -> np.ndarray:
    """AUC (unit, concept) of activations (row, unit) for concepts bool (row, concept).

    NaN for a concept that is true of every row or of none.
    """
    _same_rows(values, present)
    starts = range(0, values.shape[1], UNITS)
    parts = [auc_of_ranks(ranks(values[:, start : start + UNITS]), present) for start in starts]
    return np.concatenate(parts) if parts else np.empty((0, present.shape[1]))


def precision(values: np.ndarray, present: np.ndarray, top: int) -> float:
    """Share of the `top` strongest rows (row,) that have the concept (row,); equal ones in the order of the rows."""
    order = np.argsort(-values, kind="stable")[:top]
    return float(present[order].mean())


def halves(samples: int, seed: int) -> np.ndarray:
    """A random half of the samples as bool (sample,): True is for choosing, False for reporting."""
    if samples < 2:
        raise SettingsError("two halves need at least two pictures", given=samples)
    order = np.random.default_rng([seed, 0]).permutation(samples)
    return order < samples // 2


def other_pictures(samples: int, generator: np.random.Generator) -> np.ndarray:
    """For each sample another one, every one used once and none its own: a cycle through a random order."""
    order = generator.permutation(samples)
    partner = np.empty(samples, np.int64)
    partner[order] = np.roll(order, 1)
    return partner


@dataclass(frozen=True, eq=False)
class Selectivity:
    """For every unit its best concept on the choosing half, and what it is worth on the other.

    `concept` (unit,) index, `chosen` and `held_out` (unit,) AUC of this concept on the two halves. `control`
    (repeat, unit) is the held-out AUC that the same procedure reaches with the truth of other pictures.
    """

    concept: np.ndarray
    chosen: np.ndarray
    held_out: np.ndarray
    control: np.ndarray

    @property
    def chance(self) -> np.ndarray:
        """Share of repeats, the real one included, in which the control does as well as the real truth, (unit,)."""
        return (1 + (self.control >= self.held_out).sum(0)) / (1 + len(self.control))


def selectivity(
    values: np.ndarray, present: np.ndarray, *, seed: int = 0, repeats: int = 3, rare: int = 20
) -> Selectivity:
    """Best concept of every unit, chosen on half of the pictures and measured on the other half, with its control.

    `values` (sample, patch, unit) and `present` bool (sample, patch, concept). A concept that is true of fewer than
    `rare` patches of either half, or false of so few, is not considered.
    """
    _same_rows(values, present)
    if values.ndim != 3 or present.ndim != 3:
        raise SettingsError("selectivity takes (sample, patch, ...) twice", given=(values.shape, present.shape))
    choosing = halves(len(values), seed)
    generator = np.random.default_rng([seed, 1])
    truths = [present] + [_of_others(present, choosing, generator) for _ in range(repeats)]
    sides = [np.concatenate([t[half].reshape(-1, t.shape[2]) for t in truths], 1) for half in (choosing, ~choosing)]
    usable = np.logical_and(*(_frequent(side[:, : present.shape[2]], rare) for side in sides))
    if not usable.any():
        raise SettingsError(f"no concept is true of {rare} patches of both halves", remedy="more pictures")
    parts = []
    for start in range(0, values.shape[2], UNITS):
        part = values[..., start : start + UNITS]
        flat = (part[half].reshape(-1, part.shape[2]) for half in (choosing, ~choosing))
        choose, report = (auc_of_ranks(ranks(v), side) for v, side in zip(flat, sides, strict=True))
        shape = (part.shape[2], len(truths), -1)
        parts.append(_best(choose.reshape(shape), report.reshape(shape), usable))
    concept, chosen, held_out = (np.concatenate(part).T for part in zip(*parts, strict=True))
    return Selectivity(concept[0], chosen[0], held_out[0], held_out[1:])


def _best(choose: np.ndarray, report: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of scores (unit, truth, concept) of both halves: the best concept of the first, and both its scores."""
    concept = np.where(usable, choose, -np.inf).argmax(2)
    chosen, held_out = (np.take_along_axis(score, concept[..., None], 2)[..., 0] for score in (choose, report))
    return concept, chosen, held_out


def _of_others(present: np.ndarray, choosing: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The truth of another picture of the same half, patch by patch."""
    out = np.empty_like(present)
    for half in (choosing, ~choosing):
        where = np.flatnonzero(half)
        out[where] = present[where[other_pictures(len(where), generator)]]
    return out


def _frequent(present: np.ndarray, rare: int) -> np.ndarray:
    count = present.sum(0)
    return (count >= rare) & (len(present) - count >= rare)


def _same_rows(values: np.ndarray, present: np.ndarray) -> None:
    if values.shape[:-1] != present.shape[:-1] or present.dtype != bool:
        raise SettingsError(
            "activations and concepts have the same rows, and concepts are bool",
            given=(values.shape, present.shape, str(present.dtype)),
        )
