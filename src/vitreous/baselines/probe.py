"""A linear classifier on what a model gives: logistic regression on standardised channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.errors import SettingsError


@dataclass(frozen=True, eq=False)
class Probe:
    """`weight` (class, channel) and `bias` (class,) for the raw channels; `labels` which label each class is."""

    weight: np.ndarray
    bias: np.ndarray
    labels: np.ndarray

    def predict(self, x: np.ndarray) -> np.ndarray:
        """(sample, channel) -> labels (sample,)."""
        return self.labels[(x @ self.weight.T + self.bias).argmax(1)]


def fit_probe(x: np.ndarray, y: np.ndarray, *, strength: float = 0.1) -> Probe:
    """x (sample, channel), y whole numbers; `strength` is scikit-learn's C: smaller is smoother."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    if not np.isfinite(x).all():
        raise SettingsError("a probe is fitted on finite numbers", given=f"{int((~np.isfinite(x)).sum())} are not")
    if len(np.unique(y)) < 2:
        raise SettingsError("a probe tells classes apart, and there is one", given=np.unique(y).tolist())
    scale = StandardScaler().fit(x)
    model: Any = LogisticRegression(C=strength, max_iter=500).fit(scale.transform(x), y)
    coefficients, intercept = model.coef_, model.intercept_
    if len(model.classes_) == 2:  # one row stands for both
        coefficients, intercept = np.concatenate([-coefficients, coefficients]) / 2, np.r_[-intercept, intercept] / 2
    weight = coefficients / scale.scale_
    return Probe(weight, intercept - weight @ scale.mean_, model.classes_)
