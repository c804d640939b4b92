"""Relevance of every input token to many latent tokens, in one backward pass (ULTra, Hosseini et al., eq. 4 and 5).

For a token i after some block, with f a scalar of it,

    C(b) = I + mean over heads of (∂f/∂A(b))⁺ ⊙ A(b)        and its row i of  C(last) ··· C(1).

One autograd call a token would do. All tokens at once cost fewer operations, and hardly any that are not products of
large matrices:

- Only gradients of activations are formed, for all seeds together: (image, token, seed, channel).
- In a seed's own block just its own row is not zero, and what attention makes of it has rank 2 a head; in the first
  block the pass ends at ∂f/∂A; where no token looks to the right, tokens behind a seed are left out.
- Row i of the product is a chain of vectors, taken along while the pass goes down: no C is kept, none multiplied.
- Norms, LayerScale and the scale of the scores are part of the matrices; what is left of a norm is one rank.
- The gradient past a token's MLP is linear and the same for all seeds. With more seeds than about d/2 it is cheaper to
  form it as one matrix (d, d) a token than to send every seed through the hidden layer: see `cheaper_formed`.
- With few tokens, gradients of scores go to the stream in one product, not by way of queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from vitreous.kernels.token_attention import attention_back, attention_spread
from vitreous.kernels.token_layers import AttentionPart, Layer, MlpPart, Norm, Space

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
        self.space = Space(dtype)
        width = next(iter(seeds.values())).shape[-1]
        self.spent = 3 * self.heads * self.length + 12 * width  # numbers that attention holds a token and seed
        total = len(seeds) * self.count
        self.g = torch.empty(self.images, self.length, total, width, dtype=dtype, device=A.device)
        chain = _Rollout if order == "rollout" else _Printed
        self.chain: _Rollout | _Printed = chain(self.images, tokens.repeat(len(seeds)), self.length, dtype, A.device)

    def run(self, tick: Callable[[], object]) -> dict[int, Tensor]:
        active = 0
        places = {}
        for index in range(max(self.seeds), -1, -1):
            layer = self.layers[index]
            if active:
                self._past_mlp(layer, active)
            if index in self.seeds:
                places[index] = slice(active, active + self.count)
                own = self._start_mlp(layer, self.seeds[index])
            part = layer.attention.folded(self.space)
            if active:
                self._past_attention(layer, part, active, last=index == 0)
            if index in self.seeds:
                self._start_attention(layer, part, own, places[index], last=index == 0)
                active += self.count
            tick()
        rows = self.chain.rows()
        return {block: rows[:, place] for block, place in places.items()}

    def _chunks(self, layer: Layer, active: int, a_token: int) -> list[tuple[slice, int]]:
        """Seeds that are worked on together, and how many tokens matter to them; `a_token` numbers each."""
        share = max(1, self.budget // (self.images * self.length * a_token * self.dtype.itemsize))
        if self.g.device.type == "cpu":
            share = min(share, max(1, ROWS // self.length))
        chunks = []
        for segment in range(0, active, self.count):
            for start in range(0, self.count, share):
                end = min(start + share, self.count)
                reach = self.at[end - 1] + 1 if layer.causal else self.length
                chunks.append((slice(segment + start, segment + end), reach))
        return chunks

    # -- the MLP, from the block's output to between the branches

    def _start_mlp(self, layer: Layer, seeds: Tensor) -> Tensor:
        """Only the seeds' own rows are there, (image, seed, 1, channel), until attention spreads them."""
        own = self.tokens
        g = _past(layer.streams[1], own, seeds[:, :, None].to(self.dtype))
        between = torch.empty_like(g)
        layer.mlp.folded(self.space).at(own).past(g, between)
        return _past(layer.streams[0], own, between)

    def _past_mlp(self, layer: Layer, active: int) -> None:
        mlp = layer.mlp.folded(self.space)
        channels, hidden = mlp.out.shape
        plain = layer.streams[1] is None and mlp.norms.after is None
        if plain and cheaper_formed(active, channels, hidden, len(mlp.ways)):
            self._formed(mlp, active, layer.causal)
        else:
            for chunk, reach in self._chunks(layer, active, len(mlp.ways) * hidden + 3 * channels):
                tokens = slice(reach)
                here = self.g[:, tokens, chunk]
                mlp.at(tokens).past(_past(layer.streams[1], tokens, here), here)
        if layer.streams[0] is not None:
            for chunk, reach in self._chunks(layer, active, 3 * channels):
                self.g[:, :reach, chunk] = _past(layer.streams[0], slice(reach), self.g[:, :reach, chunk])

    def _formed(self, mlp: MlpPart, active: int, causal: bool) -> None:
        """One matrix a token, a few tokens at a time."""
        channels, hidden = mlp.out.shape
        share = max(1, self.budget // (2 * self.images * channels * (hidden + channels) * self.dtype.itemsize))
        for start in range(0, self.length, share):
            tokens = slice(start, min(start + share, self.length))
            jacobians = mlp.at(tokens).jacobians().flatten(0, 1)
            for segment in range(0, active, self.count):
                before = sum(token < start for token in self.at) if causal else 0
                place = self.g[:, tokens, segment + before : segment + self.count]
                place.copy_(torch.bmm(place.flatten(0, 1), jacobians).view_as(place))

    # -- attention, from there to the block's input

    def _past_attention(self, layer: Layer, part: AttentionPart, active: int, last: bool) -> None:
        for chunk, reach in self._chunks(layer, active, self.spent):
            here = self.g[:, :reach, chunk]
            attention_back(part.first(reach), here.contiguous(), here, _At(self.chain, chunk), self.length, last)

    def _start_attention(self, layer: Layer, part: AttentionPart, rows: Tensor, place: slice, last: bool) -> None:
        for chunk, reach in self._chunks(layer, self.count, self.spent):
            own, g = self.tokens[chunk], rows[:, chunk]
            here = slice(place.start + chunk.start, place.start + chunk.stop)
            y = attention_spread(part.first(reach), g, own, partial(self.chain.start, place=here), self.length, last)
            if y is not None:
                y[:, own, torch.arange(len(own), device=own.device)] += g[:, :, 0]
                self.g[:, reach:, here] = 0
                self.g[:, :reach, here] = y


@torch.no_grad()
def past_block(layer: Layer, g: Tensor) -> tuple[Tensor, Tensor]:
    """One seed (image, token, 1, channel) past one block: A ⊙ ∂f/∂A, and ∂f/∂(the block's input) without the seed."""
    every, space = slice(None), Space(g.dtype)
    g = _past(layer.streams[1], every, g)
    between, out = torch.empty_like(g), torch.empty_like(g)
    layer.mlp.folded(space).past(g, between)
    kept = _Kept()
    attention_back(
        layer.attention.folded(space), _past(layer.streams[0], every, between), out, kept, g.shape[1], last=False
    )
    return kept.seen[0][:, :, :, 0], out[:, :, 0]


def _past(norm: Norm | None, tokens: Tensor | slice, g: Tensor) -> Tensor:
    return g if norm is None else norm.at(tokens).back(g)


# -- eq. 5, block by block


@dataclass(frozen=True)
class _At:
    """A chain, as those seeds see it that are worked on."""

    chain: _Rollout | _Printed
    place: slice

    @property
    def vectors(self) -> Tensor | None:
        return self.chain.v[:, self.place] if isinstance(self.chain, _Rollout) else None

    def see(self, P: Tensor) -> None:
        self.chain.step(P, self.place)

    def add(self, more: Tensor) -> None:
        assert isinstance(self.chain, _Rollout)
        self.chain.v[:, self.place, : more.shape[-1]] += more


class _Kept:
    """Keeps P."""

    vectors: Tensor | None = None

    def __init__(self) -> None:
        self.seen: list[Tensor] = []

    def see(self, P: Tensor) -> None:
        self.seen.append(P.clone())

    def add(self, more: Tensor) -> None:
        raise NotImplementedError


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
        seeds = torch.arange(place.start, place.stop, device=own.device)
        self.product[:, seeds, own, : P.shape[-1]] += P.relu().mean(1)

    def step(self, P: Tensor, place: slice) -> None:
        length = P.shape[2]
        product = self.product[:, place, :length]
        more = P.relu().mean(1).transpose(1, 2).to(product.dtype)  # image, seed, query, key
        product += more @ product

    def rows(self) -> Tensor:
        return self.product[:, torch.arange(len(self.tokens), device=self.tokens.device), self.tokens]
