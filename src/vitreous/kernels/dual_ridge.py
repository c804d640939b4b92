"""Many small linear classifiers at once, each on few examples of many features, by way of their inner products.

A classifier w of n examples x with labels y = ±1, least squares with a penalty λ|w|² and a free intercept b, lies in
the span of its examples: w = Σ aᵢ xᵢ. The n + 1 numbers solve

    [ K + λ I   1 ] [ a ]   [ y ]
    [ 1ᵀ        0 ] [ b ] = [ 0 ]      with K the inner products of the examples

(Suykens and Vandewalle 1999), so features never enter: a fit costs n³ however many there are. What the classifier
would have said of an example that it had not seen falls out as yᵢ - aᵢ / Cᵢᵢ, where C is the inverse of the matrix
(Cawley and Talbot 2004), exactly.
"""

from __future__ import annotations

import torch
from torch import Tensor


def fit_dual_ridge(K: Tensor, y: Tensor, ridge: float) -> tuple[Tensor, Tensor]:
    """K (fit, example, example) and y (example,) of ±1 -> a (fit, example) and predictions left out (fit, example).

    λ is `ridge` times the mean squared distance of a fit's examples from their centre, so that scale does not matter.
    """
    fits, n, _ = K.shape
    norm = K.diagonal(dim1=1, dim2=2).mean(1)
    spread = norm - K.mean((1, 2))
    spread = torch.where(spread > 1e-9 * norm, spread, norm.clamp_min(1e-30))  # examples that are all alike: w = 0
    system = K.new_ones(fits, n + 1, n + 1)
    system[:, :n, :n] = K
    system[:, n, n] = 0
    system.diagonal(dim1=1, dim2=2)[:, :n] += ridge * spread[:, None]
    C = torch.linalg.inv(system)
    a = (C[:, :n, :n] @ y[:, None])[..., 0]
    return a, y - a / C.diagonal(dim1=1, dim2=2)[:, :n]
