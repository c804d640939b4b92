"""Segments by k-means of patch features: what most training-free segmentation with DINO comes down to.

The baseline that the tokens lens has to beat: no gradient, no attention, one forward pass. Features are brought to unit
length, so that clusters are directions. Clusters are those of one picture, or with `joint` of all of them together,
where a number means the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitreous.axes import Size
from vitreous.checks import whole
from vitreous.errors import SettingsError
from vitreous.finding import Finding, shades
from vitreous.models.subject import Subject
from vitreous.progress import tqdm


@dataclass(frozen=True, eq=False)
class FeatureSegments(Finding):
    """`scores` float32 (sample, cluster, row, column): the cosine of each patch to the middle of each cluster.

    `joint` says whether cluster numbers mean the same in all pictures.
    """

    scores: np.ndarray
    joint: bool

    @property
    def labels(self) -> np.ndarray:
        """int (sample, row, column) on the patch grid."""
        return self.scores.argmax(1)

    def facts(self) -> dict[str, Any]:
        return {"pictures": len(self.scores), "clusters": self.scores.shape[1], "joint": self.joint}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a picture and cluster, with the share of patches that belong to it."""
        sample, cluster = np.indices(self.scores.shape[:2]).reshape(2, -1)
        shares = [(self.labels == k).mean((1, 2)) for k in range(self.scores.shape[1])]
        return {"sample": sample, "cluster": cluster, "share of patches": np.stack(shares, 1).ravel()}

    def thumbnails(self) -> list[tuple[str, np.ndarray]]:
        return [(f"picture {number}", shades(one)) for number, one in enumerate(self.labels)]

    def at(self, size: Size | tuple[int, int]) -> np.ndarray:
        """int (sample, height, width): cosines are resized (bilinear) before the best is taken, so edges are smooth."""
        import torch
        import torch.nn.functional as F

        found = [
            F.interpolate(torch.as_tensor(one[None]), tuple(size), mode="bilinear", align_corners=False)[0].argmax(0)
            for one in self.scores
        ]
        return np.stack([labels.numpy() for labels in found])


def patch_features(
    subject: Subject,
    images: Any,
    site: str = "blocks.-1.resid.out",
    *,
    size: int | tuple[int, int] | None = None,
    batch_size: int = 8,
    progress: bool = True,
) -> np.ndarray:
    """float32 (sample, row, column, channel): what patches are at a site, prefix tokens left out."""
    import torch

    from vitreous.hooks import capture, evaluating
    from vitreous.lenses.tokens_inputs import inputs_of

    given = inputs_of(subject, images, size)
    if given.grid is None:
        raise SettingsError("texts have no patches", given=subject.name)
    found = []
    bar = tqdm(total=len(given.ids), desc="features", delay=1, disable=not progress)
    with evaluating(subject.module), torch.no_grad(), bar, capture(subject, site, stop=True) as rec:
        for at, x, _ in given.batches(batch_size):
            subject(x)
            z = rec[site]
            if z.ndim != 3 or z.shape[1] != len(subject.prefix) + given.grid.patches:
                remedy = "one site that is (sample, token, channel)"
                raise SettingsError(f"{site!r} has no features of patches", given=tuple(z.shape), remedy=remedy)
            found.append(z[:, len(subject.prefix) :].float().cpu().numpy())
            bar.update(len(at))
    features = np.concatenate(found)
    return features.reshape(len(features), *given.grid, -1)


def kmeans_segments(features: np.ndarray, k: int, *, joint: bool = False, seed: int = 0) -> FeatureSegments:
    """Clusters of features (sample, row, column, channel), picture by picture or over all pictures.

    >>> features = patch_features(subject, images)
    >>> kmeans_segments(features, 4).at((224, 224))
    """
    values = np.asarray(features, np.float32)
    if values.ndim != 4 or not values.size or not np.isfinite(values).all():
        raise SettingsError("features are finite and (sample, row, column, channel)", given=values.shape)
    patches = values.shape[1] * values.shape[2] * (len(values) if joint else 1)
    whole(0, k=k)
    if not 1 <= k <= patches:
        raise SettingsError("there are not as many patches as clusters", given=k, accepted=f"1 to {patches}")
    unit = values / np.maximum(np.linalg.norm(values, axis=-1, keepdims=True), 1e-12)
    groups = [unit] if joint else [one[None] for one in unit]
    scores = np.concatenate([_cosines(group, k, seed) for group in groups])
    return FeatureSegments(scores, joint)


def _cosines(unit: np.ndarray, k: int, seed: int) -> np.ndarray:
    """(sample, cluster, row, column)."""
    from sklearn.cluster import KMeans

    rows = unit.reshape(-1, unit.shape[-1])
    middles = KMeans(k, n_init=10, random_state=seed).fit(rows).cluster_centers_
    middles = middles / np.maximum(np.linalg.norm(middles, axis=1, keepdims=True), 1e-12)
    cosines = (rows @ middles.T.astype(np.float32)).reshape(*unit.shape[:3], k)
    return cosines.transpose(0, 3, 1, 2)
