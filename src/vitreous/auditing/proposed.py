"""Groups where nobody named any: the pictures of each class in two halves."""

from __future__ import annotations

import numpy as np

from vitreous.errors import SettingsError
from vitreous.models.subject import Subject


def halves(by: np.ndarray, strength: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(picture,) "with" or "without": two-means of `by` (picture, dimension) within each class; the half of the larger
    mean `strength` (picture,) is "with"."""
    from sklearn.cluster import KMeans

    found = np.empty(len(labels), dtype="<U7")
    for c in np.unique(labels):
        here = np.flatnonzero(labels == c)
        half = KMeans(min(2, len(np.unique(by[here], axis=0))), n_init=4, random_state=0).fit_predict(by[here])
        second = len(np.unique(half)) > 1 and strength[here][half == 1].mean() > strength[here][half == 0].mean()
        found[here] = np.where(half == int(second), "with", "without")
    return found


def shares_beside(concepts: np.ndarray, pictures: int, masks: np.ndarray | None, subject: Subject | None) -> np.ndarray:
    """(picture, concept): how much of what lies beside the object is of each concept; without masks, of all patches."""
    import torch

    from vitreous.auditing.effects import patch_share

    concepts = np.asarray(concepts)
    if concepts.ndim != 2 or len(concepts) != pictures or not np.issubdtype(concepts.dtype, np.integer):
        raise SettingsError(
            "concepts are whole numbers (picture, patch)",
            given=(concepts.shape, str(concepts.dtype)),
            accepted=f"({pictures}, patch), the audited pictures in their order: images[list(finding.ids)]",
        )
    free = np.ones(concepts.shape)
    if masks is not None and subject is not None:
        free -= patch_share(torch.from_numpy(masks), subject, concepts.shape[1]).numpy()
    held = concepts[..., None] == np.unique(concepts)
    return np.einsum("spc,sp->sc", held, free) / np.maximum(free.sum(1), 1e-6)[:, None]


def goes_with(shares: np.ndarray, strength: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(picture,) of `shares` (picture, concept) the one that goes best with `strength` within the classes, either way:
    where it goes against it, its negative."""

    def inside(values: np.ndarray) -> np.ndarray:
        centred = (
            values
            - np.stack([values[labels == c].mean(0) for c in np.unique(labels)])[
                np.unique(labels, return_inverse=True)[1]
            ]
        )
        return centred / np.maximum(np.linalg.norm(centred, axis=0), 1e-12)

    together = inside(shares).T @ inside(strength)
    best = int(np.abs(together).argmax())
    return shares[:, best] * (1 if together[best] >= 0 else -1)
