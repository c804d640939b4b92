"""Opened attention: probabilities, and the gradient with respect to them, of every block of every family.

Libraries run attention in fused kernels in which the probabilities never exist, and silently return none. Here, while
a block runs, a torch function mode answers each fused call: it computes A = softmax(q kᵀ / √d) beside it, hands A over,
and returns the fused kernel's own result, bit for bit. When a gradient is wanted the result carries the graph of A v,
so the gradient flows through A. Attention written out with a softmax is seen too, and `nn.MultiheadAttention`, whose
fast path a mode would switch off, is opened by a hook. Nothing in the model is changed: there is nothing to restore.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitreous.errors import ModelError, SiteError
from vitreous.models.subject import Subject

#: Gets A (sample, head, query, key); what it returns replaces A, None leaves everything as it is.
See = Callable[[Tensor], Tensor | None]

SOFTMAX = (torch.softmax, torch.Tensor.softmax, F.softmax)


class _SameBits(torch.autograd.Function):
    """Values of the fused kernel, gradient of the written-out product."""

    generate_vmap_rule = True

    @staticmethod
    def forward(replay: Tensor, fused: Tensor) -> Tensor:  # noqa: ARG004
        return fused.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        return gradient, None


def _combine(A: Tensor, see: See, product: Callable[[Tensor], Tensor], fused: Tensor) -> Tensor:
    """Shows A, and returns the fused result unless A was replaced."""
    wants_gradient = torch.is_grad_enabled()
    if wants_gradient and not A.requires_grad:
        A.requires_grad_()  # a frozen model still has a gradient with respect to its attention
    shown = see(A)
    if shown is not None and shown is not A:
        return product(shown)
    return _SameBits.apply(product(A), fused.detach()) if wants_gradient else fused


def probabilities(
    q: Tensor, k: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """A = softmax(q kᵀ · scale + mask), as `scaled_dot_product_attention` defines it."""
    s = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        keep = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril()
        s = s.masked_fill(~keep, -math.inf)
    if attn_mask is not None:
        s = s.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else s + attn_mask
    return s.softmax(-1)


class _Opened(TorchFunctionMode):
    """Active while one block runs."""

    def __init__(self, see: See) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.fused(*args, **kwargs)
        out = func(*args, **kwargs)
        if func in SOFTMAX and out.ndim == 4:
            if torch.is_grad_enabled() and not out.requires_grad:
                out.requires_grad_()
            shown = self.see(out)
            return out if shown is None else shown
        return out

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
            raise ModelError(
                "attention with dropout cannot be opened", given=f"dropout_p={dropout_p}", remedy="module.eval()"
            )
        out = F.scaled_dot_product_attention(q, k, v, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa)
        if enable_gqa:
            k, v = (t.repeat_interleave(q.shape[-3] // t.shape[-3], -3) for t in (k, v))
        A = probabilities(q, k, attn_mask, is_causal, scale)
        return _combine(A, self.see, lambda A: A @ v, out)


def _open_multihead(module: nn.MultiheadAttention, see: See) -> Callable[..., Any]:
    """A forward hook that replays the module's self-attention from its input."""

    def hook(_: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        x = args[0] if args else kwargs["query"]
        masks = [kwargs.get("attn_mask"), kwargs.get("key_padding_mask"), *args[3:4], *args[5:6]]
        others = *args[1:3], *(kwargs[name] for name in ("key", "value") if name in kwargs)
        plain = module.batch_first and module.in_proj_weight is not None and x.ndim == 3
        plain = plain and all(other is x for other in others)
        if not plain or any(m is not None for m in masks) or (module.training and module.dropout):
            raise ModelError("only plain batch-first self-attention of nn.MultiheadAttention is opened")
        n, t, e = x.shape
        h = module.num_heads
        q, k, v = (
            F.linear(x, module.in_proj_weight, module.in_proj_bias).view(n, t, 3, h, e // h).permute(2, 0, 3, 1, 4)
        )

        def product(A: Tensor) -> Tensor:
            heads = (A @ v).transpose(1, 2).reshape(n, t, e)
            return F.linear(heads, module.out_proj.weight, module.out_proj.bias)

        return (_combine(probabilities(q, k), see, product, output[0]), *output[1:])

    return hook


@contextmanager
def tap(subject: Subject, blocks: Mapping[int, See]) -> Iterator[None]:
    """Shows every wanted block's A to its `see` on each forward pass, until the context ends."""
    if blocks and not subject.family.attention:
        raise SiteError(f"{subject.name} has no attention", given=subject.family.name)
    with ExitStack() as stack:
        for index, see in blocks.items():
            block = subject.module.get_submodule(subject.blocks[index].path)
            multihead = next((m for m in block.modules() if isinstance(m, nn.MultiheadAttention)), None)
            if multihead is not None:
                handles = [multihead.register_forward_hook(_open_multihead(multihead, see), with_kwargs=True)]
            else:
                handles = while_running(block, partial(_Opened, see))
            for handle in handles:
                stack.callback(handle.remove)
        yield


def while_running(block: nn.Module, mode: Callable[[], TorchFunctionMode]) -> list[Any]:
    """Hooks that switch a new mode on when the block starts and off when it ends, also by an exception."""
    running: list[TorchFunctionMode] = []

    def start(*_: Any) -> None:
        running.append(mode())
        running[-1].__enter__()

    def end(*_: Any) -> None:
        if running:
            running.pop().__exit__(None, None, None)

    return [
        block.register_forward_pre_hook(start),
        block.register_forward_hook(end, always_call=True, prepend=True),
    ]


@dataclass
class OpenedAttention:
    """The patterns of the latest forward pass by block, part of the autograd graph."""

    subject: Subject
    patterns: dict[int, Tensor] = field(default_factory=dict)

    def __getitem__(self, block: int) -> Tensor:
        index = range(self.subject.depth)[block]
        if index not in self.patterns:
            raise SiteError(
                f"block {index} of {self.subject.name} showed no attention in the last pass",
                given=block,
                remedy="run the subject inside the context; a model that calls a flash-attention package directly "
                "needs attn_implementation='sdpa'",
            )
        return self.patterns[index]

    def gradients(self, target: Tensor) -> dict[int, Tensor]:
        """The gradient of a scalar with respect to every pattern; zero where the target does not depend on it."""
        blocks = list(self.patterns)
        found = torch.autograd.grad(
            target, [self.patterns[b] for b in blocks], retain_graph=True, allow_unused=True, materialize_grads=True
        )
        return dict(zip(blocks, found, strict=True))


@contextmanager
def open_attention(subject: Subject) -> Iterator[OpenedAttention]:
    """Attention probabilities of every block, with gradient.

    >>> with vt.open_attention(subject) as attention:
    ...     logits = subject(x)
    >>> attention[-1].shape                              # (sample, head, query, key)
    >>> attention.gradients(logits[:, 3].sum())[0].shape
    """
    opened = OpenedAttention(subject)

    def keep(block: int) -> See:
        def see(A: Tensor) -> None:
            opened.patterns[block] = A

        return see

    with tap(subject, {block: keep(block) for block in range(subject.depth)}):
        yield opened
