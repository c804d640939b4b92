"""An array that lies in pieces on disk and is read like one in memory: only the pieces and elements asked for.

The pieces cut the first axis. Indexing means what it means in numpy, whose rules fit in three lines: integers and
integer arrays are broadcast against each other to one group of result axes; the group stands where the first of them
stood, or in front if a slice comes between them; slices keep their axes in order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import EllipsisType
from typing import Any

import numpy as np

GAP = "gap"  # an Ellipsis that stands for no axis still parts the indices around it


@dataclass(frozen=True)
class Selection:
    """An index in plain form: flat integer indices for some axes, ranges for the others, and how to lay out the result.

    `group` is the shape that the integer indices were broadcast to; `layout` the axes of the result: "group", the
    number of an axis that has a range, or None for a new axis.
    """

    indices: dict[int, np.ndarray]
    ranges: dict[int, range]
    group: tuple[int, ...]
    layout: tuple[str | int | None, ...]

    def arrange(self, core: np.ndarray) -> np.ndarray:
        """(group flat, ranges in order) -> the axes as numpy would give them."""
        core = core.reshape((*self.group, *(len(r) for r in self.ranges.values())))
        place = {axis: len(self.group) + i for i, axis in enumerate(self.ranges)}
        order: list[int] = []
        for axis in self.layout:
            order += range(len(self.group)) if axis == "group" else [] if axis is None else [place[int(axis)]]
        out = core.transpose(order)
        for position in self._new_axes():
            out = np.expand_dims(out, position)
        return out

    def _new_axes(self) -> Iterator[int]:
        position = 0
        for axis in self.layout:
            if axis is None:
                yield position
            position += len(self.group) if axis == "group" else 1


def select(key: Any, shape: tuple[int, ...]) -> Selection:
    """Puts any numpy index into plain form, or raises the IndexError that numpy would raise."""
    entries = _filled([_entry(item) for item in (key if isinstance(key, tuple) else (key,))], len(shape))
    found: dict[int, np.ndarray] = {}
    ranges: dict[int, range] = {}
    layout: list[str | int | None] = []
    axis = 0
    for entry in entries:
        if entry is None or entry is GAP:
            layout.append(entry)
        elif isinstance(entry, slice):
            ranges[axis] = range(*entry.indices(shape[axis]))
            layout.append(axis)
            axis += 1
        else:
            for index in _integers(entry, axis, shape):
                found[axis] = index
                layout.append("group")
                axis += 1
    try:
        flat = np.broadcast_arrays(*found.values()) if found else []
    except ValueError:
        shapes = " ".join(str(index.shape) for index in found.values())
        raise IndexError(f"shape mismatch: indexing arrays could not be broadcast together: {shapes}") from None
    indices = {axis: array.reshape(-1) for axis, array in zip(found, flat, strict=True)}
    return Selection(indices, ranges, flat[0].shape if flat else (), _placed(layout))


def _entry(item: Any) -> Any:
    if item is None or isinstance(item, slice | EllipsisType):
        return item
    array = np.asarray(item)
    if array.size == 0 and not isinstance(item, np.ndarray):
        array = array.astype(np.intp)
    if array.dtype.kind not in "iub" or (array.dtype.kind == "b" and array.ndim == 0):
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and integer or boolean arrays are valid indices"
        )
    return array


def _filled(entries: list[Any], ndim: int) -> list[Any]:
    """The Ellipsis, or the missing end, written out as full slices."""
    used = sum(_axes(entry) for entry in entries)
    dots = [i for i, entry in enumerate(entries) if isinstance(entry, EllipsisType)]
    if len(dots) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise IndexError(f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed")
    missing: list[Any] = [slice(None)] * (ndim - used)
    if not dots:
        return entries + missing
    return entries[: dots[0]] + (missing or [GAP]) + entries[dots[0] + 1 :]


def _axes(entry: Any) -> int:
    if isinstance(entry, np.ndarray):
        return entry.ndim if entry.dtype.kind == "b" else 1
    return int(isinstance(entry, slice))


def _integers(entry: np.ndarray, axis: int, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Non-negative indices for one axis, or for as many as a boolean mask covers."""
    if entry.dtype.kind == "b":
        for offset, (given, length) in enumerate(zip(entry.shape, shape[axis:], strict=False)):
            if given != length:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis + offset}; size of axis is {length} "
                    f"but size of corresponding boolean axis is {given}"
                )
        return entry.nonzero()
    entry, length = entry.astype(np.intp), shape[axis]
    wrong = entry[(entry < -length) | (entry >= length)]
    if wrong.size:
        raise IndexError(f"index {wrong.flat[0]} is out of bounds for axis {axis} with size {length}")
    return (np.where(entry < 0, entry + length, entry),)


