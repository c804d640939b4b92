"""How large clusters, and how many instances, give so many sub-units a unit (E.6): tried on a few units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from vitreous.lenses.disentangle_units import Options, Route, UnitTop
from vitreous.progress import tqdm

NEAR = np.log(1.05)  # as near to the target as a few units can tell
FAR = np.log(1.1)  # so far off, the number of instances is moved as well
STEP = 1.03  # numbers nearer to each other than that are not told apart
MOVES = 4  # times more or fewer instances than were meant
TRIES = 10  # of one number
BY_SIZE, BY_INSTANCES = -2.0, 0.6  # how sub-units go with the two, in the logarithm, roughly


@dataclass(eq=False)
class Pilot:
    """A few units with their strongest rows; what they split into with some options, each tried once."""

    route: Route
    tops: list[UnitTop]
    target: float
    bar: Any
    reached: dict[Options, float] = field(default_factory=dict)

    def off(self, options: Options) -> float:
        """log(sub-units a unit / target)."""
        if options not in self.reached:
            k = options.top_k
            cut = [top._replace(ids=top.ids[:k], values=top.values[:k]) for top in self.tops]
            counts = [max(1, split.clusters) for _, split in self.route.splits(cut, options)]
            self.reached[options] = float(np.mean(counts))
            self.bar.update()
        return float(np.log(self.reached[options] / self.target))

    @property
    def nearest(self) -> Options:
        """Of all that were tried; of two that are as near, the one that was tried first."""
        return min(self.reached, key=lambda options: abs(self.off(options)))

    @property
    def error(self) -> float:
        return abs(self.off(self.nearest))


def options_for(
    target: float,
    options: Options,
    route: Route,
    units: list[int],
    *,
    sizes: bool,
    instances: int | None,
    progress: bool,
) -> tuple[Options, float]:
    """The options that come nearest, and how many sub-units a unit these units had with them.

    With `sizes` the size of clusters is chosen, with `instances`, which is how many there are at most, `top_k`. With
    both the size comes first. Clusters of two, three or four instances leave gaps that only `top_k` fills.
    """
    most = options.top_k
    if instances is not None:
        most = min(instances, MOVES * options.top_k) if sizes else instances
    with tqdm(desc="expansion", unit="try", disable=not progress, leave=False) as bar:
        pilot = Pilot(route, list(route.top(units, most)), target, bar)
        k, size, least = options.top_k, options.min_cluster_size, options.min_samples or 0
        if not sizes:
            low = min(max(2 * size, least), most)
            walk(lambda k: pilot.off(replace(options, top_k=k)), k, low, most, BY_INSTANCES)
        else:
            off = walk(lambda size: pilot.off(replace(options, min_cluster_size=size)), size, 2, k // 4, BY_SIZE)
            if instances is not None:
                _move_instances(pilot, options, off, most)
        return pilot.nearest, pilot.reached[pilot.nearest]


def _move_instances(pilot: Pilot, options: Options, off: dict[int, float], most: int) -> None:
    """Fewer instances with the largest clusters of which there are too many, or else more with the next larger."""
    few, many = [n for n in off if off[n] < 0], [n for n in off if off[n] >= 0]
    k = options.top_k
    for size, low, high in ((max(many, default=0), k // MOVES, k), (min(few, default=0), k, most)):
        if size and pilot.error > FAR:
            sized = replace(options, min_cluster_size=size)

            def tried(number: int, sized: Options = sized) -> float:
                return pilot.off(replace(sized, top_k=number))

            walk(tried, k, max(low, 2 * size, options.min_samples or 0), high, BY_INSTANCES)


def walk(off: Callable[[int], float], start: int, low: int, high: int, slope: float) -> dict[int, float]:
    """Numbers from low to high with what `off` says of them, tried until one is near 0 or none is left between two.

    `off` goes with the logarithm of the number, about by `slope`, and nearly always in its direction. Once a number
    lies on either side, the next lies between, on the line or in the middle, in turns.
    """
    high = max(low, high)
    number, known = int(np.clip(start, low, high)), dict[int, float]()
    while len(known) < TRIES and number not in known:
        known[number] = off(number)
        if abs(known[number]) < NEAR:
            break
        below, above = ([n for n in known if (known[n] * slope < 0) == side] for side in (True, False))
        if not below or not above:
            grow = np.exp(-known[number] / slope)
            further = round(number * grow), number + (1 if grow > 1 else -1)
            number = int(np.clip(max(further) if grow > 1 else min(further), low, high))
            continue
        a, b = max(below), min(above)
        if b - a < 2 or b < STEP * a:  # neighbours; or not in order, by chance
            break
        share = known[a] / (known[a] - known[b]) if len(known) % 2 else 0.5
        number = int(np.clip(round(a * (b / a) ** share), a + 1, b - 1))
    return known
