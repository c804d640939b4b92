"""What a backward pass over many tokens needs of one transformer block: matrices, and what the forward pass left.

A block adds two branches to its stream, attention and an MLP. It is read once and described here in one way, whatever
library it came from; the backward pass then knows nothing of modules. Rows of a matrix are outputs, as in `nn.Linear`.
Activations are (image, token, channel), gradients (image, token, seed, channel): a seed is one scalar that is followed
back. `folded` makes a part ready for a pass: gains, centring and scales become part of the matrices, in a `Space` that
branches and blocks take in turn, so that weights are never kept twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from math import prod

import torch
from torch import Tensor

from vitreous.kernels.products import add_product, product

#: Gradients (seed, image, head, token, channel of a head) -> (seed, image, token, output of the linear layer).
Pull = Callable[[Tensor], Tensor]
FOLDED = 512  # rows of a matrix at a time on a CPU: what lies between single and half precision stays small


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None


def fused(g: Tensor) -> bool:
    """Whether what lies between products is done in one kernel: on a GPU, where every trip to memory is to be seen."""
    return g.is_cuda and g.dtype != torch.float64 and has_triton()


class Space:
    """Memory for the matrices of one branch of a block, which those of the next branch are written over."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.slots: list[Tensor] = []
        self.taken = 0

    def again(self) -> Space:
        """The same memory for another branch."""
        self.taken = 0
        return self

    def hold(self, shape: Sequence[int], device: torch.device) -> Tensor:
        size = prod(shape)
        if self.taken == len(self.slots):
            self.slots.append(torch.empty(0))
        if len(self.slots[self.taken]) < size:
            self.slots[self.taken] = torch.empty(size, dtype=self.dtype, device=device)
        self.taken += 1
        return self.slots[self.taken - 1][:size].view(*shape)

    def scaled(self, weight: Tensor, scale: Tensor | None) -> Tensor:
        """LayerScale into the matrix; one that is ready as it is stays where it is."""
        if scale is None and weight.dtype == self.dtype and weight.is_contiguous():
            return weight
        place = self.hold(weight.shape, weight.device)
        return place.copy_(weight if scale is None else weight * scale[:, None])


@dataclass(frozen=True)
class Norm:
    """A LayerNorm (`centred`) or RMSNorm at its input: y = gain · unit + shift.

    `unit` (image, token, channel) has deviation 1, and `inverse` (image, token, 1) is 1 / deviation of the input.
    """

    unit: Tensor
    inverse: Tensor
    gain: Tensor
    centred: bool

    def fold(self, weight: Tensor, place: Tensor) -> None:
        """Writes a matrix behind this norm to `place`, as one that `unit` goes through."""
        rows = FOLDED if weight.device.type == "cpu" else len(weight)
        for some, part in zip(weight.split(rows), place.split(rows), strict=True):
            exact = torch.mul(some, self.gain, out=part if part.dtype == some.dtype else None)
            if self.centred:
                exact.sub_(exact.mean(1, keepdim=True))
            if exact is not part:
                part.copy_(exact)

    def correct(self, y: Tensor) -> Tensor:
        """The rest of the gradient, in place: takes out of y what lies along `unit`.

        y comes from folded matrices and has been multiplied by `inverse`.
        """
        unit = self.unit[:, :, None]
        if y.dtype == torch.bfloat16:  # a product of matrices adds up exactly, and is the faster way for once
            along = (y.flatten(0, 1) @ unit.flatten(0, 1).mT).view(*y.shape[:3], 1)
        else:
            along = (y * unit).sum(-1, keepdim=True)
        return y.addcmul_(along, unit, value=-1 / y.shape[-1])

    def onto(self, out: Tensor, g: Tensor, y: Tensor, scaled: bool) -> None:
        """out = g + what `correct` leaves of y, which is multiplied by `inverse` before if it is to be `scaled`."""
        if fused(y):
            from vitreous.kernels.triton_tokens import onto

            return onto(out, g, y.contiguous(), self.unit, self.inverse if scaled else None)
        torch.add(g, self.correct(y.mul_(self.inverse[:, :, None]) if scaled else y), out=out)

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
    inward: Tensor | None = None  # once folded: all three of the weights in one
    direct: Tensor | None = None  # once folded, where it pays: from scores and values to the stream, see `_direct`

    def folded(self, space: Space) -> AttentionPart:
        before, dtype = self.norms.before, space.dtype
        inward = space.again().hold((sum(len(w) for w in self.weights), len(self.out)), self.out.device)
        weights = inward.split([len(w) for w in self.weights])
        for place, weight in zip(weights, self.weights, strict=True):
            place.copy_(weight) if before is None else before.fold(weight, place)
        q, k = ((side * self.sharpness).to(dtype) for side in (self.q, self.k))
        norms = self.norms.each(lambda norm: norm.to(dtype))
        out = space.scaled(self.out, self.scale)
        A, v = self.A.to(dtype), self.v.to(dtype)
        direct = _direct(q, k, weights, space) if self.cheaper_direct else None
        return AttentionPart(A, q, k, v, 1.0, weights, self.pulls, out, None, norms, inward, direct)

    @property
    def cheaper_direct(self) -> bool:
        """Whether a gradient of scores reaches the stream with fewer operations than through queries and keys.

        2 h n d for each of a seed's tokens, against 2 n d + 2 d²; nothing else may lie between.
        """
        _, heads, length, _ = self.A.shape
        return all(pull is None for pull in self.pulls) and (heads - 1) * length < len(self.out)

    def first(self, tokens: int) -> AttentionPart:
        """Without the tokens that follow: nothing looks at them."""
        if tokens == self.A.shape[-1]:
            return self
        q, k, v = (side[:, :, :tokens] for side in (self.q, self.k, self.v))
        norms = self.norms.each(lambda norm: norm.at(slice(tokens)))
        direct = None
        if self.direct is not None:
            scores = self.A.shape[1] * self.A.shape[2]
            whole = self.direct[:, : 2 * scores].unflatten(1, (-1, self.A.shape[2]))
            direct = torch.cat([whole[:, :, :tokens].flatten(1, 2), self.direct[:, 2 * scores :]], 1)
        return replace(self, A=self.A[:, :, :tokens, :tokens], q=q, k=k, v=v, norms=norms, direct=direct)


