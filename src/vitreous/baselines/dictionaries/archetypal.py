"""Relaxed archetypal SAE (Fel et al. 2025): TopK codes, atoms tied to the data, and so stable over seeds.

    D = e^m (A C + Λ)      A rows that are not negative and add up to 1, |Λ_i| <= δ

C are `candidates` points of the data, centres of k-means, taken around the mean. b_dec stays the mean, so an atom is
the way from the mean to a mixture of real activations, give or take δ. Atoms do not have length 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from vitreous.baselines.dictionaries.topk import TopK
from vitreous.baselines.dictionaries.trainee import Start, unit_rows
from vitreous.errors import SettingsError

ROWS = 65_536  # that k-means sees
ROUNDS = 10


class Archetypal(TopK):
    defaults: ClassVar[Mapping[str, Any]] = {**TopK.defaults, "candidates": 4000, "delta": 1.0}
    C: Tensor

    def __init__(self, start: Start) -> None:
        super().__init__(start)
        candidates, self.delta = start.options["candidates"], start.options["delta"]
        if candidates < 1 or self.delta < 0:
            raise SettingsError("candidates are 1 or more and delta is not negative", given=dict(start.options))
        index = torch.randperm(len(start.rows), generator=start.generator)[:ROWS]
        x = start.rows.take(index, start.rows.device).cpu() / start.scale_in - start.mean_in
        self.register_buffer("C", centres(x, min(candidates, len(x)), start.generator))
        own = torch.randint(len(self.C), (start.units,), generator=start.generator)
        if len(self.C) >= start.units:
            own = torch.randperm(len(self.C), generator=start.generator)[: start.units]
        self.A = nn.Parameter(torch.nn.functional.one_hot(own, len(self.C)).float())
        self.relaxation = nn.Parameter(torch.zeros(start.units, start.outputs))
        self.multiplier = nn.Parameter(torch.zeros(()))
        with torch.no_grad():
            self.W_enc.copy_(unit_rows(self.C[own]).T)
        del self.W_dec  # the atoms are made of the above
        self.b_dec.requires_grad_(False)

    @property
    def atoms(self) -> Tensor:
        return self.multiplier.exp() * (self.A @ self.C + self.relaxation)

    def constrain(self) -> None:
        with torch.no_grad():
            positive = self.A.relu()
            total = positive.sum(1, keepdim=True)
            self.A.copy_(torch.where(total > 0, positive / total.clamp_min(1e-12), 1 / self.A.shape[1]))
            length = self.relaxation.norm(dim=1, keepdim=True)
            self.relaxation.mul_((self.delta / length.clamp_min(1e-12)).clamp_max(1))


def centres(x: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """A few rounds of k-means from rows drawn without replacement: (count, channel). A centre nobody is near stays."""
    found = x[torch.randperm(len(x), generator=generator)[:count]].clone()
    for _ in range(ROUNDS if count < len(x) else 0):
        nearest = torch.cat([(found.square().sum(1) - 2 * part @ found.T).argmin(1) for part in x.split(4096)])
        size = torch.bincount(nearest, minlength=count)[:, None]
        total = torch.zeros_like(found).index_add_(0, nearest, x)
        found = torch.where(size > 0, total / size.clamp_min(1), found)
    return found
