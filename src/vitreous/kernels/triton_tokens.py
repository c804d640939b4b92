"""The backward pass over many tokens on a GPU: what is not a product of large matrices, with few trips to memory.

With n tokens, h heads and s seeds, ∂f/∂A has s h n² numbers, read and written a few times: more time than the products
that make them. Here a tile of it lives in registers. The first kernel goes along rows: the gradient of queries, and
what eq. 5 adds to each seed's vector. The second goes down columns, makes the tiles again, and gives the gradients of
keys and values. All three are written where the next product reads them. Two seeds share what is read of a tile of A,
of queries, keys and values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 64  # queries, and keys, of a tile
WARPS, STAGES = 4, 3  # of the kernels of attention
SEEDS, ACROSS = 16, 1024  # of a tile of hidden activations
BESIDE = 4  # seeds of a tile of whole rows


@triton.jit
def _tile(g, v, a, PRECISION: tl.constexpr):
    """P = A ⊙ ∂f/∂A of some queries and keys."""
    return a * tl.dot(g, tl.trans(v), input_precision=PRECISION)


@triton.jit
def _rows(
    go, A, K, V, AV, before, added, sums, out,
    length, seeds, heads, size, all_tokens, padded, stride_side,
    TILE: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, s, m = tl.program_id(0), 2 * tl.program_id(1), tl.program_id(2).to(tl.int64)
    image, head = m // heads, m % heads
    q, d = part * TILE + tl.arange(0, TILE), tl.arange(0, SIZE)
    inside = q < length
    both = inside & (s + 1 + 0 * q < seeds)
    there = inside[:, None] & (d < size)[None, :]
    row = ((image * length + q) * seeds + s).to(tl.int64)[:, None]
    place = row * heads * size + head * size + d[None, :]
    g0 = tl.load(go + place, mask=there, other=0.0)
    g1 = tl.load(go + place + heads * size, mask=there & both[:, None], other=0.0)
    o = tl.load(AV + m * stride_side + q[:, None] * size + d[None, :], mask=there, other=0.0).to(tl.float32)
    r0, r1 = tl.sum(g0.to(tl.float32) * o, 1), tl.sum(g1.to(tl.float32) * o, 1)
    kept = sums + ((image * seeds + s) * heads + head) * length + q
    tl.store(kept, r0, mask=inside)
    tl.store(kept + heads * length, r1, mask=both)
    vector = before + (image * seeds + s) * all_tokens + q
    w0 = tl.load(vector, mask=inside, other=0.0)
    w1 = tl.load(vector + all_tokens, mask=both, other=0.0)
    more = added + (((image * seeds + s) * heads + head) * tl.num_programs(0) + part) * length
    total0, total1 = tl.zeros((TILE, SIZE), tl.float32), tl.zeros((TILE, SIZE), tl.float32)
    for start in range(0, length, TILE):
        k = start + tl.arange(0, TILE)
        seen = (k < length)[:, None] & (d < size)[None, :]
        side = m * stride_side + k[:, None] * size + d[None, :]
        v = tl.load(V + side, mask=seen, other=0.0)
        a = tl.load(A + m * padded * padded + q[:, None] * padded + k[None, :]).to(tl.float32)
        P0, P1 = _tile(g0, v, a, PRECISION), _tile(g1, v, a, PRECISION)
        tl.store(more + k, tl.sum(tl.maximum(P0, 0.0) * w0[:, None], 0), mask=k < length)
        last = tl.sum(tl.maximum(P1, 0.0) * w1[:, None], 0)
        tl.store(more + heads * tl.num_programs(0) * length + k, last, mask=(k < length) & (s + 1 + 0 * k < seeds))
        key = tl.load(K + side, mask=seen, other=0.0)
        total0 += tl.dot((P0 - a * r0[:, None]).to(v.dtype), key, input_precision=PRECISION)
        total1 += tl.dot((P1 - a * r1[:, None]).to(v.dtype), key, input_precision=PRECISION)
    place = row * 3 * heads * size + head * size + d[None, :]
    tl.store(out + place, total0.to(g0.dtype), mask=there)
    tl.store(out + place + 3 * heads * size, total1.to(g0.dtype), mask=there & both[:, None])


@triton.jit
def _columns(
    go, A, Q, V, sums, out,
    length, seeds, heads, size, padded, stride_side,
    TILE: tl.constexpr, SIZE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, s, m = tl.program_id(0), 2 * tl.program_id(1), tl.program_id(2).to(tl.int64)
    image, head = m // heads, m % heads
    k, d = part * TILE + tl.arange(0, TILE), tl.arange(0, SIZE)
    seen = (k < length)[:, None] & (d < size)[None, :]
    v = tl.load(V + m * stride_side + k[:, None] * size + d[None, :], mask=seen, other=0.0)
    keys0, values0 = tl.zeros((TILE, SIZE), tl.float32), tl.zeros((TILE, SIZE), tl.float32)
    keys1, values1 = tl.zeros((TILE, SIZE), tl.float32), tl.zeros((TILE, SIZE), tl.float32)
    kept = sums + ((image * seeds + s) * heads + head) * length
    for start in range(0, length, TILE):
        q = start + tl.arange(0, TILE)
        inside = q < length
        both = inside & (s + 1 + 0 * q < seeds)
        there = inside[:, None] & (d < size)[None, :]
        place = ((image * length + q) * seeds + s).to(tl.int64)[:, None] * heads * size + head * size + d[None, :]
        g0 = tl.load(go + place, mask=there, other=0.0)
        g1 = tl.load(go + place + heads * size, mask=there & both[:, None], other=0.0)
        r0 = tl.load(kept + q, mask=inside, other=0.0)
        r1 = tl.load(kept + heads * length + q, mask=both, other=0.0)
        near = tl.load(A + m * padded * padded + q[:, None] * padded + k[None, :])
        query = tl.load(Q + m * stride_side + q[:, None] * size + d[None, :], mask=there, other=0.0)
        a, down = near.to(tl.float32), tl.trans(near).to(v.dtype)
        d0 = (_tile(g0, v, a, PRECISION) - a * r0[:, None]).to(v.dtype)
        keys0 += tl.dot(tl.trans(d0), query, input_precision=PRECISION)
        values0 += tl.dot(down, g0, input_precision=PRECISION)
        d1 = (_tile(g1, v, a, PRECISION) - a * r1[:, None]).to(v.dtype)
        keys1 += tl.dot(tl.trans(d1), query, input_precision=PRECISION)
        values1 += tl.dot(down, g1, input_precision=PRECISION)
    row = ((image * length + k) * seeds + s).to(tl.int64)[:, None]
    place = out + row * 3 * heads * size + head * size + d[None, :]
    wide = heads * size
    tl.store(place + wide, keys0.to(v.dtype), mask=seen)
    tl.store(place + 2 * wide, values0.to(v.dtype), mask=seen)
    tl.store(place + 4 * wide, keys1.to(v.dtype), mask=seen & (s + 1 + 0 * k < seeds)[:, None])
    tl.store(place + 5 * wide, values1.to(v.dtype), mask=seen & (s + 1 + 0 * k < seeds)[:, None])


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
    go, before = go.contiguous(), before.contiguous()
    parts = triton.cdiv(length, TILE)
    padded = parts * TILE  # with zeros around A nothing has to be asked, and rows begin where they are read at once
    whole = torch.nn.functional.pad(A, (0, padded - length, 0, padded - length))
    out = go.new_empty(images, length, seeds, 3, heads, size)
    added = torch.empty(images, seeds, heads, parts, length, dtype=torch.float32, device=go.device)
    sums = torch.empty(images, seeds, heads, length, dtype=torch.float32, device=go.device)
    fixed = {"TILE": TILE, "SIZE": max(16, triton.next_power_of_2(size))}
    fixed |= {"PRECISION": "ieee" if go.dtype == torch.float32 else "tf32", "num_warps": WARPS, "num_stages": STAGES}
    sizes, side = (length, seeds, heads, size), length * size
    grid = parts, triton.cdiv(seeds, 2), images * heads
    _rows[grid](go, whole, k, v, AV, before, added, sums, out, *sizes, before.shape[-1], padded, side, **fixed)
    more = added.sum((2, 3)) / heads
    if last:
        return None, more
    _columns[grid](go, whole, q, v, sums, out, *sizes, padded, side, **fixed)
    return out, more


# -- between products


@triton.jit
def _times(hidden, by, seeds, width, stride_image, stride_token, tokens, SEEDS: tl.constexpr, ACROSS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    s, c = tl.program_id(1) * SEEDS + tl.arange(0, SEEDS), tl.program_id(2) * ACROSS + tl.arange(0, ACROSS)
    row = by + at // tokens * stride_image + at % tokens * stride_token
    factor = tl.load(row + c, mask=c < width, other=0.0).to(tl.float32)
    place = hidden + (at * seeds + s)[:, None] * width + c[None, :]
    there = (s < seeds)[:, None] & (c < width)[None, :]
    tl.store(place, tl.load(place, mask=there, other=0.0).to(tl.float32) * factor[None, :], mask=there)


def times(hidden: Tensor, by: Tensor) -> Tensor:
    """`hidden` (image, token, seed, channel), in place, times what all seeds share (image, token, channel)."""
    images, tokens, seeds, width = hidden.shape
    grid = images * tokens, triton.cdiv(seeds, SEEDS), triton.cdiv(width, ACROSS)
    _times[grid](hidden, by, seeds, width, by.stride(0), by.stride(1), tokens, SEEDS=SEEDS, ACROSS=ACROSS)
    return hidden


@triton.jit
def _onto(
    out, g, y, unit, inverse, tokens, seeds, width,
    out_image, out_token, out_seed, g_image, g_token, g_seed, unit_image, unit_token, inverse_image, inverse_token,
    SCALED: tl.constexpr, SEEDS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64)
    image, token = at // tokens, at % tokens
    s, c = tl.program_id(1) * SEEDS + tl.arange(0, SEEDS), tl.arange(0, WIDTH)
    there = (s < seeds)[:, None] & (c < width)[None, :]
    u = tl.load(unit + image * unit_image + token * unit_token + c, mask=c < width, other=0.0).to(tl.float32)
    rows = tl.load(y + (at * seeds + s)[:, None] * width + c[None, :], mask=there, other=0.0).to(tl.float32)
    along = tl.sum(rows * u[None, :], 1) / width
    rows -= along[:, None] * u[None, :]
    if SCALED:
        rows *= tl.load(inverse + image * inverse_image + token * inverse_token).to(tl.float32)
    from_g = g + image * g_image + token * g_token + s[:, None] * g_seed + c[None, :]
    to = out + image * out_image + token * out_token + s[:, None] * out_seed + c[None, :]
    tl.store(to, tl.load(from_g, mask=there, other=0.0).to(tl.float32) + rows, mask=there)


def onto(out: Tensor, g: Tensor, y: Tensor, unit: Tensor, inverse: Tensor | None) -> None:
    """out = g + y past a norm: what lies along `unit` (image, token, channel) taken out, times `inverse` if given.

    `y` (image, token, seed, channel) lies in one piece; `out` and `g` of the same shape need only whole rows.
    """
    images, tokens, seeds, width = y.shape
    scale = unit if inverse is None else inverse
    strides = (*out.stride()[:3], *g.stride()[:3], *unit.stride()[:2], *scale.stride()[:2])
    fixed = {"SCALED": inverse is not None, "SEEDS": BESIDE, "WIDTH": triton.next_power_of_2(width)}
    grid = images * tokens, triton.cdiv(seeds, BESIDE)
    _onto[grid](out, g, y, unit, scale, tokens, seeds, width, *strides, **fixed)
