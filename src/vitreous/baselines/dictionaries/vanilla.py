"""Vanilla SAE (Bricken et al. 2023): rectified codes, a penalty on their sum."""

from __future__ import annotations

from torch import Tensor

from vitreous.baselines.dictionaries.trainee import Pass, Trainee


class Vanilla(Trainee):
    def codes(self, before: Tensor) -> Tensor:
        return before.relu()

    def sparsity(self, now: Pass) -> Tensor:
        return now.z.sum(1).mean()
