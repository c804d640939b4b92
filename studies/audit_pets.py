"""Cats and dogs with a text box that tells the species: does an audit find the box, and does switching it off help?

    python studies/audit_pets.py DATA               # one JSON a model and seed in runs/audit_pets, then table, pictures
    python studies/audit_pets.py DATA tables        # the table of what is there

A linear probe reads the mean of a ViT's patches. It is trained on pictures each with a box ("Cat" on cats, "Dog" on
dogs), so that the box goes with the label. One half of the test pictures, with truthful boxes, is audited; the other
half is shown with truthful boxes, with none, and with lying ones. The audit is told where the animal is, and nothing of
boxes.
"""

from __future__ import annotations

import textwrap
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import audit_pets_features as features
import vitreous as vt
from audit_pets_inputs import NONE, SIDE, Pets, accuracy, halves, probe
from audit_pets_runs import RESULTS, Study
from audit_scenes import either
from vitreous.auditing.heads import Head, open_head, outputs_of
from vitreous.auditing.switch import logits_of
from vitreous.baselines.masks import input_masks, object_masks

MODELS = {"dinov2s_saliency": 126, "tin-vit-text": None}
SEEDS = (0, 1, 2, 3, 4)
BOX = 72  # pixels of 256
DRAWS = 3  # times that each training picture is shown, its box elsewhere each time
SITES = tuple(f"blocks.-{k}.{what}.out" for k in (4, 3, 2, 1) for what in ("attn", "mlp"))
TOLD = 0.7  # a part stands for the box if it tells the two boxes at least so well, and better than the species
SHOWN = ("truthful", "none", "lying")
WAYS = {
    "nothing": "the probe as it is",
    "sub-units": "audit of sub-units",
    "units": "audit of undivided units",
    "dictionary": "audit of dictionary features",
    "no boxes": "probe retrained on pictures without boxes",
    "coin": "probe retrained on pictures whose box is a coin's throw",
}


class Case(NamedTuple):
    """One probe with its pictures."""

    subject: vt.Subject
    head: tuple[np.ndarray, np.ndarray]
    train: vt.ImageSet
    audited: vt.ImageSet
    fair: dict[str, vt.ImageSet]


def boxes_of(pets: Pets, index: np.ndarray, what: str, rng: np.random.Generator) -> np.ndarray:
    species = pets.species[index]
    kinds = {"truthful": species, "lying": 1 - species, "none": np.full(len(index), NONE)}
    return rng.integers(0, 2, len(index)) if what == "coin" else kinds[what]


def trained(subject: vt.Subject, pets: Pets, what: str, seed: int) -> tuple[tuple[np.ndarray, np.ndarray], vt.ImageSet]:
    """A probe, and one of the sets of pictures that it was trained on."""
    rng = np.random.default_rng((seed, 1))
    index = np.flatnonzero(~pets.test)
    sets = [pets.shown(index, boxes_of(pets, index, what, rng), rng, BOX) for _ in range(DRAWS)]
    x = np.concatenate([outputs_of(subject, images) for images in sets])
    return probe(x, np.tile(pets.species[index], DRAWS)), sets[0]


def case(pets: Pets, subject: vt.Subject, seed: int) -> Case:
    rng = np.random.default_rng((seed, 2))
    audited, rest = halves(pets, rng)
    head, train = trained(subject, pets, "truthful", seed)
    shown = {what: pets.shown(rest, boxes_of(pets, rest, what, rng), rng, BOX) for what in SHOWN}
    return Case(subject, head, train, pets.shown(audited, pets.species[audited], rng, BOX), shown)


def accuracies(one: Case, head: Head) -> dict[str, float]:
    """By what the boxes say."""
    found = {}
    for what, images in one.fair.items():
        assert images.labels is not None
        found[what] = accuracy(logits_of(one.subject, head, images), np.asarray(images.labels))
    return found


def tells(values: np.ndarray, species: np.ndarray) -> tuple[float, float]:
    """values (picture,) of the truthful and then the lying pictures: how well they tell the box, and the species."""
    both = np.r_[species, species]
    return either(values, np.r_[species, 1 - species]), either(values, both)


