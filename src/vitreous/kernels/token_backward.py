"""Relevance of every input token to many latent tokens, in one backward pass (ULTra, Hosseini et al., eq. 4 and 5).

For a token i after some block, with f a scalar of it,

    C(b) = I + mean over heads of (∂f/∂A(b))⁺ ⊙ A(b)        and its row i of  C(last) ··· C(1).

One autograd call a token would do. All tokens at once cost fewer operations, and hardly any that are not products of
large matrices:

- Only gradients of activations are formed, for all seeds together: (image, token, seed, channel).
- In a seed's own block just its own row is not zero; in the first block the pass ends at ∂f/∂A; where no token looks to
  the right, tokens behind a seed are left out.
- Row i of the product is a chain of vectors, taken along while the pass goes down: no C is kept, none multiplied.
- Norms, LayerScale and the scale of the scores are part of the matrices; what is left of a norm is one rank.
- The gradient past a token's MLP is linear and the same for all seeds. With more seeds than about d/2 it is cheaper to
  form it as one matrix (d, d) a token than to send every seed through the hidden layer: see `cheaper_formed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from vitreous.kernels.token_layers import AttentionPart, Layer, MlpPart, Norm

Order = Literal["rollout", "printed"]
ROWS = 1024  # of a matrix on a CPU: enough for its products to be fast, few enough to stay in its cache


@torch.no_grad()
def token_rows(
    layers: Sequence[Layer],
    seeds: Mapping[int, Tensor],
    tokens: Tensor,
    *,
    order: Order = "rollout",
    dtype: torch.dtype = torch.float32,
    budget: int = 2**27,
    tick: Callable[[], object] = lambda: None,
) -> dict[int, Tensor]:
    """{block: (image, seed, source token)} for gradients of f at the output of each wanted block.

    `seeds[block]` (image, seed, channel) are ∂f/∂z of the `tokens` (seed,), which rise. The pass takes about `budget`
    bytes; `tick` is called after each block.
    """
    first = layers[0].attention.A
    images, _, length, _ = first.shape
    blocks = sorted(seeds, reverse=True)
    width = next(iter(seeds.values())).shape[-1]
    a_seed = images * length * len(blocks) * (width + (length if order == "printed" else 0)) * dtype.itemsize
    share = max(1, budget // 2 // a_seed)
    parts = []
    for start in range(0, len(tokens), share):
        some = slice(start, start + share)
        work = _Pass(layers, {b: seeds[b][:, some] for b in blocks}, tokens[some], order, dtype, budget // 8)
        parts.append(work.run(tick))
    return {b: torch.cat([part[b] for part in parts], 1) for b in blocks}


def cheaper_formed(seeds: int, channels: int, hidden: int, ways: int) -> bool:
    """Whether one matrix a token costs fewer operations than sending every seed through the hidden layer.

    2 d² h w to form it and 2 d² a seed to use it, against 2 d h (1 + w) a seed; w is 2 for a gated MLP, else 1.
    """
    formed = channels * hidden * ways + seeds * channels
    return formed < seeds * hidden * (1 + ways)


class _Pass:
    """Seeds of several blocks on their way down together: those of the deepest block come first."""

    def __init__(
        self,
        layers: Sequence[Layer],
        seeds: Mapping[int, Tensor],
        tokens: Tensor,
        order: Order,
        dtype: torch.dtype,
        budget: int,
    ) -> None:
        A = layers[0].attention.A
        self.layers, self.seeds, self.tokens, self.dtype, self.budget = layers, seeds, tokens, dtype, budget
        self.images, self.heads, self.length, _ = A.shape
        self.at = tokens.tolist()
        self.count = len(tokens)
        width = next(iter(seeds.values())).shape[-1]
        total = len(seeds) * self.count
        self.g = torch.empty(self.images, self.length, total, width, dtype=dtype, device=A.device)
        chain = _Rollout if order == "rollout" else _Printed
        self.chain: _Rollout | _Printed = chain(self.images, tokens.repeat(len(seeds)), self.length, dtype, A.device)

    def run(self, tick: Callable[[], object]) -> dict[int, Tensor]:
        active = 0
        places = {}
        for index in range(max(self.seeds), -1, -1):
            layer = self.layers[index].folded(self.dtype)
            if active:
                self._down(layer, active, last=index == 0)
            if index in self.seeds:
                places[index] = slice(active, active + self.count)
                self._start(layer, self.seeds[index], active, last=index == 0)
                active += self.count
            tick()
        rows = self.chain.rows()
        return {block: rows[:, place] for block, place in places.items()}

    def _chunks(self, layer: Layer, active: int) -> list[tuple[slice, int]]:
        """Seeds that are worked on together, and how many tokens matter to them."""
        hidden = layer.mlp.out.shape[1]
        a_seed = self.images * self.length * max(3 * self.heads * self.length, 2 * hidden) * self.dtype.itemsize
        share = max(1, self.budget // a_seed)
        if self.g.device.type == "cpu":
            share = min(share, max(1, ROWS // self.length))
        chunks = []
        for segment in range(0, active, self.count):
            for start in range(0, self.count, share):
                end = min(start + share, self.count)
                reach = self.at[end - 1] + 1 if layer.causal else self.length
                chunks.append((slice(segment + start, segment + end), reach))
        return chunks

    # -- a block that only has the seeds' own rows to start from

    def _start(self, layer: Layer, seeds: Tensor, first: int, last: bool) -> None:
        for chunk, reach in self._chunks(layer, self.count):
            own = self.tokens[chunk]
            g = _past(layer.streams[1], own, seeds[:, chunk, None].to(self.dtype))
            g = g + layer.mlp.at(own).back(g)
            g = _past(layer.streams[0], own, g)
            place = slice(first + chunk.start, first + chunk.stop)
            y = self._start_attention(layer.attention.first(reach), g, own, place, last)
            if y is not None:
                y[:, own, torch.arange(len(own))] += g[:, :, 0]
                self.g[:, reach:, place] = 0
                self.g[:, :reach, place] = y

    def _start_attention(self, part: AttentionPart, g: Tensor, own: Tensor, place: slice, last: bool) -> Tensor | None:
        go = _outward(part, g, own)[:, :, 0]  # image, seed, head, channel of a head
        A, q = part.A[:, :, own], part.q[:, :, own]
        P = torch.einsum("ishd,ihkd->ihsk", go, part.v) * A
        self.chain.start(P, place)
        if last:
            return None
        dS = P - A * P.sum(-1, keepdim=True)
        dQ = go.new_zeros(self.images, P.shape[-1], *go.shape[1:])
        dQ[:, own, torch.arange(len(own))] = torch.einsum("ihsk,ihkd->ishd", dS, part.k)
        dK = torch.einsum("ihsk,ihsd->ikshd", dS, q)
        dV = torch.einsum("ihsk,ishd->ikshd", A, go)
        return _inward(part, (dQ, dK, dV), self.length)

    # -- a block that has every row

    def _down(self, layer: Layer, active: int, last: bool) -> None:
        mlp = layer.mlp
        hidden, channels = mlp.out.shape[1], mlp.out.shape[0]
        plain = layer.streams[1] is None and mlp.norms.after is None
        formed = plain and cheaper_formed(active, channels, hidden, len(mlp.ways))
        if formed:
            self._formed(mlp, active, layer.causal)
        for chunk, reach in self._chunks(layer, active):
            tokens = slice(reach)
            g = self.g[:, tokens, chunk]
            if not formed:
                g = _past(layer.streams[1], tokens, g)
                g = g + mlp.at(tokens).back(g)
            g = _past(layer.streams[0], tokens, g).contiguous()
            y = self._attention(layer.attention.first(reach), g, chunk, last)
            if y is not None:
                torch.add(g, y, out=self.g[:, tokens, chunk])

    def _formed(self, mlp: MlpPart, active: int, causal: bool) -> None:
        channels, hidden = mlp.out.shape
        share = max(1, self.budget // (self.images * channels * (hidden + channels) * self.dtype.itemsize))
        for start in range(0, self.length, share):
            tokens = slice(start, min(start + share, self.length))
            jacobians = mlp.at(tokens).jacobians().flatten(0, 1)
            for segment in range(0, active, self.count):
                before = sum(token < start for token in self.at) if causal else 0
                place = self.g[:, tokens, segment + before : segment + self.count]
                place.copy_(torch.bmm(place.flatten(0, 1), jacobians).view_as(place))

    def _attention(self, part: AttentionPart, g: Tensor, place: slice, last: bool) -> Tensor | None:
        A, q, k, v = (side.flatten(0, 1) for side in (part.A, part.q, part.k, part.v))
        images, length, seeds, _ = g.shape
        go = _outward(part, g, slice(length)).permute(0, 3, 1, 2, 4).contiguous()  # image, head, token, seed, channel
        many = len(A)
        dA = torch.bmm(go.view(many, length * seeds, -1), v.mT).view(many, length, seeds, length)
        P = dA.mul_(A[:, :, None])
        self.chain.step(P.view(images, -1, length, seeds, length), place)
        if last:
            return None
        dS = P.addcmul_(A[:, :, None], P.sum(-1, keepdim=True), value=-1)
        dQ = torch.bmm(dS.view(many, length * seeds, length), k).view_as(go).permute(0, 2, 3, 1, 4)
        dK = torch.bmm(dS.view(many, length, seeds * length).mT, q)
        dK = dK.view(images, -1, seeds, length, go.shape[-1]).permute(0, 3, 2, 1, 4)
        dV = torch.bmm(A.mT, go.view(many, length, -1)).view_as(go).permute(0, 2, 3, 1, 4)
        return _inward(part, (dQ, dK, dV), self.length)


def _past(norm: Norm | None, tokens: Tensor | slice, g: Tensor) -> Tensor:
    return g if norm is None else norm.at(tokens).back(g)


def _outward(part: AttentionPart, g: Tensor, tokens: Tensor | slice) -> Tensor:
    """Gradients after the branch (image, token, seed, channel) -> of A v (image, token, seed, head, channel of it)."""
    if part.norms.after is not None:
        g = part.norms.after.at(tokens).back(g)
    go = (g.reshape(-1, g.shape[-1]) @ part.out).view(*g.shape[:-1], -1)
    if part.norms.inside is not None:
        go = part.norms.inside.at(tokens).back(go)
    return go.view(*g.shape[:-1], part.q.shape[1], -1)


def _inward(part: AttentionPart, sides: Sequence[Tensor], length: int) -> Tensor:
    """Gradients of q, k, v (image, token, seed, head, channel of it) -> at the branch's input."""
    images, tokens, seeds = sides[0].shape[:3]
    before = part.norms.before
    inverse = sides[0].new_ones(1, 1, 1, 1) if before is None else before.inverse[:, :, None]
    rows = sides[0].new_empty(images, tokens, seeds, sum(len(w) for w in part.weights))
    for place, side, pull in zip(rows.split([len(w) for w in part.weights], -1), sides, part.pulls, strict=True):
        if pull is None:
            torch.mul(side, inverse[..., None], out=place.unflatten(-1, side.shape[3:]))
        else:
            place.copy_(_pulled(pull, side, length) * inverse)
    y = (rows.view(-1, rows.shape[-1]) @ part.inward).view(images, tokens, seeds, -1)
    return y if before is None else before.correct(y)


