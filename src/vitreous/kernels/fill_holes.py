"""Painting over a region so that its outline does not show: pull-push (Gortler et al., The Lumigraph, 1996).

Known pixels are averaged down a pyramid until no hole is left, and every hole is filled from the level above, up again.
The fill is smooth: it keeps the colours around the region and nothing of its shape that a flat fill would show.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad


def fill_holes(x: Tensor, holes: Tensor) -> Tensor:
    """x (sample, colour, row, column), holes bool (sample, row, column) -> x with the holes painted over.

    A picture that is all hole becomes its own mean colour. Pixels that are no hole keep their bits.
    """
    known = (~holes)[:, None].to(x.dtype)
    nothing = ~known.flatten(1).any(1)
    known = torch.where(nothing[:, None, None, None], torch.ones_like(known), known)
    filled = _filled(x * known, known)
    mean = x.mean((2, 3), keepdim=True).expand_as(x)
    painted = torch.where(nothing[:, None, None, None], mean, filled)
    return torch.where(holes[:, None], painted, x)


def _filled(weighted: Tensor, known: Tensor) -> Tensor:
    """`weighted` is colour times how much of it is known, `known` in 0 to 1."""
    colour = weighted / known.clamp_min(1e-6)
    if bool((known > 0).all()) or max(known.shape[2:]) == 1:
        return colour
    rows, columns = known.shape[2:]
    odd = (0, columns % 2, 0, rows % 2)
    coarse = _filled(avg_pool2d(pad(weighted, odd), 2), avg_pool2d(pad(known, odd), 2))
    above = interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)[..., :rows, :columns]
    return torch.where(known > 0, colour, above)
