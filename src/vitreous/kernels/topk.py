"""The k largest rows of every unit, over any number of rows, in memory for k rows a unit.

A row can only enter if it beats the unit's present k-th value, so each piece of rows costs one comparison an element
and a sort of the few that beat it. Pieces grow with the rows already seen: in random order about k rows a unit enter
each time that the number of rows doubles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from torch import Tensor

NOBODY = np.iinfo(np.int64).max  # id of an empty place: behind every row of the same value
PIECE = 1 << 20  # elements looked at in one go


class Top(NamedTuple):
    """`values` (unit, k), largest first, equal ones by smallest id; `ids` (unit, k). Where there were fewer than k rows
    the rest holds -inf and id -1."""

    values: np.ndarray
    ids: np.ndarray

    @property
    def found(self) -> np.ndarray:
        """How many rows each unit really has, (unit,)."""
        return (self.ids >= 0).sum(1)


class TopK:
    """Keeps the k largest rows of every unit. The result does not depend on how the rows were cut into updates.

    Places start empty, not at zero: a unit that is never positive gets its real largest rows. With `per_group` at most
    that many rows of one group are kept a unit, because the strongest patches otherwise all lie in one picture.

    >>> top = TopK(units=768, k=8, per_group=1)
    >>> for values, pictures in batches:                      # (row, unit), (row,)
    ...     top.update(values, groups=pictures)
    >>> top.result().ids                                      # (unit, 8)
    """

    def __init__(self, units: int, k: int, per_group: int | None = None) -> None:
        if units < 1 or k < 1 or (per_group is not None and per_group < 1):
            raise SettingsError(
                "units, k and per_group are at least 1", given={"units": units, "k": k, "per_group": per_group}
            )
        self.units, self.k, self.per_group = units, k, per_group
        self._seen = 0
        self._next = 0
        self._values = np.full((units, k), -np.inf, np.float32)
        self._ids = np.full((units, k), NOBODY, np.int64)
        self._groups = np.zeros((units, k), np.int64)

    def update(
        self,
        values: np.ndarray | Tensor,
        ids: np.ndarray | Tensor | int | None = None,
        groups: np.ndarray | Tensor | None = None,
    ) -> None:
        """Takes rows (row, unit). `ids` is one a row, or that of the first row; None counts on from the last update."""
        values = _array(values)
        if values.ndim != 2 or values.shape[1] != self.units:
            raise SettingsError(
                "top-k takes values (row, unit)", given=values.shape, accepted=f"(any, {self.units}) for this one"
            )
        numbers, groups = self._numbers(ids, len(values)), self._group_of(groups, len(values))
        start = 0
        while start < len(values):
            rows = min(max(self.k, self._seen), max(1, PIECE // self.units))
            piece = slice(start, start + rows)
            self._take(values[piece], numbers[piece], groups[piece])
            self._seen += len(numbers[piece])
            start += rows
        self._next = int(numbers.max()) + 1 if len(numbers) else self._next

    def result(self) -> Top:
        there = self._ids != NOBODY
        return Top(self._values.copy(), np.where(there, self._ids, -1))

    # -- one piece of rows

    def _take(self, values: np.ndarray, ids: np.ndarray, groups: np.ndarray) -> None:
        kind = np.result_type(self._values.dtype, values.dtype)
        values, self._values = values.astype(kind, copy=False), self._values.astype(kind, copy=False)
        last, last_id = self._values[:, -1], self._ids[:, -1]
        enters = ~(values <= last)  # a NaN enters too, and is found below without a look at all the others
        if (open_places := last_id == NOBODY).any():
            enters |= open_places
        if ids.min() < self._ids.max(where=~(self._ids == NOBODY), initial=-1):
            enters |= (values == last) & (ids[:, None] < last_id)
        row, unit = np.divmod(np.flatnonzero(enters), self.units)
        if not len(row):
            return
        if np.isnan(chosen := values[row, unit]).any():
            bad = int(np.flatnonzero(np.isnan(chosen))[0])
            raise SettingsError(
                f"NaN in row {ids[row[bad]]}, unit {unit[bad]}: it is neither larger nor smaller than anything",
                remedy="find where the model overflows, or leave these rows out",
            )
        self._merge(unit, chosen, ids[row], groups[row])

    def _merge(self, unit: np.ndarray, values: np.ndarray, ids: np.ndarray, groups: np.ndarray) -> None:
        """Sorts newcomers in among those who hold the places of the units concerned."""
        touched = np.unique(unit)
        unit = np.concatenate([np.repeat(touched, self.k), unit])
        values = np.concatenate([self._values[touched].ravel(), values])
        ids = np.concatenate([self._ids[touched].ravel(), ids])
        groups = np.concatenate([self._groups[touched].ravel(), groups])
        if self.per_group is not None:
            order = np.lexsort((ids, -values, groups, unit))
            # empty places form no group: each is one of its own
            allowed = (_rank(unit[order], groups[order]) < self.per_group) | (ids[order] == NOBODY)
            keep = order[allowed]
            unit, values, ids, groups = unit[keep], values[keep], ids[keep], groups[keep]
        order = np.lexsort((ids, -values, unit))
        keep = order[_rank(unit[order]) < self.k].reshape(len(touched), self.k)
        self._values[touched], self._ids[touched], self._groups[touched] = values[keep], ids[keep], groups[keep]

    # -- what was given

    def _numbers(self, ids: np.ndarray | Tensor | int | None, rows: int) -> np.ndarray:
        if ids is None or isinstance(ids, int | np.integer):
            first = self._next if ids is None else int(ids)
            numbers = np.arange(first, first + rows, dtype=np.int64)
        else:
            numbers = _whole(ids, rows, "ids")
        if rows and numbers.min() < 0:
            raise SettingsError("ids count from 0", given=int(numbers.min()))
        return numbers

    def _group_of(self, groups: np.ndarray | Tensor | None, rows: int) -> np.ndarray:
        if (groups is None) != (self.per_group is None):
            raise SettingsError("groups and per_group go together", given={"per_group": self.per_group})
        return np.zeros(rows, np.int64) if groups is None else _whole(groups, rows, "groups")


def _array(values: np.ndarray | Tensor) -> np.ndarray:
    """Half precision becomes float32, which holds it exactly and is compared faster."""
    if isinstance(values, np.ndarray):
        return values.astype(np.float32) if values.dtype == np.float16 else values
    import torch

    values = values.detach().cpu()
    return (values.float() if values.dtype in (torch.float16, torch.bfloat16) else values).numpy()


def _whole(given: np.ndarray | Tensor, rows: int, what: str) -> np.ndarray:
    array = np.asarray(given) if isinstance(given, np.ndarray | list | tuple) else given.detach().cpu().numpy()
    if array.shape != (rows,) or (rows and array.dtype.kind not in "iu"):
        raise SettingsError(
            f"{what} are whole numbers, one a row", given=(array.shape, array.dtype), accepted=f"({rows},)"
        )
    return array.astype(np.int64)


def _rank(*keys: np.ndarray) -> np.ndarray:
    """Position of each element within its run of equal keys."""
    fresh = np.ones(len(keys[0]), bool)
    fresh[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    at = np.arange(len(fresh))
    return at - np.maximum.accumulate(np.where(fresh, at, 0))
