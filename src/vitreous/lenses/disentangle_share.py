"""Several processes in one folder: locks on files, which the system frees when their process dies.

Where the system has no such locks (Windows) everything is free, and one process at a time is what a folder can take.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from vitreous.lenses.disentangle_units import UnitTop
    from vitreous.lenses.disentangle_work import Work

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Claim:
    """A lock that this process has, until it is given back."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def release(self) -> None:
        os.close(self._handle)


def claim(path: Path, wait: bool = False) -> Claim | None:
    """The lock of this file, which is made if it is not there; None where another process has it, unless we wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    except BaseException:
        os.close(handle)
        raise
    return Claim(handle)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """What is inside is done by one process at a time."""
    held = claim(path, wait=True)
    assert held is not None
    try:
        yield
    finally:
        held.release()


class Claims:
    """Units of `left` that nobody works on, in `free`; while we work on them they are taken one by one."""

    def __init__(self, work: Work, which: np.ndarray, left: list[int]) -> None:
        self._work, self._which = work, which
        self._held: dict[int, Claim] = {}
        self.free = []
        for at in left:
            if self._take(at):
                self.free.append(at)
                self.release(at)  # others get their share

    def _take(self, at: int) -> bool:
        held = self._work.claim(int(self._which[at]))
        if held is not None:
            self._held[at] = held
        return held is not None

    def taken(self, tops: Iterable[UnitTop]) -> Iterator[UnitTop]:
        """Those that are still free when their turn comes."""
        return (top for top in tops if self._take(top.at))

    def release(self, at: int) -> None:
        self._held.pop(at).release()

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        for at in list(self._held):
            self.release(at)
