"""Matryoshka SAE (Bussmann et al. 2025): BatchTopK whose first units must do alone as well.

The error is the mean over nested dictionaries, the first 1/16, 1/8, ... of the units, so that early units hold what is
general and later ones what is special.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from vitreous.baselines.dictionaries.batch_topk import BatchTopK
from vitreous.baselines.dictionaries.trainee import Pass, Start
from vitreous.errors import SettingsError


class Matryoshka(BatchTopK):
    defaults: ClassVar[Mapping[str, Any]] = {**BatchTopK.defaults, "shares": (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)}

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        shares = tuple(start.options["shares"])
        if (
            not shares
            or shares[-1] != 1
            or any(not 0 < share <= 1 for share in shares)
            or list(shares) != sorted(shares)
        ):
            raise SettingsError(
                "shares grow from above 0 to 1", given=shares, remedy=f"default: {self.defaults['shares']}"
            )
        self.ends = sorted({max(round(share * start.units), 1) for share in shares})

    def error(self, now: Pass) -> Tensor:
        left, total, first = now.y - self.b_dec, now.z.new_zeros(()), 0
        for end in self.ends:
            left = left - now.z[:, first:end] @ self.atoms[first:end]
            total, first = total + left.square().mean(), end
        return total / len(self.ends)
