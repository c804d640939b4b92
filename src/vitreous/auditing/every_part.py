"""Every part of the layer, tested or not, class by class: what it adds, what it tells, and where it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitreous.auditing.effects import Effects
from vitreous.evidence.selectivity import auc
from vitreous.finding import Finding, columns


@dataclass(frozen=True, eq=False)
class EveryPart(Finding):
    """Parts by their id. Columns are `classes`, of `by_group` they are `groups`.

    `names` (part, 2)  the layer's unit, and which of its sub-units (-1: the unit was not split)
    `contributions`    what a part adds to the class's logit in pictures of the class, beyond its level. Where `exact`,
                       the way to the logits is linear and this is just what is lost without the part; elsewhere it
                       is so to first order
    `taken_out`        logit that these pictures really lost without the part; NaN where that was not run
    `selectivity`      AUC of its activation, the class against the rest; `by_group` each group against the rest
    `outside`          share of its map off the object, in pictures of the class (NaN without masks)
    `agreement`        share of pictures of the class in which it speaks for the class
    """

    classes: tuple[str, ...]
    groups: tuple[str, ...]
    exact: bool
    names: np.ndarray
    contributions: np.ndarray
    taken_out: np.ndarray
    selectivity: np.ndarray
    by_group: np.ndarray
    outside: np.ndarray
    agreement: np.ndarray

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        how = "exact" if self.exact else "to first order"
        return f"EveryPart({len(self)} parts, {len(self.classes)} classes; contributions {how})"

    def facts(self) -> dict[str, Any]:
        return {"parts": len(self), "classes": len(self.classes), "contributions are exact": self.exact}

    def columns_of_rows(self) -> dict[str, Any]:
        """One row a part and class, then one a part and group; what does not apply is None."""
        per_class = ("contributions", "taken_out", "selectivity", "outside", "agreement")
        rows: list[dict[str, Any]] = []
        for k, (unit, part) in enumerate(self.names.tolist()):
            said = {"id": k, "unit": unit, "part": None if part < 0 else part}
            for c, name in enumerate(self.classes):
                rows.append(said | {"class": name} | {what: float(vars(self)[what][k, c]) for what in per_class})
            for g, name in enumerate(self.groups):
                rows.append(said | {"group": name, "selectivity": float(self.by_group[k, g])})
        return columns(rows)

    def of_groups(self, part: int) -> float:
        """The AUC of the group that the part tells best, either way; NaN without groups."""
        found = self.by_group[part]
        return float(found[np.abs(found - 0.5).argmax()]) if len(found) > 1 else float("nan")

    def with_taken_out(self, part: int, lost: np.ndarray) -> EveryPart:
        """`lost` (class,) logits, of a part that was taken out for real."""
        taken_out = self.taken_out.copy()
        taken_out[part] = lost
        return replace(self, taken_out=taken_out)


def every_part(
    whole: Effects,
    levels: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
    classes: Sequence[str],
    names: Sequence[tuple[int, int | None]],
) -> EveryPart:
    """`whole` are the effects in the pictures as they are, `labels` 0 to C - 1, `names` one of each part."""
    active, members = whole.activations.astype(np.float64), [labels == c for c in range(len(classes))]
    given = np.zeros(len(labels), "<U1") if groups is None else groups
    kinds = np.unique(given)[: None if len(np.unique(given)) > 1 else 0]
    logits, odds = whole.added(levels), whole.beyond(levels)
    inside, outside = (np.stack([m[mine].sum(0) for mine in members], 1) for m in (whole.inside, whole.outside))
    seen = inside + outside
    return EveryPart(
        classes=tuple(classes),
        groups=tuple(kinds.tolist()),
        exact=whole.linear,
        names=np.array([(unit, -1 if part is None else part) for unit, part in names], np.int64).reshape(-1, 2),
        contributions=np.stack([logits[mine, :, c].mean(0) for c, mine in enumerate(members)], 1),
        taken_out=np.full((len(names), len(classes)), np.nan),
        selectivity=auc(active, np.stack(members, 1)),
        by_group=auc(active, given[:, None] == kinds) if len(kinds) else np.zeros((len(names), 0)),
        outside=np.divide(outside, seen, out=np.full(seen.shape, np.nan, seen.dtype), where=seen > 0),
        agreement=np.stack([(odds[mine, :, c] > 0).mean(0) for c, mine in enumerate(members)], 1),
    )
