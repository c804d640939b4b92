"""MS-Score: does a unit's top images look alike to the model itself? Section B.2 of the disentanglement paper, eq. 7.

    paper   here                what it is
    K       `top`               images a unit is judged by: those with its largest activations, one place in each
    e_i     `embeddings`        the layer before any disentanglement, at that place, scaled to length 1
    w_i     -                   the activation there, 0 at the unit's smallest and 1 at its largest over all places
    MS(u)   `scores`            (|Σ w e|² - Σ w²) / ((Σ w)² - Σ w²): the weighted mean cosine of all pairs

The sum over pairs is the square of a sum, so no pair is ever formed. The first pass over the activations finds the top
places and the range, the second adds up embeddings at those places: memory for (unit, top) and (unit, channel) only.

The paper puts the score between 0 and 1. A mean of cosines can also be negative; it is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.progress import tqdm

if TYPE_CHECKING:
    from torch import Tensor

Batch = Callable[[np.ndarray], "np.ndarray | Tensor"]
PIECE, LEAST = 1 << 16, 64  # numbers added up in one go, so that they stay in the cache, but no fewer places


@dataclass(frozen=True, eq=False)
class Monosemanticity:
    """`scores` float64 (unit,), NaN for units that have none; `active` bool (unit,): above zero somewhere.

    An active unit has no score if it is above its smallest value in fewer than two images: there is no pair.
    `images` and `tokens` (unit, top) are where it was largest, strongest first; fewer where there are fewer images.
    """

    scores: np.ndarray
    active: np.ndarray
    images: np.ndarray
    tokens: np.ndarray

    @property
    def mean(self) -> float:
        """Over the units that have a score, as in Table 2; times 100 it is the paper's percentage."""
        there = self.scores[np.isfinite(self.scores)]
        return float(there.mean()) if len(there) else float("nan")

    @property
    def scored(self) -> int:
        """How many units the mean is over."""
        return int(np.isfinite(self.scores).sum())