def first_that_stands(told: list[tuple[float, float]]) -> dict[str, Any]:
    stands = [box >= max(TOLD, species) for box, species in told]
    found: dict[str, Any] = {"box": told[0][0], "species": told[0][1], "right": stands[0], "stand": sum(stands)}
    return found | {"parts": len(told), "rank": stands.index(True) + 1 if any(stands) else None}


def audited(one: Case, split: bool, seed: int) -> tuple[dict[str, Any], Any]:
    sweep = vt.audit_sites(
        one.subject,
        one.audited,
        SITES,
        head=one.head,
        masks="masks",
        split=split,
        confirm=0,
        seed=seed,
        progress=False,
    )
    head, species = sweep.findings[0].head, np.asarray(one.fair["none"].labels)
    means = {}
    for finding in sweep.findings:
        values = np.concatenate([activations(finding, one.subject, one.fair[what]) for what in ("truthful", "lying")])
        means |= {(finding.site, row.id): column for row, column in zip(finding.rows, values.T, strict=True)}
    found = first_that_stands([tells(means[site, row.id], species) for site, row in sweep.rows])
    found |= {"first": f"{sweep.rows[0][0]} {sweep.rows[0][1].name}", "alarms": len(sweep.alarms)}
    found["shuffled"] = sum(finding.controls["alarms with shuffled labels"] for finding in sweep.findings)
    found["outside"] = float(sweep.rows[0][1].outside)
    if not sweep.alarms:
        return found | accuracies(one, head) | {"switched": 0}, sweep
    patch = sweep.switch_off(measure=False)
    with patch.on(one.subject):
        found |= accuracies(one, head)
    return found | {"switched": len(patch)}, sweep


@torch.no_grad()
def activations(finding: vt.AuditFinding, subject: vt.Subject, images: vt.ImageSet) -> np.ndarray:
    """(picture, row): the mean over patches, which the probe reads."""
    layer, parts = f"{finding.layer['path']}:in", []
    with vt.capture(subject, layer, stop=True) as seen:
        for _, x in images.batches(subject.preprocess, 16):
            subject(torch.from_numpy(x))
            parts.append(seen[layer][:, 1:].mean(1).numpy())
    return np.concatenate(parts) @ finding.parts.weight.T + finding.parts.bias


def by_dictionary(one: Case, head: Head, masks: np.ndarray, seed: int) -> dict[str, Any]:
    labels, species = np.asarray(one.audited.labels), np.asarray(one.fair["none"].labels)
    dictionary = features.train(one.subject, [one.train, one.audited], seed)
    found = features.audit(one.subject, head, dictionary, one.audited, masks, labels, seed)
    means = [features.codes(one.subject, dictionary, one.fair[what]) for what in ("truthful", "lying")]
    values = np.concatenate(means)[:, found.order]
    row = first_that_stands([tells(column, species) for column in values.T])
    row |= {"alarms": len(found.alarms), "switched": 0}
    if not len(found.alarms):
        return row | accuracies(one, head)
    count = features.enough(found, one.subject, head, one.audited, masks, labels)
    with found.off(one.subject, found.alarms[:count]):
        row |= accuracies(one, head)
    return row | {"switched": count}


class Probed(nn.Module):
    """A backbone with the probe on top, as a classifier that Grad-CAM can read."""

    def __init__(self, pooled: nn.Module, weight: np.ndarray, bias: np.ndarray) -> None:
        super().__init__()
        self.pooled, self.head = pooled, nn.Linear(weight.shape[1], weight.shape[0])
        self.head.weight.data = torch.from_numpy(weight)
        self.head.bias.data = torch.from_numpy(bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pooled(x))


