"""How large clusters, or how many instances, give so many sub-units a unit (E.6): tried on a few units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from tqdm.auto import tqdm  # type: ignore[import-untyped]

from vitreous.lenses.disentangle_units import Options, Route

STEP = 1.1  # neighbouring numbers that are told apart


@dataclass(frozen=True)
class SizeOfClusters:
    """The size of clusters, between 2 and a quarter of k, that comes nearest to so many sub-units a unit.

    Smaller clusters are more clusters, nearly always, so the size is halved in on.
    """

    options: Options
    rises: ClassVar[bool] = False  # whether sub-units do with what is tried

    @property
    def most_k(self) -> int:
        return self.options.top_k

    @property
    def between(self) -> tuple[float, float]:
        return 2.0, max(2.0, self.options.top_k / 4)

    def tried(self, number: int) -> Options:
        return replace(self.options, min_cluster_size=number)

    def nearest(self, target: float, route: Route, units: list[int], progress: bool) -> tuple[Options, float]:
        """The options, and how many sub-units a unit the few units had with them."""
        tops = list(route.top(units, self.most_k))
        low, high = self.between
        best: tuple[float, Options, float] | None = None
        steps = int(np.ceil(np.log2(max(2, np.log(high / low) / np.log(STEP)))))
        for _ in tqdm(range(steps), "expansion", disable=not progress, leave=False):
            number = round(float(np.sqrt(low * high)))
            tried = self.tried(number)
            cut = [top._replace(ids=top.ids[: tried.top_k], values=top.values[: tried.top_k]) for top in tops]
            reached = float(np.mean([max(1, split.clusters) for _, split in route.splits(cut, tried)]))
            if best is None or abs(np.log(reached / target)) < best[0]:
                best = (abs(np.log(reached / target)), tried, reached)
            low, high = (number, high) if (reached < target) == self.rises else (low, number)
        assert best is not None
        return best[1], best[2]


@dataclass(frozen=True)
class NumberOfInstances(SizeOfClusters):
    """The same by k, between two clusters' worth and `most`, for clusters of a given size."""

    most: int
    rises: ClassVar[bool] = True

    @property
    def most_k(self) -> int:
        return self.most

    @property
    def between(self) -> tuple[float, float]:
        return float(min(2 * self.options.min_cluster_size, self.most)), float(self.most)

    def tried(self, number: int) -> Options:
        return replace(self.options, top_k=number)
