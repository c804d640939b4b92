"""What a comparison was asked for, checked before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vitreous.checks import is_number, number, whole
from vitreous.errors import SettingsError

SWEEPS = ("none", "penalty", "paper")
READINGS = ("auto", "head", "probe", "none")
PAPER_TOP, PAPER_SAMPLES, LEAST_TOP = 100, 50_000, 10  # samples that MS-Score looks at, of how many


@dataclass(frozen=True)
class Settings:
    """All that rows depend on, but for methods and seeds: those can be added to a comparison later."""

    site: str
    expansion: float
    tokens: int | Literal["all"]
    top_k: int | None
    min_cluster_size: int | None
    steps: int
    batch_size: int
    learning_rate: float
    k: int | None
    sweep: str
    sweep_steps: int | None
    top: int | None
    accuracy: str

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if isinstance(value, np.generic):  # they are kept as JSON
                object.__setattr__(self, name, value.item())
        least = {"steps": 1, "batch_size": 1, "sweep_steps": 1, "top_k": 1, "min_cluster_size": 2, "k": 1, "tokens": 1}
        for name, smallest in least.items():
            if self.__dict__[name] not in (None, "all" if name == "tokens" else None):
                whole(smallest, **{name: self.__dict__[name]})
        if not is_number(self.expansion) or not 1 < self.expansion < np.inf:
            raise SettingsError("expansion is more than 1", given=self.expansion, accepted="a finite number")
        number(above=True, learning_rate=self.learning_rate)
        if self.sweep not in SWEEPS:
            raise SettingsError("no such sweep", given=self.sweep, accepted=SWEEPS)
        if self.accuracy not in READINGS:
            raise SettingsError("no such way to read the model", given=self.accuracy, accepted=READINGS)
        if self.top is not None:
            whole(2, top=self.top)

    def on(self, channels: int) -> Settings:
        """The same; refused where dictionaries on so many channels have fewer units than are to be active."""
        if self.k is not None and self.k > (units := round(self.expansion * channels)):
            raise SettingsError(f"k is between 1 and the number of units, {units}", given=self.k)
        return self

    def top_of(self, samples: int) -> int:
        """How many of the samples a unit is judged by. The paper takes 100 of 50,000; of few, 10 are taken."""
        asked = min(PAPER_TOP, max(LEAST_TOP, round(samples * PAPER_TOP / PAPER_SAMPLES)))
        return min(samples, asked if self.top is None else self.top)
