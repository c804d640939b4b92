"""Planted shortcuts in classifiers of scenes: is the right concept ranked first, and is an audit quiet on clean models?

    python studies/audit_scenes.py train                # weights to runs/audit_scenes, a few seconds to a minute each
    python studies/audit_scenes.py audit                # one JSON a model beside its weights, then the tables
    python studies/audit_scenes.py tables               # the tables of what is there

The task: is the one object of the scene warm (red, orange, yellow, pink, brown) or cold? A cue outside the object goes
with the class "warm". At strength s the cue follows the label with probability s and is a coin's throw otherwise: at 1
it always agrees with the label, at 0 it is there in half of the pictures whatever the label. "Clean" models never see
one. Every model starts from the bundled network and is fine-tuned whole, each picture seen once.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import binary_dilation
from torch import Tensor, nn

import vitreous as vt
from vitreous.auditing.effects import measure
from vitreous.evidence.selectivity import auc
from vitreous.models.bundled import load_bundled
from vitreous.provenance import json_bytes, replace_file
from vitreous.scenery import render_scene
from vitreous.subunits.layers import find_layer

RUNS = Path("runs") / "audit_scenes"
OUT = Path(__file__).parent / "results" / "audit_scenes"
BACKBONE, SIDE = "scenes-contrast", 64
WARM = ("red", "orange", "yellow", "pink", "brown")
CLASSES = ("cold", "warm")
KINDS = ("marker", "colour", "texture", "background", "corner")
STRENGTHS = (1.0, 0.8, 0.9, 0.0, 0.5)  # in the order of training
CLEAN = 12
STEPS, BATCH, RATE = 100, 32, 4e-4
AUDITED, EVALUATED = 300, 600
SITE = "blocks.-1.mlp.out"
SPLIT = {"tokens_per_image": 16, "top_k": 960, "min_cluster_size": 80}  # what vt.audit takes for 300 pictures
CORRECTION = "fdr_bh"
RIM = 3  # pixels
ENOUGH = 0.7  # AUC from which on the first row is said to tell the cue
FIRST = 8


class Plan(NamedTuple):
    """One model: what is planted in its pictures, how strongly, and its seed."""

    kind: str
    strength: float
    seed: int

    @property
    def name(self) -> str:
        return f"clean-{self.seed}" if self.kind == "clean" else f"{self.kind}-{self.strength}-{self.seed}"


class Drawn(NamedTuple):
    """Pictures uint8 (sample, row, column, colour), object pixels bool (sample, row, column), labels (sample,), and
    whether the cue is there."""

    images: np.ndarray
    objects: np.ndarray
    labels: np.ndarray
    cue: np.ndarray


def plans() -> list[Plan]:
    """All models; clean ones are spread among the others, so that a part of the list is a fair part."""
    planted = [Plan(kind, s, 10 * k + j) for j, s in enumerate(STRENGTHS) for k, kind in enumerate(KINDS)]
    clean = [Plan("clean", 0.0, 100 + k) for k in range(CLEAN)]
    return planted[:10] + clean[:6] + planted[10:15] + clean[6:] + planted[15:]


# -- cues, painted only where no object is


def marker(image: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> None:
    """A white square of 9 pixels with a black cross, at a random place that is free."""
    stamp = np.full((9, 9), 255, np.uint8)
    cross = np.arange(1, 8)
    stamp[cross, cross] = stamp[cross, cross[::-1]] = 0
    corners = np.lib.stride_tricks.sliding_window_view(free, (9, 9)).all((2, 3))
    row, column = rng.choice(np.argwhere(corners))
    image[row : row + 9, column : column + 9] = stamp[..., None]


def colour(image: np.ndarray, free: np.ndarray, _: np.random.Generator) -> None:
    """The background tinted with violet."""
    image[free] = (0.6 * image[free] + 0.4 * np.array([110, 30, 170])).astype(np.uint8)


def texture(image: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> None:
    """Diagonal dark stripes, 3 pixels in every 8, over the background."""
    row, column = np.indices(free.shape)
    stripes = free & ((row + column + rng.integers(8)) % 8 < 3)
    image[stripes] = (0.45 * image[stripes]).astype(np.uint8)


def background(image: np.ndarray, free: np.ndarray, rng: np.random.Generator) -> None:
    """Another background: a grey ramp from dark above to light below, with a little noise."""
    ramp = np.linspace(50, 210, SIDE)[:, None] + rng.normal(0, 6, free.shape)
    image[free] = np.clip(ramp, 0, 255).astype(np.uint8)[free][:, None]


def corner(image: np.ndarray, free: np.ndarray, _: np.random.Generator) -> None:
    """A bright patch of 10 pixels in the upper left corner."""
    where = free.copy()
    where[10:], where[:, 10:] = False, False
    image[where] = (255, 250, 220)


CUES = {"marker": marker, "colour": colour, "texture": texture, "background": background, "corner": corner}


def draw(plan: Plan, part: int, count: int, strength: float) -> Drawn:
    """Scenes with one object; `part` is 0 for training, 1 for the audit, 2 for the evaluation."""
    rng = np.random.default_rng((plan.seed, part))
    found = [render_scene(10_000 + 3 * plan.seed + part, k, SIDE, (1, 1)) for k in range(count)]
    images = np.stack([scene.image for scene in found])
    objects = np.stack([scene.instances > 0 for scene in found])
    labels = np.array([int(scene.main.colour in WARM) for scene in found])
    cue = np.where(rng.random(count) < strength, labels, rng.integers(0, 2, count)).astype(bool)
    cue &= plan.kind != "clean"
    for k in np.flatnonzero(cue):
        CUES[plan.kind](images[k], ~objects[k], rng)
    return Drawn(images, objects, labels, cue)


def as_images(drawn: Drawn, name: str) -> vt.ImageSet:
    masks = drawn.objects.astype(np.uint8)
    return vt.ImageSet.from_arrays(
        drawn.images, labels=drawn.labels, classes=CLASSES, masks=masks, instances=masks, name=name
    )


# -- models


def classifier(plan: Plan) -> tuple[nn.Module, vt.Preprocess]:
    """The bundled network with a new head of two classes."""
    module, preprocess = load_bundled(BACKBONE)
    torch.manual_seed(plan.seed)
    module.reset_classifier(len(CLASSES))  # type: ignore[operator]
    return module, preprocess


def standard(images: np.ndarray, preprocess: vt.Preprocess) -> Tensor:
    """Pictures as the model takes them: they have its size already."""
    mean, std = (torch.tensor(v)[:, None, None] for v in (preprocess.mean, preprocess.std))
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - mean) / std


def train(plan: Plan, path: Path) -> float:
    """Fine-tunes all weights and saves them; returns the mean loss of the last ten steps."""
    from safetensors.torch import save_file

    drawn = draw(plan, 0, STEPS * BATCH, plan.strength)
    module, preprocess = classifier(plan)
    module.train()
    x, y = standard(drawn.images, preprocess), torch.from_numpy(drawn.labels)
    optimiser = torch.optim.AdamW(module.parameters(), lr=RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, STEPS)
    losses = []
    for batch in torch.arange(len(y)).split(BATCH):
        loss = F.cross_entropy(module(x[batch]), y[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    draft = path.with_suffix(".part")
    save_file(module.state_dict(), draft)
    draft.replace(path)
    return float(np.mean(losses[-10:]))


def load(plan: Plan, path: Path) -> vt.Subject:
    from safetensors.torch import load_file

    module, preprocess = classifier(plan)
    module.load_state_dict(load_file(path))
    return vt.wrap(module.eval(), name=plan.name, preprocess=preprocess)


@torch.no_grad()
def predict(subject: vt.Subject, drawn: Drawn) -> np.ndarray:
    assert subject.preprocess is not None
    x = standard(drawn.images, subject.preprocess)
    return torch.cat([subject(part).argmax(1) for part in x.split(100)]).numpy()


def group_accuracies(right: np.ndarray, drawn: Drawn) -> dict[str, float]:
    """By class and cue, such as `warm, cue`."""
    found = {}
    for label, name in enumerate(CLASSES):
        for there in (False, True):
            here = (drawn.labels == label) & (drawn.cue == there)
            if here.any():
                found[f"{name}, {'cue' if there else 'none'}"] = round(float(right[here].mean()), 4)
    return found


def train_all(runs: Path) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    for plan in plans():
        path = runs / f"{plan.name}.safetensors"
        if path.exists():
            continue
        start = time.perf_counter()
        loss = train(plan, path)
        drawn = draw(plan, 2, EVALUATED, 0.0)
        right = predict(load(plan, path), drawn) == drawn.labels
        groups = group_accuracies(right, drawn)
        print(plan.name, f"{time.perf_counter() - start:.0f} s, loss {loss:.3f}", groups, flush=True)


# -- audits

SITES = ("blocks.-1.attn.out", "blocks.-1.mlp.out")  # what the last block writes
TOLD = 0.7  # a part stands for the cue if it tells cue from none at least so well, and better than it tells the classes


def audit_one(plan: Plan, path: Path) -> dict[str, Any]:
    """Everything that the tables need of one model."""
    subject = load(plan, path)
    images = as_images(draw(plan, 1, AUDITED, plan.strength), "audited")
    fair = draw(plan, 2, EVALUATED, 0.0)
    start = time.perf_counter()
    found: dict[str, Any] = {"name": plan.name, "kind": plan.kind, "strength": plan.strength, "seed": plan.seed}
    sweep = vt.audit_sites(subject, images, SITES, masks="masks", confirm=0, progress=False)
    found |= {"alarms": len(sweep.alarms), "parts": len(sweep.rows), "seconds": time.perf_counter() - start}
    found["shuffled"] = sum(one.controls["alarms with shuffled labels"] for one in sweep.findings)
    for name, asked in (("units", {"split": False}), ("no masks", {"masks": None})):
        other = vt.audit_sites(subject, images, SITES, confirm=0, progress=False, **{"masks": "masks"} | asked)
        found[name] = {"alarms": len(other.alarms)} | first_told(other, subject, fair, plan)
        found[name] |= switched(other, subject, fair) if name == "units" and other.alarms else {}
    return found | first_told(sweep, subject, fair, plan) | (switched(sweep, subject, fair) if sweep.alarms else {})


def first_told(sweep: Any, subject: vt.Subject, fair: Drawn, plan: Plan) -> dict[str, Any]:
    """What the first row's activation tells in pictures whose cue and class are independent."""
    site, row = sweep.rows[0]
    finding = sweep[site]
    at = finding.rows.index(row)
    weight, bias = finding.parts.weight[at], float(finding.parts.bias[at])
    layer = f"{finding.layer['path']}:in"
    x = standard(fair.images, subject.preprocess)
    with torch.no_grad(), vt.capture(subject, layer, stop=True) as seen:
        a = []
        for part in x.split(100):
            subject(part)
            a.append(seen[layer][:, 0].numpy() @ weight + bias)  # the class token, which the head reads
    values = np.concatenate(a)
    told = {"cue": either(values, fair.cue) if plan.kind != "clean" else float("nan")}
    told["class"] = either(values, fair.labels == 1)
    right = plan.kind != "clean" and told["cue"] >= TOLD and told["cue"] > told["class"]
    return {"first": f"{site} {row.name}", "suspicion": row.suspicion, "auc": told, "right": bool(right)}


