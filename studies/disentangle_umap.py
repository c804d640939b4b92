"""ELUDe with UMAP before HDBSCAN, an ablation of the paper (C.5). umap-learn is not among our dependencies."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
from tqdm.auto import tqdm  # type: ignore[import-untyped]

import vitreous as vt
from vitreous.lenses.disentangle_units import OnCores, cluster_sums, divided
from vitreous.lenses.disentangle_work import assemble
from vitreous.subunits.layers import LinearLayer

DIMENSIONS = 5


def umap_finding(
    source: vt.Store, subject: vt.Subject, layer: LinearLayer, units: np.ndarray, k: int, size: int
) -> vt.Disentanglement | None:
    """The units split by clusters of their contributions after UMAP; None where umap cannot be imported."""
    if find_spec("umap") is None:
        return None
    from pathlib import Path

    from vitreous.lenses.disentangle_rows import open_rows

    rows = open_rows(subject, layer, source, source[source.sites[0]].shape[1], 0, Path(), False)
    weight, bias = (part[units] for part in layer.matrix())
    splits = []
    for at, ids, values in tqdm(list(OnCores(rows, weight, bias).top(range(len(units)), k)), "UMAP"):
        q = rows.read(ids)
        labels, certain = _clusters(q, weight[at], size)
        count = int(labels.max()) + 1
        whole = count < 1
        inside = np.zeros(len(q), np.int64) if whole else labels
        sums, sizes = cluster_sums(q, weight[at], inside, np.ones(len(q), np.float32) if whole else certain)
        split = divided(count, float((labels < 0).mean()), sums, sizes, weight[at], bias[at])
        splits.append(split.with_examples(q, values, weight[at], bias[at], rows.images[ids], rows.tokens[ids], 32))
    return assemble(layer, units, weight, bias, splits, {"top_k": k, "min_cluster_size": size})


def _clusters(q: np.ndarray, weight: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and probabilities of normalised contributions, reduced by UMAP with the cosine distance."""
    import umap  # type: ignore[import-not-found]
    from sklearn.cluster import HDBSCAN

    c: Any = q * weight
    c /= np.linalg.norm(c, axis=1, keepdims=True) + 1e-12
    low = umap.UMAP(n_components=DIMENSIONS, metric="cosine", random_state=0, n_jobs=1).fit_transform(c)
    found = HDBSCAN(min_cluster_size=size, cluster_selection_method="leaf", copy=True).fit(low)
    return found.labels_.astype(np.int64), found.probabilities_.astype(np.float32)
