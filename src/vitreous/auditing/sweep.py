"""Audits of several layers: a cue that entered early is carried past a later layer, so that one layer may not do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Literal

import numpy as np
import torch

from vitreous.auditing import audit
from vitreous.auditing.effects import log_odds
from vitreous.auditing.finding import AuditFinding, AuditRow
from vitreous.auditing.heads import Given, open_head
from vitreous.auditing.overall import Overall
from vitreous.auditing.switch import SwitchOff, logits_of
from vitreous.checks import number
from vitreous.errors import ImageError, SettingsError
from vitreous.evidence.suspicion import difference
from vitreous.finding import Finding, columns
from vitreous.images import ImageSet
from vitreous.models.subject import Subject
from vitreous.progress import tqdm

STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # how many parts are switched off to see what is left
WRITES = ("blocks.*.attn.out", "blocks.*.mlp.out")  # all that is added to the residual stream


@dataclass(frozen=True, eq=False)
class AuditSweep(Finding):
    """One finding a layer, in the order of the model, all read by the same head."""

    findings: tuple[AuditFinding, ...]

    def __repr__(self) -> str:
        return f"AuditSweep({len(self.findings)} layers, {len(self.rows)} parts, {len(self.alarms)} alarms)"

    def __getitem__(self, site: str) -> AuditFinding:
        found = {finding.site: finding for finding in self.findings}
        if site not in found:
            raise SettingsError("this site was not audited", given=site, accepted=list(found))
        return found[site]

    @property
    def rows(self) -> tuple[tuple[str, AuditRow], ...]:
        """(site, row) of all layers, most suspicious first."""
        every = [(finding.site, row) for finding in self.findings for row in finding.rows]
        return tuple(sorted(every, key=lambda pair: -pair[1].suspicion))

    @property
    def alarms(self) -> tuple[tuple[str, AuditRow], ...]:
        return tuple((site, row) for site, row in self.rows if row.alarm)

    @property
    def overall(self) -> Overall | None:
        """The model's own test, once for all layers and at the whole alpha; None without masks."""
        first, alpha = self._first.overall, sum(float(one.settings["alpha"]) for one in self.findings)
        return None if first is None else replace(first, alarm=first.p <= alpha * (1 + 1e-9) and first.suspicion > 0)

    def together(self, target: int) -> np.ndarray:
        """(picture,) what all alarms add to a class where suspicion was measured, with masks the object painted over.

        The pictures where that is most are those to look at: a single part is often less clear. Of two classes the
        alarms of the other count against it.
        """
        first = self._first
        if target not in range(len(first.classes)):
            raise SettingsError("no such class", given=target, accepted=f"0 to {len(first.classes) - 1}")
        found = np.zeros(len(first.labels))
        for one in self.findings:
            for k, row in enumerate(one.rows):
                if row.alarm and (row.target == target or len(first.classes) == 2):
                    found += one.suspected[:, k] * (1 if row.target == target else -1)
        return found

    def facts(self) -> dict[str, Any]:
        found = {"layers": len(self.findings), "parts": len(self.rows), "alarms": len(self.alarms)}
        return found | {"basis": self._first.basis, "accuracy": self._first.accuracy}

    def columns_of_rows(self) -> dict[str, Any]:
        """The rows of all layers, most suspicious first."""
        rows = [{"site": one.site} | row for one in self.findings for row in one.records()]
        return columns(sorted(rows, key=lambda row: -row["suspicion"]))

    def switch_off(
        self,
        top: int | Literal["all"] | None = None,
        *,
        groups: Sequence[Any] | np.ndarray | None = None,
        measure: bool = True,
    ) -> SwitchOff:
        """One patch for the `top` most suspicious alarms of all layers, or for "all" of them.

        Without a number as many are taken as leave the least of the label in pictures whose object is painted over
        (see `reliance`); that asks for masks, and without them all are taken. Too many do harm: parts that carry the
        object as well go with them.
        """
        if not self.alarms:
            raise SettingsError("nothing to switch off: no part raised an alarm")
        count = self.enough() if top is None else len(self.alarms) if top == "all" else top
        patch = self._patch(count)
        return self.measured(patch, groups) if measure else patch

    def measured(self, patch: SwitchOff, groups: Sequence[Any] | np.ndarray | None = None) -> SwitchOff:
        """A patch with its table on the audited pictures; as it is where the model or the pictures are not there."""
        first = self._first
        if first.subject is None or first.images is None or first.head is None:
            return patch
        return patch.measured(
            first.subject, first.images, head=first.head, groups=self.groups if groups is None else groups
        )

    @property
    def groups(self) -> np.ndarray:
        """(picture,) those that were given, or else what the first layer proposes."""
        return self._first.groups if self._first.groups is not None else self._first.propose_groups()

    def reliance(self) -> dict[int, float]:
        """What is left of the label outside the object, with so many alarms switched off; 0 of them first.

        Mean log-odds of the right class in pictures whose object is painted over, all classes alike and against the
        mean of the other classes' pictures: 0 says that nothing outside the object speaks for the label.
        """
        first = self._first
        if first.masks is None or first.subject is None or first.images is None or first.head is None:
            raise SettingsError("reliance is measured with masks, on the model itself", remedy='masks="masks"')
        found = {0: self._left(first)}
        for count in [n for n in STEPS if n < len(self.alarms)] + [len(self.alarms)]:
            with self._patch(count).on(first.subject):
                found[count] = self._left(first)
            if found[count] <= 0:
                break
        return found

    def enough(self) -> int:
        """How many alarms, switched off, leave the least of the label outside the object; without masks all."""
        if self._first.masks is None or self._first.subject is None:
            return len(self.alarms)
        left = {count: abs(value) for count, value in self.reliance().items() if count}
        return min(left, key=lambda count: left[count])

    @property
    def _first(self) -> AuditFinding:
        return self.findings[0]

    @staticmethod
    def _left(first: AuditFinding) -> float:
        assert first.subject is not None and first.images is not None and first.head is not None
        logits = logits_of(first.subject, first.head, first.images, first.masks)
        odds, y = log_odds(torch.from_numpy(logits)).numpy(), first.labels
        return float(np.mean([difference(odds[:, [c]], y == c)[0] for c in range(odds.shape[1])]))

    def patch(self, which: Sequence[tuple[str, int]]) -> SwitchOff:
        """One patch for parts of any of the layers, each said by its site and its id there; not measured."""
        if not which:
            raise SettingsError("at least one part is switched off", given=0)
        by_site: dict[str, list[int]] = {}
        for site, part in which:
            by_site.setdefault(self[site].site, []).append(part)
        return reduce(add, [one.patch(by_site[one.site]) for one in self.findings if one.site in by_site])

    def _patch(self, count: int) -> SwitchOff:
        if count < 1:
            raise SettingsError("at least one part is switched off", given=count)
        return self.patch([(site, row.id) for site, row in self.alarms[:count]])


