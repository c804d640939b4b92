"""What an alignment is: maps into one space, a head to responses, and how well it predicts images it never saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import SettingsError

FILE, ABOUT = "alignment.safetensors", "alignment.json"


@dataclass(frozen=True, eq=False)
class ChannelAlign:
    """`slots` are (model, layer); `maps` (channel, width) of each; `head` (width, response), `bias` (response,).

    `held_out` are the images that training never saw, with their `measured` and `predicted` responses. `log` has a line
    an epoch.
    """

    slots: tuple[tuple[str, str], ...]
    maps: tuple[np.ndarray, ...]
    head: np.ndarray
    bias: np.ndarray
    held_out: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    rois: Mapping[str, np.ndarray]
    log: tuple[dict[str, float], ...]
    settings: dict[str, Any]

    def __repr__(self) -> str:
        models = sorted({model for model, _ in self.slots})
        return f"ChannelAlign({len(self.slots)} layers of {', '.join(models)}; held-out R² {self.means()['all']:.3f})"

    def map_of(self, model: str, layer: str) -> np.ndarray:
        if (model, layer) not in self.slots:
            raise SettingsError(
                "no such layer in this alignment", given=f"{model} {layer}", accepted=[" ".join(s) for s in self.slots]
            )
        return self.maps[self.slots.index((model, layer))]

    def transform(self, features: np.ndarray, model: str, layer: str) -> np.ndarray:
        """Eq. 1: (…, channel) -> (…, width), in the space that all layers share. What `vt.ncut(read=)` takes."""
        matrix = self.map_of(model, layer)
        features = np.asarray(features, np.float32)
        if features.shape[-1] != len(matrix):
            raise SettingsError(
                "features have other channels", given=features.shape, accepted=f"(…, {len(matrix)}) at {model} {layer}"
            )
        return features @ matrix

    def in_response_space(self, features: np.ndarray, model: str, layer: str) -> np.ndarray:
        """B_i of section 2.1: (…, channel) -> (…, response), what each patch adds; their mean and the bias predict."""
        return self.transform(features, model, layer) @ self.head

    def score(self, rois: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """R² on the held-out images, (response,) of every region and of `all`."""
        from vitreous.evidence.responses import explained

        r2 = explained(self.measured, self.predicted)
        regions = {"all": np.ones(len(r2), bool), **self.rois}
        if unknown := sorted(set(rois or ()) - set(regions)):
            raise SettingsError("no such regions", given=unknown, accepted=sorted(regions))
        return {name: r2[mask] for name, mask in regions.items() if rois is None or name in rois}

    def means(self) -> dict[str, float]:
        """Mean R² of every region and of `all`, over responses that vary."""
        there = {name: values[np.isfinite(values)] for name, values in self.score().items()}
        return {name: float(values.mean()) if len(values) else float("nan") for name, values in there.items()}

    def channels_of(self, roi: str, count: int) -> np.ndarray:
        """int64 (count,): the channels of the shared space whose weights for one region are largest (Figure 2)."""
        if roi not in self.rois:
            raise SettingsError("no such region", given=roi, accepted=sorted(self.rois))
        strength = np.abs(self.head[:, self.rois[roi]]).mean(1)
        if not 0 < count <= len(strength):
            raise SettingsError("no such number of channels", given=count, accepted=f"1 to {len(strength)}")
        return np.argsort(-strength, kind="stable")[:count]

    def save(self, folder: str | Path) -> Path:
        """Two files: arrays as safetensors, the rest as JSON."""
        from safetensors.numpy import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {f"map.{n}": np.ascontiguousarray(w) for n, w in enumerate(self.maps)}
        arrays |= {name: np.ascontiguousarray(value) for name, value in self._arrays().items()}
        arrays |= {f"roi.{name}": mask for name, mask in self.rois.items()}
        save_file(arrays, folder / FILE)
        about = {"slots": self.slots, "log": self.log, "settings": self.settings}
        (folder / ABOUT).write_text(json.dumps(about, indent=1) + "\n")
        return folder

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "head": self.head,
            "bias": self.bias,
            "held_out": self.held_out,
            "measured": self.measured,
            "predicted": self.predicted,
        }

    @classmethod
    def load(cls, folder: str | Path) -> ChannelAlign:
        """What `save` wrote. A folder that is damaged, or holds something else, is refused."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(folder)
        try:
            arrays = load_file(folder / FILE)
            about = json.loads((folder / ABOUT).read_text())
            slots = tuple((str(model), str(layer)) for model, layer in about["slots"])
            return cls(
                slots=slots,
                maps=tuple(arrays[f"map.{n}"] for n in range(len(slots))),
                rois={name[4:]: value for name, value in arrays.items() if name.startswith("roi.")},
                log=tuple(about["log"]),
                settings=about["settings"],
                **{name: arrays[name] for name in ("head", "bias", "held_out", "measured", "predicted")},
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise SettingsError(
                "this is no saved alignment, or a damaged one", given=str(folder), remedy="run vt.align again"
            ) from error
