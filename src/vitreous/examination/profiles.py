"""What every unit and sub-unit of one layer does on all pictures: strongest and weaker pictures, maps, a histogram.

Everything is made from what enters the layer, which the store holds, and the weights that the disentanglement keeps, in
two passes that hold a batch of pictures at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import StoreError
from vitreous.examination.files import AGAIN, read_arrays, write_arrays
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.store import Store

FORMAT, VERSION = "vitreous profile of units", 1
BATCH = 32  # pictures in memory at a time
TILES, SUBTILES, CLOSE = 8, 8, 8  # pictures of a row, of a sub-unit, and strongest tokens looked at closely
BINS = 32  # of a histogram
ROWS = (  # title, from and up to which share of the pictures, ordered by their strongest patch
    ("Strongest", None),
    ("90th to 99th percentile", (0.90, 0.99)),
    ("75th to 90th percentile", (0.75, 0.90)),
    ("50th to 75th percentile", (0.50, 0.75)),
    ("Lower half", (0.0, 0.50)),
)


@dataclass(frozen=True, eq=False)
class Profile:
    """Arrays of one layer. Pictures and patches are -1 where there are fewer; patches do not count prefix tokens.

    Of units: `edges` (unit, bin + 1) and `counts` (unit, bin) over all patches, `mean`, `std`, `positive` (unit,);
    `pictures`, `patches`, `values` (unit, row, tile) by the rows of `ROWS`, `heat` uint8 (unit, row, tile, patch), 0
    at the mean and 255 at the largest activation;
    `maxima` (picture, unit); `close_pictures`, `close_patches`, `close_values` (unit, place): the strongest patches,
    one a picture, among pictures that are looked at closely. Of sub-units: `subunit_pictures`, `subunit_patches`,
    `subunit_values` (sub-unit, tile), `subunit_heat` (sub-unit, tile, patch), `subunit_maxima` (picture, sub-unit).
    """

    edges: np.ndarray
    counts: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    positive: np.ndarray
    pictures: np.ndarray
    patches: np.ndarray
    values: np.ndarray
    heat: np.ndarray
    maxima: np.ndarray
    close_pictures: np.ndarray
    close_patches: np.ndarray
    close_values: np.ndarray
    subunit_pictures: np.ndarray
    subunit_patches: np.ndarray
    subunit_values: np.ndarray
    subunit_heat: np.ndarray
    subunit_maxima: np.ndarray

    def save(self, path: Path) -> None:
        about = {"format": FORMAT, "version": VERSION}
        write_arrays(path, about, {field.name: self.__dict__[field.name] for field in fields(self)})

    @classmethod
    def load(cls, path: Path) -> Profile:
        about, arrays = read_arrays(path, "a profile of units")
        try:
            if (about["format"], about["version"]) != (FORMAT, VERSION):
                raise KeyError(FORMAT)
            made = cls(**{field.name: arrays[field.name] for field in fields(cls)})
        except (LookupError, TypeError):
            raise StoreError("not a profile of units of this version", given=path.name, remedy=AGAIN) from None
        units, subunits = len(made.mean), len(made.subunit_pictures)
        if made.maxima.shape[1:] != (units,) or made.subunit_maxima.shape[1:] != (subunits,):
            raise StoreError("the parts of a profile do not fit together", given=path.name, remedy=AGAIN)
        return made


@dataclass(frozen=True, eq=False)
class Layer:
    """What enters one layer, and its units and sub-units as weights."""

    store: Store
    finding: Disentanglement
    site: str

    @classmethod
    def of(cls, store: Store, finding: Disentanglement, block: int) -> Layer:
        return cls(store, finding, f"blocks.{block}.mlp.hidden")

    @property
    def prefix(self) -> int:
        return len(self.store.prefix)

    def batches(self, what: str, progress: bool) -> Iterator[tuple[int, np.ndarray]]:
        """(first picture, float32 (picture, patch, input)), a few pictures at a time."""
        array = self.store[self.site]
        for start in tqdm(range(0, len(self.store), BATCH), what, disable=not progress, delay=1, leave=False):
            yield start, np.asarray(array[start : start + BATCH], np.float32)[:, self.prefix :]

    def inputs(self, pictures: np.ndarray, patches: np.ndarray) -> np.ndarray:
        """float32 (place, input)."""
        return np.asarray(self.store[self.site][pictures, patches + self.prefix], np.float32)

    def units(self, q: np.ndarray) -> np.ndarray:
        return q @ self.finding.weight.T + self.finding.bias

    def subunits(self, q: np.ndarray) -> np.ndarray:
        return self.finding.subunit_activations(q)


def profile(layer: Layer, close: np.ndarray, *, progress: bool = True) -> Profile:
    """Two passes over what enters a layer; `close` are the pictures that are looked at closely."""
    first = _first_pass(layer, progress)
    pictures, patches, values = _rows(first.maxima, first.places)
    close_parts = _strongest(first.maxima[close], first.places[close], CLOSE, close)
    subunit_parts = _subunit_tiles(layer)
    edges = _edges(first.low, first.high)
    counts, heat, subunit_heat = _second_pass(layer, edges, pictures, subunit_parts[0], progress)
    return Profile(
        edges,
        counts,
        first.mean,
        first.std,
        first.positive,
        pictures,
        patches,
        values,
        _scaled(heat, first.mean[:, None, None, None], first.high[:, None, None, None]),
        first.maxima,
        *close_parts,
        *subunit_parts,
        _scaled(subunit_heat, first.subunit_mean[:, None, None], subunit_heat.max((1, 2), keepdims=True)),
        first.subunit_maxima,
    )


@dataclass(frozen=True, eq=False)
class _First:
    """`maxima` (picture, unit) and the patches `places` where they are; the rest (unit,)."""

    maxima: np.ndarray
    places: np.ndarray
    subunit_maxima: np.ndarray
    subunit_mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    positive: np.ndarray


def _first_pass(layer: Layer, progress: bool) -> _First:
    maxima, places, of_subunits, lows = [], [], [], []
    count, total, squares, above, of_parts = 0, 0.0, 0.0, 0.0, 0.0
    for _, q in layer.batches("units", progress):
        a = layer.units(q)
        maxima.append(a.max(1))
        places.append(a.argmax(1))
        lows.append(a.min((0, 1)))
        parts = layer.subunits(q)
        of_subunits.append(parts.max(1))
        of_parts = of_parts + parts.sum((0, 1), dtype=np.float64)
        count += a.shape[0] * a.shape[1]
        total = total + a.sum((0, 1), dtype=np.float64)
        squares = squares + np.square(a, dtype=np.float64).sum((0, 1))
        above = above + (a > 0).sum((0, 1))
    mean = np.asarray(total) / count
    largest = np.concatenate(maxima)
    std = np.sqrt(np.maximum(np.asarray(squares) / count - mean**2, 0))
    low, high = np.min(lows, 0), largest.max(0)
    std = np.where(low == high, 0, std)  # a constant unit has none, whatever rounding says
    share = np.asarray(above) / count
    maxima_of_parts, mean_of_parts = np.concatenate(of_subunits), np.asarray(of_parts) / count
    return _First(largest, np.concatenate(places), maxima_of_parts, mean_of_parts, low, high, mean, std, share)


def _strongest(
    maxima: np.ndarray, places: np.ndarray, count: int, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of (picture, unit): pictures by their `numbers`, patches and values (unit, count), strongest first."""
    order = np.argsort(-maxima, axis=0, kind="stable")[:count]
    found = numbers[order], np.take_along_axis(places, order, 0), np.take_along_axis(maxima, order, 0)
    return _padded(found[0].T, count, -1), _padded(found[1].T, count, -1), _padded(found[2].T, count, np.nan)


