"""Steering (C.3) straight from its words: one sample, one sub-unit and one position at a time."""

from __future__ import annotations

import numpy as np


def activation(weight: np.ndarray, bias: float, q: np.ndarray) -> float:
    """One sub-unit at one position."""
    total = float(bias)
    for w, x in zip(weight, q, strict=True):
        total += float(w) * float(x)
    return total


def strongest(values: list[float], count: int | str, allowed: list[int]) -> list[int]:
    """The `count` positions among those allowed where a sub-unit responds most, equal ones in their order."""
    ranked = sorted(allowed, key=lambda p: (-values[p], p))
    return ranked if count == "all" else ranked[:count]


def steered(
    output: np.ndarray,
    q: np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
    units: np.ndarray,
    factors: np.ndarray,
    patches: int | str = "all",
    prefix: int = 0,
    steers_prefix: bool = False,
    where: np.ndarray | None = None,
    raised: np.ndarray | None = None,
) -> np.ndarray:
    """What the layer gives, (sample, position, unit), once each sub-unit is scaled, and raised, on its own positions.

    q is (sample, position, input); `units` says of which unit each sub-unit is a part; `where` (sample, patch).
    """
    out = output.astype(np.float64).copy()
    for sample in range(len(q)):
        for k, (weight, bias, unit, factor) in enumerate(zip(weights, biases, units, factors, strict=True)):
            values = [activation(weight, bias, position) for position in q[sample]]
            allowed = [p for p in range(prefix, len(values)) if where is None or where[sample, p - prefix]]
            chosen = strongest(values, patches, allowed) + (list(range(prefix)) if steers_prefix else [])
            for position in chosen:
                out[sample, position, unit] += (factor - 1) * values[position] + (0 if raised is None else raised[k])
    return out


def nearest(
    concept: np.ndarray, labels: list[np.ndarray | None], scores: np.ndarray, count: int
) -> list[tuple[int, float]]:
    """The `count` sub-units whose label vectors have the largest cosine to a concept's, by score where it is equal."""
    found = []
    for subunit, label in enumerate(labels):
        if label is not None:
            a, b = concept.astype(float), label.astype(float)
            found.append((subunit, round(float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum())), 6)))
    return sorted(found, key=lambda pair: (-pair[1], -scores[pair[0]], pair[0]))[:count]
