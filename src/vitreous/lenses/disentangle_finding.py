"""What `vt.disentangle` finds: units, the sub-units they split into, and who takes which part of which weight."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from vitreous.checks import is_number, whole_numbers
from vitreous.errors import SettingsError, StoreError
from vitreous.finding import Finding
from vitreous.kernels.split_weights import dead_subunits, divide, shares
from vitreous.mirrors import kept_at, read_from
from vitreous.provenance import json_bytes, replace_file

if TYPE_CHECKING:
    from torch import Tensor, nn

    from vitreous.models.subject import Subject
    from vitreous.subunits.applied import AppliedSubunits
    from vitreous.subunits.materialised import MaterialisedLayer

FORMAT, VERSION = "vitreous disentanglement", 1
ARRAYS, ABOUT = "disentanglement.safetensors", "disentanglement.json"
REMEDY = "save it again"


class Examples(NamedTuple):
    """The strongest instances, one an image, strongest first: each (unit or sub-unit, place).

    Where there are fewer, images and tokens are -1 and values NaN. Of a sub-unit, they are the strongest among the
    unit's top-k instances.
    """

    images: np.ndarray
    tokens: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Disentanglement(Finding):
    """Units of one linear layer, split. Sub-units of all units stand in one row, unit by unit.

    Of every unit: `units` its number in the layer, `weight` (unit, input) and `bias`, `counts` how many clusters were
    found (with none or one it stays whole and is its own sub-unit), `rho` and its `scores` (NaN if whole), `noise` the
    share of its instances in no cluster, `top` its strongest instances.

    Of every sub-unit: `parents` the position of its unit in `units`, `sizes` instances in its cluster (0 if there was
    none), `representatives` (sub-unit, input) eq. 2, `subunit_top`, and `codes` (sub-unit, byte): one bit an input,
    whether it takes part in that weight. Its share is one over how many sub-units of the unit do.
    """

    site: str
    path: str
    first: int
    units: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    counts: np.ndarray
    rho: np.ndarray
    scores: np.ndarray
    noise: np.ndarray
    top: Examples
    parents: np.ndarray
    sizes: np.ndarray
    representatives: np.ndarray
    codes: np.ndarray
    subunit_top: Examples
    settings: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Disentanglement({self.site!r}: {len(self.units)} units, {len(self)} sub-units, x {self.expansion:.2f})"

    def __len__(self) -> int:
        return len(self.parents)

    # -- units and sub-units

    @property
    def expansion(self) -> float:
        """Sub-units a unit."""
        return len(self) / len(self.units)

    @cached_property
    def starts(self) -> np.ndarray:
        """(unit + 1,): the first sub-unit of each unit, and the end."""
        return np.searchsorted(self.parents, np.arange(len(self.units) + 1))

    def subunits(self, unit: int) -> np.ndarray:
        """Numbers of the sub-units of the layer's unit `unit`."""
        at = self._position(unit)
        return np.arange(self.starts[at], self.starts[at + 1])

    def members(self, unit: int) -> np.ndarray:
        """bool (sub-unit of this unit, input): who takes part in which weight."""
        return np.unpackbits(self.codes[self.subunits(unit)], 1, self.weight.shape[1]).astype(bool)

    def shares(self, unit: int) -> np.ndarray:
        """(sub-unit of this unit, input): eq. 4 in parts of the weight, 0, 1/|S| or 1/K."""
        return shares(self.members(unit))

    @cached_property
    def dead(self) -> np.ndarray:
        """bool (sub-unit,): equal to another of its unit, with no input of its own. Metrics leave these out."""
        return np.concatenate([dead_subunits(self.members(unit)) for unit in self.units])

    def subunit_weights(self, unit: int) -> tuple[np.ndarray, np.ndarray]:
        """float32 (sub-unit of this unit, input) and biases; they sum back to the unit's bit for bit."""
        at = self._position(unit)
        return divide(self.weight[at], self.bias[at], self.members(unit))

    @cached_property
    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (sub-unit, input) and biases (sub-unit,) of all sub-units: as large as the materialised layer."""
        parts = [self.subunit_weights(unit) for unit in self.units]
        return np.concatenate([weights for weights, _ in parts]), np.concatenate([biases for _, biases in parts])

    def weights_of(self, subunits: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (asked for, input) and biases (asked for,) of some sub-units; only their units are divided."""
        ids = whole_numbers("sub-units", subunits)
        if wrong := [int(i) for i in ids if not 0 <= i < len(self)]:
            raise SettingsError("no such sub-unit", given=wrong[:5], accepted=f"0 to {len(self) - 1}")
        weights, biases = np.empty((len(ids), self.weight.shape[1]), np.float32), np.empty(len(ids), np.float32)
        for parent in np.unique(self.parents[ids]):
            here = np.flatnonzero(self.parents[ids] == parent)
            place = ids[here] - self.starts[parent]
            parts = self.subunit_weights(int(self.units[parent]))
            weights[here], biases[here] = (part[place] for part in parts)
        return weights, biases

    @overload
    def subunit_activations(self, x: np.ndarray, subunits: Sequence[int] | None = None) -> np.ndarray: ...
    @overload
    def subunit_activations(self, x: Tensor, subunits: Sequence[int] | None = None) -> Tensor: ...
    def subunit_activations(self, x, subunits=None):
        """Inputs of the layer (..., input) -> (..., sub-unit), before LayerScale; arrays or tensors."""
        inputs = self.weight.shape[1]
        shape = tuple(getattr(x, "shape", ()))
        if not shape or shape[-1] != inputs:
            raise SettingsError(
                "sub-units are given what enters the layer",
                given=shape or type(x).__name__,
                accepted=f"an array or a tensor (..., {inputs})",
            )
        weights, biases = self.dense if subunits is None else self.weights_of(subunits)
        if isinstance(x, np.ndarray):
            return x @ weights.T + biases
        import torch

        return torch.nn.functional.linear(x, *(torch.from_numpy(w).to(x.device, x.dtype) for w in (weights, biases)))

    def duplicates(self, x: np.ndarray, threshold: float = 0.95) -> tuple[np.ndarray, ...]:
        """Groups of sub-units of different units that say the same: activations on inputs x (instance, input) correlate
        by the threshold.

        Units are split one by one, so a concept can have sub-units in several. A group is a connected component,
        largest first; dead sub-units and those that never change are in none. Activations are linear in x, so that its
        covariance is all that is needed.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        x = np.asarray(x)
        good = is_number(threshold) and 0 < threshold < 1 and x.dtype.kind == "f" and np.isfinite(x).all()
        if not good or x.ndim != 2 or x.shape[1] != self.weight.shape[1] or len(x) < 2:
            raise SettingsError(
                "duplicates are found on two finite inputs or more, at a threshold between 0 and 1",
                given={"x": f"{x.dtype} {x.shape}", "threshold": threshold},
                accepted=f"(instance, {self.weight.shape[1]})",
            )
        weights = self.dense[0].astype(np.float64)
        spread = np.atleast_2d(np.cov(x, rowvar=False, dtype=np.float64))
        along = weights @ spread @ weights.T
        own = np.sqrt(np.maximum(along.diagonal(), 0))
        alive = ~self.dead & (own > 0)
        close = (along > threshold * np.outer(own, own)) & alive & alive[:, None]
        close &= self.parents != self.parents[:, None]
        first, second = np.nonzero(close)
        _, group = connected_components(coo_array((np.ones(len(first), bool), (first, second)), shape=close.shape))
        members = [np.flatnonzero(group == number) for number in np.flatnonzero(np.bincount(group) > 1)]
        return tuple(sorted(members, key=lambda ids: (-len(ids), int(ids[0]))))

    def _position(self, unit: int) -> int:
        found = np.flatnonzero(self.units == unit)
        if not len(found):
            shown = [str(u) for u in self.units.tolist()]
            raise SettingsError("this unit was not looked at", given=unit, accepted=shown)
        return int(found[0])

    # -- in a model

    def apply(self, owner: Subject | nn.Module) -> AppliedSubunits:
        """Puts the sub-units into a model with the same weights: its outputs stay the same, bit for bit.

        >>> split = disentanglement.apply(subject)
        >>> with split.look([3, 4]) as seen:          # these sub-units, in every pass inside
        ...     subject(x)
        >>> seen.values                               # (sample, token, 2)
        """
        from vitreous.subunits.applied import apply

        return apply(self, owner)

    def remove(self, owner: Subject | nn.Module) -> None:
        """Takes out what `apply` put in."""
        from vitreous.subunits.applied import remove

        remove(self, owner)

    @contextmanager
    def applied(self, owner: Subject | nn.Module) -> Iterator[AppliedSubunits]:
        """`apply` for the time of a `with`."""
        split = self.apply(owner)
        try:
            yield split
        finally:
            self.remove(owner)

    def materialised(self, owner: Subject | nn.Module) -> MaterialisedLayer:
        """The layer in the paper's two-stage form (eq. 8): all sub-units, then a merger that adds them up."""
        from vitreous.subunits.materialised import materialise

        return materialise(self, owner)

    # -- as a table

    def facts(self) -> dict[str, Any]:
        return {
            "units": len(self.units),
            "sub-units": len(self),
            "expansion": round(self.expansion, 3),
            "whole units": int((self.counts < 2).sum()),
            "dead sub-units": int(self.dead.sum()),
            "mean noise": round(float(self.noise.mean()), 3),
            "instances": self.settings["instances"],
            "top_k": self.settings["top_k"],
            "min_cluster_size": self.settings["min_cluster_size"],
        }

    def columns_of_rows(self) -> dict[str, Any]:
        """A row a sub-unit; `inputs` are the weights it has a share of, `top_image` its strongest picture."""
        inputs = np.unpackbits(self.codes, 1, self.weight.shape[1]).sum(1)
        found = {"subunit": np.arange(len(self)), "unit": self.units[self.parents], "of": self.counts[self.parents]}
        found |= {"size": self.sizes, "inputs": inputs, "dead": self.dead, "rho": self.rho[self.parents]}
        top = self.subunit_top
        return found | {"noise": self.noise[self.parents], "top_image": top.images[:, 0], "top_value": top.values[:, 0]}

    # -- on disk

    @kept_at("folder")
    def save(self, folder: str | Path) -> None:
        """Two files: arrays as safetensors, the rest as JSON. The same finding gives the same bytes."""
        from safetensors.numpy import save

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {name: np.ascontiguousarray(value) for name, value in _flat(self).items()}
        about = {"format": FORMAT, "version": VERSION, "site": self.site, "path": self.path, "first": self.first}
        about |= {"units": len(self.units), "subunits": len(self), "settings": dict(self.settings)}
        replace_file(folder / ARRAYS, save(arrays))
        replace_file(folder / ABOUT, json_bytes(about))  # last: a folder that has it is whole

    @classmethod
    @read_from("folder")
    def load(cls, folder: str | Path) -> Disentanglement:
        """What `save` wrote. A folder that is damaged, or holds something else, is refused."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        folder = Path(folder)
        try:
            about = json.loads((folder / ABOUT).read_bytes())
            if about["format"] != FORMAT or about["version"] != VERSION:
                raise KeyError(f"{about['format']} {about['version']}")
            finding = _unflat(load((folder / ARRAYS).read_bytes()), about)
        except FileNotFoundError as error:
            raise StoreError("no disentanglement here", given=str(folder), accepted=(ARRAYS, ABOUT)) from error
        except (SafetensorError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise StoreError(f"not a disentanglement: {folder}: {error}", remedy=REMEDY) from error
        _check(finding, folder)
        return finding


PLAIN = ("units", "weight", "bias", "counts", "rho", "scores", "noise")
OF_SUBUNITS = ("parents", "sizes", "representatives", "codes")
NEEDED = {"layer": str, "instances": int, "top_k": int, "min_cluster_size": int}  # of the settings


def _flat(finding: Disentanglement) -> dict[str, np.ndarray]:
    arrays = {name: finding.__dict__[name] for name in (*PLAIN, *OF_SUBUNITS)}
    for name in ("top", "subunit_top"):
        arrays |= {f"{name}.{part}": value for part, value in finding.__dict__[name]._asdict().items()}
    return arrays


def _unflat(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Disentanglement:
    fields: dict[str, Any] = {name: arrays[name] for name in (*PLAIN, *OF_SUBUNITS)}
    for name in ("top", "subunit_top"):
        fields[name] = Examples(*(arrays[f"{name}.{part}"] for part in Examples._fields))
    return Disentanglement(about["site"], about["path"], about["first"], **fields, settings=about["settings"])


def _check(finding: Disentanglement, folder: Path) -> None:
    """Whether the parts fit together: a file can be whole and yet be made up."""
    units, inputs = finding.weight.shape if finding.weight.ndim == 2 else (-1, -1)
    subunits = len(finding.parents)
    wanted: dict[str, tuple[int, ...]] = {name: (units,) for name in PLAIN} | {"weight": (units, inputs)}
    wanted |= {"parents": (subunits,), "sizes": (subunits,), "representatives": (subunits, inputs)}
    wanted |= {"codes": (subunits, -(-inputs // 8))}
    arrays = _flat(finding)
    wrong = {name: arrays[name].shape for name, shape in wanted.items() if arrays[name].shape != shape}
    ends = np.array_equal(np.unique(finding.parents), np.arange(units)) and (np.diff(finding.parents) >= 0).all()
    lengths = {len(part) for part in finding.top} == {units} and {len(p) for p in finding.subunit_top} == {subunits}
    if wrong or not ends or not lengths:
        raise StoreError(f"the parts of {folder} do not fit together", given=wrong or "parents", remedy=REMEDY)
    said = finding.settings if isinstance(finding.settings, dict) else {}
    if lost := [name for name, kind in NEEDED.items() if not isinstance(said.get(name), kind)]:
        raise StoreError(f"{folder} does not say what it was made of", given=f"no {', '.join(lost)}", remedy=REMEDY)
