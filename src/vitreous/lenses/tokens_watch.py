"""Watches a block while it runs: its linear layers, its norms and its attention, whatever library wrote them.

Each linear layer, and attention itself, hands on a copy that is cut off from what came before. So autograd only ever
sees what lies between two of them, and tells exactly what that is: how a hidden unit depends on the first layer's
output, what rotary positions or LayerScale do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitreous.attention import SOFTMAX, probabilities, while_running

MATMUL = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__)


Given = tuple[tuple, dict[str, Any]]  # what a module is called with


class Unread(Exception):  # noqa: N818 - a signal, not an error
    """A block is not of the kind that is known; says what is different."""


@dataclass
class Linear:
    """What went in, the matrix (output, input), and what came out as a leaf of the graph."""

    entered: Tensor
    weight: Tensor
    leaf: Tensor


@dataclass
class Normed:
    module: nn.Module
    entered: Tensor
    left: Tensor


@dataclass
class Core:
    """q, k, v (image, head, token, channel) as attention used them, A, the scores' scale; A v (image, token, ·)."""

    q: Tensor
    k: Tensor
    v: Tensor
    A: Tensor
    scale: float
    leaf: Tensor


@dataclass
class Seen:
    """What one run of a block showed, in order; `before` linear layers ran before attention, `given` went in."""

    given: Given
    linears: list[Linear] = field(default_factory=list)
    norms: list[Normed] = field(default_factory=list)
    core: Core | None = None
    before: int = 0
    scores: tuple[Tensor, Tensor, Tensor] | None = None  # of attention that is written out: q, k, and q kᵀ as a leaf
    written: tuple[Tensor, float] | None = None  # its A and scale


@contextmanager
def watching(block: nn.Module, done: Callable[[Seen], object]) -> Iterator[None]:
    """Calls `done(seen)` each time that the block has run, with gradients enabled, until the context ends."""
    latest: list[Seen] = []

    def begin(_: nn.Module, args: Any, kwargs: Any) -> None:
        latest[:] = [Seen((args, kwargs))]

    def normed(module: nn.Module, args: Any, output: Tensor) -> None:
        if latest:
            latest[0].norms.append(Normed(module, args[0], output))

    def end(_: nn.Module, __: Any, output: Any) -> Any:
        done(latest.pop())
        return (output[0].detach(), *output[1:]) if isinstance(output, tuple) else output.detach()

    with ExitStack() as stack:
        handles = [block.register_forward_pre_hook(begin, with_kwargs=True)]
        handles += while_running(block, lambda: _Watch(latest[0]))
        handles.append(block.register_forward_hook(end))
        norms = [m for m in block.modules() if isinstance(m, nn.LayerNorm) or type(m).__name__.endswith("Norm")]
        handles += [norm.register_forward_hook(normed) for norm in norms]
        for handle in handles:
            stack.callback(handle.remove)
        yield


def _leaf(value: Tensor) -> Tensor:
    return value.detach().requires_grad_()


class _Watch(TorchFunctionMode):
    """Active while one block runs. A leaf is handed on as a copy: blocks may change what they get in place."""

    def __init__(self, seen: Seen) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.linear:
            return self.linear(*args, **kwargs)
        if func is torch.addmm:
            return self.linear(args[1], args[2].mT, args[0])
        if func is F.scaled_dot_product_attention:
            return self.fused(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self.multihead(*args, **kwargs)
        if func in MATMUL and args[0].ndim == 4:
            return self.product(*args)
        out = func(*args, **kwargs)
        if func in SOFTMAX and out.ndim == 4:
            self.softmax(args[0], out)
        return out

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        leaf = _leaf(F.linear(x, weight, bias))
        self.seen.linears.append(Linear(x, weight.detach(), leaf))
        return leaf.clone()

    def core(self, q: Tensor, k: Tensor, v: Tensor, A: Tensor, scale: float, out: Tensor) -> Tensor:
        if self.seen.core is not None:
            raise Unread("a block that attends more than once")
        self.seen.core = Core(q, k, v, A, scale, _leaf(out.transpose(1, 2).flatten(2)))
        self.seen.before = len(self.seen.linears)
        return self.seen.core.leaf.clone().unflatten(-1, (out.shape[1], -1)).transpose(1, 2)

    def fused(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        if dropout_p:
            raise Unread("attention with dropout")
        if enable_gqa:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        with torch.no_grad():
            A = probabilities(q, k, attn_mask, is_causal, scale)
            out = A @ v
        return self.core(q, k, v, A, q.shape[-1] ** -0.5 if scale is None else scale, out)

    def multihead(
        self, query: Tensor, key: Tensor, value: Tensor, width: int, heads: int, *rest: Any, **named: Any
    ) -> Any:
        """What `nn.MultiheadAttention` runs on (token, sample, channel), as linear layers and attention."""
        weight, bias, _, _, _, _, last_weight, last_bias = rest[:8]
        if key is not query or value is not query or weight is None or named.get("attn_mask") is not None:
            raise Unread("nn.MultiheadAttention that is not plain self-attention")
        x = query.transpose(0, 1)
        q, k, v = self.linear(x, weight, bias).view(*x.shape[:2], 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        out = self.fused(q, k, v).transpose(1, 2).reshape(x.shape)
        return self.linear(out, last_weight, last_bias).transpose(0, 1), None

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """The two products of attention that is written out: q kᵀ, and later A v."""
        seen = self.seen
        if seen.written is None:
            seen.scores = (a, b.mT, _leaf(a @ b))
            return seen.scores[2].clone()
        if seen.core is not None or seen.scores is None:
            return a @ b
        (A, scale), (q, k, _) = seen.written, seen.scores
        return self.core(q, k, b, A, scale, a @ b)

    def softmax(self, entered: Tensor, out: Tensor) -> None:
        if self.seen.scores is None:
            raise Unread("a softmax of something else than queries and keys")
        (slope,) = torch.autograd.grad(entered.sum(), self.seen.scores[2], retain_graph=True)
        if not torch.equal(slope, slope.flatten()[0].expand_as(slope)):
            raise Unread("scores that are more than scaled and masked")
        self.seen.written = out.detach(), float(slope.flatten()[0])
