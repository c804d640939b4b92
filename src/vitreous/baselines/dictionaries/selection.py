"""How good a dictionary is, and the sweep by which the paper chooses one of each kind: section E.1, eq. 9."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch

from vitreous.baselines.dictionaries.dictionary import Dictionary
from vitreous.baselines.dictionaries.kinds import kind_of
from vitreous.baselines.dictionaries.learning import train_dictionary
from vitreous.baselines.dictionaries.rows import Rows
from vitreous.errors import SettingsError
from vitreous.evidence.faithfulness import faithfulness
from vitreous.progress import tqdm

LEARNING_RATES = (1e-4, 5e-4, 1e-3)
DEAD_WEIGHTS = (1e-5, 1e-4, 1e-3)


@dataclass(frozen=True)
class Quality:
    """`mse` and `r2` of the reconstruction, `l0` active units a row, `dead` units that no row activates."""

    mse: float
    r2: float
    l0: float
    dead: int


def quality(dictionary: Dictionary, activations: Any, targets: Any = None) -> Quality:
    """Measured over all rows, in one pass."""
    rows = Rows(activations)
    aims = rows if targets is None else Rows(targets, "targets")
    if len(aims) != len(rows):
        raise SettingsError("activations and targets have the same rows", given=(len(rows), len(aims)))
    where = dictionary.atoms.device
    fired = torch.zeros(dictionary.config.units, dtype=torch.int64, device=where)

    def pairs() -> Any:
        for x, y in zip(rows.chunks(where), aims.chunks(where), strict=True):
            z = dictionary.encode(x)
            fired.add_((z > 0).sum(0))
            yield y, dictionary.decode(z)

    with torch.no_grad():
        found = faithfulness(pairs())
    return Quality(found.mse, found.r2, int(fired.sum()) / len(rows), int((fired == 0).sum()))


@dataclass(frozen=True, eq=False)
class Sweep:
    """`tried`: the settings of each candidate; `qualities` and `scores` likewise; `best` the one with the top score."""

    tried: tuple[dict[str, float], ...]
    qualities: tuple[Quality, ...]
    scores: np.ndarray
    best: int
    dictionary: Dictionary


def sweep(
    activations: Any,
    kind: str = "topk",
    *,
    targets: Any = None,
    judged_on: Any = None,
    judged_targets: Any = None,
    learning_rates: Sequence[float] = LEARNING_RATES,
    dead_weights: Sequence[float] = DEAD_WEIGHTS,
    penalties: Sequence[float] | None = None,
    progress: bool = True,
    **settings: Any,
) -> Sweep:
    """Trains one dictionary for every combination, 9 or 27, and takes the one with the highest score of eq. 9.

    Candidates are measured on `judged_on` (by default on the training rows; the paper does not say). `settings` go to
    `train_dictionary` unchanged. All candidates are kept in memory until the choice is made.
    """
    own = kind_of(kind).penalties
    if penalties is not None and not own:
        raise SettingsError(f"sparsity of a {kind} dictionary is asked for by k, not by penalty", given=penalties)
    grid = {"learning_rate": learning_rates, "dead_weight": dead_weights}
    grid |= {"penalty": own if penalties is None else penalties} if own else {}
    tried = tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))
    if not tried:
        raise SettingsError("a sweep has at least one candidate", given=grid)
    judge = (activations, targets) if judged_on is None else (judged_on, judged_targets)
    trained, qualities = [], []
    for one in tqdm(tried, f"{kind} sweep", disable=not progress, delay=1):
        trained.append(train_dictionary(activations, kind, targets=targets, progress=False, **one, **settings))
        qualities.append(quality(trained[-1], *judge))
    scores = selection_scores([q.mse for q in qualities], [q.l0 / trained[0].config.units for q in qualities])
    best = int(scores.argmax())
    return Sweep(tried, tuple(qualities), scores, best, trained[best])


def selection_scores(mse: Sequence[float], l0: Sequence[float]) -> np.ndarray:
    """Eq. 9: half of 1 - MSE, half of 1 - L0, both scaled to 0..1 within the family. All alike counts as best."""
    return 0.5 * (1 - _scaled(mse)) + 0.5 * (1 - _scaled(l0))


def _scaled(values: Sequence[float]) -> np.ndarray:
    array = np.asarray(values, np.float64)
    width = array.max() - array.min()
    return (array - array.min()) / width if width > 0 else np.zeros_like(array)
