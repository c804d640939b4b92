"""The coherence judge: which unit's top pictures lie closer together in an embedding. It needs no language model.

It is not LLM Rank and never called so: it knows nothing of concepts, only how alike pictures are to some model. That
model should be another than the one whose units are judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitreous.evidence.directions import directions
from vitreous.evidence.ranking import Ranking, rank, schedule
from vitreous.judges.grids import Tops, can_be_shown, checked_tops

KIND = "coherence judge"


def coherence(embeddings: Any, tops: np.ndarray, *, centre: bool = True) -> np.ndarray:
    """Mean cosine of all pairs of a unit's pictures: (picture, channel), int (unit, shown) -> (unit,).

    `centre` takes the mean over all pictures away first: embeddings often share one large direction, beside which
    differences are hard to see. NaN for a unit with a negative number. A vector of zeros has no direction; its cosine
    with any other is 0.
    """
    rows = directions(embeddings)
    rows = directions(rows - rows.mean(0, dtype=np.float64)) if centre else rows
    whole = np.all(tops >= 0, axis=1)
    chosen = np.where(whole[:, None], tops, 0)
    total = np.zeros((len(tops), rows.shape[1]))
    own = np.zeros(len(tops))
    for pictures in chosen.T:
        total += rows[pictures]
        own += (rows[pictures] ** 2).sum(1)
    count = tops.shape[1]
    return np.where(whole, ((total * total).sum(1) - own) / (count * (count - 1)), np.nan)


def coherence_rank(
    tops: Tops | Sequence[Tops],
    embeddings: Any,
    *,
    centre: bool = True,
    pairs: int = 50,
    resample: str = "pair",
    repeats: int = 1000,
    seed: int = 0,
) -> Ranking:
    """Methods ranked as LLM Rank does, on the same pairs of units, but the unit with the higher `coherence` wins.

    `tops` int (unit, 9) of every method are numbers into `embeddings` (picture, channel), as for `llm_rank`.
    """
    rows = directions(embeddings)
    sets = checked_tops(tops, len(rows))
    shown = schedule([{name: can_be_shown(of) for name, of in one.items()} for one in sets], pairs=pairs, seed=seed)
    scores = [[coherence(rows, one[name], centre=centre) for name in shown.names] for one in sets]
    of_grid = np.array(
        [
            [scores[d][m][u] for m, u in zip(methods, units, strict=True)]
            for d, methods, units in zip(shown.dataset, shown.methods, shown.units, strict=True)
        ]
    )
    votes = np.sign(of_grid[:, :1] - of_grid[:, 1:]).astype(np.int8)
    settings = {"seed": seed, "centre": centre, "channels": rows.shape[1]}
    return rank(shown, votes, [KIND], kind=KIND, resample=resample, repeats=repeats, seed=seed, settings=settings)
