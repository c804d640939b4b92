"""Numba's threads, started without a say in torch's."""

from __future__ import annotations

from functools import cache

import numba
import torch


@cache
def start_threads() -> None:
    """Before the first parallel loop: when its threads start, numba sets OpenMP's number, and so torch's, to its own.

    Where OMP_NUM_THREADS is less than the cores, the same pass of a model would be rounded otherwise afterwards.
    """
    before = torch.get_num_threads()
    numba.get_num_threads()  # to ask is to start them
    torch.set_num_threads(before)
