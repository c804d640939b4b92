"""Are the structures of two models different, or is it chance? The tests of appendix C, Tables 7 and 8.

    Table 7   sizes of groups          Kolmogorov-Smirnov, Mann-Whitney U
    Table 8   distances by layer       paired t over all pairs of units, permutation test on 5,000 of them

A group is a cluster, or a counted unit of no cluster as a group of one: the paper counts 8,082 clusters among 10,752
units, which only fits if units on their own count. For Table 8 a layer has the distances of its units to all units of
all layers, their own zeros and both directions included, on the grey scale of section 4.2; the pair (unit, unit) of one
model goes with the pair at the same places in the other. Distances that share a unit are not independent, and each is
there twice: with millions of them any p is tiny, and the size of the difference says more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vitreous.checks import whole
from vitreous.engine import Engine, open_engine
from vitreous.errors import SettingsError
from vitreous.evidence.statistics import (
    Test,
    kolmogorov_smirnov,
    mann_whitney,
    p_text,
    permutation,
    t_of_differences,
)
from vitreous.finding import Finding, columns
from vitreous.kernels.l1 import distances, pair_distances
from vitreous.lenses.structure_finding import StructureFinding
from vitreous.progress import tqdm

LEVEL = 0.05  # p-values below are called a difference
BLOCK = 1024  # units whose distances to as many others are held at a time
PAIRS = 5000  # of a layer in the permutation test


@dataclass(frozen=True)
class SizeTest:
    """A row of Table 7."""

    name: str
    test: Test
    reading: str


@dataclass(frozen=True)
class LayerTest:
    """A row of Table 8: mean distances of a layer's units in both models, 0 to 255, and tests of a - b."""

    layer: str
    a: float
    b: float
    permutation: Test
    t: Test

    @property
    def difference(self) -> float:
        return self.a - self.b


@dataclass(frozen=True)
class Comparison(Finding):
    """Rows of Tables 7 and 8 for two findings called `names`.

    `groups` and `mean_sizes` are theirs, one each. `layers` is empty where layers could not be compared; `notes` say
    why, and what else a reader has to know.
    """

    names: tuple[str, str]
    groups: tuple[int, int]
    mean_sizes: tuple[float, float]
    sizes: tuple[SizeTest, ...]
    layers: tuple[LayerTest, ...]
    notes: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        found = dict(zip((f"groups of {name}" for name in self.names), self.groups, strict=True))
        return found | {row.name: row.reading for row in self.sizes}

    def columns_of_rows(self) -> dict[str, Any]:
        """The rows of Table 8, or of Table 7 where layers could not be compared."""
        if not self.layers:
            return columns([{"test": row.name, **asdict(row.test), "reading": row.reading} for row in self.sizes])
        a, b = self.names
        return columns(
            [
                {"layer": r.layer, a: r.a, b: r.b, "permutation p": r.permutation.p, "t-test p": r.t.p}
                for r in self.layers
            ]
        )

    def table(self) -> str:
        """Both tables as text."""
        shown = zip(self.names, self.groups, self.mean_sizes, strict=True)
        first = "sizes: " + ", ".join(f"{name} {n:,} groups of {mean:.3f} units" for name, n, mean in shown)
        lines = [first, "", *_aligned(("test", "statistic", "p", ""), _size_cells(self.sizes))]
        if self.layers:
            head = ("layer", *self.names, "diff", "perm. diff", "perm. p", "t", "t-test p")
            lines += ["", *_aligned(head, _layer_cells(self.layers))]
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])


def compare(
    a: StructureFinding,
    b: StructureFinding,
    *,
    names: tuple[str, str] = ("a", "b"),
    seed: int = 0,
    engine: str | Engine = "local",
    progress: bool = True,
) -> Comparison:
    """Whether two findings differ, by the tests of appendix C.

    Sizes can always be compared. Layers can if both have the same layers, tokens and channels, and hold `transformed`
    or `distances`; where not, `layers` is empty and a note says why. Each finding has its own grey scale. `engine` says
    who does the permutation tests, layer by layer: "local" this process, "local:4" workers, "ray" a cluster.

    >>> a, b = vt.structure(x, keep_transformed=True), vt.structure(y, keep_transformed=True)
    >>> print(vt.compare(a, b, names=("plain", "structured")).table())
    """
    for finding in (a, b):
        if not isinstance(finding, StructureFinding):
            raise SettingsError(
                "two findings are compared",
                given=type(finding).__name__,
                accepted="what vt.structure gives",
                remedy="vt.StructureFinding.load reads a saved one",
            )
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names) or len({*names}) != 2:
        raise SettingsError("two findings need two different names", given=names, accepted='such as ("a", "b")')
    whole(0, seed=seed)
    missing = _why_not(a, b, names)
    return Comparison(
        names=(names[0], names[1]),
        groups=(len(a.group_sizes), len(b.group_sizes)),
        mean_sizes=(a.mean_size, b.mean_size),
        sizes=_size_tests(a.group_sizes, b.group_sizes, names),
        layers=() if missing else _layer_tests(_Grey(a), _Grey(b), seed, open_engine(engine), progress),
        notes=(*_unlike(a, b, names), *([missing] if missing else [])),
    )


def _size_tests(a: np.ndarray, b: np.ndarray, names: Sequence[str]) -> tuple[SizeTest, ...]:
    gap, rank = kolmogorov_smirnov(a, b), mann_whitney(a, b)
    larger = names[0] if rank.statistic > len(a) * len(b) / 2 else names[1]
    return (
        SizeTest("Kolmogorov-Smirnov", gap, "distributions differ" if gap.p < LEVEL else "no difference seen"),
        SizeTest("Mann-Whitney U", rank, f"{larger} larger" if rank.p < LEVEL else "neither larger"),
    )