def cam_energy(one: Case, head: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Grad-CAM for the label on audited pictures: share of its energy off the animal, and in the box, beside areas."""
    model = vt.wrap(Probed(one.subject.module, *head), name="probed", preprocess=one.subject.preprocess)
    found = vt.gradcam(model, one.audited, np.asarray(one.audited.labels), plus_plus=False, progress=False)
    maps = np.clip(found.at(), 0, None)
    preprocess = one.subject.preprocess
    assert preprocess is not None
    animal = input_masks(object_masks(one.audited, "masks", progress=False), preprocess).astype(bool)
    scale, boxes = maps.shape[1] / SIDE, np.zeros(maps.shape, bool)
    for k in range(len(maps)):
        x0, y0, x1, y1 = (round(scale * edge) for edge in one.audited[k].about["box"])
        boxes[k, y0:y1, x0:x1] = True
    total = np.maximum(maps.sum((1, 2)), 1e-12)
    shares = {"off": (maps * ~animal).sum((1, 2)) / total, "box": (maps * boxes).sum((1, 2)) / total}
    alive = maps.sum((1, 2)) > 0
    return {
        "off": float(shares["off"][alive].mean()),
        "off_area": float((~animal).mean()),
        "box": float(shares["box"][alive].mean()),
        "box_area": float(boxes.mean()),
        "each": shares["off"][alive].tolist(),
        "empty": int((~alive).sum()),
    }


def run(pets: Pets, subject: vt.Subject, name: str, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    one = case(pets, subject, seed)
    found: dict[str, Any] = {"model": name, "seed": seed, "audited": len(one.audited)}
    found |= {"measured": len(one.fair["none"])}
    found["sub-units"], sweep = audited(one, True, seed)
    found["units"] = audited(one, False, seed)[0]
    head, masks = sweep.findings[0].head, sweep.findings[0].masks
    found["nothing"] = accuracies(one, head)
    found["dictionary"] = by_dictionary(one, head, masks, seed)
    cams = {"boxes": cam_energy(one, one.head)}
    for what in ("none", "coin"):
        other, _ = trained(subject, pets, what, seed)
        row = one._replace(head=other)
        found["no boxes" if what == "none" else what] = accuracies(row, opened(row))
        if what == "none":
            cams["no boxes"] = cam_energy(one, other)
    each = [cams[kind].pop("each") for kind in ("boxes", "no boxes")]
    told = roc_auc_score(np.repeat([1, 0], [len(one) for one in each]), np.concatenate(each))
    found["cam"] = cams | {"auc": float(told)}
    if seed == SEEDS[0]:
        pictures(sweep, one, RESULTS / f"audit_pets_{name}.png")
    return found | {"seconds": time.perf_counter() - start}


def opened(one: Case) -> Head:
    return open_head(one.subject, one.head, one.audited, None, None, 0)[0]


# -- pictures and tables


def pictures(sweep: Any, one: Case, path: Path, parts: int = 3, shown: int = 6) -> None:
    """The first parts: where they answer in the pictures of the measured half that move them most, truthful boxes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * shown, 2.25 * parts), layout="constrained")
    axes = figure.subplots(parts, shown)
    images, species = one.fair["truthful"], np.asarray(one.fair["none"].labels)
    for line, (site, row) in enumerate(sweep.rows[:parts]):
        finding = sweep[site]
        at = [r.id for r in finding.rows].index(row.id)
        maps = patch_maps(finding, at, one.subject, images)
        away = maps - finding.levels[at, -1]
        order = np.argsort(-np.abs(away.mean((1, 2))))[:shown]
        values = np.concatenate([activations(finding, one.subject, one.fair[w])[:, at] for w in ("truthful", "lying")])
        box, kind = tells(values, species)
        for axis, k in zip(axes[line], order, strict=True):
            axis.imshow(images[int(k)].image)
            limit = np.abs(away[order]).max()
            axis.imshow(away[k], cmap="RdBu_r", alpha=0.55, vmin=-limit, vmax=limit, extent=(0, SIDE, SIDE, 0))
            axis.set_xticks([])
            axis.set_yticks([])
        said = "alarm" if row.alarm else "no alarm"
        title = axes[line][0].set_title(
            f"{site} {row.name}: suspicion {row.suspicion:.2f} ({said}); tells box {box:.2f}, species {kind:.2f}",
            loc="left",
            fontsize=9,
        )
        title.set_in_layout(False)  # else the first column grows with it
    figure.savefig(path, dpi=90)


@torch.no_grad()
def patch_maps(finding: vt.AuditFinding, at: int, subject: vt.Subject, images: vt.ImageSet) -> np.ndarray:
    layer, found = f"{finding.layer['path']}:in", []
    with vt.capture(subject, layer, stop=True) as seen:
        for _, x in images.batches(subject.preprocess, 16):
            subject(torch.from_numpy(x))
            a = seen[layer][:, 1:].numpy() @ finding.parts.weight[at] + finding.parts.bias[at]
            side = round(a.shape[1] ** 0.5)
            found.append(a.reshape(len(a), side, side))
    return np.concatenate(found)


