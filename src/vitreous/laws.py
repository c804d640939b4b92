"""The laws that every model family must obey, as numbers.

They run as tests over the whole table of families, and on a user's own module when its family was guessed from its
layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vitreous.attention import open_attention
from vitreous.hooks import capture, patch
from vitreous.models.subject import Subject

ADDED = "resid.in + attn.out + mlp.out"


@dataclass(frozen=True)
class Law:
    """One law: what it says, whether it holds, and the number that says so."""

    says: str
    holds: bool
    value: float | int | str


def example_input(subject: Subject, samples: int = 2, seed: int = 0) -> Tensor:
    """Random pictures of the subject's own size, or random token ids."""
    generator = torch.Generator().manual_seed(seed)
    if subject.modality == "text":
        words: Any = subject.root.get_input_embeddings()  # type: ignore[operator]
        return torch.randint(0, words.weight.shape[0], (samples, 12), generator=generator)
    assert subject.preprocess is not None
    return torch.randn(samples, 3, *subject.preprocess.size, generator=generator)


@torch.no_grad()
def residual_error(subject: Subject, x: Tensor | None = None) -> float:
    """Largest |resid.in + attn.out - resid.mid| and |resid.mid + mlp.out - resid.out|, relative to the stream.

    Where the stream itself is normalised, the sums go through the block's own norms first.
    """
    x = example_input(subject) if x is None else x
    with capture(subject, [s for s in subject.sites if not subject.is_pattern(s)]) as rec:
        subject(x)
    worst = 0.0
    for b in range(subject.depth):
        stream = rec[f"blocks.{b}.resid.in"]
        parts = [("mlp.out", "resid.out")]
        if subject.family.attention:
            parts.insert(0, ("attn.out", "resid.mid"))
        for k, (added, reached) in enumerate(parts):
            expected = stream + rec[f"blocks.{b}.{added}"]
            if subject.family.normed_stream:
                expected = subject.module.get_submodule(subject.blocks[b].norms[k])(expected)
            stream = rec[f"blocks.{b}.{reached}"]
            worst = max(worst, float((expected - stream).abs().max() / stream.abs().max()))
    return worst


def check_laws(subject: Subject, x: Tensor | None = None) -> tuple[Law, ...]:
    """All laws on one input (random by default), in the order of the table in the documentation."""
    x = example_input(subject) if x is None else x
    with torch.no_grad():
        y = subject(x)
        with capture(subject, subject.sites) as rec:
            hooked = subject(x)
        tokens = rec["blocks.-1.resid.out"].shape[1]
    left = subject.hooks
    grid = subject.grid(tuple(x.shape[-2:])) if subject.modality == "image" else None  # type: ignore[arg-type]
    expected = len(subject.prefix) + grid.patches if grid else x.shape[1]
    error = residual_error(subject, x)
    identity = "norm(norm(resid.in + attn.out) + mlp.out)" if subject.family.normed_stream else ADDED
    laws = [
        Law("hooks change no output bit", torch.equal(y, hooked), "bitwise" if torch.equal(y, hooked) else "differs"),
        Law("hooks are gone afterwards", left == 0, left),
        Law(f"{identity} = resid.out", error <= 1e-6, error),
        Law("tokens = prefix + patches", tokens == expected, tokens),
    ]
    return (*laws, *(_attention_laws(subject, x, y) if subject.family.attention else _gradient_law(subject, x)))


def _attention_laws(subject: Subject, x: Tensor, y: Tensor) -> list[Law]:
    with torch.enable_grad(), open_attention(subject) as attention:
        opened = subject(x)
        gradients = attention.gradients(opened.float().square().sum())
    right = [
        b
        for b, A in attention.patterns.items()
        if A.shape[1] == subject.heads and bool(((A.sum(-1) - 1).abs() < 1e-3).all())
    ]
    with torch.no_grad(), patch(subject, {"blocks.*.attn.pattern": lambda A: A.clone()}):
        replayed = subject(x)
    error = float((replayed - y).norm() / y.norm())
    reached = sum(bool(g.isfinite().all()) and float(g.norm()) > 0 for g in gradients.values())
    with torch.enable_grad():
        same = torch.equal(subject(x), opened)
    return [
        Law("one attention a block", len(right) == subject.depth, len(right)),
        Law("opened attention = fused attention", error < 1e-4 and same, error),
        Law("gradients reach every block", reached == subject.depth, reached),
    ]


def _gradient_law(subject: Subject, x: Tensor) -> list[Law]:
    """Without attention the gradient is taken with respect to what enters each block, as the block itself gets it."""
    with torch.enable_grad(), capture(subject, [f"{block.path}:in" for block in subject.blocks]) as rec:
        y = subject(x.detach().clone().requires_grad_())
        gradients = torch.autograd.grad(y.float().square().sum(), list(rec.values()))
    reached = sum(bool(g.isfinite().all()) and float(g.norm()) > 0 for g in gradients)
    return [Law("gradients reach every block", reached == subject.depth, reached)]
