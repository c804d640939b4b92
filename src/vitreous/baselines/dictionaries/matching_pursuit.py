"""Matching-Pursuit SAE (Costa et al. 2025): no encoder; k steps of pursuit on the atoms make the code.

Each step takes the atom that fits what is left best, so later codes are conditional on earlier ones. What counts as a
code before it is made sparse is the first correlation with every atom.
"""

from __future__ import annotations

from torch import Tensor

from vitreous.baselines.dictionaries.codes import pursue
from vitreous.baselines.dictionaries.trainee import Start, Trainee


class MatchingPursuit(Trainee):
    def __init__(self, start: Start) -> None:
        super().__init__(start)
        del self.W_enc, self.b_enc

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = x - self.b_dec
        return x @ self.W_dec.T, pursue(x, self.W_dec, self.start.k)

    def finished(self) -> dict[str, Tensor]:
        return {"W_dec": self.W_dec.detach().clone(), "b_dec": self.b_dec.detach() * self.start.scale_out}
