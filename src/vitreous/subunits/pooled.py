"""Where in pictures units and their sub-units are strongest: one pass, one value a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitreous.errors import SettingsError
from vitreous.hooks import capture, evaluating
from vitreous.models.subject import Subject
from vitreous.progress import tqdm
from vitreous.subunits.applied import matching_layer

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.lenses.disentangle_finding import Disentanglement

BATCH = 16
ROWS = 4096  # of what enters the layer that are kept


@dataclass(frozen=True, eq=False)
class Strongest:
    """float32 (picture, unit or sub-unit): the activation at the strongest position; `..._places` which position it is.

    `inputs` (instance, input) are some rows of what entered the layer, of all pictures alike; `positions` how many a
    picture has.
    """

    units: np.ndarray
    unit_places: np.ndarray
    subunits: np.ndarray
    subunit_places: np.ndarray
    inputs: np.ndarray
    positions: int


def strongest_in_pictures(
    finding: Disentanglement, subject: Subject, images: ImageSet, *, progress: bool = True
) -> Strongest:
    """Runs the model up to the layer that was split; its weights must be those that were."""
    layer = matching_layer(finding, subject)
    if subject.hooks:
        raise SettingsError(
            "the model carries hooks", given=subject.hooked[:3], remedy="leave vt.steer or vt.patch first"
        )
    if subject.preprocess is None:
        raise SettingsError(f"{subject.name} reads texts; pictures are looked at here", given=images.name)
    if not len(images):
        raise SettingsError("there are no pictures to look at", given=images.name)
    weight, bias = (torch.from_numpy(part).to(subject.device) for part in finding.dense)
    owner = torch.from_numpy(finding.parents).to(subject.device)
    site, rng, each = f"{layer.path}:in", np.random.default_rng(0), -(-ROWS // len(images))
    parts: list[tuple[np.ndarray, ...]] = []
    with torch.inference_mode(), evaluating(subject.module), capture(subject, site, stop=True) as seen:
        batches = images.batches(subject.preprocess, BATCH)
        for _, x in tqdm(batches, "pictures", -(-len(images) // BATCH), disable=not progress, leave=False):
            subject(torch.from_numpy(x))
            rows = layer.rows(seen[site]).float()
            of_subunits = rows @ weight.T + bias
            of_units = of_subunits.new_zeros(*rows.shape[:2], len(finding.units)).index_add_(2, owner, of_subunits)
            kept = rows[:, rng.permutation(rows.shape[1])[:each]].flatten(0, 1)
            parts.append((*_pooled(of_units), *_pooled(of_subunits), kept.cpu().numpy()))
    units, unit_places, subunits, subunit_places, inputs = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Strongest(units, unit_places, subunits, subunit_places, inputs, rows.shape[1])


def _pooled(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    most = values.max(1)
    return most.values.cpu().numpy(), most.indices.cpu().numpy()
