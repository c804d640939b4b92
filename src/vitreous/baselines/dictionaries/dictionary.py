"""A finished dictionary: codes, reconstructions, and a folder in SAELens's layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.baselines.dictionaries.codes import Rule, largest, pursued
from vitreous.baselines.dictionaries.kinds import KINDS, kind_of
from vitreous.errors import SettingsError, StoreError
from vitreous.provenance import json_bytes, replace_file

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
CHUNK = 8192  # rows reconstructed in one go
COUNTS = {"topk": "k", "matching_pursuit": "max_iterations"}  # what SAELens calls k
LAYOUT = f"a folder with {CONFIG} and {WEIGHTS}, as Dictionary.save or SAELens writes it"


@dataclass(frozen=True)
class DictionaryConfig:
    """`inputs` channels to `units` codes to `outputs` channels; `k` where the kind has one.

    `centred`: b_dec is taken away before encoding. `training` holds every setting it was trained with; it is empty for
    dictionaries of others.
    """

    kind: str
    inputs: int
    outputs: int
    units: int
    k: int | None
    centred: bool
    training: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Dictionary:
    """A frozen value. Weights have no gradient; inputs keep theirs, so it can be put into a model with `vt.patch`."""

    config: DictionaryConfig
    weights: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        wanted, k = _shapes(self.config), self.config.k
        if _rule(self.config) in (largest, pursued) and not (isinstance(k, int) and 1 <= k <= self.config.units):
            raise SettingsError("k is between 1 and the number of units", given=k)
        found = {name: tuple(value.shape) for name, value in self.weights.items()}
        if found != wanted:
            raise SettingsError(
                f"weights do not fit a {self.config.kind} dictionary", given=found, accepted=json.dumps(wanted)
            )

    @property
    def atoms(self) -> Tensor:
        """(unit, output)."""
        return self.weights["W_dec"]

    def to(self, device: str | torch.device) -> Dictionary:
        return replace(self, weights={name: value.to(device) for name, value in self.weights.items()})

    def encode(self, x: Tensor | np.ndarray) -> Tensor:
        """(..., input) -> sparse codes (..., unit), none of them negative."""
        x = self._given(x, self.config.inputs, "input")
        x = x - self.weights["b_dec"] if self.config.centred else x
        return _rule(self.config)(self.weights, x, self.config.k)

    def decode(self, z: Tensor | np.ndarray) -> Tensor:
        """(..., unit) -> (..., output)."""
        return self._given(z, self.config.units, "unit") @ self.weights["W_dec"] + self.weights["b_dec"]

    def reconstruct(self, x: Tensor | np.ndarray) -> Tensor:
        """(..., input) -> (..., output), with codes in memory for a part of the rows at a time."""
        x = self._given(x, self.config.inputs, "input")
        parts = [self.decode(self.encode(part)) for part in x.reshape(-1, x.shape[-1]).split(CHUNK)]
        return torch.cat(parts).reshape(*x.shape[:-1], self.config.outputs)

    def _given(self, values: Tensor | np.ndarray, last: int, axis: str) -> Tensor:
        if not isinstance(values, Tensor):
            array = np.asarray(values)
            values = torch.from_numpy(array if array.flags.writeable else array.copy())
        if values.ndim < 1 or values.shape[-1] != last:
            raise SettingsError(
                f"this dictionary takes (..., {axis})", given=tuple(values.shape), accepted=f"(..., {last})"
            )
        return values.to(self.weights["b_dec"].device, torch.float32)

    # -- on disk

    def save(self, folder: str | Path) -> None:
        """Writes cfg.json and sae_weights.safetensors; SAELens loads the folder too."""
        from safetensors.torch import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.weights.items()}
        replace_file(folder / WEIGHTS, save(tensors))
        replace_file(folder / CONFIG, json_bytes(_written(self.config)))

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> Dictionary:
        """What `save` wrote, or a SAELens folder of an architecture that we know."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        folder = Path(folder)
        try:
            config = _read(json.loads((folder / CONFIG).read_bytes()))
            tensors = load((folder / WEIGHTS).read_bytes())
            dictionary = cls(config, {name: value.float() for name, value in tensors.items()})
        except (FileNotFoundError, NotADirectoryError) as error:
            raise StoreError(f"no dictionary here: {error.filename}", given=str(folder), accepted=LAYOUT) from None
        except (OSError, ValueError, LookupError, TypeError, SafetensorError, RecursionError) as error:
            raise StoreError(f"not a dictionary that we can read: {folder}: {error}", accepted=LAYOUT) from None
        if not all(torch.isfinite(value).all() for value in dictionary.weights.values()):
            raise StoreError(f"weights of {folder} are not finite", remedy="train the dictionary again")
        return dictionary.to(device)


def _rule(config: DictionaryConfig) -> Rule:
    return kind_of(config.kind).rule


def _shapes(config: DictionaryConfig) -> dict[str, tuple[int, ...]]:
    into = {} if _rule(config) is pursued else {"W_enc": (config.inputs, config.units), "b_enc": (config.units,)}
    shapes = into | {"W_dec": (config.units, config.outputs), "b_dec": (config.outputs,)}
    return shapes | ({"threshold": (config.units,)} if kind_of(config.kind).architecture == "jumprelu" else {})


def _written(config: DictionaryConfig) -> dict[str, Any]:
    """The fields that SAELens reads, and ours among its metadata."""
    architecture = kind_of(config.kind).architecture
    fields: dict[str, Any] = {"architecture": architecture, "d_in": config.inputs, "d_sae": config.units}
    fields |= {"d_out": config.outputs} if architecture == "transcoder" else {}
    fields |= {"k": config.k, "rescale_acts_by_decoder_norm": False} if architecture == "topk" else {}
    if architecture == "matching_pursuit":
        fields |= {"max_iterations": config.k, "residual_threshold": 0.0, "stop_on_duplicate_support": False}
    fields |= {"dtype": "float32", "device": "cpu", "apply_b_dec_to_input": config.centred}
    fields |= {"normalize_activations": "none", "reshape_activations": "none"}
    return fields | {"metadata": {"vitreous": asdict(config)}}


def _read(fields: Mapping[str, Any]) -> DictionaryConfig:
    if not isinstance(fields, Mapping):
        raise TypeError(f"{CONFIG} is not a table")
    if ours := (fields.get("metadata") or {}).get("vitreous"):
        return DictionaryConfig(**ours)
    unknown = {
        name: fields.get(name, usual)
        for name, usual in (("normalize_activations", "none"), ("reshape_activations", "none"))
        if fields.get(name, usual) != usual
    }
    never = ("rescale_acts_by_decoder_norm", "residual_threshold", "stop_on_duplicate_support")
    unknown |= {name: fields[name] for name in never if fields.get(name)}
    if unknown:
        raise ValueError(f"its codes are computed in a way that is not supported: {unknown}")
    known = {kind.architecture: kind.name for kind in reversed(KINDS.values())} | {"jumprelu": "jumprelu"}
    architecture = fields["architecture"]
    if architecture not in known:
        raise ValueError(f"architecture {architecture!r} is none of {', '.join(known)}")
    k = fields[COUNTS[architecture]] if architecture in COUNTS else None
    outputs = fields["d_out"] if architecture == "transcoder" else fields["d_in"]
    centred = bool(fields.get("apply_b_dec_to_input", architecture != "transcoder"))
    return DictionaryConfig(known[architecture], fields["d_in"], outputs, fields["d_sae"], k, centred)
