"""Steering (appendix C.3 of ELUDe): sub-units of a concept made stronger or weaker for as long as a `with` lasts.

    paper    here        what it is
    A, S     -           sub-units to amplify and to suppress; one that belongs to both is amplified
    alpha    alpha       factor of the amplified ones
    gamma    gamma       factor of the suppressed ones: 0 takes them out, below 0 turns them over
    kappa    top_units   sub-units that a concept stands for: those whose labels are nearest to it
    nu       patches     patches of a picture on which a sub-unit is scaled: those where it is strongest

A unit moves by what its sub-units move: a' = a + sum over its steered sub-units c of (factor - 1) a^(c), on the chosen
patches. The original product is kept, so that everything else stays the same bit for bit.

Where we differ: prefix tokens (class, registers) can be steered too. The paper's encoder has none; a model that reads
its class token never sees what happens to the patches in its last block. And amplified sub-units can be raised: a
factor does nothing for a concept that is not in the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from vitreous.checks import is_number
from vitreous.errors import SettingsError
from vitreous.evidence.directions import directions
from vitreous.labels import Embed, Labels, embed_texts
from vitreous.models.subject import Subject
from vitreous.subunits.applied import at_hand
from vitreous.subunits.layers import prefix_at

if TYPE_CHECKING:
    from torch import nn

    from vitreous.lenses.disentangle_finding import Disentanglement

Concept = str | int | tuple[int, int]


@dataclass(frozen=True, eq=False)
class Match:
    """What a concept was taken to mean: sub-units, nearest label first, with their labels and the cosine to it."""

    concept: str
    factor: float
    subunits: np.ndarray
    labels: tuple[str, ...]
    similarity: np.ndarray


@dataclass(eq=False)
class Steering:
    """What is steered: `subunits`, parts of the layer's `units`, times `factors` plus `raised`, each (sub-unit,).

    Of the latest pass, (sample, position, sub-unit): `before` activations, `places` bool where they are scaled,
    `change` by how much. Positions begin with the `prefix` tokens that are no patches; `patch_map` leaves these out.
    """

    site: str
    subunits: np.ndarray
    units: np.ndarray
    factors: np.ndarray
    raised: np.ndarray
    matches: tuple[Match, ...]
    patches: int | Literal["all"]
    prefix: int
    steers_prefix: bool
    where: Tensor | None = field(default=None, repr=False)
    _before: Tensor | None = field(default=None, repr=False)
    _places: Tensor | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        factors, counts = np.unique(self.factors, return_counts=True)
        said = ", ".join(f"{count} x {factor:g}" for factor, count in zip(factors, counts, strict=True))
        return f"Steering({self.site!r}: {said}; {len(self.subunits)} sub-units of {len(np.unique(self.units))} units)"

    @property
    def before(self) -> Tensor:
        return _seen(self._before)

    @property
    def places(self) -> Tensor:
        return _seen(self._places)

    @property
    def change(self) -> Tensor:
        factors, raised = self._by(self.before)
        return torch.where(self.places, self.before * (factors - 1) + raised, 0)

    @property
    def patch_map(self) -> np.ndarray:
        """float32 (sample, patch): how much was changed at each patch, absolute changes of all sub-units added."""
        return self.change[:, self.prefix :].abs().sum(-1, dtype=torch.float32).cpu().numpy()

    def edit(self, a: Tensor) -> Tensor:
        """Activations (sample, position, sub-unit) -> the same with those of the chosen places steered."""
        self._before, self._places = a.detach(), self._chosen(a.detach())
        factors, raised = self._by(a)
        return torch.where(self._places, a * factors + raised, a)

    def _by(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.factors).to(like), torch.from_numpy(self.raised).to(like)

    def _chosen(self, a: Tensor) -> Tensor:
        """bool (sample, position, sub-unit): the strongest patches of each sub-unit, equal ones in their order."""
        there, patches = torch.zeros_like(a, dtype=torch.bool), a[:, self.prefix :]
        there[:, : self.prefix] = self.steers_prefix
        allowed = torch.ones_like(patches, dtype=torch.bool)
        if self.where is not None:
            allowed &= self._allowed(patches)
        if self.patches == "all":
            there[:, self.prefix :] = allowed
            return there
        ranked = patches.masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
        strongest = torch.zeros_like(allowed).scatter(1, ranked[:, : self.patches], True)
        there[:, self.prefix :] = strongest & allowed
        return there

    def _allowed(self, patches: Tensor) -> Tensor:
        assert self.where is not None
        mask = self.where.to(patches.device)
        fits = mask.shape in (patches.shape[1:2], patches.shape[:2])
        if not fits:
            raise SettingsError(
                "where is one mask for all samples, or one a sample",
                given=tuple(mask.shape),
                accepted=f"({patches.shape[1]},) or {tuple(patches.shape[:2])}; no prefix tokens",
            )
        return mask.expand(patches.shape[:2])[..., None]


@contextmanager
def steer(
    subject: Subject | nn.Module,
    disentanglement: Disentanglement,
    *,
    amplify: Concept | Sequence[Concept] | np.ndarray = (),
    suppress: Concept | Sequence[Concept] | np.ndarray = (),
    alpha: float = 5.0,
    gamma: float = -5.0,
    top_units: int = 50,
    patches: int | Literal["all"] = "all",
    lift: float = 0.0,
    labels: Labels | Sequence[str | None] | None = None,
    embed: Embed | None = None,
    chance: float = 1.0,
    prefix: bool = False,
    where: np.ndarray | Tensor | None = None,
) -> Iterator[Steering]:
    """Scales sub-units in every pass inside the context; afterwards the model is as it was, bit for bit.

    What to amplify and suppress is said by number of the sub-unit, by (unit, which of its sub-units), or by a text that
    stands for the `top_units` sub-units with the nearest `labels`: those of `vt.label`, or one for each sub-unit.
    `embed` makes (text, channel) of a list of texts and nearness is the cosine; without it a text means the sub-units
    that have just this label, surest first. Labels that may be luck are left out by `chance`, dead sub-units always.

    `patches` of a picture are steered, of each sub-unit those where it is strongest; or all. `where` bool (patch,) or
    (sample, patch) allows some patches only. `prefix` steers class and register tokens as well, whatever they respond.
    Tokens of a text are its patches. Steerings at the same time are applied one after the other.

    `lift` raises amplified sub-units besides, by so many times the mean activation of their strongest instances.

    >>> with vt.steer(subject, finding, amplify="biker", suppress="dog", labels=labels, embed=embed) as steering:
    ...     logits = subject(x)
    >>> steering.subunits, steering.change
    """
    _check(alpha, gamma, lift, top_units, patches, chance)
    split = at_hand(disentanglement, subject)
    names = None if labels is None else _Names.of(labels, disentanglement)
    finder = _Finder(disentanglement, names, embed, top_units, chance)
    up, up_matches = finder.find(amplify, alpha)
    down, down_matches = finder.find(suppress, gamma)
    if not len(up) and not len(down):
        raise SettingsError("nothing to steer", accepted="amplify=..., suppress=..., or both")
    ids = np.union1d(up, down)
    steering = Steering(
        site=split.layer.site,
        subunits=ids,
        units=disentanglement.units[disentanglement.parents[ids]],
        factors=np.where(np.isin(ids, up), alpha, gamma).astype(np.float32),
        raised=np.where(np.isin(ids, up), lift * _strong(disentanglement, ids), 0).astype(np.float32),
        matches=(*up_matches, *down_matches),
        patches=patches,
        prefix=prefix_at(subject, split.layer),
        steers_prefix=prefix,
        where=None if where is None else _mask(where),
    )
    with split.edit(ids, steering.edit):
        yield steering


# -- which sub-units


@dataclass(frozen=True, eq=False)
class _Names:
    """The name of every sub-unit (None: it has none), how well it fits, and how likely it is luck."""

    names: tuple[str | None, ...]
    scores: np.ndarray
    chance: np.ndarray

    @classmethod
    def of(cls, labels: Labels | Sequence[str | None], finding: Disentanglement) -> _Names:
        if len(labels) != len(finding):
            raise SettingsError(
                "labels are one for each sub-unit", given=len(labels), accepted=f"{len(finding)} for {finding.site}"
            )
        if isinstance(labels, Labels):
            return cls(labels.names, np.nan_to_num(labels.scores[:, 0]), np.nan_to_num(labels.chance, nan=1.0))
        if not all(name is None or isinstance(name, str) for name in labels):
            raise SettingsError("a label is a text, or None", given=[type(name).__name__ for name in labels][:5])
        return cls(tuple(labels), np.zeros(len(labels)), np.zeros(len(labels)))


@dataclass(frozen=True, eq=False)
class _Finder:
    """From what a user says to sub-units."""

    finding: Disentanglement
    names: _Names | None
    embed: Embed | None
    top: int
    chance: float

    def find(self, wanted: Concept | Sequence[Concept] | np.ndarray, factor: float) -> tuple[np.ndarray, list[Match]]:
        """int64 (sub-unit,), each once, and what the texts were taken to mean."""
        if isinstance(wanted, tuple) and len(wanted) == 2 and all(isinstance(n, int | np.integer) for n in wanted):
            raise SettingsError(
                "two numbers in round brackets may be two sub-units, or a unit and which of its sub-units",
                given=wanted,
                accepted=f"{list(wanted)} or [{wanted}]",
            )
        items: list[Any] = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]
        matches = [self._match(item, factor) for item in items if isinstance(item, str)]
        numbers = [self._number(item) for item in items if not isinstance(item, str)]
        return np.unique(np.array([*numbers, *(i for m in matches for i in m.subunits)], np.int64)), matches

    def _number(self, item: Any) -> int:
        """A sub-unit by its number, or by (unit, which of its sub-units)."""
        pair = isinstance(item, tuple) and len(item) == 2
        if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in (item if pair else [item])):
            raise SettingsError(
                "a sub-unit is named by its number, by (unit, which of its sub-units), or by a label", given=item
            )
        if not pair:
            if not 0 <= item < len(self.finding):
                raise SettingsError("no such sub-unit", given=int(item), accepted=f"0 to {len(self.finding) - 1}")
            return int(item)
        mine = self.finding.subunits(item[0])
        if not 0 <= item[1] < len(mine):
            whole = f"unit {item[0]} was not split: it is its own only sub-unit"
            what = whole if len(mine) == 1 else f"unit {item[0]} has {len(mine)} sub-units"
            raise SettingsError(what, given=tuple(map(int, item)), accepted=f"({item[0]}, 0 to {len(mine) - 1})")
        return int(mine[item[1]])

    def _match(self, concept: str, factor: float) -> Match:
        """The sub-units whose labels are nearest to a text, equally near ones by how well the label fits."""
        if self.names is None:
            raise SettingsError(
                "a sub-unit is named by its label here, and no labels were given",
                given=concept,
                remedy="labels=vt.label(...)",
            )
        words, _ = self._words
        near = self._nearness(concept)
        order = np.lexsort((-self.names.scores[self._named], -near))
        best = order[near[order] > -np.inf][: self.top]
        if not len(best):
            remedy = "embed=... takes the nearest labels instead"
            raise SettingsError("no sub-unit has this label", given=concept, accepted=words, remedy=remedy)
        ids = self._named[best]
        return Match(concept, factor, ids, tuple(str(self.names.names[i]) for i in ids), near[best].astype(np.float32))

    def _nearness(self, concept: str) -> np.ndarray:
        """(named sub-unit,): the cosine of label and text; without an embedding 1 if they are the same, else -inf."""
        words, of = self._words
        if self.embed is None:
            return np.where(np.array(words)[of] == concept, 1.0, -np.inf)
        return (self._vectors @ directions(_embedded(self.embed, [concept]), "text")[0])[of]

    @cached_property
    def _named(self) -> np.ndarray:
        """Sub-units that can be found by their label: it is sure enough, and they are not dead."""
        assert self.names is not None
        has = np.array([name is not None for name in self.names.names])
        found = np.flatnonzero(has & (self.names.chance <= self.chance) & ~self.finding.dead)
        if not len(found):
            raise SettingsError("no sub-unit has a label that is sure enough", given=f"chance={self.chance}")
        return found

    @cached_property
    def _words(self) -> tuple[list[str], np.ndarray]:
        """The different labels, and which of them each named sub-unit has."""
        assert self.names is not None
        words, of = np.unique([str(self.names.names[i]) for i in self._named], return_inverse=True)
        return words.tolist(), of

    @cached_property
    def _vectors(self) -> np.ndarray:
        assert self.embed is not None
        return directions(_embedded(self.embed, self._words[0]), "label")


def _embedded(embed: Embed, texts: list[str]) -> np.ndarray:
    found = embed_texts(embed, texts)
    if len(found) != len(texts):
        raise SettingsError("every text has one embedding", given=f"{len(found)} embeddings for {len(texts)} texts")
    return found


# -- what was asked for


def _strong(finding: Disentanglement, ids: np.ndarray) -> np.ndarray:
    """(sub-unit,): mean activation on the strongest instances that are known of it."""
    values = finding.subunit_top.values[ids]
    return np.nan_to_num(values).sum(1) / np.maximum(np.isfinite(values).sum(1), 1)


def _mask(where: np.ndarray | Tensor) -> Tensor:
    mask = torch.as_tensor(where)
    if mask.dtype != torch.bool or mask.ndim not in (1, 2):
        raise SettingsError("where is bool (patch,) or (sample, patch)", given=f"{mask.dtype} {tuple(mask.shape)}")
    return mask


def _seen(value: Tensor | None) -> Tensor:
    if value is None:
        raise SettingsError("nothing was steered yet", remedy="run the model inside the with")
    return value


def _check(alpha: float, gamma: float, lift: float, top_units: int, patches: int | str, chance: float) -> None:
    for name, value, nothing in (("alpha", alpha, 1), ("gamma", gamma, 1), ("lift", lift, 0)):
        if not is_number(value) or not np.isfinite(value):
            raise SettingsError(f"{name} is a finite number", given=value, accepted=f"{nothing} changes nothing")
    if not isinstance(top_units, int | np.integer) or top_units < 1:
        raise SettingsError("top_units is a whole number from 1 on", given=top_units)
    if patches != "all" and (not isinstance(patches, int | np.integer) or patches < 1):
        raise SettingsError("patches is a whole number from 1 on, or all", given=patches, accepted="'all', 1, 2, ...")
    if not is_number(chance) or not 0 <= chance <= 1:
        raise SettingsError("chance is between 0 and 1", given=chance)
