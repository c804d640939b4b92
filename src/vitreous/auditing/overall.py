"""The model as a whole, before any part of it: does it still tell the label where the object is painted over?

One test for each class on the log-odds of the model itself, labels exchanged between pictures, corrected by Holm's
method. It looks at all parts of all layers at once, so that it has power where tests of thousands of parts have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.evidence.suspicion import corrected, exchange_test


@dataclass(frozen=True)
class Overall:
    """`suspicion`: log-odds of the class `target` that its pictures have more than others without any object; `p` is
    corrected for all classes, and `alarm` says whether it is at most alpha."""

    target: int
    suspicion: float
    p: float
    alarm: bool


def overall(odds: np.ndarray, labels: np.ndarray, *, repeats: int, alpha: float, seed: int) -> Overall:
    """`odds` (picture, class) of pictures whose object is painted over: the class whose test says most."""
    classes = np.unique(labels)
    asked = classes[-1:] if len(classes) == 2 else classes  # two classes are each other's negative
    tests = [exchange_test(odds[:, [c]], labels == c, repeats=repeats, seed=seed) for c in asked]
    p = corrected(np.array([p[0] for _, p in tests]), "holm")
    found = np.array([size[0] for size, _ in tests])
    best = int(np.lexsort((-found, p))[0])
    return Overall(int(asked[best]), float(found[best]), float(p[best]), bool(p[best] <= alpha and found[best] > 0))
