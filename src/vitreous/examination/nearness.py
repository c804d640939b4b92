"""The units of the stream that put the pictures in the most similar order, whether or not they make a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vitreous.kernels.l1 import distances
from vitreous.lenses.structure import grouped_ranks

if TYPE_CHECKING:
    from vitreous.lenses.structure_finding import StructureFinding
    from vitreous.store import Store

NEAR = 6  # nearest units that are kept
PIECE = 1024  # units compared with all others at a time


def near_units(store: Store, finding: StructureFinding) -> tuple[np.ndarray, np.ndarray]:
    """int32 (unit, 6) nearest units of the same token by their flat number, and the mean difference of bins a sample.

    Dead units are near to nothing: -1 and NaN.
    """
    shape = finding.labels.shape
    found = np.full((*shape, NEAR), -1, np.int32)
    away = np.full((*shape, NEAR), np.nan, np.float32)
    flat = np.arange(finding.labels.size).reshape(shape)
    for place, token in enumerate(finding.tokens):
        layers = [np.asarray(store[name][:, token], np.float32) for name in finding.layers]
        alive = ~finding.dead[:, place].ravel()
        numbers = flat[:, place].ravel()[alive]
        ranks = np.ascontiguousarray(grouped_ranks(np.concatenate(layers, 1)[:, alive], finding.settings["bins"]).T)
        for first in range(0, len(ranks), PIECE):
            part = distances(ranks[first : first + PIECE], ranks).astype(np.float64) / ranks.shape[1]
            part[np.arange(len(part)), first + np.arange(len(part))] = np.inf
            order = np.argsort(part, axis=1, kind="stable")[:, :NEAR]
            order = order[:, : len(ranks) - 1]
            mine = numbers[first : first + PIECE]
            found.reshape(-1, NEAR)[mine, : order.shape[1]] = numbers[order]
            away.reshape(-1, NEAR)[mine, : order.shape[1]] = np.take_along_axis(part, order, 1)
    return found, away