def _pulled(pull: Callable[[Tensor], Tensor], side: Tensor, length: int) -> Tensor:
    """The pull wants all tokens: those left out have no gradient."""
    tokens = side.shape[1]
    side = side.permute(2, 0, 3, 1, 4)
    if tokens < length:
        side = torch.nn.functional.pad(side, (0, 0, 0, length - tokens))
    return pull(side)[:, :, :tokens].permute(1, 2, 0, 3)


# -- eq. 5, block by block


class _Rollout:
    """Row i of C(last) ··· C(b): a vector a seed, from the deepest block down."""

    def __init__(self, images: int, tokens: Tensor, length: int, dtype: torch.dtype, device: torch.device) -> None:
        exact = torch.promote_types(dtype, torch.float32)
        self.v = torch.eye(length, dtype=exact, device=device)[tokens].repeat(images, 1, 1)

    def start(self, P: Tensor, place: slice) -> None:
        self.v[:, place, : P.shape[-1]] += P.relu().mean(1)

    def step(self, P: Tensor, place: slice) -> None:
        """P is A ⊙ ∂f/∂A (image, head, query, seed, key)."""
        _, heads, length, seeds, _ = P.shape
        for image, v in zip(P.relu(), self.v[:, place, :length], strict=True):
            many = (v / heads).to(P.dtype).repeat(1, heads)[:, None]  # seed, 1, head and query
            v += torch.bmm(many, image.view(heads * length, seeds, length).transpose(0, 1))[:, 0]

    def rows(self) -> Tensor:
        return self.v


class _Printed:
    """Row i of C(1) ··· C(last): what stands on the right is known first, so the whole product is kept a seed."""

    def __init__(self, images: int, tokens: Tensor, length: int, dtype: torch.dtype, device: torch.device) -> None:
        exact = torch.promote_types(dtype, torch.float32)
        self.tokens = tokens
        self.product = torch.eye(length, dtype=exact, device=device).repeat(images, len(tokens), 1, 1)

    def start(self, P: Tensor, place: slice) -> None:
        own = self.tokens[place]
        self.product[:, range(place.start, place.stop), own, : P.shape[-1]] += P.relu().mean(1)

    def step(self, P: Tensor, place: slice) -> None:
        length = P.shape[2]
        product = self.product[:, place, :length]
        more = P.relu().mean(1).transpose(1, 2).to(product.dtype)  # image, seed, query, key
        product += more @ product

    def rows(self) -> Tensor:
        return self.product[:, torch.arange(len(self.tokens)), self.tokens]
