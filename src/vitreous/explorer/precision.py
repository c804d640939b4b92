"""In what precision maps are computed that are only looked at: tried out once a model, on the machine where it runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from vitreous.models.subject import Subject

TOKENS, BLOCK, TRIES = 16, 2, 3  # of the trial: a few tokens of an early block
WORTH = 0.8  # half precision must take at most this share of the time

Dtype = Literal["float32", "bfloat16"]


def quicker_dtype(subject: Subject, x: Tensor) -> Dtype | None:
    """bfloat16 where a processor is clearly faster with it; None leaves the choice to the lens.

    Maps are sent as 256 steps, and differ by about one of them on average.
    """
    if subject.dtype != torch.float32 or subject.device.type != "cpu":
        return None
    exact, half = (_seconds(subject, x, dtype) for dtype in ("float32", "bfloat16"))
    return "bfloat16" if half < WORTH * exact else None


def _seconds(subject: Subject, x: Tensor, dtype: Dtype) -> float:
    """The shortest of a few tries."""
    import vitreous as vt

    there = len(subject.prefix) + subject.grid(tuple(x.shape[-2:])).patches  # type: ignore[union-attr,arg-type]
    tokens = range(min(TOKENS, there))
    took = []
    for _ in range(TRIES):
        began = time.perf_counter()
        vt.token_maps(subject, x, min(BLOCK, subject.depth - 1), tokens, dtype=dtype, progress=False)
        took.append(time.perf_counter() - began)
    return min(took)
