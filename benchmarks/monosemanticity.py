"""MS-Score of a layer against the double loop over pairs, and against one matrix of cosines a unit. Used by run.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from turns import Case, Way
from vitreous.evidence.monosemanticity import ms_scores

TOP, PLACES, CHANNELS = 100, 20_000, 768


def planted(units: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights (unit, top), places (unit, top) and embeddings (place, 1, channel)."""
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((PLACES, 1, CHANNELS), np.float32) + 1
    return rng.uniform(0.01, 1, (units, TOP)), rng.integers(0, PLACES, (units, TOP)), embeddings


def unit_rows(embeddings: np.ndarray, places: np.ndarray) -> np.ndarray:
    rows = embeddings[places, 0].astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def double_loop(weights: np.ndarray, places: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    """Eq. 7 as it is written."""
    scores = []
    for w, at in zip(weights, places, strict=True):
        e, above, below = unit_rows(embeddings, at), 0.0, 0.0
        for i in range(len(w)):
            for j in range(i + 1, len(w)):
                above += w[i] * w[j] * (e[i] @ e[j])
                below += w[i] * w[j]
        scores.append(above / below)
    return np.array(scores)


def by_matrices(weights: np.ndarray, places: np.ndarray, embeddings: np.ndarray) -> np.ndarray:
    scores = []
    for w, at in zip(weights, places, strict=True):
        e, pairs = unit_rows(embeddings, at), np.outer(w, w)
        np.fill_diagonal(pairs, 0)
        scores.append((pairs * (e @ e.T)).sum() / pairs.sum())
    return np.array(scores)


def ways(units: int, _: str | None) -> dict[str, Way]:
    given = planted(units)
    return {
        "ms_scores": lambda: ms_scores(*given),
        "one matrix of cosines a unit": lambda: by_matrices(*given),
        "double loop": lambda: double_loop(*given),
    }


def quality(_: int, found: dict[str, Any]) -> dict[str, str]:
    exact = found["double loop"]
    return {name: f"largest difference {np.abs(scores - exact).max():.0e}" for name, scores in found.items()}


CASES = [Case("MS-Score", lambda n: f"{n} units, top {TOP}, {CHANNELS} channels", ways, 96, 8, quality=quality)]
