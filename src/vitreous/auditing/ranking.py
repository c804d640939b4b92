"""From effects to a ranked list: which parts are tested, how suspicious each is, and whether that can be luck."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vitreous.auditing.effects import Parts
from vitreous.auditing.every_part import EveryPart
from vitreous.auditing.finding import AuditRow
from vitreous.errors import SettingsError
from vitreous.evidence.suspicion import corrected, difference, exchange_test

OUTSIDE, BETWEEN, WHOLE = "outside the object", "between groups", "the whole picture"


@dataclass(frozen=True)
class Setting:
    """How many parts are tested, exchanges of labels, and what counts as an alarm."""

    tested: int
    repeats: int
    alpha: float
    correction: str
    seed: int


@dataclass(frozen=True, eq=False)
class Evidence:
    """Effects (picture, part, class) that suspicion rests on, of pictures with these `labels` and `groups`.

    `odds` (picture, class) are the model's own log-odds on pictures whose object is painted over.
    """

    effects: np.ndarray
    labels: np.ndarray
    groups: np.ndarray | None
    basis: str
    odds: np.ndarray | None = None

    @property
    def own(self) -> np.ndarray:
        """(picture, part): on the picture's own class."""
        return self.effects[np.arange(len(self.labels)), :, self.labels]

    def varied(self, parts: Parts, count: int) -> np.ndarray:
        """The parts whose effects vary most over pictures, found without the labels; in the order of the layer."""
        spread = self.effects.std(0).max(-1)
        spread[~parts.alive] = -1
        order = np.argsort(-spread, kind="stable")[:count]
        return np.sort(order[spread[order] > 0])

    def differences(self, setting: Setting, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(part, class) suspicions and p-values of the chosen parts, and the classes that the columns are."""
        if self.basis == BETWEEN:
            found = self._between(setting, chosen)
            return found[0][:, None], found[1][:, None], np.zeros(1, np.int64)
        classes = np.arange(self.effects.shape[2])[-1:] if self.effects.shape[2] == 2 else np.unique(self.labels)
        tests = [
            exchange_test(self.effects[:, chosen, c], self.labels == c, repeats=setting.repeats, seed=setting.seed)
            for c in classes
        ]
        return np.stack([t for t, _ in tests], 1), np.stack([p for _, p in tests], 1), classes

    def _between(self, setting: Setting, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The largest difference of one group to the others of the same class, for any group, both ways."""
        assert self.groups is not None
        own, names = self.own[:, chosen], np.unique(self.groups)
        if len(names) < 2:
            raise SettingsError("groups are compared with each other, and there is one", given=names.tolist())
        own = own - np.stack([own[self.labels == c].mean(0) for c in range(self.effects.shape[2])])[self.labels]
        names = names[:1] if len(names) == 2 else names
        tests = [
            exchange_test(
                own, self.groups == g, strata=self.labels, two_sided=True, repeats=setting.repeats, seed=setting.seed
            )
            for g in names
        ]
        sizes, ps = np.abs([t for t, _ in tests]), np.array([p for _, p in tests])
        return sizes.max(0), np.minimum(ps.min(0) * len(names), 1)

    def targets(self, chosen: np.ndarray, best: np.ndarray) -> np.ndarray:
        """The class that each part speaks for; of two classes the one whose pictures it moves more."""
        if self.basis != BETWEEN and self.effects.shape[2] > 2:
            return best
        own = self.own[:, chosen]
        return np.stack([own[self.labels == c].mean(0) for c in range(self.effects.shape[2])]).argmax(0)

    def of_units(self, parts: Parts, chosen: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """(chosen,): the suspicion of the unit that a part belongs to, all its parts together."""
        found = np.empty(len(chosen))
        for unit in np.unique(parts.owner[chosen]):
            together = self.effects[:, parts.owner == unit].sum(1)
            for k in np.flatnonzero(parts.owner[chosen] == unit):
                found[k] = self._of_one(together, int(columns[k]))
        return found

    def _of_one(self, effects: np.ndarray, c: int) -> float:
        if self.basis != BETWEEN:
            return float(difference(effects[:, [c]], self.labels == c)[0])
        whole = Evidence(effects[:, None], self.labels, self.groups, self.basis)
        return float(whole._between(Setting(1, 1, 0.05, "fdr_bh", 0), np.array([0]))[0][0])


@dataclass(frozen=True, eq=False)
class Ranked:
    """Of the `chosen` parts, most suspicious first: their `target` class, `suspicion`, p-values, and their unit's."""

    chosen: np.ndarray
    target: np.ndarray
    suspicion: np.ndarray
    p: np.ndarray
    corrected: np.ndarray
    of_unit: np.ndarray
    alpha: float

    def rows(self, every: EveryPart, effects: np.ndarray, labels: np.ndarray) -> tuple[AuditRow, ...]:
        """`every` part and `effects` are of the pictures as they are."""
        found = []
        for k, part in enumerate(self.chosen.tolist()):
            c, (unit, piece) = int(self.target[k]), every.names[part].tolist()
            found.append(
                AuditRow(
                    id=part,
                    unit=unit,
                    part=None if piece < 0 else piece,
                    target=c,
                    suspicion=float(self.suspicion[k]),
                    p=float(self.p[k]),
                    corrected=float(self.corrected[k]),
                    alarm=bool(self.corrected[k] <= self.alpha and self.suspicion[k] > 0),
                    whole=float(difference(effects[:, [part], c], labels == c)[0]),
                    of_unit=float(self.of_unit[k]),
                    ablation=float("nan"),
                    selectivity=float(every.selectivity[part, c]),
                    group_selectivity=every.of_groups(part),
                    outside=float(every.outside[part, c]),
                    agreement=float(every.agreement[part, c]),
                )
            )
        return tuple(found)


def rank(evidence: Evidence, parts: Parts, setting: Setting) -> Ranked:
    """Parts that vary are tested on every class, all tests corrected together; each is ranked by its best class."""
    chosen = evidence.varied(parts, setting.tested)
    if not len(chosen):
        nothing = np.zeros(0)
        return Ranked(chosen, chosen, nothing, nothing, nothing, nothing, setting.alpha)
    found, p, classes = evidence.differences(setting, chosen)
    safe = corrected(p, setting.correction)
    column = found.argmax(1)
    at = np.arange(len(chosen)), column
    target = evidence.targets(chosen, classes[column])
    of_unit = evidence.of_units(parts, chosen, classes[column])
    order = np.lexsort((chosen, -found[at]))
    first = found[at][order], p[at][order], safe[at][order], of_unit[order]
    return Ranked(chosen[order], target[order], *first, setting.alpha)


def shuffled_alarms(evidence: Evidence, parts: Parts, setting: Setting) -> float:
    """How many parts raise an alarm when labels are dealt to the pictures at random: there should be none."""
    order = np.random.default_rng((setting.seed, 9)).permutation(len(evidence.labels))
    groups = None if evidence.groups is None else evidence.groups[order]
    dealt = evidence.labels if evidence.basis == BETWEEN else evidence.labels[order]
    ranked = rank(Evidence(evidence.effects, dealt, groups, evidence.basis), parts, setting)
    return float((ranked.corrected <= setting.alpha).sum())