def _rows(maxima: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures, patches and values (unit, row, tile): the strongest, then some from each lower stretch."""
    count = len(maxima)
    rising = np.argsort(maxima, axis=0, kind="stable")
    parts = []
    for _, span in ROWS:
        if span is None:
            ranks = np.arange(count - 1, max(-1, count - 1 - TILES), -1)
        else:
            low, high = (int(share * count) for share in span)
            ranks = np.unique(np.linspace(low, max(low, high - 1), TILES).round().astype(int))[::-1]
            ranks = ranks[ranks < count - min(TILES, count)] if count > TILES else ranks[:0]
        chosen = rising[ranks]
        found = chosen, np.take_along_axis(places, chosen, 0), np.take_along_axis(maxima, chosen, 0)
        parts.append([_padded(part.T, TILES, fill) for part, fill in zip(found, (-1, -1, np.nan), strict=True)])
    pictures, patches, values = (np.stack(part, 1) for part in zip(*parts, strict=True))
    return pictures, patches, values


def _padded(rows: np.ndarray, width: int, fill: float) -> np.ndarray:
    """(unit, up to width) -> (unit, width): int32 where `fill` is a whole number, else float32."""
    out = np.full((len(rows), width), fill, np.int32 if isinstance(fill, int) else np.float32)
    out[:, : rows.shape[1]] = rows
    return out


def _subunit_tiles(layer: Layer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The strongest instances that the disentanglement keeps; a class token has no patch."""
    top = layer.finding.subunit_top
    pictures, tokens, values = (part[:, :SUBTILES] for part in top)
    patches = np.where(tokens >= layer.prefix, tokens - layer.prefix, -1)
    return pictures.astype(np.int32), patches.astype(np.int32), values.astype(np.float32)


def _edges(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(unit, bin + 1) from the smallest to the largest activation; constant units get a bin of width 1 around it."""
    flat = low == high
    ends = np.where(flat, low - 0.5, low), np.where(flat, high + 0.5, high)
    return np.linspace(*ends, BINS + 1, axis=1).astype(np.float32)


def _second_pass(
    layer: Layer, edges: np.ndarray, pictures: np.ndarray, subunit_pictures: np.ndarray, progress: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts (unit, bin), and maps float32 (unit, row, tile, patch) and (sub-unit, tile, patch) of chosen pictures."""
    units = len(edges)
    counts = np.zeros((units, BINS), np.int64)
    heat = subunit_heat = np.zeros(0, np.float32)
    width = np.maximum(edges[:, -1] - edges[:, 0], np.finfo(np.float32).tiny)
    for start, q in layer.batches("maps of units", progress):
        a = layer.units(q)
        if not heat.size:
            heat = np.zeros((*pictures.shape, a.shape[1]), np.float32)
            subunit_heat = np.zeros((*subunit_pictures.shape, a.shape[1]), np.float32)
        places = np.clip(((a - edges[:, 0]) / width * BINS).astype(np.int64), 0, BINS - 1) + BINS * np.arange(units)
        counts += np.bincount(places.ravel(), minlength=units * BINS).reshape(units, BINS)
        _collect(heat, pictures, start, a)
        _collect(subunit_heat, subunit_pictures, start, layer.subunits(q))
    return counts, heat, subunit_heat


def _collect(heat: np.ndarray, pictures: np.ndarray, start: int, a: np.ndarray) -> None:
    """Copies maps out of a batch (picture, patch, unit) to where (unit, ...) asks for one of its pictures."""
    where = np.nonzero((pictures >= start) & (pictures < start + len(a)))
    heat[where] = a[pictures[where] - start, :, where[0]]


def _scaled(heat: np.ndarray, floor: np.ndarray, ceiling: np.ndarray) -> np.ndarray:
    """uint8: 255 at the ceiling, 0 at and below the floor, the mean over all patches: a bias lights nothing up."""
    width = np.maximum(ceiling - floor, np.finfo(np.float32).tiny)
    return np.round(255 * np.clip((heat - floor) / width, 0, 1)).astype(np.uint8)


# -- units that do alike

PLACES = 8192  # patches that units are compared on
ALIKE = 8  # similar units that are kept


def similar_units(layers: list[tuple[tuple[int, ...], Layer]], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of all units of all layers, in their order: the most correlated others int32 (unit, 8), and r; -1 for none.

    Layers come with their grid: units of models whose grids differ are not compared, for their patches are others.
    """
    total = sum(len(layer.finding.units) for _, layer in layers)
    best, r = np.full((total, ALIKE), -1, np.int32), np.full((total, ALIKE), np.nan, np.float32)
    starts = np.cumsum([0, *(len(layer.finding.units) for _, layer in layers)])
    for grid in dict.fromkeys(grid for grid, _ in layers):
        mine = [k for k, (other, _) in enumerate(layers) if other == grid]
        numbers = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in mine])
        one = layers[mine[0]][1]
        patches = int(np.prod(grid))
        count = min(PLACES, len(one.store) * patches)
        places = np.sort(np.random.default_rng((seed, 3)).choice(len(one.store) * patches, count, replace=False))
        pictures, where = np.divmod(places, patches)
        a = np.concatenate([layer.units(layer.inputs(pictures, where)) for layer in (layers[k][1] for k in mine)], 1)
        a = a - a.mean(0)
        spread = np.linalg.norm(a, axis=0)
        a /= np.where(spread > 0, spread, 1)
        found = a.T @ a
        np.fill_diagonal(found, -np.inf)
        found[:, spread == 0] = -np.inf
        order = np.argsort(-found, axis=1, kind="stable")[:, :ALIKE]
        values = np.take_along_axis(found, order, 1)
        there = np.isfinite(values) & (spread > 0)[:, None]
        kept = order.shape[1]
        best[numbers, :kept] = np.where(there, numbers[order], -1)
        r[numbers, :kept] = np.where(there, values, np.nan)
    return best, r
