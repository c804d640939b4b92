"""Attention in the backward pass over many tokens: from the gradient after the branch to that before it.

With P = A ⊙ ∂f/∂A and r its sum over keys, softmax gives ∂f/∂scores = P - r A. P is shown to whoever follows eq. 4.
Gradients are (image, token, seed, channel); parts are folded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from vitreous.kernels.products import product
from vitreous.kernels.token_layers import AttentionPart, Pull, fused

See = Callable[[Tensor], object]


class Follower(Protocol):
    """Whoever makes eq. 5 of P: it is shown P, or told what P adds to its `vectors` (image, seed, source token)."""

    @property
    def vectors(self) -> Tensor | None: ...
    def see(self, P: Tensor) -> None: ...
    def add(self, more: Tensor) -> None: ...


def attention_back(
    part: AttentionPart, g: Tensor, out: Tensor, follower: Follower, all_tokens: int, last: bool
) -> None:
    """Shows P (image, head, query, seed, key); out = g + what the branch adds, unless it is the last block."""
    y = _to_norm(part, g, follower, all_tokens, last)
    if y is None:
        return
    if part.norms.before is None:
        torch.add(g, y, out=out)
    else:
        part.norms.before.onto(out, g, y, scaled=True)


def _to_norm(part: AttentionPart, g: Tensor, follower: Follower, all_tokens: int, last: bool) -> Tensor | None:
    images, length, seeds, _ = g.shape
    go = _outward(part, g, slice(length))  # image, token, seed, head, channel of a head
    if (vectors := follower.vectors) is not None and fits_fused(go):
        from vitreous.kernels.triton_tokens import attention_rows

        rows, more = attention_rows(go, part.A, part.q, part.k, part.v, vectors, last)
        follower.add(more)
        return None if rows is None else _inward(part, rows.unbind(3), all_tokens, rows.flatten(3))
    A, q, k, v = (side.flatten(0, 1) for side in (part.A, part.q, part.k, part.v))
    go = go.permute(0, 3, 1, 2, 4).contiguous()  # image, head, token, seed, channel
    many = len(A)
    dA = torch.bmm(go.view(many, length * seeds, -1), v.mT).view(many, length, seeds, length)
    P = dA.mul_(A[:, :, None])
    follower.see(P.view(images, -1, length, seeds, length))
    if last:
        return None
    dS = P.addcmul_(A[:, :, None], P.sum(-1, keepdim=True), value=-1)
    dV = torch.bmm(A.mT, go.view(many, length, -1)).view_as(go).permute(0, 2, 3, 1, 4)
    if part.direct is not None:
        return _direct(part, dS.view(images, -1, length, seeds, length), dV)
    dQ = torch.bmm(dS.view(many, length * seeds, length), k).view_as(go).permute(0, 2, 3, 1, 4)
    dK = torch.bmm(dS.view(many, length, seeds * length).mT, q)
    dK = dK.view(images, -1, seeds, length, go.shape[-1]).permute(0, 3, 2, 1, 4)
    return _inward(part, (dQ, dK, dV), all_tokens)


def fits_fused(go: Tensor) -> bool:
    """Half precision on a GPU, with heads that a tile holds: elsewhere plain products are as fast, or exact."""
    return fused(go) and go.dtype != torch.float32 and go.shape[-1] <= 128


def attention_spread(
    part: AttentionPart, g: Tensor, own: Tensor, see: See, all_tokens: int, last: bool
) -> Tensor | None:
    """The same where only row own[s] of seed s is there: g is (image, seed, 1, channel), P (image, head, seed, key)."""
    go = _outward(part, g, own)[:, :, 0]  # image, seed, head, channel of a head
    A, q = part.A[:, :, own], part.q[:, :, own]
    P = torch.einsum("ishd,ihkd->ihsk", go, part.v) * A
    see(P)
    if last:
        return None
    dS = P - A * P.sum(-1, keepdim=True)
    dQ = torch.einsum("ihsk,ihkd->ishd", dS, part.k)
    seeds = torch.arange(len(own), device=own.device)
    if any(pull is not None for pull in part.pulls):
        whole = go.new_zeros(len(go), P.shape[-1], *go.shape[1:])
        whole[:, own, seeds] = dQ
        sides = (whole, torch.einsum("ihsk,ihsd->ikshd", dS, q), torch.einsum("ihsk,ishd->ikshd", A, go))
        return _normed(part, _inward(part, sides, all_tokens))
    to_k, to_v = (weight.unflatten(0, (A.shape[1], -1)) for weight in part.weights[1:])
    vectors = torch.cat([torch.einsum("ihsd,hdc->ishc", q, to_k), torch.einsum("ishd,hdc->ishc", go, to_v)], 2)
    y = (torch.cat([dS, A], 1).permute(0, 2, 3, 1) @ vectors).transpose(1, 2).contiguous()
    y[:, own, seeds] += dQ.flatten(2) @ part.weights[0]
    return _normed(part, y)


def _outward(part: AttentionPart, g: Tensor, tokens: Tensor | slice) -> Tensor:
    """Gradients after the branch -> of A v (image, token, seed, head, channel of a head)."""
    if part.norms.after is not None:
        g = part.norms.after.at(tokens).back(g)
    go = product(g.reshape(-1, g.shape[-1]), part.out).view(*g.shape[:-1], -1)
    if part.norms.inside is not None:
        go = part.norms.inside.at(tokens).back(go)
    return go.view(*g.shape[:-1], part.q.shape[1], -1)


def _inward(part: AttentionPart, sides: Sequence[Tensor], all_tokens: int, rows: Tensor | None = None) -> Tensor:
    """Gradients of q, k, v (image, token, seed, head, channel of a head) -> behind the norm at the branch's input.

    `rows` has the three side by side already, and will do if nothing lies between.
    """
    assert part.inward is not None
    shape = sides[0].shape[:3]
    if rows is None or any(pull is not None for pull in part.pulls):
        rows = sides[0].new_empty(*shape, len(part.inward))
        for place, side, pull in zip(rows.split([len(w) for w in part.weights], -1), sides, part.pulls, strict=True):
            if pull is None:
                place.unflatten(-1, side.shape[3:]).copy_(side)
            else:
                place.copy_(_pulled(pull, side, all_tokens))
    return product(rows.view(-1, rows.shape[-1]), part.inward).view(*shape, -1)


def _direct(part: AttentionPart, dS: Tensor, dV: Tensor) -> Tensor:
    """The same from gradients of scores (image, head, query, seed, key) and of v, side by side in one product."""
    assert part.direct is not None
    images, heads, length, seeds, _ = dS.shape
    scores, many = heads * length, length * seeds
    rows = dS.new_empty(images, length, seeds, part.direct.shape[1])
    by_query, by_key, by_value = rows.split([scores, scores, rows.shape[-1] - 2 * scores], -1)
    by_query.unflatten(-1, (heads, length)).copy_(dS.permute(0, 2, 3, 1, 4))
    by_key.unflatten(-1, (heads, length)).copy_(dS.permute(0, 4, 3, 1, 2))
    by_value.unflatten(-1, dV.shape[3:]).copy_(dV)
    found = [product(one.view(many, -1), direct) for one, direct in zip(rows, part.direct, strict=True)]
    return (found[0] if images == 1 else torch.cat(found)).view(images, length, seeds, -1)


def _normed(part: AttentionPart, y: Tensor) -> Tensor:
    before = part.norms.before
    return y if before is None else before.correct(y.mul_(before.inverse[:, :, None]))


def _pulled(pull: Pull, side: Tensor, all_tokens: int) -> Tensor:
    """The pull wants all tokens: those left out have no gradient."""
    tokens = side.shape[1]
    side = side.permute(2, 0, 3, 1, 4)
    if tokens < all_tokens:
        side = torch.nn.functional.pad(side, (0, 0, 0, all_tokens - tokens))
    return pull(side)[:, :, :tokens].permute(1, 2, 0, 3)