def _direct(q: Tensor, k: Tensor, weights: Sequence[Tensor], space: Space) -> Tensor:
    """k through the matrix of queries, q through that of keys, each (head, token), and the matrix of values below.

    (image, row, channel): one product takes gradients of scores and of v to the stream.
    """
    images, heads, length, _ = q.shape
    scores, channels = heads * length, weights[2].shape[1]
    place = space.hold((images, 2 * scores + len(weights[2]), channels), q.device)
    for start, side, weight in ((0, k, weights[0]), (scores, q, weights[1])):
        part = place[:, start : start + scores].unflatten(1, (heads, length))
        part.copy_(side @ weight.unflatten(0, (heads, -1)))
    place[:, 2 * scores :] = weights[2]
    return place


@dataclass(frozen=True)
class MlpPart:
    """`ways`: ∂hidden/∂(output of a first matrix) (image, token, hidden), and that matrix (hidden, channel).

    A plain MLP has one way, a gated one two. `out` (channel, hidden) is the last matrix, `scale` a LayerScale.
    """

    ways: tuple[tuple[Tensor, Tensor], ...]
    out: Tensor
    scale: Tensor | None = None
    norms: Norms = Norms()

    def folded(self, space: Space) -> MlpPart:
        before, dtype = self.norms.before, space.dtype
        ways = []
        space.again()
        for derivative, weight in self.ways:
            place = space.hold(weight.shape, weight.device)
            if before is None:
                place.copy_(weight)
            else:
                before.fold(weight, place)
                derivative = derivative * before.inverse
            ways.append((derivative.to(dtype), place))
        norms = self.norms.each(lambda norm: norm.to(dtype))
        return MlpPart(tuple(ways), space.scaled(self.out, self.scale), None, norms)

    def at(self, tokens: Tensor | slice) -> MlpPart:
        ways = tuple((derivative[:, tokens], weight) for derivative, weight in self.ways)
        return replace(self, ways=ways, norms=self.norms.each(lambda norm: norm.at(tokens)))

    def past(self, g: Tensor, out: Tensor) -> None:
        """out = g + what the branch adds to the gradient at its input; g is the gradient at its output."""
        after = g if self.norms.after is None else self.norms.after.back(g)
        hidden = product(after.reshape(-1, after.shape[-1]), self.out).view(*g.shape[:-1], -1)
        y = self._inward(hidden, hidden)
        if self.norms.before is None:
            torch.add(g, y, out=out)
        else:
            self.norms.before.onto(out, g, y, scaled=False)

    def jacobians(self) -> Tensor:
        """(image, token, channel, channel): the gradient's whole way past this branch, the same for every seed."""
        found = self._inward(self.out.expand(*self.ways[0][0].shape[:2], *self.out.shape), None)
        found = found if self.norms.before is None else self.norms.before.correct(found)
        found.diagonal(dim1=-2, dim2=-1).add_(1)
        return found

    def _inward(self, hidden: Tensor, spare: Tensor | None) -> Tensor:
        """From the hidden layer to the norm at the branch's input; `spare` may be written over at the end."""
        if self.norms.inside is not None:
            hidden = spare = self.norms.inside.back(hidden)
        y: Tensor | None = None
        for k, (derivative, weight) in enumerate(self.ways):
            last = k == len(self.ways) - 1
            rows = _times(hidden, derivative, spare if last else None).view(-1, hidden.shape[-1])
            y = product(rows, weight) if y is None else add_product(y, rows, weight)
        assert y is not None
        return y.view(*hidden.shape[:-1], -1)


def _times(hidden: Tensor, derivative: Tensor, spare: Tensor | None) -> Tensor:
    """Hidden (image, token, seed, channel) times a derivative that is the same for all seeds."""
    if spare is hidden and fused(hidden):
        from vitreous.kernels.triton_tokens import times

        return times(hidden, derivative)
    return torch.mul(hidden, derivative[:, :, None], out=spare)


@dataclass(frozen=True)
class Layer:
    """One block. `streams` are norms that the stream itself goes through after each branch (BERT).

    `causal` says that no token looks to the right.
    """

    attention: AttentionPart
    mlp: MlpPart
    streams: tuple[Norm | None, Norm | None] = (None, None)
    causal: bool = False