def _placed(layout: list[str | int | None]) -> tuple[str | int | None, ...]:
    """One place for the group: where the first integer stood, or in front if something stands between them."""
    at = [i for i, axis in enumerate(layout) if axis == "group"]
    rest = [axis for axis in layout if axis != "group" and axis is not GAP]
    if not at:
        return tuple(rest)
    together = at[-1] - at[0] + 1 == len(at)
    before = sum(axis is not GAP for axis in layout[: at[0]]) if together else 0
    return (*rest[:before], "group", *rest[before:])


class SiteArray:
    """Activations of one site, (sample, ...), read from disk when indexed; `np.asarray` reads all of it.

    `piece(k)` gives the memory-mapped samples [k * rows, (k + 1) * rows). bfloat16, which numpy does not know, is kept
    as uint16 on disk and widened to float32 when read.
    """

    def __init__(
        self, site: str, shape: tuple[int, ...], stored: str, rows: int, piece: Callable[[int], np.ndarray]
    ) -> None:
        self.site = site
        self.shape = shape
        self.dtype = np.dtype("float32" if stored == "bfloat16" else stored)
        self._stored = np.dtype("uint16" if stored == "bfloat16" else stored)
        self._rows = rows
        self._piece = piece

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"SiteArray({self.site!r}, shape={self.shape}, dtype={self.dtype})"

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("a SiteArray lies on disk: reading it is a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def batches(self, n: int) -> Iterator[np.ndarray]:
        """Samples in order, `n` at a time; the last batch may be shorter."""
        if operator.index(n) < 1:
            raise ValueError(f"a batch holds at least one sample, not {n}")
        return (self[start : start + n] for start in range(0, len(self), n))

    def __getitem__(self, key: Any) -> Any:
        chosen = select(key, self.shape)
        core = self._by_index(chosen) if 0 in chosen.indices else self._by_range(chosen)
        if self._stored != self.dtype:
            core = (core.astype(np.uint32) << 16).view(np.float32)
        return chosen.arrange(core)[()]

    def _by_index(self, chosen: Selection) -> np.ndarray:
        """Samples picked one by one: (picked, ranges in order)."""
        inner = tuple(_as_slice(r) for r in chosen.ranges.values())
        axes = (*chosen.indices, *chosen.ranges)
        rows = chosen.indices[0]
        out = np.empty((rows.size, *(len(r) for r in chosen.ranges.values())), self._stored)
        for number, where in _by_piece(rows // self._rows):
            local = [index[where] - (number * self._rows if axis == 0 else 0) for axis, index in chosen.indices.items()]
            out[where] = self._piece(number).transpose(axes)[(*local, *inner)]
        return out

    def _by_range(self, chosen: Selection) -> np.ndarray:
        """A range of samples: (picked on other axes, sample, other ranges in order)."""
        picked = tuple(chosen.indices.values())
        inner = tuple(_as_slice(r) for axis, r in chosen.ranges.items() if axis)
        axes = (*chosen.indices, *chosen.ranges)
        front = picked[0].shape if picked else ()
        out = np.empty((*front, *(len(r) for r in chosen.ranges.values())), self._stored)
        ahead = (slice(None),) * len(front)
        for number, where, local in _runs(chosen.ranges[0], self._rows):
            at: tuple[Any, ...] = (*picked, local, *inner)
            out[(*ahead, where)] = self._piece(number).transpose(axes)[at]
        return out


def _as_slice(r: range) -> slice:
    """The slice that a range came from; a stop before the first element is spelled None."""
    return slice(r.start, None if r.stop < 0 else r.stop, r.step) if len(r) else slice(0, 0)


def _by_piece(pieces: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Positions that fall into each piece."""
    order = np.argsort(pieces, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(pieces[order])) + 1):
        if where.size:
            yield int(pieces[where[0]]), where


def _runs(rows: range, length: int) -> Iterator[tuple[int, slice, slice]]:
    """A range cut at the borders of the pieces: (piece, where in the result, where in the piece)."""
    done = 0
    while done < len(rows):
        number, start = divmod(rows[done], length)
        room = (length - 1 - start) // rows.step if rows.step > 0 else start // -rows.step
        count = min(room + 1, len(rows) - done)
        local = range(start, start + count * rows.step, rows.step)
        yield number, slice(done, done + count), _as_slice(local)
        done += count
