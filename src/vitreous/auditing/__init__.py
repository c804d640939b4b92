"""Is a classifier right for the wrong reason? Parts of a layer that speak for a class where they should not.

    1  every part of a layer (units, or the sub-units they split into) adds something to every class: `effects.py`
    2  the object is painted over, and what a part still adds to its class comes from elsewhere
    3  if labels say nothing about that, they can be exchanged between pictures: the test (`evidence/suspicion.py`)
    4  what is named is taken out of the model for real, and switched off by a small patch: `switch.py`

Parts are chosen for the test without a look at the labels: those whose effects vary most. With that, on a model that
takes no shortcut, the chance of any alarm is at most alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.auditing.effects import Effects, Parts, measure
from vitreous.auditing.every_part import EveryPart as EveryPart
from vitreous.auditing.every_part import every_part
from vitreous.auditing.finding import AuditFinding as AuditFinding
from vitreous.auditing.finding import AuditRow as AuditRow
from vitreous.auditing.heads import Given, Head, check_alpha, check_labels, check_subject, open_head
from vitreous.auditing.objects import Masks, grown_masks
from vitreous.auditing.overall import Overall as Overall
from vitreous.auditing.overall import overall
from vitreous.auditing.ranking import BETWEEN, OUTSIDE, WHOLE, Evidence, Ranked, Setting, rank, shuffled_alarms
from vitreous.auditing.switch import BeforeAfter as BeforeAfter
from vitreous.auditing.switch import SwitchOff as SwitchOff
from vitreous.auditing.switch import group_names, logits_of
from vitreous.checks import whole
from vitreous.errors import SettingsError
from vitreous.images import ImageSet
from vitreous.models.subject import Subject
from vitreous.progress import tqdm
from vitreous.subunits.layers import LinearLayer, find_layer, prefix_at

if TYPE_CHECKING:
    from vitreous.labels import Labels
    from vitreous.lenses.disentangle import Disentanglement
    from vitreous.lenses.structure import StructureFinding

PATCHES, TOP, CLUSTERS, SMALLEST = 16, 0.2, 12, 5  # patches a picture, share of instances, and the size of clusters
CONTROLLED = 20  # first rows whose units are split at random for comparison


def audit(
    subject: Subject,
    images: ImageSet,
    site: str = "blocks.-1.mlp.out",
    *,
    head: Given = None,
    targets: Sequence[int] | None = None,
    train: ImageSet | None = None,
    disentanglement: Disentanglement | None = None,
    split: bool = True,
    masks: Masks = None,
    rim: int | None = None,
    groups: Sequence[Any] | None = None,
    labels: Labels | None = None,
    structure: StructureFinding | None = None,
    tested: int = 256,
    confirm: int = 8,
    repeats: int = 10_000,
    alpha: float = 0.05,
    correction: str = "fdr_bh",
    seed: int = 0,
    progress: bool = True,
) -> AuditFinding:
    """Ranks the parts of a layer by how much they speak for a class because of something that is not the object.

    `images` are labelled and were not trained on: on training pictures a model knows backgrounds by heart. `head` is
    the model's own where it has one, or a probe fitted on `train` (or on half of the pictures, and the other half is
    audited); or a function of the model's output, or (weight, bias). `targets` says which outputs the classes are.

    `masks` say where the object is: the set's own, boxes, a mask model, or one bool map a picture. They grow by `rim`
    pixels of the model's input, by default a 64th of its side: soft edges tell the object too. Without masks, `groups`
    (one name a picture) are compared within each class; with neither, suspicion is only how much a class rests on a
    part, which a shortcut and a cause share: `finding.basis` says so.

    `disentanglement` is made here from the same pictures if there is none; `split=False` audits whole units. Of
    `tested` parts the first `confirm` are taken out for real. `labels` are `vt.label`'s; `structure` names mates.

    >>> finding = vt.audit(subject, images, masks="masks")
    >>> finding.alarms, finding.every, finding.switch_off().effect
    """
    _check(subject, tested, confirm, repeats, alpha, seed)
    read, seen = open_head(subject, head, images, train, targets, seed)
    chosen_groups = None if groups is None else _groups(groups, images, seen)
    layer = find_layer(subject, site)
    split_by = _split(subject, seen, layer, disentanglement, split, seed, progress)
    parts, names = _parts(layer, split_by)
    _check_told(split_by, labels, structure)
    where = grown_masks(subject, images, seen, masks, rim, progress)
    setting = Setting(tested, repeats, alpha, correction, seed)
    job = _Job(subject, read, seen, layer, where, setting, progress)
    y, _ = check_labels(seen)
    whole = job.effects(parts)
    levels = whole.levels(y)
    evidence = job.evidence(parts, whole, levels, y, chosen_groups)
    ranked = rank(evidence, parts, setting)
    made = job.confirmed(job.finding(parts, names, levels, whole, ranked, evidence), confirm)
    said = {"targets": None if targets is None else list(targets), "split": split_by is not None, "rim": rim}
    controls = {"alarms with shuffled labels": shuffled_alarms(evidence, parts, setting)}
    controls |= job.other_cuts(made, split_by)
    return replace(_described(made, split_by, labels, structure), settings=job.said() | said, controls=controls)


@dataclass(frozen=True, eq=False)
class _Job:
    """What all steps of one audit share."""

    subject: Subject
    head: Head
    images: ImageSet
    layer: LinearLayer
    masks: np.ndarray | None
    setting: Setting
    progress: bool

    @property
    def prefix(self) -> int:
        return prefix_at(self.subject, self.layer)

    def said(self) -> dict[str, Any]:
        """The settings, for those who read the finding."""
        told = {"head": self.head.kind, "masks": self.masks is not None, "pictures": len(self.images)}
        return asdict(self.setting) | told | {"model": self.subject.name, "data": self.images.fingerprint}

    def effects(self, parts: Parts, painted: bool = False) -> Effects:
        return measure(
            self.subject,
            self.head,
            self.layer,
            parts,
            self.images,
            prefix=self.prefix,
            masks=self.masks,
            painted=painted,
            progress=self.progress,
        )

    def evidence(
        self, parts: Parts, whole: Effects, levels: np.ndarray, y: np.ndarray, groups: np.ndarray | None
    ) -> Evidence:
        """What suspicion rests on: pictures without the object where masks say what that is."""
        if self.masks is not None:
            found = self.effects(parts, painted=True)
            return Evidence(found.beyond(levels), y, groups, OUTSIDE, found.odds)
        return Evidence(whole.beyond(levels), y, groups, WHOLE if groups is None else BETWEEN)

    def finding(
        self,
        parts: Parts,
        names: list[tuple[int, int | None]],
        levels: np.ndarray,
        whole: Effects,
        ranked: Ranked,
        evidence: Evidence,
    ) -> AuditFinding:
        effects, y = whole.beyond(levels), evidence.labels
        every = every_part(whole, levels, y, evidence.groups, self.head.names, names)
        rows = ranked.rows(every, effects, y)
        order, at = ranked.chosen, [row.target for row in rows]
        asked: dict[str, Any] = {name: vars(self.setting)[name] for name in ("repeats", "alpha", "seed")}
        return AuditFinding(
            site=self.layer.site,
            basis=evidence.basis,
            classes=self.head.names,
            rows=rows,
            every=every,
            parts=parts.some(order),
            levels=levels[order],
            activations=whole.activations[:, order],
            effects=effects[:, order, at],
            suspected=evidence.effects[:, order, at],
            labels=y,
            ids=self.images.ids,
            groups=evidence.groups,
            accuracy=float((whole.logits.argmax(1) == y).mean()),
            overall=None if evidence.odds is None else overall(evidence.odds, y, **asked),
            controls={},
            layer={
                "site": self.layer.site,
                "path": self.layer.path,
                "first": self.layer.first,
                "prefix": self.prefix,
                "layer": self.layer.fingerprint,
            },
            settings={},
            head=self.head,
            subject=self.subject,
            images=self.images,
            masks=self.masks,
        )

    def confirmed(self, found: AuditFinding, count: int) -> AuditFinding:
        """The first rows with what pictures of their class lose when the part is really taken out."""
        import torch

        from vitreous.auditing.effects import log_odds

        def lost(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            """(class,): by pictures of the class."""
            return np.array([(old - new)[found.labels == c, c].mean() for c in range(old.shape[1])])

        def odds(logits: np.ndarray) -> np.ndarray:
            return log_odds(torch.from_numpy(logits)).numpy()

        old, rows, every = logits_of(self.subject, self.head, self.images), list(found.rows), found.every
        for k in tqdm(range(min(count, len(rows))), "taken out", disable=not self.progress, leave=False):
            with found.patch([rows[k]]).on(self.subject):
                new = logits_of(self.subject, self.head, self.images)
            rows[k] = replace(rows[k], ablation=float(lost(odds(old), odds(new))[rows[k].target]))
            every = every.with_taken_out(rows[k].id, lost(old, new))
        return replace(found, rows=tuple(rows), every=every)

    def other_cuts(self, found: AuditFinding, split: Disentanglement | None) -> dict[str, float]:
        """The largest suspicion of random sub-units and of undivided units."""
        units = max((row.of_unit for row in found.rows), default=float("nan"))
        return self.random_control(found, split) | {"undivided units, largest": units}

    def random_control(self, found: AuditFinding, split: Disentanglement | None) -> dict[str, float]:
        """The largest suspicion where the units of the first rows are split at random instead."""
        if split is None:
            return {}
        units = sorted({row.unit for row in found.rows[:CONTROLLED] if row.part is not None})
        if not units:
            return {}
        drawn = _random_parts(split, units, self.setting.seed)
        whole = self.effects(drawn)
        evidence = self.evidence(drawn, whole, whole.levels(found.labels), found.labels, found.groups)
        ranked = rank(evidence, drawn, replace(self.setting, repeats=1))
        return {"random sub-units, largest": float(ranked.suspicion.max(initial=0))}


def _random_parts(split: Disentanglement, units: list[int], seed: int) -> Parts:
    """As many sub-units as the units have, with every input given to one of them by lot."""
    from vitreous.kernels.split_weights import divide

    rng, owners, weights, biases = np.random.default_rng((seed, 10)), [], [], []
    for unit in units:
        count, at = len(split.subunits(unit)), int(np.flatnonzero(split.units == unit)[0])
        members = rng.integers(count, size=split.weight.shape[1]) == np.arange(count)[:, None]
        weight, bias = divide(split.weight[at], split.bias[at], members)
        owners += [unit] * count
        weights.append(weight)
        biases.append(bias)
    return Parts(np.array(owners), np.concatenate(weights), np.concatenate(biases), np.ones(len(owners), bool))


def _check(subject: Subject, tested: int, confirm: int, repeats: int, alpha: float, seed: int) -> None:
    check_subject(subject)
    check_alpha(alpha)
    whole(1, tested=tested, repeats=repeats)
    whole(0, confirm=confirm, seed=seed)


def _groups(groups: Sequence[Any], images: ImageSet, seen: ImageSet) -> np.ndarray:
    found = dict(zip(images.ids, group_names(groups, len(images)), strict=True))
    return np.array([found[name] for name in seen.ids])


def _split(
    subject: Subject,
    images: ImageSet,
    layer: LinearLayer,
    given: Disentanglement | None,
    split: bool,
    seed: int,
    progress: bool,
) -> Disentanglement | None:
    from vitreous.lenses.disentangle import disentangle
    from vitreous.subunits.applied import matching_layer

    if given is not None:
        if given.site != layer.site:
            raise SettingsError("the sub-units belong to another site", given=given.site, accepted=layer.site)
        matching_layer(given, subject)
        return given
    if not split:
        return None
    return disentangle(subject, images, layer.site, **_coarse(subject, len(images)), seed=seed, progress=progress)


def _coarse(subject: Subject, pictures: int) -> dict[str, Any]:
    """Few large clusters a unit: a concept that a class rests on is in many pictures, and its effect is not cut up."""
    grid = subject.grid()
    each = min(PATCHES, 1 if grid is None else grid.patches)
    top = max(1, round(TOP * pictures * each))
    return {"tokens_per_image": each, "top_k": top, "min_cluster_size": max(SMALLEST, top // CLUSTERS)}


def _parts(layer: LinearLayer, split: Disentanglement | None) -> tuple[Parts, list[tuple[int, int | None]]]:
    """All parts, and the name of each: (unit, which of its sub-units)."""
    if split is None:
        weight, bias = layer.matrix()
        every = np.arange(layer.count)
        return Parts(every, weight, bias, np.ones(layer.count, bool)), [(unit, None) for unit in every.tolist()]
    owner, place = split.units[split.parents], np.arange(len(split)) - split.starts[split.parents]
    alone = np.diff(split.starts)[split.parents] == 1
    names = [(int(u), None if whole else int(k)) for u, k, whole in zip(owner, place, alone, strict=True)]
    return Parts(owner, *split.dense, ~split.dead), names


def _check_told(split: Disentanglement | None, labels: Labels | None, structure: StructureFinding | None) -> None:
    """What rows are described by fits the parts, which is known before the long work."""
    from vitreous.labels import Labels
    from vitreous.lenses.structure_finding import StructureFinding

    for name, given, kind in (("labels", labels, Labels), ("structure", structure, StructureFinding)):
        if given is not None and not isinstance(given, kind):
            raise SettingsError(f"{name} is what vt.{name.removesuffix('s')} found", given=type(given).__name__)
    if labels is not None and (split is None or len(labels) != len(split)):
        accepted = "one for each sub-unit" if split is None else f"{len(split)}, one for each sub-unit"
        raise SettingsError(
            "labels are one for each sub-unit",
            given=len(labels),
            accepted=accepted,
            remedy="label the sub-units that are given as disentanglement=",
        )


def _described(
    found: AuditFinding, split: Disentanglement | None, labels: Labels | None, structure: StructureFinding | None
) -> AuditFinding:
    """Rows with their label and their mates in other layers."""
    rows = []
    for row in found.rows:
        if labels is not None and split is not None:
            row = replace(row, label=labels.names[int(split.subunits(row.unit)[row.part or 0])])
        if structure is not None:
            row = replace(row, mates=_mates(structure, found.site, row.unit))
        rows.append(row)
    return replace(found, rows=tuple(rows))


def _mates(structure: StructureFinding, site: str, unit: int) -> tuple[str, ...]:
    """Units of the same cluster in other layers, as layer and channel; none if the layer is not in the structure."""
    mine = [k for k, name in enumerate(structure.layers) if _block(name) == _block(site)]
    if not mine or unit >= structure.labels.shape[2]:
        return ()
    clusters = {int(c) for c in structure.labels[mine, :, unit].ravel() if c >= 0}
    members = [m for c in sorted(clusters) for m in structure.clusters[c].tolist() if m[0] not in mine]
    return tuple(dict.fromkeys(f"{structure.layers[layer]}.{channel}" for layer, _, channel in members))


def _block(name: str) -> str:
    """The number of a block, of a site's name or of a layer of a structure of plain arrays."""
    return name.removeprefix("blocks.").removeprefix("layer ").split(".")[0]
