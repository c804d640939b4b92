"""What a comparison was asked for, checked before any work is done."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

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
        for name in ("steps", "batch_size"):
            if not isinstance(self.__dict__[name], Integral) or self.__dict__[name] < 1:
                raise SettingsError(f"{name} is 1 or more, a whole number", given=self.__dict__[name])
        if not isinstance(self.expansion, Real) or not self.expansion > 1:
            raise SettingsError("expansion is more than 1", given=self.expansion)
        if not isinstance(self.learning_rate, Real) or not self.learning_rate > 0:
            raise SettingsError("learning_rate is above 0", given=self.learning_rate)
        if self.sweep_steps is not None and (not isinstance(self.sweep_steps, Integral) or self.sweep_steps < 1):
            raise SettingsError("sweep_steps is 1 or more, a whole number", given=self.sweep_steps)
        if self.sweep not in SWEEPS:
            raise SettingsError("no such sweep", given=self.sweep, accepted=SWEEPS)
        if self.accuracy not in READINGS:
            raise SettingsError("no such way to read the model", given=self.accuracy, accepted=READINGS)
        if self.top is not None and (not isinstance(self.top, Integral) or self.top < 2):
            raise SettingsError("MS-Score looks at two samples or more", given=self.top)

    def top_of(self, samples: int) -> int:
        """How many of the samples a unit is judged by. The paper takes 100 of 50,000; of few, 10 are taken."""
        asked = min(PAPER_TOP, max(LEAST_TOP, round(samples * PAPER_TOP / PAPER_SAMPLES)))
        return min(samples, asked if self.top is None else self.top)
