"""Sub-units in a model: the layer computes what it always did, and they are computed where somebody looks or edits.

The original product is kept, so that outputs are the same bit for bit when nothing is edited, at the cost of one call
that returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.errors import ModelError, SettingsError
from vitreous.models.subject import Subject
from vitreous.subunits.layers import LinearLayer, find_layer

if TYPE_CHECKING:
    from vitreous.lenses.disentangle_finding import Disentanglement

Edit = Callable[[Tensor], Tensor | None]


@dataclass(eq=False)
class Seen:
    """What the latest pass gave: `values` (sample, position, sub-unit), in the order asked for; None before any."""

    subunits: np.ndarray
    values: Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Part:
    """Some sub-units, with their weights where the layer is."""

    subunits: np.ndarray
    weight: Tensor
    bias: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        return nn.functional.linear(rows, self.weight, self.bias)


@dataclass(eq=False)
class AppliedSubunits:
    """A layer's sub-units, as a hook on the layer. Nothing is computed unless somebody looks or edits."""

    disentanglement: Disentanglement
    layer: LinearLayer
    _looks: list[tuple[_Part, Seen]] = field(default_factory=list, repr=False)
    _edits: list[tuple[_Part, Edit]] = field(default_factory=list, repr=False)

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if not self._looks and not self._edits:
            return None
        rows = self.layer.rows(args[0])
        for part, seen in self._looks:
            seen.values = part(rows)
        for part, edit in self._edits:
            output = self._edited(part, edit, rows, output)
        return output if self._edits else None

    @contextmanager
    def look(self, subunits: Sequence[int] | np.ndarray | None = None) -> Iterator[Seen]:
        """Activations of these sub-units (all of them if none are named) in every pass inside the context."""
        part = self._part(subunits)
        entry = (part, Seen(part.subunits))
        self._looks.append(entry)
        try:
            yield entry[1]
        finally:
            self._looks.remove(entry)

    @contextmanager
    def edit(self, subunits: Sequence[int] | np.ndarray, function: Edit) -> Iterator[None]:
        """`function` gets (sample, position, sub-unit) and returns others; each unit moves by what its sub-units do.

        A function that returns None or its own argument changes nothing, and the output stays the same bit for bit.
        """
        entry = (self._part(subunits), function)
        self._edits.append(entry)
        try:
            yield
        finally:
            self._edits.remove(entry)

    def _part(self, subunits: Sequence[int] | np.ndarray | None) -> _Part:
        found = self.disentanglement
        ids = np.arange(len(found)) if subunits is None else np.asarray(subunits, np.int64).reshape(-1)
        weight, bias = (torch.from_numpy(part).to(self.layer.whole) for part in found.weights_of(ids))
        return _Part(ids, weight, bias)

    def _edited(self, part: _Part, edit: Edit, rows: Tensor, output: Tensor) -> Tensor:
        before = part(rows)
        after = edit(before)
        if after is None or after is before:
            return output
        if after.shape != before.shape:
            raise SettingsError("an edit keeps the shape", given=tuple(after.shape), accepted=str(tuple(before.shape)))
        units = self.layer.first + self.disentanglement.units[self.disentanglement.parents[part.subunits]]
        axis = self.layer.channel_axis
        change = after - before
        if axis == 1:  # (sample, position, sub-unit) -> as the convolution gives it
            change = change.mT.reshape(len(change), -1, *output.shape[2:])
        else:
            change = change.reshape(*output.shape[:-1], -1)
        return output.index_add(axis, torch.from_numpy(units).to(output.device), change)


def apply(finding: Disentanglement, owner: Subject | nn.Module) -> AppliedSubunits:
    layer = matching_layer(finding, owner)
    if _hooks(layer):
        raise SettingsError(
            f"sub-units are applied to {layer.path or 'the layer'} already", remedy="disentanglement.remove(...) first"
        )
    hook = AppliedSubunits(finding, layer)
    layer.module.register_forward_hook(hook)
    return hook


def remove(finding: Disentanglement, owner: Subject | nn.Module) -> None:
    layer = layer_of(finding, owner)
    keys = _hooks(layer)
    if not keys:
        raise SettingsError(f"no sub-units are applied to {layer.path or 'the layer'}", given=finding.site)
    for key in keys:
        del layer.module._forward_hooks[key]


def layer_of(finding: Disentanglement, owner: Subject | nn.Module) -> LinearLayer:
    """The layer in this model, by its site in a subject and by its path in a bare module."""
    if isinstance(owner, Subject):
        return find_layer(owner, finding.site)
    return replace(find_layer(owner, finding.path), site=finding.site, first=finding.first)


def matching_layer(finding: Disentanglement, owner: Subject | nn.Module) -> LinearLayer:
    """The layer in this model; refused unless its weights are the ones that were split."""
    layer = layer_of(finding, owner)
    made_of = finding.settings["layer"]
    if layer.fingerprint != made_of:
        raise ModelError(
            f"the weights of {layer.path or 'the layer'} are not those that were split: another checkpoint, another "
            "precision, or trained further",
            given=layer.fingerprint[:12],
            accepted=f"{made_of[:12]}...",
            remedy="load the model it was made from, or disentangle this one",
        )
    return layer


def _hooks(layer: LinearLayer) -> list[int]:
    return [key for key, hook in layer.module._forward_hooks.items() if isinstance(hook, AppliedSubunits)]
