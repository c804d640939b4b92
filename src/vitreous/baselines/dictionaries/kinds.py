"""The table of dictionaries: one row a kind. A conformance test runs over the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitreous.baselines.dictionaries.archetypal import Archetypal
from vitreous.baselines.dictionaries.batch_topk import BatchTopK
from vitreous.baselines.dictionaries.codes import Rule, above, largest, pursued, rectified
from vitreous.baselines.dictionaries.jumprelu import JumpReLU
from vitreous.baselines.dictionaries.matching_pursuit import MatchingPursuit
from vitreous.baselines.dictionaries.matryoshka import Matryoshka
from vitreous.baselines.dictionaries.topk import TopK
from vitreous.baselines.dictionaries.trainee import Trainee
from vitreous.baselines.dictionaries.transcoder import Transcoder
from vitreous.baselines.dictionaries.vanilla import Vanilla
from vitreous.errors import SettingsError

#: The paper's k for every kind but the archetypal one, which keeps a tenth of its units (E.1).
PAPER_K = 20


@dataclass(frozen=True)
class Kind:
    """`rule` makes codes from finished weights, `architecture` is SAELens's name for that rule.

    Sparsity is asked for by `k`, or by a penalty where `penalties`, those that the paper sweeps, are given.
    """

    name: str
    trainee: type[Trainee]
    rule: Rule
    architecture: str
    penalties: tuple[float, ...] = ()

    @property
    def options(self) -> Mapping[str, Any]:
        return self.trainee.defaults

    def default_k(self, units: int) -> int:
        return max(units // 10, 1) if self.trainee is Archetypal else PAPER_K


KINDS = {
    kind.name: kind
    for kind in (
        Kind("vanilla", Vanilla, rectified, "standard", (1e-3, 5e-3, 2e-2)),
        Kind("topk", TopK, largest, "topk"),
        Kind("batch_topk", BatchTopK, above, "jumprelu"),
        Kind("jumprelu", JumpReLU, above, "jumprelu", (1e-4, 1e-3, 1e-2)),
        Kind("matryoshka", Matryoshka, above, "jumprelu"),
        Kind("archetypal", Archetypal, largest, "topk"),
        Kind("matching_pursuit", MatchingPursuit, pursued, "matching_pursuit"),
        Kind("transcoder", Transcoder, rectified, "transcoder", (1e-3, 5e-3, 2e-2)),
    )
}


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise SettingsError(f"no dictionary of kind {name!r}", given=name, accepted=tuple(KINDS))
    return KINDS[name]