def monosemanticity(
    embeddings: Any,
    activations: Any | Batch = None,
    *,
    sources: Any = None,
    top: int = 100,
    batch_size: int = 64,
    progress: bool = True,
) -> Monosemanticity:
    """MS-Score of every unit over images.

    `embeddings` (sample, token, channel), an array, a tensor or a site of a store. `activations` is (sample, token,
    unit), or a function that makes them from a batch of `sources` (by default the embeddings), such as a dictionary's
    `encode`; without it the units are the channels themselves. Arrays without a token axis have one place an image.

    >>> monosemanticity(store["blocks.-1.mlp.out"]).mean
    >>> monosemanticity(store["blocks.-1.mlp.out"], dictionary.encode).mean
    """
    shape = _shape(embeddings)
    if top < 2 or batch_size < 1:
        raise SettingsError("top is at least 2 and batch_size at least 1", given={"top": top, "batch_size": batch_size})
    given = embeddings if activations is None else activations
    pieces: Iterator[Any]
    if callable(given):
        function, fed = given, embeddings if sources is None else sources
        pieces = (function(piece) for piece in _batches(fed, batch_size))
    else:
        pieces = _batches(given, batch_size)
    count = -(-shape[0] // batch_size)
    best = _best(tqdm(pieces, "MS-Score", count, disable=not progress, delay=1), shape[:2], top)
    active = best.high > 0
    scores = np.where(active, ms_scores(best.weights, best.places, embeddings), np.nan)
    return Monosemanticity(scores, active, *np.divmod(best.places, shape[1]))


def ms_scores(weights: np.ndarray, places: np.ndarray, embeddings: Any) -> np.ndarray:
    """Eq. 7 for weights (unit, top) at flat places (unit, top) of embeddings, -1 for none -> (unit,).

    A place is image times tokens plus token. NaN where fewer than two places have a weight.
    """
    _, tokens, channels = _shape(embeddings)
    total, there = np.zeros((len(weights), channels)), np.zeros(weights.size, bool)
    used = np.flatnonzero((places.ravel() >= 0) & (weights.ravel() > 0))
    at, of = places.ravel(), np.arange(weights.size) // weights.shape[1]
    in_memory = isinstance(embeddings, np.ndarray) and not isinstance(embeddings, np.memmap)
    order = (at[used], of[used]) if in_memory else (of[used], at[used])  # unit by unit, or as they lie on disk
    used = used[np.lexsort(order)]
    size = max(PIECE // channels, LEAST)
    for start in range(0, len(used), size):
        part = used[start : start + size]
        units, local = np.unique(of[part], return_inverse=True)
        rows = np.empty((len(units) + len(part), channels))
        rows[: len(units)] = total[units]  # the first of each sum: bits do not depend on how rows are cut into pieces
        lengths = _read(embeddings, at[part], tokens, rows[len(units) :])
        there[part] = lengths > 0  # a vector of zeros has no direction: its cosine with any other is 0
        factors = weights.ravel()[part] / np.where(lengths > 0, lengths, 1)
        total[units] = _sums(local, factors, len(units)) @ rows
    w = np.where(places >= 0, weights, 0).astype(np.float64)
    own = (w * w * there.reshape(w.shape)).sum(1)
    pairs = w.sum(1) ** 2 - (w * w).sum(1)
    enough = (w > 0).sum(1) >= 2
    return np.where(enough, ((total * total).sum(1) - own) / np.where(enough, pairs, 1), np.nan)


def random_partition(
    weight: np.ndarray, bias: np.ndarray, parts: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The control of Table 7: units split as often as a method split them, but each input goes to a part at random.

    weight (unit, input), bias (unit,), parts (unit,) of 1 or more -> weights (sub-unit, input), biases (sub-unit,) and
    the unit that each belongs to. Sub-units of a unit add up to it; the bias follows the share of inputs, as in 3.3.
    """
    parts = np.asarray(parts)
    if weight.ndim != 2 or bias.shape != weight.shape[:1] or parts.shape != weight.shape[:1] or (parts < 1).any():
        raise SettingsError(
            "a partition takes weight (unit, input), bias (unit,) and parts (unit,) of at least 1",
            given=(weight.shape, bias.shape, parts.shape, int(parts.min(initial=1))),
        )
    parent = np.repeat(np.arange(len(weight)), parts)
    first = np.cumsum(parts) - parts
    owner = first[:, None] + generator.integers(0, parts[:, None], weight.shape)
    mine = np.zeros((len(parent), weight.shape[1]), bool)
    mine[owner, np.arange(weight.shape[1])] = True
    return np.where(mine, weight[parent], 0), mine.mean(1).astype(bias.dtype) * bias[parent], parent


# -- the first pass


@dataclass
class _Best:
    """The `top` images of every unit so far, (unit, up to top), strongest first and then by number, and its range."""

    top: int
    values: np.ndarray
    places: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def take(self, strongest: np.ndarray, places: np.ndarray, low: np.ndarray) -> None:
        """Images (image, unit) of a batch: the activation at the strongest place, that place, and the smallest."""
        values = np.concatenate([self.values, strongest.T], 1)
        order = np.argsort(-values, axis=1, kind="stable")[:, : self.top]
        self.values = np.take_along_axis(values, order, 1)
        self.places = np.take_along_axis(np.concatenate([self.places, places.T], 1), order, 1)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, strongest.max(0))

    @property
    def weights(self) -> np.ndarray:
        width = np.where(self.high > self.low, self.high - self.low, 1).astype(np.float64)
        return (self.values - self.low[:, None].astype(np.float64)) / width[:, None]


def _best(pieces: Iterator[Any], places: tuple[int, int], top: int) -> _Best:
    """Each image at its strongest place: the maximum over tokens is taken where the activations are."""
    images, tokens = places
    best: _Best | None = None
    seen = 0
    for piece in pieces:
        a = _tensor(piece)
        a = a[:, None] if a.ndim == 2 else a
        if a.ndim != 3 or a.shape[1] != tokens or seen + len(a) > images:
            raise SettingsError(
                "activations have the samples and tokens of the embeddings", given=tuple(a.shape), accepted=f"{places}"
            )
        strongest, at = (part.cpu().numpy() for part in a.max(1))
        low = a.amin((0, 1)).cpu().numpy()
        if np.isnan(low).any():
            raise SettingsError("activations hold NaN", given=f"unit {int(np.flatnonzero(np.isnan(low))[0])}")
        if best is None:
            nothing = np.empty((a.shape[2], 0), strongest.dtype)
            best = _Best(top, nothing, nothing.astype(np.int64), low, strongest.max(0))
        best.take(strongest, at + tokens * np.arange(seen, seen + len(a))[:, None], low)
        seen += len(a)
    if best is None or seen != images:
        raise SettingsError("every sample has embeddings and activations", given=(images, seen))
    return best


# -- arrays of several kinds


def _shape(array: Any) -> tuple[int, int, int]:
    shape = tuple(array.shape)
    if len(shape) not in (2, 3) or 0 in shape:
        raise SettingsError("embeddings are (sample, token, channel) or (sample, channel)", given=shape)
    return (shape[0], 1, shape[1]) if len(shape) == 2 else shape


def _batches(array: Any, size: int) -> Iterator[Any]:
    return (array[start : start + size] for start in range(0, array.shape[0], size))


def _tensor(values: Any) -> Tensor:
    import torch

    values = torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values.detach()
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def _read(array: Any, places: np.ndarray, tokens: int, out: np.ndarray) -> np.ndarray:
    """Embeddings into `out` (place, channel), and their lengths (place,)."""
    image, token = np.divmod(places, tokens)
    out[:] = _tensor(array[image] if len(array.shape) == 2 else array[image, token]).cpu().numpy()
    lengths = np.sqrt(np.einsum("pc,pc->p", out, out))
    if not np.isfinite(lengths).all() and not np.isfinite(out).all():
        bad = int(np.flatnonzero(~np.isfinite(out).all(1))[0])
        raise SettingsError(f"embeddings of image {image[bad]}, token {token[bad]} are not finite")
    return lengths


def _sums(unit: np.ndarray, factors: np.ndarray, units: int) -> Any:
    """A sparse matrix (unit, units + place): to each unit's own row its places are added, one after the other."""
    from scipy.sparse import csr_array

    row, column = np.concatenate([np.arange(units), unit]), np.arange(units + len(unit))
    return csr_array((np.concatenate([np.ones(units), factors]), (row, column)), shape=(units, len(column)))
