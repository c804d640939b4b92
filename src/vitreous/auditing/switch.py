"""A small patch for a model: some parts of a layer are put at their level, everything else keeps its bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

import vitreous.auditing.patch_file as patch_file
from vitreous.auditing.heads import BATCH, Head, check_labels, open_head
from vitreous.errors import ModelError, SettingsError, StoreError
from vitreous.finding import Finding, columns
from vitreous.hooks import evaluating
from vitreous.images import ImageSet
from vitreous.kernels.fill_holes import fill_holes
from vitreous.models.subject import Subject
from vitreous.subunits.layers import LinearLayer, find_layer

if TYPE_CHECKING:
    from torch import nn

FORMAT, VERSION = "vitreous switch", 1
SAID, ARRAYS = ("site", "path", "first", "prefix", "layer"), ("units", "weight", "bias", "levels")
ROUNDING = 1e-3  # of a weight: what shares of it may sum to beyond the whole


@dataclass(frozen=True, eq=False)
class LayerOff:
    """Parts of one layer: `units` which of its units each belongs to, `weight` (part, input) and `bias` what it
    computes, `levels` (part, kind of position) what it is put at instead. `layer` is the hash of the layer's weights.
    """

    site: str
    path: str
    first: int
    prefix: int
    layer: str
    names: tuple[str, ...]
    units: np.ndarray
    weight: np.ndarray
    bias: np.ndarray
    levels: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.units) == len(self.weight) == len(self.bias) == len(self.levels) == len(self.names):
            raise StoreError("the parts of the patch do not fit together", given=self.site)

    def check(self, owner: Subject | nn.Module) -> None:
        """Refused unless the layer has the weights that were audited."""
        layer = self._layer(owner)
        if layer.fingerprint != self.layer:
            raise ModelError(
                f"the weights of {layer.path or 'the layer'} are not those that were audited",
                given=layer.fingerprint[:12],
                accepted=f"{self.layer[:12]}...",
                remedy="load the model that was audited, or audit this one",
            )

    def others_on(self, owner: Subject | nn.Module) -> list[LayerOff]:
        """What is off in this layer already."""
        layer = self._layer(owner)
        on = [hook for hook in layer.module._forward_hooks.values() if isinstance(hook, _Off)]
        return [hook.patch for hook in on if hook.layer.first == layer.first]

    def check_once(self, owner: Subject | nn.Module, others: Sequence[LayerOff]) -> None:
        """Refused where its parts and those of others are more than the unit they belong to: taken out twice, a part
        would end as far on the other side of its level."""
        if not others:
            return
        whole, _ = self._layer(owner).matrix()
        units = np.concatenate([one.units for one in (self, *others)])
        weight = np.concatenate([one.weight for one in (self, *others)])
        for unit, name in zip(self.units, self.names, strict=True):
            if (np.abs(weight[units == unit].sum(0)) > (1 + ROUNDING) * np.abs(whole[unit])).any():
                raise SettingsError(
                    "a part is switched off twice",
                    given=f"{name} of {self.site}",
                    remedy="patch.remove(...) first, or one patch that names it once",
                )

    def apply(self, owner: Subject | nn.Module) -> None:
        layer = self._layer(owner)
        layer.module.register_forward_hook(_Off(self, layer))

    def remove(self, owner: Subject | nn.Module) -> bool:
        """Whether it was there."""
        layer = self._layer(owner)
        found = self._hooks(layer)
        for key in found:
            del layer.module._forward_hooks[key]
        return bool(found)

    def _layer(self, owner: Subject | nn.Module) -> LinearLayer:
        return find_layer(owner, self.site if isinstance(owner, Subject) else self.path)

    def _hooks(self, layer: LinearLayer) -> list[int]:
        hooks = layer.module._forward_hooks.items()
        return [key for key, hook in hooks if isinstance(hook, _Off) and hook.patch is self]


class Patch:
    """What can be on in a model for the time of a `with`, and measured."""

    def on(self, owner: Subject) -> AbstractContextManager[None]:
        raise NotImplementedError(type(self).__name__)

    def before_after(
        self,
        subject: Subject,
        images: ImageSet,
        *,
        head: Head | None = None,
        groups: Sequence[Any] | np.ndarray | None = None,
    ) -> BeforeAfter:
        """Accuracy without the patch and with it. `head` is `finding.head`; without one the model's own is read."""
        labels, _ = check_labels(images)
        read = open_head(subject, "own", images, None, None, 0)[0] if head is None else head
        old = logits_of(subject, read, images)
        with self.on(subject):
            new = logits_of(subject, read, images)
        return BeforeAfter.of(old, new, labels, read.names, groups)


