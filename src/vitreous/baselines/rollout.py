"""Attention rollout (Abnar and Zuidema 2020), and raw attention: maps of tokens that need no gradient.

What the tokens lens is compared with. Both give the lens's own `TokenMaps`, so whatever takes its maps takes these.

    paper   here       axes                      what it is
    W_att   A          sample head query key     attention probabilities
    A       -          sample query key          α Ā + (1 - α) I, with Ā the mean over heads and α = 0.5
    Ã       rows       sample token source       A(l) A(l - 1) ··· A(1): attention followed down to the input

Rollout knows where a token looks, not what it takes from there: values, MLPs and the question asked play no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from vitreous.attention import open_attention
from vitreous.checks import is_number
from vitreous.errors import ModelError, SettingsError
from vitreous.hooks import evaluating
from vitreous.lenses.tokens_finding import TokenMaps
from vitreous.lenses.tokens_inputs import inputs_of
from vitreous.models.subject import Subject, check_subject
from vitreous.preprocess import Frame
from vitreous.progress import tqdm

HEADS = ("mean", "max", "min")
OWN = ("max_of_others", "keep")
Heads = Literal["mean", "max", "min"]
Own = Literal["max_of_others", "keep"]


def attention_rollout(
    subject: Subject,
    images: Any,
    block: int = -1,
    *,
    attention: float = 0.5,
    heads: Heads = "mean",
    own: Own = "max_of_others",
    size: int | tuple[int, int] | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> TokenMaps:
    """How much of each input token reaches each token after a block, if attention were all there is.

    >>> maps = vt.attention_rollout(subject, images)    # as vt.token_maps gives them

    `attention` is α, the share of a block that comes by attention and not by the skip connection. With heads other
    than "mean" the rows are made to add up to 1 again.
    """
    if not is_number(attention) or not 0 <= attention <= 1:
        raise SettingsError("the share of attention is between 0 and 1", given=attention)
    settings = {"method": "attention rollout", "attention": attention, "heads": heads, "own": own}

    def rows(patterns: Sequence[Tensor]) -> Tensor:
        return rollout_rows([over_heads(A, heads) for A in patterns], attention)

    return _maps(subject, images, block, rows, settings, size, batch_size, progress)


def raw_attention(
    subject: Subject,
    images: Any,
    block: int = -1,
    *,
    heads: Heads = "mean",
    own: Own = "max_of_others",
    size: int | tuple[int, int] | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> TokenMaps:
    """Where each token looks in one block, as if what it sees there were still the patch that once stood there."""
    settings = {"method": "raw attention", "heads": heads, "own": own}
    return _maps(subject, images, block, lambda seen: over_heads(seen[-1], heads), settings, size, batch_size, progress)


def over_heads(A: Tensor, heads: Heads = "mean") -> Tensor:
    """(sample, head, query, key) -> (sample, query, key), rows that add up to 1."""
    if heads == "mean":
        return A.mean(1)
    if heads not in HEADS:
        raise SettingsError("unknown way to join heads", given=heads, accepted=HEADS)
    joined = A.amax(1) if heads == "max" else A.amin(1)
    return joined / joined.sum(-1, keepdim=True).clamp(min=torch.finfo(A.dtype).tiny)


def rollout_rows(patterns: Sequence[Tensor], attention: float = 0.5) -> Tensor:
    """(sample, query, key) of the blocks from the first on -> (sample, token, source token)."""
    rows = torch.eye(patterns[0].shape[-1], dtype=patterns[0].dtype, device=patterns[0].device)
    for A in patterns:
        rows = attention * (A @ rows) + (1 - attention) * rows
    return rows


def _maps(
    subject: Subject,
    images: Any,
    block: int,
    rows: Callable[[Sequence[Tensor]], Tensor],
    settings: dict[str, Any],
    size: int | tuple[int, int] | None,
    batch_size: int,
    progress: bool,
) -> TokenMaps:
    _refuse_no_attention(subject)
    index = subject.block_number(block)
    if settings["own"] not in OWN:
        raise SettingsError("unknown own", given=settings["own"], accepted=OWN)
    given = inputs_of(subject, images, size)
    found: list[np.ndarray] = []
    frames: list[Frame] = []
    bar = tqdm(total=len(given.ids), desc=settings["method"], delay=1, disable=not progress)
    with evaluating(subject.module), torch.no_grad(), bar:
        for at, x, some in given.batches(batch_size):
            with open_attention(subject) as opened:
                subject(x)
            found.append(rows([opened[b] for b in range(index + 1)]).float().cpu().numpy())
            frames += some or ()
            bar.update(len(at))
    scores = np.concatenate(found)
    if given.lengths is not None:
        there = np.arange(scores.shape[1]) < given.lengths[:, None]
        scores = np.where(there[:, :, None] & there[:, None], scores, 0)
    tokens = tuple(range(scores.shape[1]))
    about = {"subject": subject.name, **settings}
    return TokenMaps(
        scores, tokens, index, subject.prefix, given.grid, given.size, tuple(frames) or None, given.ids, about,
        given.lengths,
    )  # fmt: skip


def _refuse_no_attention(subject: Subject) -> None:
    check_subject(subject)
    if not subject.family.attention:
        raise ModelError(
            f"{subject.name} has no attention to follow",
            given=subject.family.name,
            remedy="a vision transformer or a language model; vt.gradcam explains classes of any model",
        )
