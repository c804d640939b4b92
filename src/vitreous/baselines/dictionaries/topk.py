"""TopK SAE (Makhzani and Frey 2014; Gao et al. 2024): the k largest codes of each row, no penalty.

`auxiliary` is the weight of Gao's loss for dead units (1/32 there): those that have not fired for `patience` rows
predict what is left over. It is off by default, since the paper that we compare with wakes units by reanimation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from vitreous.baselines.dictionaries.codes import keep_largest
from vitreous.baselines.dictionaries.trainee import Pass, Start, Trainee


class TopK(Trainee):
    defaults: ClassVar[Mapping[str, Any]] = {"auxiliary": 0.0, "patience": 100_000}
    silent: Tensor  # rows since each unit last fired

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        self.register_buffer("silent", torch.zeros(start.units, dtype=torch.int64))
        self.few = max(start.outputs // 2, 1)  # dead units that may speak at a time

    def codes(self, before: Tensor) -> Tensor:
        return keep_largest(before, self.start.k)

    def auxiliary(self, now: Pass) -> Tensor:
        if not self.start.options["auxiliary"]:
            return now.z.new_zeros(())
        self.silent = torch.where((now.z > 0).any(0), 0, self.silent + len(now.z))
        dead = self.silent > self.start.options["patience"]
        left = (now.y - now.z @ self.atoms - self.b_dec).detach()
        guess = keep_largest(now.before.masked_fill(~dead, 0), min(self.few, len(dead))) @ self.atoms
        return self.start.options["auxiliary"] * (guess - left).square().mean() * dead.any()
