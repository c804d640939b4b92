"""Pieces of rows on all cores, each with matrix products of one thread.

Products that are spread over threads wait for each other at the end of every tile, and waiting threads spin: one busy
neighbour makes them ten times slower. Pieces that wait for nobody only lose what the neighbour takes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from numba import config
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Found = TypeVar("Found")

_BLAS = threading.Lock()  # the limit is the whole process's: one call at a time sets it and takes it back


@contextmanager
def single_threaded_products() -> Iterator[None]:
    """Matrix products of numpy run in the thread that asks for them."""
    with _BLAS, threadpool_limits(1, "blas"):
        yield


def cores() -> int:
    """Threads that numba may have. To ask numba itself would start them, and change how many torch takes."""
    return int(config.NUMBA_NUM_THREADS)


def over_rows(count: int, rows: int, work: Callable[[slice], Found]) -> list[Found]:
    """work(piece) for pieces of so many rows, as many at a time as numba has threads; results in order."""
    pieces = [slice(first, min(first + rows, count)) for first in range(0, count, rows)]
    if (threads := min(cores(), len(pieces))) < 2:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, pieces))
