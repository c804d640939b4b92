"""Attention of the backward pass over many tokens in two kernels on a GPU, without ∂f/∂A ever being in memory.

With n tokens, h heads and s seeds, ∂f/∂A has s h n² numbers, read and written a few times: more time than the products
that make them. Here a tile of it lives in registers. The first kernel goes along rows: the gradient of queries, and
what eq. 5 adds to each seed's vector. The second goes down columns, makes the tiles again, and gives the gradients of
keys and values. All three are written where the next product reads them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 64, 64  # of a tile
MOST = 128  # channels of a head


@triton.jit
def _tile(g, v, A, m, q, k, length, stride_m, stride_q, PRECISION: tl.constexpr):
    """Attention and P = A ⊙ ∂f/∂A of some queries and keys; 0 outside."""
    inside = (q < length)[:, None] & (k < length)[None, :]
    a = tl.load(A + m * stride_m + q[:, None] * stride_q + k[None, :], mask=inside, other=0.0).to(tl.float32)
    return a, a * tl.dot(g, tl.trans(v), input_precision=PRECISION)


@triton.jit
def _rows(
    go, A, K, V, AV, before, added, out,
    length, seeds, heads, size, all_tokens, stride_m, stride_q, stride_side,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, s, m = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    image, head = m // heads, m % heads
    q, d = part * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    there = (q < length)[:, None] & (d < size)[None, :]
    row = ((image * length + q) * seeds + s).to(tl.int64)[:, None]
    g = tl.load(go + row * heads * size + head * size + d[None, :], mask=there, other=0.0)
    o = tl.load(AV + m * stride_side + q[:, None] * size + d[None, :], mask=there, other=0.0)
    r = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
    weight = tl.load(before + (image * seeds + s) * all_tokens + q, mask=q < length, other=0.0)
    total = tl.zeros((ROWS, SIZE), tl.float32)
    for start in range(0, length, COLUMNS):
        k = start + tl.arange(0, COLUMNS)
        seen = (k < length)[:, None] & (d < size)[None, :]
        v = tl.load(V + m * stride_side + k[:, None] * size + d[None, :], mask=seen, other=0.0)
        a, P = _tile(g, v, A, m, q, k, length, stride_m, stride_q, PRECISION)
        more = tl.sum(tl.maximum(P, 0.0) * weight[:, None], 0)
        place = (((image * seeds + s) * heads + head) * tl.num_programs(0) + part) * length + k
        tl.store(added + place, more, mask=k < length)
        key = tl.load(K + m * stride_side + k[:, None] * size + d[None, :], mask=seen, other=0.0)
        total += tl.dot((P - a * r[:, None]).to(g.dtype), key, input_precision=PRECISION)
    tl.store(out + row * 3 * heads * size + head * size + d[None, :], total.to(g.dtype), mask=there)


@triton.jit
def _columns(
    go, A, Q, V, AV, out,
    length, seeds, heads, size, stride_m, stride_q, stride_side,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, s, m = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    image, head = m // heads, m % heads
    k, d = part * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, SIZE)
    seen = (k < length)[:, None] & (d < size)[None, :]
    v = tl.load(V + m * stride_side + k[:, None] * size + d[None, :], mask=seen, other=0.0)
    keys, values = tl.zeros((COLUMNS, SIZE), tl.float32), tl.zeros((COLUMNS, SIZE), tl.float32)
    for start in range(0, length, ROWS):
        q = start + tl.arange(0, ROWS)
        there = (q < length)[:, None] & (d < size)[None, :]
        row = ((image * length + q) * seeds + s).to(tl.int64)[:, None]
        g = tl.load(go + row * heads * size + head * size + d[None, :], mask=there, other=0.0)
        o = tl.load(AV + m * stride_side + q[:, None] * size + d[None, :], mask=there, other=0.0)
        r = tl.sum(g.to(tl.float32) * o.to(tl.float32), 1)
        a, P = _tile(g, v, A, m, q, k, length, stride_m, stride_q, PRECISION)
        query = tl.load(Q + m * stride_side + q[:, None] * size + d[None, :], mask=there, other=0.0)
        keys += tl.dot(tl.trans(P - a * r[:, None]).to(g.dtype), query, input_precision=PRECISION)
        values += tl.dot(tl.trans(a).to(g.dtype), g, input_precision=PRECISION)
    row = ((image * length + k) * seeds + s).to(tl.int64)[:, None]
    place = out + row * 3 * heads * size + head * size + d[None, :]
    tl.store(place + heads * size, keys.to(g.dtype), mask=seen)
    tl.store(place + 2 * heads * size, values.to(g.dtype), mask=seen)


def attention_rows(
    go: Tensor, A: Tensor, q: Tensor, k: Tensor, v: Tensor, before: Tensor, last: bool
) -> tuple[Tensor | None, Tensor]:
    """Gradients of q, k, v in one (image, token, seed, 3, head, channel), None for the last block; what eq. 5 adds.

    `go` (image, token, seed, head, channel) is the gradient of A v, `before` float32 (image, seed, source token) the
    vectors of eq. 5; A, q, k, v are (image, head, ...), of the first tokens only where `go` has fewer.
    """
    images, length, seeds, heads, size = go.shape
    q, k, v = (side.contiguous() for side in (q, k, v))
    AV = (A.to(v.dtype) @ v).contiguous()
    before = before.contiguous()
    out = go.new_empty(images, length, seeds, 3, heads, size)
    down, across = triton.cdiv(length, ROWS), triton.cdiv(length, COLUMNS)
    added = torch.empty(images, seeds, heads, down, length, dtype=torch.float32, device=go.device)
    fixed = {"ROWS": ROWS, "COLUMNS": COLUMNS, "SIZE": max(16, triton.next_power_of_2(size))}
    fixed |= {"PRECISION": "ieee" if go.dtype == torch.float32 else "tf32"}
    strides = (A.stride(1), A.stride(2), length * size)
    _rows[(down, seeds, images * heads)](
        go, A, k, v, AV, before, added, out, length, seeds, heads, size, before.shape[-1], *strides, **fixed
    )
    more = added.sum((2, 3)) / heads
    if last:
        return None, more
    _columns[(across, seeds, images * heads)](go, A, q, v, AV, out, length, seeds, heads, size, *strides, **fixed)
    return out, more
