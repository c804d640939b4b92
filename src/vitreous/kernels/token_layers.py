"""What a backward pass over many tokens needs of one transformer block: matrices, and what the forward pass left.

A block adds two branches to its stream, attention and an MLP. It is read once and described here in one way, whatever
library it came from; the backward pass then knows nothing of modules. Rows of a matrix are outputs, as in `nn.Linear`.
Activations are (image, token, channel), gradients (image, token, seed, channel): a seed is one scalar that is followed
back. `folded` makes a part ready for a pass in some dtype: gains, centring and scales become part of the matrices, one
block at a time, so that weights are never kept twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

#: Gradients (seed, image, head, token, channel of a head) -> (seed, image, token, output of the linear layer).
Pull = Callable[[Tensor], Tensor]


def _scaled(weight: Tensor, scale: Tensor | None) -> Tensor:
    return weight if scale is None else weight * scale[:, None]


@dataclass(frozen=True)
class Norm:
    """A LayerNorm (`centred`) or RMSNorm at its input: y = gain · unit + shift.

    `unit` (image, token, channel) has deviation 1, and `inverse` (image, token, 1) is 1 / deviation of the input.
    """

    unit: Tensor
    inverse: Tensor
    gain: Tensor
    centred: bool

    def fold(self, weight: Tensor) -> Tensor:
        """A matrix behind this norm, as one that `unit` goes through."""
        weight = weight * self.gain
        return weight - weight.mean(1, keepdim=True) if self.centred else weight

    def correct(self, y: Tensor) -> Tensor:
        """The rest of the gradient, in place: takes out of y what lies along `unit`.

        y comes from folded matrices and has been multiplied by `inverse`.
        """
        flat = y.view(-1, *y.shape[2:])
        unit = self.unit.reshape(len(flat), -1, 1)
        along = torch.bmm(flat, unit / unit.shape[1])
        flat.baddbmm_(along, unit.mT, alpha=-1)
        return y

    def back(self, g: Tensor) -> Tensor:
        """The whole gradient: at the norm's output to at its input."""
        g = g * self.gain
        if self.centred:
            g = g - g.mean(-1, keepdim=True)
        unit, inverse = self.unit[:, :, None], self.inverse[:, :, None]
        return inverse * (g - unit * (g * unit).mean(-1, keepdim=True))

    def at(self, tokens: Tensor | slice) -> Norm:
        return replace(self, unit=self.unit[:, tokens], inverse=self.inverse[:, tokens])

    def to(self, dtype: torch.dtype) -> Norm:
        return Norm(self.unit.to(dtype), self.inverse.to(dtype), self.gain.to(dtype), self.centred)


@dataclass(frozen=True)
class Norms:
    """Of one branch: at its start, just before its last matrix, and at its end."""

    before: Norm | None = None
    inside: Norm | None = None
    after: Norm | None = None

    def each(self, change: Callable[[Norm], Norm]) -> Norms:
        return Norms(*(norm and change(norm) for norm in (self.before, self.inside, self.after)))


@dataclass(frozen=True)
class AttentionPart:
    """A (image, head, query, key); q, k, v (image, head, token, channel of a head); scores are sharpness · q kᵀ.

    `weights` (output, channel) make queries, keys and values of the (normed) stream. Without a pull the outputs are
    (head, channel of a head) just as attention uses them; a pull goes back through what lies between: rotary positions,
    norms, shared heads. `out` (channel, head and channel of it) is the last matrix, `scale` (channel,) a LayerScale.
    """

    A: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    sharpness: float
    weights: tuple[Tensor, ...]
    pulls: tuple[Pull | None, ...]
    out: Tensor
    scale: Tensor | None = None
    norms: Norms = Norms()

    def folded(self, dtype: torch.dtype) -> AttentionPart:
        before = self.norms.before
        weights = tuple((w if before is None else before.fold(w)).to(dtype) for w in self.weights)
        q, k = ((side * self.sharpness).to(dtype) for side in (self.q, self.k))
        norms = self.norms.each(lambda norm: norm.to(dtype))
        out = _scaled(self.out, self.scale).to(dtype).contiguous()
        return AttentionPart(self.A.to(dtype), q, k, self.v.to(dtype), 1.0, weights, self.pulls, out, None, norms)

    @cached_property
    def inward(self) -> Tensor:
        """(outputs of all three, channel)."""
        return torch.cat(self.weights)

    def first(self, tokens: int) -> AttentionPart:
        """Without the tokens that follow: nothing looks at them."""
        if tokens == self.A.shape[-1]:
            return self
        q, k, v = (side[:, :, :tokens] for side in (self.q, self.k, self.v))
        norms = self.norms.each(lambda norm: norm.at(slice(tokens)))
        return replace(self, A=self.A[:, :, :tokens, :tokens], q=q, k=k, v=v, norms=norms)


@dataclass(frozen=True)
class MlpPart:
    """`ways`: ∂hidden/∂(output of a first matrix) (image, token, hidden), and that matrix (hidden, channel).

    A plain MLP has one way, a gated one two. `out` (channel, hidden) is the last matrix, `scale` a LayerScale.
    """

    ways: tuple[tuple[Tensor, Tensor], ...]
    out: Tensor
    scale: Tensor | None = None
    norms: Norms = Norms()

    def folded(self, dtype: torch.dtype) -> MlpPart:
        before = self.norms.before
        ways = self.ways
        if before is not None:
            ways = tuple((d * before.inverse, before.fold(w)) for d, w in ways)
        norms = self.norms.each(lambda norm: norm.to(dtype))
        out = _scaled(self.out, self.scale).to(dtype).contiguous()
        return MlpPart(tuple((d.to(dtype), w.to(dtype)) for d, w in ways), out, None, norms)

    def at(self, tokens: Tensor | slice) -> MlpPart:
        ways = tuple((derivative[:, tokens], weight) for derivative, weight in self.ways)
        return replace(self, ways=ways, norms=self.norms.each(lambda norm: norm.at(tokens)))

    def back(self, g: Tensor) -> Tensor:
        """What the branch adds to the gradient at its input, from the gradient at its output."""
        if self.norms.after is not None:
            g = self.norms.after.back(g)
        return self._inward((g.reshape(-1, g.shape[-1]) @ self.out).view(*g.shape[:-1], -1))

    def jacobians(self) -> Tensor:
        """(image, token, channel, channel): the gradient's whole way past this branch, the same for every seed."""
        found = self._inward(self.out.expand(*self.ways[0][0].shape[:2], *self.out.shape))
        found.diagonal(dim1=-2, dim2=-1).add_(1)
        return found

    def _inward(self, hidden: Tensor) -> Tensor:
        if self.norms.inside is not None:
            hidden = self.norms.inside.back(hidden)
        y: Tensor | None = None
        for derivative, weight in self.ways:
            rows = (hidden * derivative[:, :, None]).view(-1, hidden.shape[-1])
            y = rows @ weight if y is None else y.addmm_(rows, weight)
        assert y is not None
        y = y.view(*hidden.shape[:-1], -1)
        return y if self.norms.before is None else self.norms.before.correct(y)


@dataclass(frozen=True)
class Layer:
    """One block. `streams` are norms that the stream itself goes through after each branch (BERT).

    `causal` says that no token looks to the right.
    """

    attention: AttentionPart
    mlp: MlpPart
    streams: tuple[Norm | None, Norm | None] = (None, None)
    causal: bool = False

    def folded(self, dtype: torch.dtype) -> Layer:
        first, second = (norm and norm.to(dtype) for norm in self.streams)
        return Layer(self.attention.folded(dtype), self.mlp.folded(dtype), (first, second), self.causal)
