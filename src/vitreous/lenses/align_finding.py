"""What an alignment is: maps into one space, a head to responses, and how well it predicts held-out images."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.errors import SettingsError
from vitreous.finding import Finding, columns
from vitreous.mirrors import kept_at, read_from

FILE, ABOUT = "alignment.safetensors", "alignment.json"
ARRAYS = ("head", "bias", "held_out", "measured", "predicted", "spread")


@dataclass(frozen=True, eq=False)
class ChannelAlign(Finding):
    """`slots` are (model, layer); `maps` (channel, width) of each; `head` (width, response), `bias` (response,).

    `held_out` are images that no step was taken on, with their `measured` and `predicted` responses; their error chose
    the epoch that is kept. `spread` (response,) is how much each response varied in training, `ceiling` (response,) the
    share of variance that could be explained, where the responses had repeats. `log` has a line an epoch.
    """

    slots: tuple[tuple[str, str], ...]
    maps: tuple[np.ndarray, ...]
    head: np.ndarray
    bias: np.ndarray
    held_out: np.ndarray
    measured: np.ndarray
    predicted: np.ndarray
    spread: np.ndarray
    rois: Mapping[str, np.ndarray]
    log: tuple[dict[str, float], ...]
    settings: dict[str, Any]
    ceiling: np.ndarray | None = None

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

    def score(self, rois: str | Sequence[str] | None = None, *, of_ceiling: bool = False) -> dict[str, np.ndarray]:
        """R² on the held-out images, (response,) of every region and of `all`; of one region or some, if asked for.

        With `of_ceiling` the share of each response's noise ceiling, not a number where nothing could be explained;
        for responses with repeats.
        """
        from vitreous.evidence.responses import explained

        rois = [rois] if isinstance(rois, str) else rois
        r2 = explained(self.measured, self.predicted)
        if of_ceiling:
            if self.ceiling is None:
                raise SettingsError(
                    "there is no noise ceiling: the responses had no repeats",
                    remedy="vt.Responses(values, rois, repeats)",
                )
            r2 = r2 / np.where(self.ceiling > 0, self.ceiling, np.nan)
        regions = {"all": np.ones(len(r2), bool), **self.rois}
        if unknown := sorted(set(rois or ()) - set(regions)):
            raise SettingsError("no such regions", given=unknown, accepted=sorted(regions))
        return {name: r2[mask] for name, mask in regions.items() if rois is None or name in rois}

    def means(self) -> dict[str, float]:
        """Mean R² of every region and of `all`, over responses that vary."""
        return {name: _mean(values) for name, values in self.score().items()}

    def records(self) -> list[dict[str, Any]]:
        """A row a region and one for `all`: responses, mean R², and where there were repeats the mean ceiling and the
        share of it that is reached."""
        rows = []
        for name, r2 in self.score().items():
            row: dict[str, Any] = {"region": name, "responses": len(r2), "R2": _mean(r2)}
            if self.ceiling is not None:
                top = _mean(self.ceiling if name == "all" else self.ceiling[self.rois[name]])
                row |= {"ceiling": top, "share": row["R2"] / top if top > 0 else float("nan")}
            rows.append(row)
        return rows

    def facts(self) -> dict[str, Any]:
        models = list(dict.fromkeys(model for model, _ in self.slots))
        kept = {key: self.settings.get(key) for key in ("width", "lambda_eigen", "epochs", "responses")}
        return {"models": ", ".join(models), "layers": len(self.slots), "held-out R2": self.means()["all"]} | kept

    def columns_of_rows(self) -> dict[str, Any]:
        """The rows of `records`."""
        return columns(self.records())

    def channels_of(self, roi: str, count: int) -> np.ndarray:
        """int64 (count,): the channels of the shared space whose weights for one region are largest (Figure 2)."""
        strength = np.abs(self.head[:, self._region(roi)] / self.spread[self._region(roi)]).mean(1)
        if not 0 < count <= len(strength):
            raise SettingsError("no such number of channels", given=count, accepted=f"1 to {len(strength)}")
        return np.argsort(-strength, kind="stable")[:count]

    def reader(self, roi: str, count: int | None = None) -> Callable[[np.ndarray, str, str], np.ndarray]:
        """What `vt.ncut(read=)` takes to see only what speaks for one region (Figure 2).

        With `count` these are that many channels of the shared space, those of `channels_of`. Without it they are what
        each patch adds to the responses of the region, which does not depend on how the shared space happens to be
        turned.

        >>> vt.ncut(store, read=alignment.reader("V4"))
        """
        mask = self._region(roi)
        kept = None if count is None else self.channels_of(roi, count)

        def read(features: np.ndarray, model: str, layer: str) -> np.ndarray:
            aligned = self.transform(features, model, layer)
            return aligned @ (self.head[:, mask] / self.spread[mask]) if kept is None else aligned[..., kept]

        return read

    def _region(self, roi: str) -> np.ndarray:
        if roi not in self.rois:
            raise SettingsError("no such region", given=roi, accepted=sorted(self.rois))
        if not self.rois[roi].any():
            raise SettingsError("a region without responses", given=roi)
        return self.rois[roi]

    @kept_at("folder")
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
        found = {name: self.__dict__[name] for name in ARRAYS}
        return found if self.ceiling is None else found | {"ceiling": self.ceiling}

    @classmethod
    @read_from("folder")
    def load(cls, folder: str | Path) -> ChannelAlign:
        """What `save` wrote. A folder that is damaged, or holds something else, is refused."""
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        folder = Path(folder)
        try:
            arrays = load_file(folder / FILE)
            about = json.loads((folder / ABOUT).read_text())
            slots = tuple((str(model), str(layer)) for model, layer in about["slots"])
            arrays.setdefault("spread", arrays["measured"].std(0))  # folders of the first days hold none
            return cls(
                slots=slots,
                maps=tuple(arrays[f"map.{n}"] for n in range(len(slots))),
                rois={name[4:]: value for name, value in arrays.items() if name.startswith("roi.")},
                log=tuple(about["log"]),
                settings=about["settings"],
                ceiling=arrays.get("ceiling"),
                **{name: arrays[name] for name in ARRAYS},
            )
        except (OSError, ValueError, KeyError, TypeError, SafetensorError, RecursionError) as error:
            raise SettingsError(
                "not a saved alignment, or a damaged one", given=str(folder), remedy="run vt.align again"
            ) from error


def _mean(values: np.ndarray) -> float:
    """Without those that are not numbers."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else float("nan")