# -- layers


class _Grey:
    """Distances of a finding on its scale of 0 to 255, computed when they are asked for unless it holds them."""

    def __init__(self, finding: StructureFinding) -> None:
        self.finding = finding
        self._scale = 255 / (finding.farthest or 1)

    def block(self, i: slice, j: slice) -> np.ndarray:
        if self.finding.distances is not None:
            return self._scale * self.finding.distances[i, j]
        rows = self._rows()
        return self._scale * distances(rows[i], rows[j])

    def pairs(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        if self.finding.distances is not None:
            return self._scale * self.finding.distances[first, second]
        return self._scale * pair_distances(self._rows(), first, second)

    def _rows(self) -> np.ndarray:
        assert self.finding.transformed is not None  # _why_not has looked
        return self.finding.transformed


@dataclass
class _Spread:
    """Number, mean and squares around the mean of what was added, block by block and without loss of digits."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        count, mean = values.size, float(values.mean())
        apart, total = mean - self.mean, self.count + values.size
        self.squares += float(np.square(values - mean).sum()) + apart**2 * self.count * count / total
        self.mean += apart * count / total
        self.count = total


def _by_chance(pairs: tuple[np.ndarray, np.ndarray, int]) -> Test:
    """A job: the permutation test of one layer."""
    a, b, seed = pairs
    return permutation(a, b, pairs=PAIRS, seed=seed)


def _drawn(a: _Grey, b: _Grey, layer: int, here: int, units: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Distances of some pairs of units of a layer in both models, and a seed."""
    rng = np.random.default_rng([seed, layer])
    drawn = rng.choice(here * units, min(PAIRS, here * units), replace=False)
    first, second = layer * here + drawn // units, drawn % units
    return a.pairs(first, second), b.pairs(first, second), int(rng.integers(1 << 32))


def _layer_tests(a: _Grey, b: _Grey, seed: int, engine: Engine, progress: bool) -> tuple[LayerTest, ...]:
    layers, here = len(a.finding.layers), a.finding.labels[0].size
    units = layers * here
    parts = [
        (layer, slice(first, min(first + BLOCK, (layer + 1) * here)))
        for layer in range(layers)
        for first in range(layer * here, (layer + 1) * here, BLOCK)
    ]
    spreads = [_Spread() for _ in range(layers)]
    pairs = [(p, q) for n, p in enumerate(parts) for q in parts[n:]]
    for (layer, i), (other, j) in tqdm(pairs, "layers", delay=1, leave=False, disable=not progress):
        differences = a.block(i, j) - b.block(i, j)
        spreads[layer].add(differences)
        if i != j:  # the same distances, seen from the other side
            spreads[other].add(differences)
    rows = []
    chances = engine.map(_by_chance, (_drawn(a, b, layer, here, units, seed) for layer in range(layers)))
    for layer, (spread, chance) in enumerate(zip(spreads, chances, strict=True)):
        t = t_of_differences(spread.count, spread.mean, spread.squares)
        means = float(a.finding.differences[layer]), float(b.finding.differences[layer])
        rows.append(LayerTest(a.finding.layers[layer], *means, chance, t))
    return tuple(rows)


def _why_not(a: StructureFinding, b: StructureFinding, names: Sequence[str]) -> str:
    """Why layers cannot be compared; nothing if they can."""
    if a.labels.shape != b.labels.shape:
        given = f"{names[0]} has {a.labels.shape}, {names[1]} {b.labels.shape}"
        return f"layers not compared: units go together by (layer, token, channel), but {given}"
    if without := [n for n, f in zip(names, (a, b), strict=True) if f.transformed is None and f.distances is None]:
        return f"layers not compared: {' and '.join(without)} came without structure(..., keep_transformed=True)"
    return ""


def _unlike(a: StructureFinding, b: StructureFinding, names: Sequence[str]) -> list[str]:
    """What differs beside the models: settings, and which layers and tokens of the same number were looked at."""
    found, other = dict(a.settings), dict(b.settings)
    if a.labels.shape == b.labels.shape:
        found["tokens"], other["tokens"] = a.tokens, b.tokens
        if (a.settings["source"] is None) == (b.settings["source"] is None):  # an array names its layers otherwise
            found["layers"], other["layers"] = a.layers, b.layers
    keys = [key for key in found if key != "source" and found[key] != other[key]]
    return [f"{key}: {_listed(found[key])} in {names[0]}, {_listed(other[key])} in {names[1]}" for key in keys]


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


# -- text


def _size_cells(rows: Sequence[SizeTest]) -> list[tuple[str, ...]]:
    return [(row.name, f"{row.test.statistic:.4g}", p_text(row.test.p), row.reading) for row in rows]


def _layer_cells(rows: Sequence[LayerTest]) -> list[tuple[str, ...]]:
    return [
        (
            row.layer,
            *(f"{x:.2f}" for x in (row.a, row.b, row.difference, row.permutation.statistic)),
            p_text(row.permutation.p, 1e-4),
            f"{row.t.statistic:.4f}",
            p_text(row.t.p),
        )
        for row in rows
    ]


def _aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under each other: the first, and those without a name, to the left; numbers to the right."""
    lines = [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    sides = ["<" if k == 0 or not name else ">" for k, name in enumerate(head)]
    return ["  ".join(f"{c:{s}{w}}" for c, s, w in zip(line, sides, widths, strict=True)).rstrip() for line in lines]
