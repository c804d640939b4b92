"""JumpReLU SAE (Rajamanoharan et al. 2024): codes above a learned threshold of each unit, a penalty on their number.

Neither the jump nor the count has a useful gradient with respect to the threshold θ. Both get the expected one, from
the rows whose code lies within half a `bandwidth` ε of it:

    d jump / dθ = -(θ / ε) [ |x - θ| < ε/2 ]        d count / dθ = -(1 / ε) [ |x - θ| < ε/2 ]
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitreous.baselines.dictionaries.trainee import Pass, Start, Trainee
from vitreous.errors import SettingsError


class JumpReLU(Trainee):
    """`threshold` is what units start with; data have a mean square of 1."""

    defaults: ClassVar[Mapping[str, Any]] = {"bandwidth": 0.1, "threshold": 0.1}

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        if not (start.options["bandwidth"] > 0 and start.options["threshold"] > 0):
            raise SettingsError("bandwidth and threshold are above 0", given=dict(start.options))
        self.log_threshold = nn.Parameter(torch.full((start.units,), log(start.options["threshold"])))

    def codes(self, before: Tensor) -> Tensor:
        return _Jump.apply(before.relu(), self.log_threshold.exp(), self.start.options["bandwidth"])

    def sparsity(self, now: Pass) -> Tensor:
        count = _Count.apply(now.before.relu(), self.log_threshold.exp(), self.start.options["bandwidth"])
        return count.sum(1).mean()

    def finished(self) -> dict[str, Tensor]:
        return super().finished() | {"threshold": self.log_threshold.detach().exp() * self.start.scale_out}


class _Jump(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(x, threshold)
        ctx.bandwidth = bandwidth
        return x * (x > threshold)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, threshold = ctx.saved_tensors
        near = (x - threshold).abs() < ctx.bandwidth / 2
        return gradient * (x > threshold), -(threshold / ctx.bandwidth * near * gradient).sum(0), None


class _Count(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: Tensor, bandwidth: float) -> Tensor:
        ctx.save_for_backward(x, threshold)
        ctx.bandwidth = bandwidth
        return (x > threshold).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor, None]:
        x, threshold = ctx.saved_tensors
        near = (x - threshold).abs() < ctx.bandwidth / 2
        return None, -(near * gradient).sum(0) / ctx.bandwidth, None
