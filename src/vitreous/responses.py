"""What a brain, or anything else, answered to pictures: (image, response), with regions and repeats where known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from vitreous.errors import SettingsError

ALL = "all"  # what scores call all responses together
FSAVERAGE = 163_842  # vertices of a hemisphere


@dataclass(frozen=True, eq=False)
class Responses:
    """`values` float32 (image, response); `rois` name -> bool (response,); `repeats` (image, repeat, response) or None.

    Anything that can be measured for each picture will do: voxels, neurons, another model's embedding, a text's.
    `vertices` int (response, 2) says where responses lie on a brain's surface: hemisphere (0 left, 1 right) and vertex
    of fsaverage.
    """

    values: np.ndarray
    rois: Mapping[str, np.ndarray] = field(default_factory=dict)
    repeats: np.ndarray | None = None
    name: str = "responses"
    vertices: np.ndarray | None = None

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        if values.ndim != 2 or values.dtype.kind not in "fiu" or not values.size:
            raise SettingsError("responses are numbers (image, response)", given=f"{values.dtype} {values.shape}")
        values = values.astype(np.float32)
        if bad := int((~np.isfinite(values)).any(0).sum()):
            raise SettingsError(
                "some responses are not finite",
                given=f"{bad} of {values.shape[1]}",
                remedy="leave those columns out, of masks and repeats too: values[:, np.isfinite(values).all(0)]",
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "rois", {name: self._mask(name, mask) for name, mask in self.rois.items()})
        if self.repeats is not None and np.asarray(self.repeats).shape[::2] != values.shape:
            raise SettingsError(
                "repeats are (image, repeat, response) of the same images",
                given=np.asarray(self.repeats).shape,
                accepted=f"({len(values)}, repeats, {values.shape[1]})",
            )

        if self.vertices is not None:
            object.__setattr__(self, "vertices", self._places(np.asarray(self.vertices)))

    def _places(self, vertices: np.ndarray) -> np.ndarray:
        fits = vertices.shape == (self.values.shape[1], 2) and vertices.dtype.kind in "iu"
        if not fits or vertices.min() < 0 or vertices[:, 0].max() > 1 or vertices[:, 1].max() >= FSAVERAGE:
            raise SettingsError(
                "vertices are a hemisphere (0 or 1) and a vertex of fsaverage for each response",
                given=f"{vertices.dtype} {vertices.shape}",
                accepted=f"({self.values.shape[1]}, 2), vertices below {FSAVERAGE}",
            )
        return vertices.astype(np.int64)

    def _mask(self, name: str, mask: Any) -> np.ndarray:
        if name == ALL:
            raise SettingsError(
                "`all` are all responses: no region is called so", remedy="give the region another name"
            )
        mask = np.asarray(mask)
        if mask.dtype != bool or mask.shape != self.values.shape[1:]:
            raise SettingsError(
                f"the mask of {name} does not fit the responses",
                given=f"{mask.dtype} {mask.shape}",
                accepted=f"bool {self.values.shape[1:]}",
            )
        return mask

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        regions = f", {len(self.rois)} regions" if self.rois else ""
        return f"Responses({self.name}: {len(self)} images x {self.values.shape[1]}{regions})"

    def __getitem__(self, images: Any) -> Responses:
        """Of some images."""
        repeats = None if self.repeats is None else self.repeats[images]
        return Responses(self.values[images], self.rois, repeats, self.name, self.vertices)

    @property
    def fingerprint(self) -> str:
        """Hash of the values."""
        return sha256(str(self.values.shape).encode() + np.ascontiguousarray(self.values).tobytes()).hexdigest()

    @property
    def constant(self) -> np.ndarray:
        """bool (response,): the same for every image, so there is nothing to predict."""
        return (self.values == self.values[:1]).all(0)
