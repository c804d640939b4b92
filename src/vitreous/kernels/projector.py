"""The projector on the top eigenvectors of a symmetric matrix, X Xᵀ of AlignedCut's eq. 5, with a gradient that stays
finite.

Eigenvectors themselves have no gradient where eigenvalues repeat: any rotation among them is as good. The projector
P = X Xᵀ does not see such rotations. For a change dN of the matrix,

    dP = Σ_{i kept, j not}  (x_iᵀ dN x_j) / (λ_i - λ_j)  (x_i x_jᵀ + x_j x_iᵀ),

so only gaps across the cut count. Where the cut goes through a repeated eigenvalue the projector jumps; there the gap
is taken as `GAP`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

GAP = 1e-4


class _TopProjector(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, kept: int) -> Tensor:
        values, vectors = torch.linalg.eigh(matrix)
        ctx.save_for_backward(values, vectors)
        ctx.kept = kept
        top = vectors[..., -kept:]
        return top @ top.mT

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        values, vectors = ctx.saved_tensors
        kept = ctx.kept
        top, rest = vectors[..., -kept:], vectors[..., :-kept]
        gaps = (values[..., None, -kept:] - values[..., :-kept, None]).clamp_min(GAP)  # (…, rest, top)
        inner = rest.mT @ ((grad + grad.mT) / 2) @ top / gaps
        change = rest @ inner @ top.mT
        return change + change.mT, None


def top_projector(matrix: Tensor, kept: int) -> Tensor:
    """Symmetric (…, n, n) -> (…, n, n), the projector on its `kept` largest eigenvectors."""
    if not 0 < kept < matrix.shape[-1]:
        raise ValueError(f"{kept} eigenvectors of {matrix.shape[-1]}")
    found: Tensor = _TopProjector.apply(matrix, kept)
    return found


def affinities(rows: Tensor) -> Tensor:
    """(…, node, channel) -> (…, node, node): A of section 2.2, exp(cos - 1)."""
    unit = torch.nn.functional.normalize(rows, dim=-1)
    return (unit @ unit.mT - 1).exp()


def normalized(affinity: Tensor) -> Tensor:
    """D^-1/2 A D^-1/2 of eq. 3."""
    scale = affinity.sum(-1).rsqrt()
    return scale[..., :, None] * affinity * scale[..., None, :]