def audit_sites(
    subject: Subject,
    images: ImageSet,
    sites: str | Sequence[str] = WRITES,
    *,
    head: Given = None,
    train: ImageSet | None = None,
    targets: Sequence[int] | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    progress: bool = True,
    **asked: Any,
) -> AuditSweep:
    """`vt.audit` for each of some layers, by default all that write into the residual stream.

    Alpha is shared out evenly between the layers, so that on a clean model the chance of any alarm stays at most alpha.
    What else `vt.audit` takes goes to every audit.

    >>> sweep = vt.audit_sites(subject, images, masks="masks")
    >>> patch = sweep.switch_off()
    """
    number(above=True, alpha=alpha)
    names = subject.resolve(sites)
    if "disentanglement" in asked or "labels" in asked:
        raise SettingsError(
            "sub-units of one layer do not serve several", given=sorted(asked), remedy="vt.audit(site=...)"
        )
    read, seen = open_head(subject, head, images, train, targets, seed)
    if len(seen) != len(images):
        for name in ("masks", "groups"):
            given = asked.get(name)
            if given is None or isinstance(given, str) or callable(given):
                continue
            if len(given) != len(images):
                raise ImageError(f"one of the {name} for each picture", given=len(given), accepted=str(len(images)))
            by_id = dict(zip(images.ids, given, strict=True))
            asked[name] = [by_id[picture] for picture in seen.ids]
    found = []
    for site in tqdm(names, "layers", disable=not progress):
        share = alpha / len(names)
        found.append(audit(subject, seen, site, head=read, alpha=share, seed=seed, progress=progress, **asked))
    return AuditSweep(tuple(found))
