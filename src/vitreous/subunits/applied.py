"""Sub-units in a model: the layer computes what it always did, and they are computed where somebody looks or edits.

Sub-units add up to their unit (eq. 6 of the disentanglement paper), so that nobody has to add them. The original
product is kept: outputs are the same bit for bit when nothing is edited, at the cost of one call that returns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.checks import whole_numbers
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


@dataclass(frozen=True, eq=False)
class _Wish:
    """One edit that somebody asks for."""

    subunits: np.ndarray
    function: Edit


@dataclass(frozen=True, eq=False)
class _Edited:
    """All edits of a layer together: who is edited, in which order, and which unit (a row of `units`) each adds to."""

    part: _Part
    steps: tuple[tuple[Tensor, Edit], ...]
    units: Tensor
    adds: Tensor

    def change(self, rows: Tensor) -> Tensor | None:
        """(sample, position, unit): by how much units move; None if no edit changed anything."""
        before = after = self.part(rows)
        for at, edit in self.steps:
            old = after.index_select(-1, at)
            new = edit(old)
            if new is None or new is old:
                continue
            if new.shape != old.shape:
                raise SettingsError("an edit keeps the shape", given=tuple(new.shape), accepted=str(tuple(old.shape)))
            after = after.index_copy(-1, at, new.to(old))
        return None if after is before else (after - before) @ self.adds.to(before)


@dataclass(eq=False)
class AppliedSubunits:
    """A layer's sub-units, as a hook on the layer. Nothing is computed unless somebody looks or edits.

    With `kept` the hook is there until it is removed, else for as long as somebody looks or edits.
    """

    disentanglement: Disentanglement
    layer: LinearLayer
    kept: bool = False
    _looks: list[tuple[_Part, Seen]] = field(default_factory=list, repr=False)
    _edits: list[_Wish] = field(default_factory=list, repr=False)
    _edited: _Edited | None = field(default=None, repr=False)

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        if not self._looks and self._edited is None:
            return None
        rows = self.layer.rows(args[0])
        for part, seen in self._looks:
            seen.values = part(rows)
        change = None if self._edited is None else self._edited.change(rows)
        if self._edited is None or change is None:
            return None
        return self.layer.moved(output, self._edited.units, change)

    @contextmanager
    def look(self, subunits: Sequence[int] | np.ndarray | None = None) -> Iterator[Seen]:
        """Activations of these sub-units (all of them if none are named) in every pass inside, before any edit."""
        part = self._part(subunits)
        entry = (part, Seen(part.subunits))
        self._looks.append(entry)
        self.settle()
        try:
            yield entry[1]
        finally:
            self._looks.remove(entry)
            self.settle()

    @contextmanager
    def edit(self, subunits: Sequence[int] | np.ndarray, function: Edit) -> Iterator[None]:
        """`function` gets (sample, position, sub-unit) and returns others; each unit moves by what its sub-units do.

        A function that returns None or its own argument changes nothing, and the output stays the same bit for bit.
        Of several edits each is given what those before it have made.
        """
        ids = whole_numbers("sub-units", subunits)
        if len(np.unique(ids)) < len(ids):
            raise SettingsError("a sub-unit is edited twice at once", given=ids.tolist()[:10])
        entry = _Wish(ids, function)
        self._edits.append(entry)
        try:
            self.settle()
            yield
        finally:
            self._edits.remove(entry)
            self.settle()

    def settle(self) -> None:
        """Puts the edits together, and the hook in or out as it is needed."""
        self._edited = self._together() if self._edits else None
        hooks = self.layer.module._forward_hooks
        mine = [key for key, hook in hooks.items() if hook is self]
        needed = self.kept or bool(self._looks) or bool(self._edits)
        if needed and not mine:
            self.layer.module.register_forward_hook(self)
        for key in [] if needed else mine:
            del hooks[key]

    def _part(self, subunits: Sequence[int] | np.ndarray | None) -> _Part:
        found = self.disentanglement
        ids = np.arange(len(found)) if subunits is None else whole_numbers("sub-units", subunits)
        weight, bias = (torch.from_numpy(part).to(self.layer.whole) for part in found.weights_of(ids))
        return _Part(ids, weight, bias)

    def _together(self) -> _Edited:
        found, device = self.disentanglement, self.layer.whole.device
        ids = np.unique(np.concatenate([wish.subunits for wish in self._edits]))
        part = self._part(ids)  # first, for it refuses numbers that are none
        units, whose = np.unique(self.layer.first + found.units[found.parents[ids]], return_inverse=True)
        adds = torch.from_numpy(np.eye(len(units), dtype=np.float32)[whose]).to(device)
        places = [torch.from_numpy(np.searchsorted(ids, wish.subunits)).to(device) for wish in self._edits]
        steps = tuple(zip(places, (wish.function for wish in self._edits), strict=True))
        return _Edited(part, steps, torch.from_numpy(units).to(device), adds)


def apply(finding: Disentanglement, owner: Subject | nn.Module) -> AppliedSubunits:
    layer = matching_layer(finding, owner)
    if any(hook.kept for hook in _hooks(layer)):
        raise SettingsError(
            f"sub-units are applied to {layer.path or 'the layer'} already", remedy="disentanglement.remove(...) first"
        )
    hook = at_hand(finding, owner)
    hook.kept = True
    hook.settle()
    return hook


def remove(finding: Disentanglement, owner: Subject | nn.Module) -> None:
    layer = layer_of(finding, owner)
    kept = [hook for hook in _hooks(layer) if hook.kept]
    if not kept:
        raise SettingsError(f"no sub-units are applied to {layer.path or 'the layer'}", given=finding.site)
    mine = [hook for hook in kept if _same(hook.disentanglement, finding)]
    if not mine:
        raise SettingsError(
            f"sub-units that are applied to {layer.path or 'the layer'} are others",
            given=repr(finding),
            accepted=[repr(hook.disentanglement) for hook in kept],
        )
    for hook in mine:
        hook.kept = False
        hook.settle()


def at_hand(finding: Disentanglement, owner: Subject | nn.Module) -> AppliedSubunits:
    """The sub-units as they are applied now, or ready to be: the hook comes with the first look or edit."""
    layer = matching_layer(finding, owner)
    there = [hook for hook in _hooks(layer) if _same(hook.disentanglement, finding)]
    return there[0] if there else AppliedSubunits(finding, layer)


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


def _hooks(layer: LinearLayer) -> list[AppliedSubunits]:
    """Those of this part of the module: queries and keys may be parts of one."""
    hooks = [hook for hook in layer.module._forward_hooks.values() if isinstance(hook, AppliedSubunits)]
    return [hook for hook in hooks if hook.layer.first == layer.first]


def _same(one: Disentanglement, other: Disentanglement) -> bool:
    """Whether these are the same sub-units: the same object, or another copy of it, as from its folder."""
    if one is other:
        return True
    return np.array_equal(one.units, other.units) and np.array_equal(one.codes, other.codes)
