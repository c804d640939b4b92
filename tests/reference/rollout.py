"""Attention rollout and Chefer's relevance with whole matrices, one sample at a time, attention written out by hand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

import vitreous as vt


def patterns_of(subject, x: Tensor) -> list[np.ndarray]:
    """A (head, query, key) of every block for one sample."""
    with vt.open_attention(subject) as attention:
        subject(x)
    return [attention[b][0].detach().double().numpy() for b in range(subject.depth)]


def slow_rollout(patterns: list[np.ndarray], share: float = 0.5) -> np.ndarray:
    """Ã(l) ··· Ã(1) with Ã = share · mean over heads + (1 - share) · I."""
    n = patterns[0].shape[-1]
    product = np.eye(n)
    for A in reversed(patterns):
        mean = sum(head for head in A) / len(A)
        product = product @ (share * mean + (1 - share) * np.eye(n))
    return product


def slow_relevance(subject, x: Tensor, target: int, probability: bool = False) -> np.ndarray:
    """Eq. 1 and 2 for one sample with the input side on the right: C(L) ··· C(1), (token, token)."""
    with torch.enable_grad(), vt.open_attention(subject) as attention:
        logits = subject(x)
        score = (logits.softmax(-1) if probability else logits)[0, target]
        patterns = [attention[b] for b in range(subject.depth)]
        gradients = torch.autograd.grad(score, patterns)
    n = patterns[0].shape[-1]
    product = np.eye(n)
    for g, A in reversed(list(zip(gradients, patterns, strict=True))):
        C = np.eye(n)
        for head in range(A.shape[1]):
            part = (g[0, head] * A[0, head]).detach().double().numpy()
            C += np.where(g[0, head].numpy() > 0, part, 0) / A.shape[1]
        product = product @ C
    return product
