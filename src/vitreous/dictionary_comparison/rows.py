"""One row of the table: what a pass has shown, as numbers, saved as soon as it is there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.dictionary_comparison.methods import TITLES, Method
from vitreous.dictionary_comparison.reading import Reader
from vitreous.dictionary_comparison.watch import Reference, Watched
from vitreous.errors import StoreError
from vitreous.evidence.monosemanticity import ms_scores
from vitreous.evidence.stability import coherence, effective_rank
from vitreous.judges.grids import SHOWN
from vitreous.provenance import json_bytes, replace_file


@dataclass(frozen=True, eq=False)
class Row:
    """One method of one seed. None where a number does not apply.

    `units` in all and `scored` with an MS-Score: those never above zero have none. `expansion` is units a channel of
    the layer; `active` units above zero a row. `r2` and `layer_difference` are of the layer's output, `accuracy`,
    `loss` and `output_difference` of the model's. `ms` is in the layer's own space, `ms_other` in the judge's, whose
    mean over samples is taken away.
    `effective_rank` and `coherence` are of what units write into the layer's channels, `read_rank` of what they read.

    `tops` int (unit, 9) are samples where a unit is strongest, -1 if it is above zero in fewer; `scores` and
    `other_scores` (unit,) are what `ms` and `ms_other` are means of.
    """

    method: str
    seed: int
    units: int
    scored: int
    expansion: float
    active: float
    r2: float | None
    layer_difference: float | None
    accuracy: float | None
    loss: float | None
    output_difference: float | None
    ms: float | None
    ms_other: float | None
    effective_rank: float | None
    coherence: float | None
    read_rank: float | None
    seconds: float
    said: Mapping[str, Any] = field(default_factory=dict)
    tops: np.ndarray = field(default_factory=lambda: np.empty((0, SHOWN), np.int64), repr=False)
    scores: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)
    other_scores: np.ndarray = field(default_factory=lambda: np.empty(0), repr=False)

    @property
    def title(self) -> str:
        return TITLES[self.method]

    def facts(self) -> dict[str, Any]:
        """Everything but the arrays, as JSON can hold it."""
        values = {name: value for name, value in asdict(self).items() if not isinstance(value, np.ndarray)}
        return {name: None if value != value else value for name, value in values.items()}


ARRAYS = ("tops", "scores", "other_scores")


def measure(
    method: Method, seed: int, watched: Watched, reference: Reference, reader: Reader, top: int, other: Any
) -> Row:
    """`other` are the judge's embeddings (sample, channel) or (sample, position, channel), or None."""
    real = method.writes is not None  # units that answer to anything take no layer apart
    units, (_, positions, channels) = watched.strongest.shape[1], reference.y.shape
    best = strongest_samples(watched, top)
    at = np.take_along_axis(watched.places.T, best.samples, 1)
    scores = np.where(best.active, ms_scores(best.weights, best.samples * positions + at, reference.y), np.nan)
    others = np.empty(0)
    if other is not None:
        flat = best.samples if other.ndim == 2 else best.samples * other.shape[1] + at
        others = np.where(best.active, ms_scores(best.weights, flat, other), np.nan)
    written = (effective_rank(method.writes), coherence(method.writes)) if real else (None, None)
    return Row(
        method=method.name,
        seed=seed,
        units=units,
        scored=int(np.isfinite(scores).sum()),
        expansion=units / channels,
        active=watched.active,
        r2=watched.found.r2 if real else None,
        layer_difference=watched.found.max_difference if real else None,
        accuracy=reader.right(watched.kept) if reader.right and real else None,
        loss=reader.loss(watched.kept) if reader.loss and real else None,
        output_difference=float(np.abs(watched.kept - reference.kept).max()) if real else None,
        ms=_mean(scores),
        ms_other=_mean(others),
        effective_rank=written[0],
        coherence=written[1],
        read_rank=None if method.reads is None else effective_rank(method.reads),
        seconds=method.seconds,
        said=method.said,
        tops=shown_samples(watched),
        scores=scores,
        other_scores=others,
    )


@dataclass(frozen=True, eq=False)
class Best:
    """`samples` and `weights` (unit, top), strongest first; `active` (unit,): above zero somewhere."""

    samples: np.ndarray
    weights: np.ndarray
    active: np.ndarray


def strongest_samples(watched: Watched, top: int) -> Best:
    """The samples a unit is judged by, with B.2's weights: 0 at its smallest activation anywhere, 1 at its largest."""
    values, samples = _largest(watched.strongest, top)
    low, high = watched.low.astype(np.float64)[:, None], values[:, :1].astype(np.float64)
    width = np.where(high > low, high - low, 1)
    return Best(samples, (values - low) / width, values[:, 0] > 0)


def shown_samples(watched: Watched) -> np.ndarray:
    """int64 (unit, 9): where a unit is strongest. Units above zero in fewer samples hold -1 and are not shown."""
    values, samples = _largest(watched.strongest, min(SHOWN, len(watched.strongest)))
    if samples.shape[1] < SHOWN:
        return np.full((len(samples), SHOWN), -1)
    enough = (values[:, -1] > 0) & (watched.strongest.max(0) > watched.strongest.min(0))
    return np.where(enough[:, None], samples, -1)


def _largest(strongest: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Values and samples (unit, count), largest first and equal ones by number."""
    order = np.argsort(-strongest.T, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(strongest.T, order, 1), order


def _mean(scores: np.ndarray) -> float | None:
    there = scores[np.isfinite(scores)]
    return float(there.mean()) if len(there) else None


# -- on disk


def save_row(row: Row, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    arrays = _path(folder, row.method, row.seed).with_suffix(".npz")
    draft = arrays.with_suffix(".draft.npz")  # of this row alone: workers save theirs at the same time
    np.savez_compressed(draft, **{name: row.__dict__[name] for name in ARRAYS})
    draft.replace(arrays)
    replace_file(_path(folder, row.method, row.seed), json_bytes(row.facts()))  # last: a row that has it is whole


def read_row(folder: Path, method: str, seed: int) -> Row | None:
    path = _path(folder, method, seed)
    if not path.exists():
        return None
    try:
        facts = json.loads(path.read_bytes())
        with np.load(path.with_suffix(".npz")) as stored:
            return Row(**facts, **{name: stored[name] for name in ARRAYS})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(
            f"not a row that we can read: {path}: {error}", remedy="remove it, and it is made again"
        ) from None


def _path(folder: Path, method: str, seed: int) -> Path:
    return folder / f"{method}-{seed}.json"
