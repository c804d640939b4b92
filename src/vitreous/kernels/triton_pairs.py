"""Joins near pairs of byte rows in one kernel on a GPU: no list of pairs, and the host never waits.

A program looks at one row and a block of later ones. By the squared distance a pair is joined, or cannot be; in between
its L1 distance is added up, step by step until the limit, unless the two are in one component already. Components are a
union-find in global memory: the larger root is hung under the smaller by compare-and-swap, so whatever the order of
programs, a component ends under its smallest row. A root that is read too late is noticed by the swap, which fails.

All threads of a program must see the same parents, or they part ways at the next branch: a program is one warp, and a
parent is what its threads agree on, not what each has read for itself.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 64
STEP = 2048
WARP = tl.constexpr(32)
FAR = 2**31 - 1  # the squared distance of units that must not be joined


@triton.jit
def _parent(parent, row):
    """The smallest of what the threads read: others may write meanwhile, and a smaller parent is a later one."""
    return tl.min(tl.load(parent + row + tl.zeros((WARP,), tl.int64), cache_modifier=".cg"))


@triton.jit
def _find(parent, row):
    up = _parent(parent, row)
    while up != row:
        row = up
        up = _parent(parent, row)
    return row


@triton.jit
def _below(rows, i, j, samples, limit, STEP: tl.constexpr):
    """Whether the L1 distance of two rows is below the limit."""
    total = 0
    start = 0
    while (start < samples) & (total < limit):
        at = start + tl.arange(0, STEP)
        a = tl.load(rows + i * samples + at, mask=at < samples, other=0).to(tl.int32)
        b = tl.load(rows + j * samples + at, mask=at < samples, other=0).to(tl.int32)
        total += tl.sum(tl.abs(a - b))
        start += STEP
    return total < limit


@triton.jit
def _join(rows, squared, parent, units, samples, limit, most, COLUMNS: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * COLUMNS
    across = first + tl.arange(0, COLUMNS)
    later = (across > i) & (across < units)
    here = tl.load(squared + i * units + across, mask=later, other=2147483647)
    if tl.min(here) < most:
        for k in range(COLUMNS):
            j = (first + k).to(tl.int64)
            value = tl.sum(tl.where(across == j, here, 0))
            if value < most:
                if (j > i) & (j < units):
                    a = _find(parent, i)
                    b = _find(parent, j)
                    if a != b:
                        near = value < limit
                        if not near:
                            near = _below(rows, i, j, samples, limit, STEP)
                        if near:
                            while a != b:
                                low = tl.minimum(a, b)
                                high = tl.maximum(a, b)
                                found = tl.atomic_cas(parent + high, high, low)
                                a = low
                                b = low
                                if found != high:
                                    a = _find(parent, low)
                                    b = _find(parent, found)


def join(rows: Tensor, squared: Tensor, limit: float, bins: int) -> Tensor:
    """uint8 (row, sample), int32 (row, row) squared distances -> int64 (row,): the smallest row of each component.

    Distances are whole numbers: below a limit is below its ceiling.
    """
    units, samples = rows.shape
    root = torch.arange(units, device=rows.device)
    grid = (units, triton.cdiv(units, COLUMNS))
    whole, most = math.ceil(limit), min(math.ceil((bins - 1) * limit), FAR)
    matrices = rows.contiguous(), squared.contiguous()
    _join[grid](*matrices, root, units, samples, whole, most, COLUMNS=COLUMNS, STEP=STEP, num_warps=1)
    for _ in range(max(1, math.ceil(math.log2(units)))):
        root = root[root]
    return root
