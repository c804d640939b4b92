"""A split layer in the two stages of its paper (eq. 6 and 8): a layer that gives sub-units, a merger that adds them.

It needs as many weights as there are sub-units, and its sums are rounded in another order than the original's: equal
within floating point, where the applied form is equal bit for bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.subunits.applied import matching_layer
from vitreous.subunits.layers import LinearLayer

if TYPE_CHECKING:
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.models.subject import Subject


class Merger(nn.Module):
    """Adds the sub-units of each unit one after the other, so that the result is the same on every run."""

    def __init__(self, counts: np.ndarray, axis: int) -> None:
        super().__init__()
        self.axis, self.rounds = axis, int(counts.max())
        firsts = np.cumsum(counts) - counts
        for step in range(self.rounds):
            has = np.flatnonzero(counts > step)
            self.register_buffer(f"unit_{step}", torch.from_numpy(has), persistent=False)
            self.register_buffer(f"subunit_{step}", torch.from_numpy(firsts[has] + step), persistent=False)

    def forward(self, z: Tensor) -> Tensor:
        out = z.index_select(self.axis, self.get_buffer("subunit_0"))
        for step in range(1, self.rounds):
            part = z.index_select(self.axis, self.get_buffer(f"subunit_{step}"))
            out = out.index_add(self.axis, self.get_buffer(f"unit_{step}"), part)
        return out


class MaterialisedLayer(nn.Module):
    """Takes the place of a Linear, Conv1D or Conv2d. Units that were not split are their own sub-unit."""

    def __init__(self, split: nn.Linear | nn.Conv2d, counts: np.ndarray, axis: int) -> None:
        super().__init__()
        self.split = split
        self.merge = Merger(counts, axis)

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(self.split(x))


def materialise(finding: Disentanglement, owner: Subject | nn.Module) -> MaterialisedLayer:
    layer = matching_layer(finding, owner)
    weight, bias = layer.whole, layer.bias
    counts = np.ones(len(weight), int)
    rows = layer.first + finding.units
    counts[rows] = np.diff(finding.starts)
    weights, biases = [], []
    of = {int(row): int(unit) for row, unit in zip(rows, finding.units, strict=True)}
    for row in range(len(weight)):
        if row in of:
            w, b = finding.subunit_weights(of[row])
            weights.append(torch.from_numpy(w).to(weight))
            biases.append(torch.from_numpy(b).to(weight))
        else:
            weights.append(weight[row : row + 1])
            biases.append(torch.zeros(1).to(weight) if bias is None else bias.detach()[row : row + 1])
    split = _like(layer, sum(len(w) for w in weights), bias is not None)
    with torch.no_grad():
        split.weight.copy_(torch.cat(weights).reshape(split.weight.shape))
        if split.bias is not None:
            split.bias.copy_(torch.cat(biases))
    return MaterialisedLayer(split, counts, layer.channel_axis).to(weight.device).train(layer.module.training)


def _like(layer: LinearLayer, outputs: int, bias: bool) -> nn.Linear | nn.Conv2d:
    """A layer of the same kind with more outputs, its weights not set."""
    old, like = layer.module, {"device": layer.whole.device, "dtype": layer.whole.dtype}
    if isinstance(old, nn.Conv2d):
        shape = (old.kernel_size, old.stride, old.padding, old.dilation)
        return nn.utils.skip_init(nn.Conv2d, old.in_channels, outputs, *shape, bias=bias, **like)
    return nn.utils.skip_init(nn.Linear, layer.whole.shape[1], outputs, bias=bias, **like)
