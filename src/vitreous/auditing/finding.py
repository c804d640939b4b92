"""What an audit found: parts of a layer, the most suspicious first, with the numbers behind the suspicion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vitreous.auditing.effects import Parts
from vitreous.auditing.every_part import EveryPart
from vitreous.auditing.heads import Head
from vitreous.auditing.overall import Overall
from vitreous.auditing.proposed import goes_with, halves, shares_beside
from vitreous.auditing.switch import LayerOff, SwitchOff
from vitreous.errors import SettingsError, StoreError
from vitreous.examination.files import read_arrays, write_arrays
from vitreous.finding import Finding, columns
from vitreous.images import ImageSet
from vitreous.mirrors import kept_at, read_from
from vitreous.models.subject import Subject

FORMAT, VERSION, FILE = "vitreous audit", 4, "audit.npz"
AGAIN = "audit again: vt.audit(...).save(...)"
TABLES = ("names", "contributions", "taken_out", "selectivity", "by_group", "outside", "agreement")  # of every part


@dataclass(frozen=True)
class AuditRow:
    """One part of the layer and the class that it speaks for.

    id           its number among the parts that were audited; what `switch_off` takes
    unit, part   the layer's unit, and which of its sub-units (None: the unit was not split)
    suspicion    log-odds of the class that it adds to pictures of the class and not to others (see `finding.basis`)
    p, corrected how often exchanged labels give as much, alone and corrected for all tests; `alarm`: at most alpha
    whole        the same difference in the pictures as they are, with the object
    of_unit      suspicion of the undivided unit
    ablation     log-odds that pictures of the class lose when it is taken out; NaN if that was not run
    selectivity  AUC of its activation, the class against the rest; `group_selectivity` the best of the groups
    outside      share of its map that lies off the object, in pictures of the class (NaN without masks)
    agreement    share of pictures of the class in which it speaks for the class
    """

    id: int
    unit: int
    part: int | None
    target: int
    suspicion: float
    p: float
    corrected: float
    alarm: bool
    whole: float
    of_unit: float
    ablation: float
    selectivity: float
    group_selectivity: float
    outside: float
    agreement: float
    label: str | None = None
    mates: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "unit" if self.part is None else "sub-unit"

    @property
    def name(self) -> str:
        return f"{self.unit}" if self.part is None else f"{self.unit}.{self.part}"


@dataclass(frozen=True, eq=False)
class AuditFinding(Finding):
    """`rows`, most suspicious first; every part that was tested has one.

    `overall` is the model's own test, before any part (None without masks): it raises an alarm where a shortcut is
    spread over too many parts for any one to be named. `basis` says what suspicion is measured on: "outside the object"
    (the object is painted over), "between groups" (of one class), or "the whole picture", where a shortcut and a cause
    cannot be told apart.
    `every` part of the layer, tested or not, class by class and group by group.
    `activations`, `effects` (picture, row): what each part gives, and what it adds to its class; `suspected` is the
    latter where suspicion was measured, with the object painted over if there were masks. `controls`: alarms
    with shuffled labels, the largest suspicion of random sub-units and of undivided units. `levels` (row, kind).
    """

    site: str
    basis: str
    classes: tuple[str, ...]
    rows: tuple[AuditRow, ...]
    every: EveryPart
    parts: Parts
    levels: np.ndarray
    activations: np.ndarray
    effects: np.ndarray
    suspected: np.ndarray
    labels: np.ndarray
    ids: tuple[str, ...]
    groups: np.ndarray | None
    accuracy: float
    overall: Overall | None
    controls: Mapping[str, float]
    layer: Mapping[str, Any]
    settings: Mapping[str, Any]
    head: Head | None = field(default=None, repr=False)
    subject: Subject | None = field(default=None, repr=False)
    images: ImageSet | None = field(default=None, repr=False)
    masks: np.ndarray | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        best = f", first {self.rows[0].name} for {self.classes[self.rows[0].target]}" if self.rows else ""
        return f"AuditFinding({self.site!r}: {len(self.alarms)} alarms in {len(self.rows)} parts{best}; {self.basis})"

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def alarms(self) -> tuple[AuditRow, ...]:
        return tuple(row for row in self.rows if row.alarm)

    def records(self, top: int | None = None) -> list[dict[str, Any]]:
        """Plain rows, for JSON and data frames."""
        return [asdict(row) | {"target": self.classes[row.target]} for row in self.rows[:top]]

    def facts(self) -> dict[str, Any]:
        found = {"site": self.site, "parts": len(self.rows), "alarms": len(self.alarms), "basis": self.basis}
        whole = None if self.overall is None else self.overall.p
        return found | {"accuracy": self.accuracy, "chance of the whole model": whole}

    def columns_of_rows(self) -> dict[str, Any]:
        """The rows of `records`, most suspicious first."""
        return columns(self.records())

    # -- what to do about it

    def switch_off(
        self,
        which: Sequence[int | AuditRow] | None = None,
        *,
        subject: Subject | None = None,
        images: ImageSet | None = None,
        groups: Sequence[Any] | np.ndarray | None = None,
    ) -> SwitchOff:
        """A patch that puts these parts at their level; all that raised an alarm if none are named.

        Its `effect` is measured on the audited pictures and their groups, given or proposed, or on others that are
        given here. A finding that was loaded is told the subject and the pictures.
        """
        patch = self.patch(which)
        owner, seen = subject or self.subject, images if images is not None else self.images
        if owner is None or seen is None or self.head is None:
            return patch
        if images is None and groups is None:
            groups = self.groups if self.groups is not None else self.propose_groups()
        return patch.measured(owner, seen, head=self.head, groups=groups)

    def patch(self, which: Sequence[int | AuditRow] | None = None) -> SwitchOff:
        """The patch of `switch_off`, not measured."""
        chosen = [row.id for row in self.alarms] if which is None else [_number(item) for item in which]
        at = {row.id: k for k, row in enumerate(self.rows)}
        if wrong := [number for number in chosen if number not in at]:
            raise SettingsError("no part with this id was tested", given=wrong[:5], accepted=[str(k) for k in at][:20])
        if not chosen:
            raise SettingsError("nothing to switch off: no part raised an alarm", remedy="name parts by their id")
        if len(set(chosen)) < len(chosen):
            raise SettingsError("a part is named twice", given=chosen[:10])
        places = np.array([at[number] for number in chosen])
        parts = self.parts.some(places)
        names = tuple(self.rows[k].name for k in places)
        off = LayerOff(
            **self.layer,
            names=names,
            units=parts.owner,
            weight=parts.weight,
            bias=parts.bias,
            levels=self.levels[places].astype(np.float32),
        )
        return SwitchOff((off,))

    def propose_groups(self, most: int = 8, *, concepts: np.ndarray | None = None) -> np.ndarray:
        """(picture,) names of groups where there are none: each class in two, "with" and "without".

        By what the `most` suspicious parts add. Or by an alignment map: `concepts` whole numbers (picture, patch) say
        which concept of the map each patch of the audited pictures is. Of these the one is taken whose share beside the
        object goes best with what the parts add, and each class is cut by that share.

        >>> finding.propose_groups(concepts=spectral.of("text", layer, vt.group_nodes(spectral)(12)))
        """
        if not self.rows:
            raise SettingsError("no part was tested, so there is nothing to group by")
        same = [1.0 if row.target == self.rows[0].target else -1.0 for row in self.rows[:most]]
        added = self.effects[:, : len(same)] * same
        if concepts is None:
            return halves(added, added.sum(1), self.labels)
        shares = shares_beside(concepts, len(self.labels), self.masks, self.subject)
        chosen = goes_with(shares, added.sum(1), self.labels)
        return halves(chosen[:, None], chosen, self.labels)

    # -- on disk

    @kept_at("folder")
    def save(self, folder: str | Path) -> None:
        """One file, without the model and the pictures; masks take a bit a pixel."""
        about = {"format": FORMAT, "version": VERSION, "site": self.site, "basis": self.basis}
        about |= {"classes": list(self.classes), "rows": [_plain(asdict(row)) for row in self.rows]}
        about |= {"ids": list(self.ids), "accuracy": self.accuracy, "controls": _plain(self.controls)}
        about |= {"layer": dict(self.layer), "overall": None if self.overall is None else asdict(self.overall)}
        about |= {"settings": dict(self.settings), "head": None if self.head is None else self.head.kind}
        arrays = {"owner": self.parts.owner, "weight": self.parts.weight, "bias": self.parts.bias}
        arrays |= {"levels": self.levels, "activations": self.activations, "effects": self.effects}
        arrays |= {"suspected": self.suspected}
        arrays |= {"labels": self.labels} | {f"every_{name}": vars(self.every)[name] for name in TABLES}
        about |= {"exact": self.every.exact, "groups": list(self.every.groups)}
        if self.groups is not None:
            arrays["groups"] = self.groups
        if self.masks is not None:
            about["masks"], arrays["masks"] = list(self.masks.shape), np.packbits(self.masks)
        if self.head is not None and self.head.linear is not None:
            arrays |= {"head_weight": self.head.linear[0], "head_bias": self.head.linear[1]}
        write_arrays(Path(folder) / FILE, about, arrays)

    @classmethod
    @read_from("folder")
    def load(
        cls, folder: str | Path, *, subject: Subject | None = None, images: ImageSet | None = None
    ) -> AuditFinding:
        """What `save` wrote; with `subject` and `images` patches can be measured again."""
        from vitreous.auditing.heads import open_head

        about, arrays = read_arrays(Path(folder) / FILE, "audit", AGAIN)
        try:
            if (about["format"], about["version"]) != (FORMAT, VERSION):
                raise KeyError(FORMAT)
            rows = tuple(AuditRow(**{**_numbers(row), "mates": tuple(row["mates"])}) for row in about["rows"])
            parts = Parts(arrays["owner"], arrays["weight"], arrays["bias"], np.ones(len(arrays["owner"]), bool))
            said = {name: about[name] for name in ("site", "basis", "accuracy", "controls", "layer", "settings")}
            said["controls"] = _numbers(said["controls"])
            said["overall"] = None if about["overall"] is None else Overall(**about["overall"])
            numbers = ("levels", "activations", "effects", "suspected", "labels")
            kept: dict[str, Any] = {name: arrays[name] for name in numbers}
            kept |= {"groups": arrays.get("groups")}
            tables = {name: arrays[f"every_{name}"] for name in TABLES}
            every = EveryPart(tuple(about["classes"]), tuple(about["groups"]), about["exact"], **tables)
            names, ids, kind = tuple(about["classes"]), tuple(about["ids"]), about["head"]
            targets, linear = said["settings"]["targets"], None
            if "head_weight" in arrays:
                linear = arrays["head_weight"], arrays["head_bias"]
            if "masks" in arrays:
                packed = np.unpackbits(arrays["masks"], count=int(np.prod(about["masks"])))
                kept["masks"] = packed.reshape(about["masks"]).astype(bool)
        except (LookupError, TypeError, ValueError):
            raise StoreError("not an audit of this version", given=FILE, remedy=AGAIN) from None
        pictures = {len(ids), len(kept["labels"]), len(kept.get("masks", ids))}
        if not len(rows) == len(parts) == len(kept["levels"]) or len(pictures) > 1:
            raise StoreError("the parts of the audit do not fit together", given=FILE, remedy=AGAIN)
        head = None
        if subject is not None and images is not None and (linear is not None or kind == "own"):
            head = open_head(subject, linear or "own", images, None, targets, 0)[0]
        kept |= {"head": head, "subject": subject, "images": images}
        return cls(classes=names, ids=ids, rows=rows, every=every, parts=parts, **said, **kept)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: what was not measured is null."""
    return {name: None if isinstance(v, float) and np.isnan(v) else v for name, v in values.items()}


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: float("nan") if v is None and name not in ("part", "label") else v for name, v in values.items()}


def _number(item: int | AuditRow) -> int:
    if isinstance(item, AuditRow):
        return item.id
    if isinstance(item, bool) or not isinstance(item, int | np.integer):
        raise SettingsError("a part is named by its id or its row", given=item)
    return int(item)