@dataclass(frozen=True, eq=False)
class SwitchOff(Patch, Finding):
    """Parts of one layer or of several that are put at their level. Patches are added: `one + other`.

    >>> with patch.on(subject):
    ...     logits = subject(x)
    >>> patch.apply(subject)          # until patch.remove(subject)
    """

    layers: tuple[LayerOff, ...]
    before: BeforeAfter | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return sum(len(layer.units) for layer in self.layers)

    def __repr__(self) -> str:
        said = ", ".join(f"{len(layer.units)} parts of {layer.site}" for layer in self.layers)
        return f"SwitchOff({said})"

    def __add__(self, other: SwitchOff) -> SwitchOff:
        return SwitchOff((*self.layers, *other.layers))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for layer in self.layers for name in layer.names)

    @property
    def effect(self) -> BeforeAfter:
        """What it does to the pictures that were audited."""
        if self.before is None:
            raise SettingsError("this patch was not measured", remedy="patch.before_after(subject, images)")
        return self.before

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"parts": len(self), "layers": ", ".join(layer.site for layer in self.layers)}
        return found if self.before is None else found | self.before.facts()

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a part that is switched off: where it is, its unit, and the level that patches are put at."""
        rows = [
            {"site": layer.site, "part": name, "unit": int(unit), "level of patches": float(levels[-1])}
            for layer in self.layers
            for name, unit, levels in zip(layer.names, layer.units, layer.levels, strict=True)
        ]
        return columns(rows)

    # -- in a model

    @contextmanager
    def on(self, owner: Subject | nn.Module) -> Iterator[None]:
        """`apply` for the time of a `with`."""
        self.apply(owner)
        try:
            yield
        finally:
            self.remove(owner)

    def apply(self, owner: Subject | nn.Module) -> None:
        """Refused unless all its layers have the weights that were audited, and where a part is off already."""
        for k, layer in enumerate(self.layers):
            layer.check(owner)
            same = [one for one in self.layers[:k] if (one.path, one.first) == (layer.path, layer.first)]
            layer.check_once(owner, [*layer.others_on(owner), *same])
        for layer in self.layers:
            layer.apply(owner)

    def remove(self, owner: Subject | nn.Module) -> None:
        if not all([layer.remove(owner) for layer in self.layers]):
            raise SettingsError("this patch is not on", given=repr(self))

    def measured(self, subject: Subject, images: ImageSet, **asked: Any) -> SwitchOff:
        """The same patch with its effect."""
        return replace(self, before=self.before_after(subject, images, **asked))

    # -- on disk

    def data(self) -> bytes:
        """What `save` writes: the weights of the parts and nothing else of the model."""
        said = [{name: vars(layer)[name] for name in (*SAID, "names")} for layer in self.layers]
        arrays = {f"{k}.{name}": vars(layer)[name] for k, layer in enumerate(self.layers) for name in ARRAYS}
        return patch_file.to_bytes(FORMAT, VERSION, {"layers": said}, arrays)

    def save(self, path: str | Path) -> None:
        """One safetensors file."""
        patch_file.write(path, self.data())

    @classmethod
    def load(cls, path: str | Path) -> SwitchOff:
        """What `save` wrote; anything else is refused."""

        def made(about: dict[str, Any], array: Callable[[str], np.ndarray]) -> SwitchOff:
            layers = []
            for k, one in enumerate(about["layers"]):
                said: dict[str, Any] = {name: one[name] for name in SAID} | {"names": tuple(one["names"])}
                layers.append(LayerOff(**said | {name: array(f"{k}.{name}") for name in ARRAYS}))
            return cls(tuple(layers))

        refusal, remedy = "not a patch, or a damaged one", "finding.switch_off(...).save(...) again"
        return patch_file.read(path, FORMAT, VERSION, made, refusal, remedy)


@dataclass(frozen=True, eq=False)
class _Off:
    patch: LayerOff
    layer: LinearLayer

    def __call__(self, _: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        patch, rows = self.patch, self.layer.rows(args[0])
        weight, bias, levels = (torch.from_numpy(v).to(rows) for v in (patch.weight, patch.bias, patch.levels))
        a = torch.nn.functional.linear(rows, weight, bias)
        kinds = torch.arange(a.shape[1], device=a.device).clamp_max(patch.prefix)
        change = levels.T[kinds] - a
        units = torch.from_numpy(patch.units + self.layer.first).to(a.device)
        return self.layer.moved(output, units, change)


@dataclass(frozen=True)
class BeforeAfter(Finding):
    """Rows (what, pictures, accuracy before, accuracy after): all pictures, each class, each group, the worst group.

    `changed` decisions that are other ones now; of these `mended` became right and `broken` wrong. `shift` is the mean
    change of the right class's log-odds.
    """

    rows: tuple[tuple[str, int, float, float], ...]
    pictures: int
    changed: int
    mended: int
    broken: int
    shift: float

    @classmethod
    def of(
        cls,
        old: np.ndarray,
        new: np.ndarray,
        labels: np.ndarray,
        names: Sequence[str],
        groups: Sequence[Any] | np.ndarray | None,
    ) -> BeforeAfter:
        from vitreous.auditing.effects import log_odds

        was, now = old.argmax(1), new.argmax(1)
        right, still = was == labels, now == labels

        def row(what: str, these: np.ndarray) -> tuple[str, int, float, float]:
            return what, int(these.sum()), float(right[these].mean()), float(still[these].mean())

        rows = [row("all pictures", np.ones(len(labels), bool))]
        rows += [row(f"class {name}", labels == c) for c, name in enumerate(names) if (labels == c).any()]
        if groups is not None:
            kinds = group_names(groups, len(labels))
            cells = [
                row(f"{names[c]}, {kind}", (labels == c) & (kinds == kind))
                for c in range(len(names))
                for kind in np.unique(kinds)
                if ((labels == c) & (kinds == kind)).any()
            ]
            worst = min(cells, key=lambda cell: cell[2]), min(cells, key=lambda cell: cell[3])
            rows += [*cells, ("worst group", min(worst[0][1], worst[1][1]), worst[0][2], worst[1][3])]
        at = np.arange(len(labels)), labels
        odds = [log_odds(torch.from_numpy(part)).numpy()[at] for part in (old, new)]
        return cls(
            tuple(rows),
            len(labels),
            int((was != now).sum()),
            int((~right & still).sum()),
            int((right & ~still).sum()),
            float((odds[1] - odds[0]).mean()),
        )

    def facts(self) -> dict[str, Any]:
        names = ("pictures", "changed", "mended", "broken", "shift")
        return {name: self.__dict__[name] for name in names}

    def columns_of_rows(self) -> dict[str, Any]:
        names = ("what", "pictures", "before", "after")
        return columns([dict(zip(names, row, strict=True)) for row in self.rows])

    def __getitem__(self, what: str) -> tuple[float, float]:
        """Accuracy before and after of one row, such as "all pictures" or "worst group"."""
        found = {name: (before, after) for name, _, before, after in self.rows}
        if what not in found:
            raise SettingsError("no such row", given=what, accepted=list(found))
        return found[what]

    @property
    def lost(self) -> tuple[tuple[str, float], ...]:
        """What was paid: the rows whose accuracy fell, and by how much, the most first."""
        fell = [(what, before - after) for what, _, before, after in self.rows if after < before]
        return tuple(sorted(fell, key=lambda row: -row[1]))

    def __str__(self) -> str:
        wide = max(len(name) for name, *_ in self.rows)
        lines = [f"{name:{wide}}  {n:5d}  {before:6.1%} -> {after:6.1%}" for name, n, before, after in self.rows]
        said = f"{self.changed} of {self.pictures} decisions changed: {self.mended} are right now, {self.broken} wrong"
        return "\n".join([*lines, said, self.price()])

    def price(self, most: int = 6) -> str:
        """What was lost, as a sentence."""
        fell = ", ".join(f"{what} ({100 * points:.1f} points)" for what, points in self.lost[:most])
        more = f" and {len(self.lost) - most} more" if len(self.lost) > most else ""
        sure = f"log-odds of the right class {self.shift:+.2f} on average"
        return f"lost: {fell}{more}; {sure}" if fell else f"no class and no group lost accuracy; {sure}"


def group_names(groups: Sequence[Any] | np.ndarray, pictures: int) -> np.ndarray:
    found = np.asarray(groups)
    if found.shape != (pictures,):
        raise SettingsError("one group a picture", given=found.shape, accepted=f"({pictures},)")
    return found.astype(str)


def logits_of(
    subject: Subject,
    head: Head,
    images: ImageSet,
    painted: np.ndarray | None = None,
    seen: Callable[[int], None] | None = None,
) -> np.ndarray:
    """float32 (picture, class); where `painted` bool (picture, row, column) of the input says, it is painted over.

    `seen` is told after every batch how many pictures it had.
    """
    assert subject.preprocess is not None
    parts = []
    with torch.inference_mode(), evaluating(subject.module):
        for at, batch in images.batches(subject.preprocess, BATCH):
            x = subject.inputs(torch.from_numpy(batch))
            if painted is not None:
                x = fill_holes(x, torch.from_numpy(painted[at]).to(x.device))
            parts.append(head.logits(subject, x).cpu().numpy())
            if seen is not None:
                seen(len(at))
    return np.concatenate(parts)