def either(values: np.ndarray, present: np.ndarray) -> float:
    """Area under the curve, whichever way round."""
    from sklearn.metrics import roc_auc_score

    found = float(roc_auc_score(present, values))
    return max(found, 1 - found)


def switched(sweep: Any, subject: vt.Subject, fair: Drawn) -> dict[str, Any]:
    """Accuracy on independent pictures, before and after; how many parts is chosen on the audited ones."""
    patch = sweep.switch_off(measure=False)
    groups = None if not fair.cue.any() else np.where(fair.cue, "cue", "none")
    table = patch.before_after(subject, as_images(fair, "fair"), groups=groups)
    found: dict[str, Any] = {"switched": len(patch), "all": table["all pictures"], "changed": table.changed}
    return found | ({} if groups is None else {"worst": table["worst group"]})


def audit_all(runs: Path, part: int, of: int) -> None:
    for plan in plans()[part::of]:
        path, out = runs / f"{plan.name}.safetensors", runs / f"{plan.name}.json"
        if path.exists() and not out.exists():
            replace_file(out, json_bytes(audit_one(plan, path)))
            print(plan.name, "audited", flush=True)


# -- tables


def interval(hits: int, of: int) -> str:
    """Share with its exact 95 % interval (Clopper and Pearson)."""
    low = beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits} of {of} ({low:.2f} to {high:.2f})"


