"""The array-level algorithms as scikit-learn estimators: for pipelines, grid search and clones."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from vitreous.kernels.density import density_clusters
from vitreous.lenses.align_cut import ncut
from vitreous.lenses.structure import unit_clusters

FLOATS = (np.float64, np.float32)


class UnitClusters(TransformerMixin, BaseEstimator):
    """Columns that order the samples alike, joined: `vt.unit_clusters`. `transform` keeps the first of each group.

    After `fit`: `labels_` (column,), -1 for columns of no cluster; `kept_`, the columns that `transform` gives. With
    fewer samples than `bins`, there are as many bins as samples.
    """

    def __init__(self, bins: int = 100, threshold: float = 1.0, transform_name: str = "grouped_rank") -> None:
        self.bins = bins
        self.threshold = threshold
        self.transform_name = transform_name

    def fit(self, X: Any, y: Any = None) -> UnitClusters:
        del y
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        bins = min(self.bins, len(X))
        self.labels_ = unit_clusters(X, bins, self.threshold, transform=self.transform_name)
        _, first = np.unique(self.labels_, return_index=True)
        alone = self.labels_ < 0
        self.kept_ = np.union1d(np.flatnonzero(alone), first)
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return validate_data(self, X, dtype=FLOATS, reset=False)[:, self.kept_]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        from sklearn.utils.validation import _check_feature_names_in

        check_is_fitted(self)
        return _check_feature_names_in(self, input_features)[self.kept_]


class DensityClusters(ClusterMixin, BaseEstimator):
    """Density clusters (HDBSCAN) of rows in many dimensions. After `fit`: `labels_`, -1 noise, and `probabilities_`."""

    def __init__(
        self, min_cluster_size: int = 5, min_samples: int | None = None, selection: str = "eom", method: str = "auto"
    ) -> None:
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.selection = selection
        self.method = method

    def fit(self, X: Any, y: Any = None) -> DensityClusters:
        del y
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        size = self.min_cluster_size
        found = density_clusters(
            X, min_cluster_size=size, min_samples=self.min_samples, selection=self.selection, method=self.method
        )
        self.labels_, self.probabilities_ = found.labels, found.probabilities
        return self


class NormalizedCut(TransformerMixin, BaseEstimator):
    """Eigenvectors of a normalized cut of rows: `vt.ncut`. `transform` places new rows among them.

    After `fit`: `embedding_` (row, eigenvector) and `eigenvalues_`.
    """

    def __init__(self, n_eig: int = 2, method: str = "auto", seed: int = 0) -> None:
        self.n_eig = n_eig
        self.method = method
        self.seed = seed

    def fit(self, X: Any, y: Any = None) -> NormalizedCut:
        del y
        X = validate_data(self, X, dtype=np.float32, ensure_min_samples=self.n_eig + 1)
        self.spectral_ = ncut(X, self.n_eig, method=self.method, seed=self.seed, progress=False)
        self.embedding_, self.eigenvalues_ = self.spectral_.eigenvectors, self.spectral_.eigenvalues
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return self.spectral_.transform(validate_data(self, X, dtype=np.float32, reset=False))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags
