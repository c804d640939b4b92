"""Sections 3.1 to 3.3 for one unit after the other, on the cores of the machine.

`disentangle_device` is the same route where the rows lie on a GPU; what is alike stands here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from vitreous.kernels.density import contribution_clusters
from vitreous.kernels.split_weights import search_rho
from vitreous.kernels.stream_top import stream_top
from vitreous.lenses.disentangle_rows import Rows
from vitreous.lenses.disentangle_work import UnitSplit

HELD = 1 << 28  # bytes of a running top-k: as many units share a pass over the rows
EPSILON = 1e-12


@dataclass(frozen=True)
class Options:
    """How one unit is split."""

    top_k: int
    min_cluster_size: int
    selection: str
    min_samples: int | None
    clusterer: str
    seed: int


class UnitTop(NamedTuple):
    """A unit by its place among those asked for, and its k strongest rows, strongest first; arrays or tensors (k,)."""

    at: int
    ids: Any
    values: Any

    def on_host(self) -> UnitTop:
        """As arrays, which can be sent to any process."""
        if isinstance(self.ids, np.ndarray):
            return self
        return UnitTop(self.at, self.ids.cpu().numpy(), self.values.cpu().numpy())


class Route(Protocol):
    """Where units are worked on. `examples` strongest instances are kept of a unit and of each sub-unit."""

    @property
    def on_gpu(self) -> bool: ...

    def top(self, units: Sequence[int], k: int) -> Iterator[UnitTop]: ...

    def splits(
        self, tops: Iterable[UnitTop], options: Options, examples: int = 0
    ) -> Iterator[tuple[int, UnitSplit]]: ...


@dataclass(frozen=True, eq=False)
class OnCores:
    """Weight (unit, input) and bias (unit,) are those of the units asked for."""

    rows: Rows
    weight: np.ndarray
    bias: np.ndarray
    on_gpu: ClassVar[bool] = False

    def top(self, units: Sequence[int], k: int) -> Iterator[UnitTop]:
        """Eq. 1: as many units a pass over the rows as memory allows.

        Units that are not asked for take part in the products of their neighbours: with fewer units these would be
        rounded another way, and a run that goes on, or shares its units, would not end with the same bytes.
        """
        held = max(1, HELD // (36 * k))
        for first in range(0, len(self.weight), held):
            part = slice(first, first + held)
            if not (wanted := [at for at in units if first <= at < part.stop]):
                continue
            here = [at - first for at in wanted]
            active = ((self.weight[part] @ q.T + self.bias[part, None])[here] for q in self.rows.batches())
            found = stream_top(active, len(wanted), k)
            yield from map(UnitTop, wanted, found.ids, found.values)

    def splits(self, tops: Iterable[UnitTop], options: Options, examples: int = 0) -> Iterator[tuple[int, UnitSplit]]:
        for at, ids, values in tops:
            q, weight, bias = self.rows.read(ids), self.weight[at], self.bias[at]
            split = split_unit(q, weight, bias, options)
            if examples:
                images, tokens = self.rows.images[ids], self.rows.tokens[ids]
                split = split.with_examples(q, values, weight, bias, images, tokens, examples)
            yield at, split


@dataclass(frozen=True, eq=False)
class SplitOne:
    """A job: one unit with its strongest rows to its sub-units."""

    route: Route
    options: Options
    examples: int

    def __call__(self, top: UnitTop) -> tuple[int, UnitSplit]:
        return next(iter(self.route.splits([top], self.options, self.examples)))


def split_unit(q: np.ndarray, weight: np.ndarray, bias: np.float32, options: Options) -> UnitSplit:
    """Sections 3.2 and 3.3 for one unit: its top instances q (instance, input), strongest first, to its sub-units."""
    found = contribution_clusters(
        q,
        weight,
        min_cluster_size=options.min_cluster_size,
        min_samples=options.min_samples,
        selection=options.selection,
        method=options.clusterer,
        seed=options.seed,
    )
    whole = found.count < 1  # nothing to tell apart: all instances stand for the unit
    labels = np.zeros(len(q), np.int64) if whole else found.labels
    certain = np.ones(len(q), np.float32) if whole else found.probabilities
    sums, sizes = cluster_sums(q, weight, labels, certain)
    noise = float((found.labels < 0).mean())
    return divided(found.count, noise, sums, sizes, weight, bias)


def cluster_sums(
    q: np.ndarray, weight: np.ndarray, labels: np.ndarray, certain: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(2 clusters, input): of each cluster the sum of p q / |W * q|, and after these the sums of q; and its sizes.

    A sum of W * q / |W * q| is W times a sum of q / |W * q|: one product of matrices does for all clusters.
    """
    inside = np.flatnonzero(labels >= 0)
    lengths = np.sqrt(np.maximum((q * q) @ (weight * weight), np.finfo(np.float32).tiny))
    count = int(labels.max()) + 1
    mix = np.zeros((2 * count, len(q)), np.float32)
    mix[labels[inside], inside] = certain[inside] / lengths[inside]
    mix[count + labels[inside], inside] = 1
    return mix @ q, np.bincount(labels[inside], minlength=count)


def divided(
    clusters: int, noise: float, sums: np.ndarray, sizes: np.ndarray, weight: np.ndarray, bias: np.float32
) -> UnitSplit:
    """Eq. 2 from `cluster_sums`, and the unit's inputs given to its sub-units. No cluster: the sums are of all."""
    count = len(sizes)
    r = weight * sums[:count].astype(np.float64)
    representatives = (r / (np.linalg.norm(r, axis=1, keepdims=True) + EPSILON)).astype(np.float32)  # eq. 2
    if clusters < 2:
        members = np.ones((1, len(weight)), bool)
        return UnitSplit(clusters, sizes * clusters, representatives, members, np.nan, np.nan, noise)
    split = search_rho(weight, float(bias), representatives, sums[count:] / sizes[:, None])
    return UnitSplit(clusters, sizes, representatives, split.members, split.rho, split.score, noise)