def tables(runs: Path) -> None:
    rows = [
        json.loads((runs / f"{plan.name}.json").read_text())
        for plan in plans()
        if (runs / f"{plan.name}.json").exists()
    ]
    about = {
        "command": "python studies/audit_scenes.py train; python studies/audit_scenes.py audit",
        "models": len(rows),
    }
    about |= {"machine": machine(), "versions": versions(), "sites": SITES, "told": TOLD, "rows": rows}
    replace_file(OUT.with_suffix(".json"), json_bytes(about))
    OUT.with_suffix(".md").write_text("\n".join(written(rows)) + "\n")


def written(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# Planted shortcuts in classifiers of scenes", "", *__doc__.split("\n\n")[2].splitlines(), ""]
    lines += [
        f"Audited: what the last block writes ({', '.join(SITES)}), {AUDITED} pictures with masks, split units. Right:"
    ]
    lines += [
        f"the first part tells cue from none with an AUC of {TOLD} or more and better than it tells the classes, on"
    ]
    lines += [
        f"{EVALUATED} pictures where the two are independent. How many parts are switched off is chosen on the audited"
    ]
    lines += [
        "pictures alone, by what is left of the label where the object is painted over. Data in `audit_scenes.json`.",
        "",
    ]
    lines += [
        "| strength | right concept first | undivided units | without masks | models with an alarm | worst group |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for strength in (1.0, 0.9, 0.8, 0.5, 0.0):
        some = [row for row in rows if row["kind"] != "clean" and row["strength"] == strength]
        if some:
            lines.append(f"| {strength} | " + " | ".join(cells(some)) + " |")
    clean = [row for row in rows if row["kind"] == "clean"]
    quiet = [row for row in rows if row["kind"] == "clean" or row["strength"] == 0.0]
    lines += [
        "",
        f"False alarms: clean models {interval(sum(bool(r['alarms']) for r in clean), len(clean))}; with those whose",
    ]
    lines += [
        f"cue goes with no class {interval(sum(bool(r['alarms']) for r in quiet), len(quiet))}. With shuffled labels"
    ]
    lines += [f"{interval(sum(r['shuffled'] > 0 for r in rows), len(rows))} of all models.", ""]
    lines += [
        "| cue | strength | first tells cue / class | alarms | switched off | accuracy | worst group | worst, units |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- |"]
    for row in sorted(rows, key=lambda r: (r["kind"], -r["strength"], r["seed"])):
        lines.append("| " + " | ".join(detail(row)) + " |")
    return lines


def cells(some: list[dict[str, Any]]) -> list[str]:
    hit = [
        interval(sum(pick["right"] for pick in picks), len(some))
        for picks in (some, [r["units"] for r in some], [r["no masks"] for r in some])
    ]
    worst = [row["worst"] for row in some if "worst" in row]
    before, after = (float(np.mean([w[k] for w in worst])) if worst else float("nan") for k in (0, 1))
    return [*hit, interval(sum(bool(row["alarms"]) for row in some), len(some)), f"{before:.3f} -> {after:.3f}"]


def detail(row: dict[str, Any]) -> list[str]:
    def moved(pair: list[float] | None) -> str:
        return "" if pair is None else f"{pair[0]:.3f} -> {pair[1]:.3f}"

    told = (
        f"{row['auc']['cue']:.2f} / {row['auc']['class']:.2f}"
        if row["kind"] != "clean"
        else f"- / {row['auc']['class']:.2f}"
    )
    strength = "" if row["kind"] == "clean" else str(row["strength"])
    return [
        row["kind"],
        strength,
        told,
        f"{row['alarms']} of {row['parts']}",
        str(row.get("switched", 0)),
        moved(row.get("all")),
        moved(row.get("worst")),
        moved(row["units"].get("worst")),
    ]


# -- audits


def grown(objects: np.ndarray, by: int) -> np.ndarray:
    """Masks with a rim of `by` pixels: soft edges and shadows of objects lie outside of the exact mask."""
    return np.stack([binary_dilation(mask, iterations=by) for mask in objects])


def variants(drawn: Drawn) -> dict[str, dict[str, Any]]:
    """What the audits of one model differ in."""
    return {
        "exact masks": {"masks": list(drawn.objects)},
        "grown masks": {"masks": list(grown(drawn.objects, RIM))},
        "no masks": {"masks": None},
        "whole units": {"masks": list(grown(drawn.objects, RIM)), "split": False},
    }


def either_way(values: np.ndarray, there: np.ndarray) -> float:
    """AUC, whichever direction is the better one; NaN if all pictures are alike."""
    area = float(np.ravel(auc(values[:, None].astype(np.float64), there[:, None].astype(bool)))[0])
    return max(area, 1 - area)


def concept(finding: vt.AuditFinding, subject: vt.Subject, images: vt.ImageSet, drawn: Drawn) -> dict[str, Any]:
    """What the first row tells apart on pictures whose cue and class are independent, and whether that is the cue."""
    first, layer = finding.parts.some(np.array([0])), find_layer(subject, finding.site)
    assert finding.head is not None
    effects = measure(subject, finding.head, layer, first, images, prefix=finding.layer["prefix"])
    values = effects.activations[:, 0]
    cue, label = (either_way(values, there) for there in (drawn.cue, drawn.labels))
    return {"cue": round(cue, 4), "class": round(label, 4), "right": bool(cue >= ENOUGH and cue > label)}


def switched(finding: vt.AuditFinding, subject: vt.Subject, images: vt.ImageSet, drawn: Drawn) -> dict[str, Any]:
    """Accuracy and worst group before and after, with all alarms and with the first rows switched off."""
    bare, groups = replace(finding, subject=None), np.where(drawn.cue, "cue", "none")
    chosen = {"all alarms": finding.alarms, f"first {FIRST}": finding.alarms[:FIRST]}
    found = {}
    for name, rows in chosen.items():
        if rows:
            table = bare.switch_off(rows).before_after(subject, images, head=finding.head, groups=groups)
            parts = ("all pictures", "worst group")
            found[name] = {part: [round(v, 4) for v in table[part]] for part in parts} | {"rows": len(rows)}
    return found


def audit_one(plan: Plan, path: Path) -> dict[str, Any]:
    """All audits of one model; sub-units are split once and shared."""
    subject = load(plan, path)
    audited, evaluated = draw(plan, 1, AUDITED, plan.strength), draw(plan, 2, EVALUATED, 0.0)
    images, others = as_images(audited, f"{plan.name}-audited"), as_images(evaluated, f"{plan.name}-evaluated")
    split = vt.disentangle(subject, images, SITE, **SPLIT, seed=0, progress=False)
    right = predict(subject, evaluated) == evaluated.labels
    found: dict[str, Any] = plan._asdict() | {"groups": group_accuracies(right, evaluated)}
    agree = evaluated.cue == evaluated.labels.astype(bool)
    found["reliance"] = None if plan.kind == "clean" else round(float(right[agree].mean() - right[~agree].mean()), 4)
    for name, settings in variants(audited).items():
        given = None if settings.get("split") is False else split
        made = vt.audit(
            subject, images, SITE, disentanglement=given, confirm=0, correction=CORRECTION, progress=False, **settings
        )
        first = made.rows[0]
        row = {"alarms": len(made.alarms), "tested": len(made.rows), "suspicion": round(first.suspicion, 4)}
        row |= {"first": first.name, "kind": first.kind, "corrected": first.corrected, "alarm": first.alarm}
        row |= {"shuffled": made.controls["alarms with shuffled labels"]}
        if plan.kind != "clean":
            row["auc"] = concept(made, subject, others, evaluated)
        found[name] = row | {"off": switched(made, subject, others, evaluated)}
    return found


def audit_all(runs: Path, share: int, of: int) -> None:
    """Every `of`-th model, so that several processes can share the work; what is there is kept."""
    for plan in plans()[share::of]:
        path, out = runs / f"{plan.name}.safetensors", runs / f"{plan.name}.json"
        if path.exists() and not out.exists():
            start = time.perf_counter()
            found = audit_one(plan, path)
            replace_file(out, json_bytes(found))
            print(plan.name, f"{time.perf_counter() - start:.0f} s", found["exact masks"], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("train", "audit", "tables"))
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--share", type=int, nargs=2, default=(0, 1), metavar=("K", "N"), help="every N-th model from K")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.step == "train":
        train_all(args.runs)
    elif args.step == "audit":
        audit_all(args.runs, *args.share)
    else:
        from audit_scenes_tables import write

        write(args.runs, OUT)


if __name__ == "__main__":
    main()
