"""Ids of units, `MODEL/SITE/UNIT` and `MODEL/SITE/UNIT.SUBUNIT`, to what they stand for in a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vitreous.explorer.album import NotThereError

if TYPE_CHECKING:
    from vitreous.examination import Examination

UNIT = r"^[A-Za-z0-9_.-]{1,200}/blocks\.[0-9]{1,4}\.mlp\.out/[0-9]{1,7}(\.[0-9]{1,7})?$"
_PARTS = re.compile(r"(?P<model>[\w.-]+)/blocks\.(?P<block>\d+)\.mlp\.out/(?P<unit>\d+)(?:\.(?P<part>\d+))?", re.ASCII)


@dataclass(frozen=True)
class UnitId:
    """`part` says which of its sub-units is meant, from 0; None means the unit as a whole."""

    model: str
    block: int
    unit: int
    part: int | None = None

    def __str__(self) -> str:
        part = "" if self.part is None else f".{self.part}"
        return f"{self.model}/blocks.{self.block}.mlp.out/{self.unit}{part}"

    @classmethod
    def read(cls, text: str) -> UnitId:
        found = _PARTS.fullmatch(text)
        if found is None:
            raise NotThereError("not the id of a unit", given=text[:80], accepted="MODEL/blocks.7.mlp.out/17 or 17.2")
        part = found["part"]
        return cls(found["model"], int(found["block"]), int(found["unit"]), None if part is None else int(part))

    def number(self, examination: Examination) -> int:
        """Of a sub-unit: its number among all of the layer."""
        mine = examination.disentanglement(self.model, self.block).subunits(self.unit)
        part = self.part or 0
        if not part < len(mine):
            raise NotThereError("no such sub-unit", given=str(self), accepted=f"{self.unit}.0 to .{len(mine) - 1}")
        return int(mine[part])

    def weights(self, examination: Examination) -> tuple[np.ndarray, np.float32]:
        """(input,) and bias: what makes its activation of what enters the layer."""
        refuse_unit(examination, self)
        finding = examination.disentanglement(self.model, self.block)
        if self.part is None:
            at = int(np.flatnonzero(finding.units == self.unit)[0])
            return finding.weight[at], finding.bias[at]
        weights, biases = finding.weights_of([self.number(examination)])
        return weights[0], biases[0]


def refuse_model(examination: Examination, model: str) -> None:
    names = [entry.name for entry in examination.models]
    if model not in names:
        raise NotThereError("no such model in this run", given=model[:80], accepted=names)


def refuse_block(examination: Examination, model: str, block: int) -> int:
    """The number from 0 of a block that may be counted from the end."""
    refuse_model(examination, model)
    depth = examination.model(model).depth
    if not -depth <= block < depth:
        raise NotThereError("no such block", given=block, accepted=f"{-depth} to {depth - 1}")
    return range(depth)[block]


def refuse_unit(examination: Examination, unit: UnitId) -> None:
    refuse_model(examination, unit.model)
    blocks = examination.model(unit.model).blocks
    if unit.block not in blocks:
        raise NotThereError(
            f"units of block {unit.block} of {unit.model} were not examined", accepted=[str(b) for b in blocks]
        )
    if unit.unit not in examination.disentanglement(unit.model, unit.block).units:
        raise NotThereError("this unit was not examined", given=str(unit))