def spread(values: list[float]) -> str:
    """Mean with the smallest and the largest."""
    return f"{np.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def written(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# Boxes that tell cats from dogs", "", *__doc__.split("\n\n")[2].splitlines(), ""]
    lines += [
        f"Boxes of {BOX} of {SIDE} pixels. Audited: {', '.join(SITES)}. Accuracies are means of both species' (0.5 is",
        "chance) on the other half; each cell is the mean over seeds with the smallest and largest. How many parts are",
        "switched off is chosen on the audited half, by what is left of the label with the animal painted over. The",
        f"first part is right if it tells the two boxes with an AUC of {TOLD} or more and better than the species, on",
        "truthful and lying pictures together. Data in `audit_pets.json`.",
        "",
    ]
    for name in MODELS:
        some = [row for row in rows if row["model"] == name]
        if some:
            lines += [f"## {name}, {len(some)} seeds", "", *table(some), "", *cams(some), ""]
    return [*lines, "## Verdict", "", *verdict(rows), ""]


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Counts and means over all models and seeds."""
    kinds = ("sub-units", "units", "dictionary")
    alarms, right = (
        {kind: sum(bool(row[kind][what]) for row in rows) for kind in kinds} for what in ("alarms", "right")
    )
    lying = {way: f"{np.mean([row[way]['lying'] for row in rows]):.2f}" for way in WAYS}
    words = (
        f"The audit of parts fails here. It raises an alarm in {alarms['sub-units']} of {len(rows)} audits with "
        f"sub-units and in {alarms['units']} with undivided units, the first part is the box in {right['sub-units']} "
        f"and {right['units']}, and so nothing is switched off. Features of a dictionary raise one in "
        f"{alarms['dictionary']} of {len(rows)}, the first is the box in {right['dictionary']}, and where the box lies "
        f"accuracy goes from {lying['nothing']} to {lying['dictionary']}. Grad-CAM's energy off the animal does not "
        "tell the probe that takes the shortcut from one that does not. A probe that is trained again has "
        f"{lying['no boxes']} there, or {lying['coin']} with boxes by lot. What does find the box is an audit of "
        "places, with all of these beside it: [audit_pets_places.md](audit_pets_places.md)."
    )
    return textwrap.wrap(words, 119)


def table(some: list[dict[str, Any]]) -> list[str]:
    names = ("", "truthful box", "no box", "lying box", "first is the box", "its rank", "alarms", "switched off")
    lines = ["| " + " | ".join(names) + " |", "| --- " * len(names) + "|"]
    for key, said in WAYS.items():
        cells = [spread([row[key][what] for row in some]) for what in SHOWN]
        if "alarms" in some[0][key]:
            ranks = [row[key]["rank"] for row in some]
            cells += [f"{sum(row[key]['right'] for row in some)} of {len(some)}"]
            cells += [", ".join(str(rank or "none") for rank in ranks)]
            cells += [", ".join(str(row[key][what]) for row in some) for what in ("alarms", "switched")]
        else:
            cells += [""] * 4
        lines.append(f"| {said} | " + " | ".join(cells) + " |")
    return lines


def cams(some: list[dict[str, Any]]) -> list[str]:
    def of(kind: str, what: str) -> str:
        return spread([row["cam"][kind][what] for row in some])

    return [
        f"Grad-CAM of the probe: share of its energy off the animal {of('boxes', 'off')}, of a probe trained without",
        f"boxes {of('no boxes', 'off')}, where {of('boxes', 'off_area')} of the pixels are. In the box",
        f"{of('boxes', 'box')} and {of('no boxes', 'box')}, where {of('boxes', 'box_area')} of the pixels are. By its",
        "energy off the animal the shortcut probe is told from the other, picture by picture, with an AUC of",
        f"{spread([row['cam']['auc'] for row in some])}. It names no part, and there is nothing to switch off.",
    ]


if __name__ == "__main__":
    Study("audit_pets", __doc__, MODELS, SEEDS, {"sites": SITES, "box": BOX}, run, written).main()
