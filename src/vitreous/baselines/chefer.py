"""Class maps of Chefer, Gur and Wolf (2021): attention of every block, counted where it speaks for the class.

Eq. 1 to 3 of the tokens paper, which starts from here: the tokens lens asks of a token what this asks of a class.

    paper    here     axes                      what it is
    p(c)     score    sample                    the class's logit, or its probability
    A        A        sample head query key     attention probabilities
    C        -        sample query key          I + mean over heads of (∂p/∂A)⁺ ⊙ A, eq. 1
    S̄        rows     sample read source        rows of C(L) ··· C(1), eq. 2, of the tokens that the head reads
    S        maps     sample row column         their mean, patches only, eq. 3

Eq. 3 takes the row of the class token. What the head reads is looked up, not assumed: the tokens after the last block
that the class depends on at all. For a class token it is that token, for average pooling all patches.

Eq. 2 prints C(1) ··· C(L); with rows as queries the input side stands on the right, as in Chefer's own rule
R ← R + Ā R, which is the same product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vitreous.attention import open_attention
from vitreous.axes import Size
from vitreous.baselines.gradcam import CamFinding
from vitreous.baselines.logits import batches, check_classifier, classes_of, count_of, logits_of
from vitreous.errors import ModelError, SettingsError
from vitreous.hooks import capture, evaluating
from vitreous.images import ImageSet
from vitreous.models.subject import Subject

SCORES = ("logit", "probability")


def chefer(
    subject: Subject,
    inputs: ImageSet | Any,
    targets: int | Sequence[int] | np.ndarray | None = None,
    *,
    score: Literal["logit", "probability"] = "logit",
    size: Size | tuple[int, int] | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> CamFinding:
    """Maps of what speaks for a class: for the one that the model predicts, for one number, or for one a sample.

    >>> finding = vt.chefer(subject, images)    # as vt.gradcam gives them
    """
    check_classifier(subject)
    if not subject.family.attention:
        raise ModelError(
            f"{subject.name} has no attention", given=subject.family.name, remedy="vt.gradcam explains any classifier"
        )
    if score not in SCORES:
        raise SettingsError("unknown score", given=score, accepted=SCORES)
    samples = count_of(inputs)
    found: list[tuple[np.ndarray, ...]] = []
    with evaluating(subject.module):
        for at, x in batches(subject, inputs, batch_size, progress, "Chefer's maps"):
            relevance, wanted, predicted = _relevance(subject, x, targets, samples, at, score)
            seen = Size(*x.shape[-2:])
            grid = subject.grid(seen)
            assert grid is not None
            maps = relevance[:, len(subject.prefix) :].reshape(len(x), *grid)
            found.append(tuple(part.cpu().numpy() for part in (maps, wanted, predicted)))
    maps_, classes, best = (np.concatenate(part) for part in zip(*found, strict=True))
    settings = {"subject": subject.name, "method": "Chefer", "score": score}
    return CamFinding(maps_, classes, best, "blocks.*.attn.pattern", Size(*(size or seen)), settings)


def _relevance(
    subject: Subject, x: Tensor, targets: Any, samples: int, at: slice, score: str
) -> tuple[Tensor, Tensor, Tensor]:
    """(sample, source token) of the classes asked for, these classes, and those predicted."""
    last = f"blocks.{subject.depth - 1}.resid.out"
    with torch.enable_grad(), open_attention(subject) as attention, capture(subject, last) as rec:
        logits = logits_of(subject, x)
        predicted = wanted = logits.argmax(-1)
        if targets is not None:
            wanted = torch.as_tensor(classes_of(targets, samples, logits.shape[1])[at], device=logits.device)
        values = logits if score == "logit" else logits.softmax(-1)
        patterns = [attention[b] for b in range(subject.depth)]
        total = values.gather(1, wanted[:, None]).sum()
        gradients = torch.autograd.grad(total, [rec[last], *patterns], allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        v = _read(subject, gradients[0])
        for g, A in zip(reversed(gradients[1:]), reversed(patterns), strict=True):
            v = v + torch.einsum("sq,sqk->sk", v, (g.relu() * A).mean(1))
    return v.float(), wanted, predicted


def _read(subject: Subject, g: Tensor) -> Tensor:
    """Weights (sample, token) that add up to 1: equal ones on tokens whose gradient is not zero."""
    read = g.ne(0).any(-1).any(0)
    if not read.any():
        raise ModelError(
            f"no class of {subject.name} depends on a token after its last block",
            given=subject.family.name,
            remedy="a head that was never trained may be all zero",
        )
    return (read.to(g.dtype) / read.sum()).expand(len(g), -1)
