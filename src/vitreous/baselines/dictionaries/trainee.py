"""What all dictionaries share while they train: a linear encoder, unit atoms, the loss of section E.1.

    loss = |y - ŷ|² / channels + penalty · sparsity - dead_weight · reanimation + auxiliary

Data come scaled to a mean square of 1 around their mean, so that a penalty means the same at every layer; `finished`
puts the scale back into the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from vitreous.baselines.dictionaries.rows import Rows


@dataclass(frozen=True)
class Start:
    """What a dictionary begins with: sizes, sparsity, scaled means, the rows, and a generator to draw from."""

    inputs: int
    outputs: int
    units: int
    k: int
    batch_size: int
    mean_in: Tensor
    mean_out: Tensor
    scale_in: float
    scale_out: float
    rows: Rows
    generator: torch.Generator
    options: Mapping[str, Any]


class Pass(NamedTuple):
    """A batch on its way: codes (row, unit) before and after what makes them sparse, and the aim y (row, output)."""

    before: Tensor
    z: Tensor
    y: Tensor


class Trainee(nn.Module):
    """Base of all kinds. A kind says how codes are made; some also change the loss, the atoms or the end."""

    centred = True  # whether the encoder sees x - b_dec
    defaults: ClassVar[Mapping[str, Any]] = {}  # options of the kind

    def __init__(self, start: Start) -> None:
        super().__init__()
        self.start = start
        atoms = unit_rows(torch.randn(start.units, start.outputs, generator=start.generator))
        self.W_dec = nn.Parameter(atoms)
        self.W_enc = nn.Parameter(atoms.T.clone())
        self.b_enc = nn.Parameter(torch.zeros(start.units))
        self.b_dec = nn.Parameter(start.mean_out.clone())

    @property
    def atoms(self) -> Tensor:
        """(unit, output)."""
        return self.W_dec

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x (row, input) -> codes before and after what makes them sparse."""
        before = (x - self.b_dec if self.centred else x) @ self.W_enc + self.b_enc
        return before, self.codes(before)

    def codes(self, before: Tensor) -> Tensor:
        raise NotImplementedError

    def loss(self, x: Tensor, y: Tensor, penalty: float, dead_weight: float) -> Tensor:
        before, z = self(x)
        now = Pass(before, z, y)
        loss = self.error(now) - dead_weight * reanimation(now) + self.auxiliary(now)
        return loss + penalty * self.sparsity(now) if penalty else loss

    def error(self, now: Pass) -> Tensor:
        return (now.z @ self.atoms + self.b_dec - now.y).square().mean()

    def sparsity(self, now: Pass) -> Tensor:
        """What `penalty` weighs, a row on average."""
        return now.z.new_zeros(())

    def auxiliary(self, now: Pass) -> Tensor:
        return now.z.new_zeros(())

    def constrain(self) -> None:
        """After every step: atoms have length 1."""
        with torch.no_grad():
            self.W_dec.copy_(unit_rows(self.W_dec))

    def finished(self) -> dict[str, Tensor]:
        """Weights for data as they came. A code is in the units of what it reconstructs."""
        into, out = self.start.scale_in, self.start.scale_out
        weights = {"W_enc": self.W_enc * (out / into), "b_enc": self.b_enc * out}
        weights |= {"W_dec": self.atoms, "b_dec": self.b_dec * out}
        return {name: value.detach().clone() for name, value in weights.items()}


def unit_rows(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def reanimation(now: Pass) -> Tensor:
    """Over units that are silent in the whole batch, the mean of what they had before (E.1): raising it wakes them."""
    dead = (now.z == 0).all(0)
    return (now.before * dead).sum() / (dead.sum().clamp_min(1) * len(now.z))
