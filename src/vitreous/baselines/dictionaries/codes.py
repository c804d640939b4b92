"""From an activation to a sparse code with finished weights, one rule each; what a saved dictionary does.

    W_enc (input, unit), b_enc (unit,), W_dec (unit, output), b_dec (output,), threshold (unit,)

These are the names and shapes of SAELens files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]
Rule = Callable[[Weights, Tensor, "int | None"], Tensor]


def rectified(weights: Weights, x: Tensor, _: int | None) -> Tensor:
    """max(x W_enc + b_enc, 0)."""
    return _before(weights, x).relu()


def largest(weights: Weights, x: Tensor, k: int | None) -> Tensor:
    """The k largest of each row, where they are above zero."""
    return keep_largest(_before(weights, x), k or 0)


def above(weights: Weights, x: Tensor, _: int | None) -> Tensor:
    """What lies above the unit's threshold."""
    before = _before(weights, x)
    return before.relu() * (before > weights["threshold"])


def pursued(weights: Weights, x: Tensor, k: int | None) -> Tensor:
    """k steps of matching pursuit on the atoms themselves."""
    return pursue(x, weights["W_dec"], k or 0)


def keep_largest(before: Tensor, k: int) -> Tensor:
    values, index = before.topk(k, dim=-1)
    return torch.zeros_like(before).scatter(-1, index, values.relu())


def pursue(x: Tensor, atoms: Tensor, k: int) -> Tensor:
    """Takes away the atom that fits the rest best, k times; one that is taken twice adds up. Atoms have length 1.

    Which atom it is has no gradient, so none of the (row, unit) products is kept for the backward pass.
    """
    rest = x
    z = x.new_zeros(*x.shape[:-1], len(atoms))
    for _ in range(k):
        with torch.no_grad():
            index = (rest @ atoms.T).argmax(-1)
        chosen = atoms[index]
        value = (rest * chosen).sum(-1, keepdim=True).relu()
        z = z.scatter_add(-1, index[..., None], value)
        rest = rest - value * chosen
    return z


def _before(weights: Weights, x: Tensor) -> Tensor:
    return x @ weights["W_enc"] + weights["b_enc"]
