"""Planted shortcuts in classifiers of scenes: is the right concept ranked first, and is an audit quiet on clean models?

    python studies/audit_scenes.py train                # weights to runs/audit_scenes, a few seconds to a minute each
    python studies/audit_scenes.py audit                # one JSON a model beside its weights
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
from scipy.stats import beta
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import vitreous as vt
from vitreous.models.bundled import load_bundled
from vitreous.provenance import json_bytes, machine, replace_file, versions
from vitreous.scenery import render_scene

RUNS = Path("runs") / "audit_scenes"
OUT = Path(__file__).parent / "results" / "audit_scenes"
BACKBONE, SIDE = "scenes-contrast", 64
WARM = ("red", "orange", "yellow", "pink", "brown")
CLASSES = ("cold", "warm")
KINDS = ("marker", "colour", "texture", "background", "corner")
STRENGTHS = (1.0, 0.8, 0.9, 0.0, 0.5)  # in the order of training
AGAIN = STRENGTHS[:3]  # a second training each
CLEAN = 20
STEPS, BATCH, RATE = 100, 32, 4e-4
AUDITED, EVALUATED = 300, 600
SITES = ("blocks.-1.attn.out", "blocks.-1.mlp.out")  # what the last block writes
TOLD = 0.7  # a part stands for the cue if it tells cue from none at least so well, and better than it tells the classes
RELIES = 0.1  # gap from which on a model is said to take the shortcut
VARIANTS: dict[str, dict[str, Any]] = {
    "sub-units": {"masks": "masks"},
    "units": {"masks": "masks", "split": False},
    "exact masks": {"masks": "masks", "split": False, "rim": 0},
    "no masks": {"split": False},
}
INTRO = (
    f"Audited: what the last block writes ({', '.join(SITES)}), {AUDITED} pictures with masks. The first part is the",
    f"right one if it tells cue from none with an AUC of {TOLD} or more and better than it tells the classes, on",
    f"{EVALUATED} pictures where the two are independent; its rank is that of the first such part. How many parts are",
    "switched off is chosen on the audited pictures alone, by what is left of the label where the object is painted",
    "over; accuracies are of the independent pictures. Gap: accuracy where the cue agrees with the label minus that",
    "where it lies, before; it says how much a model takes the shortcut. Data in `audit_scenes.json`.",
)
SUMMARY = (
    "models",
    "right concept first",
    "its median rank",
    "undivided units",
    "units, no masks",
    "an alarm",
    "worst group",
)
DETAILS = ("cue", "strength", "seed", "gap", "first tells cue / class", "rank", "alarms", "switched off", "accuracy")
DETAILS += ("worst group", "worst group, units")


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
    planted = [Plan(kind, s, 10 * k + j) for j, s in enumerate(STRENGTHS + AGAIN) for k, kind in enumerate(KINDS)]
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


def train_all(runs: Path, share: int, of: int) -> None:
    runs.mkdir(parents=True, exist_ok=True)
    for plan in plans()[share::of]:
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


def audit_one(plan: Plan, path: Path) -> dict[str, Any]:
    """Everything that the tables need of one model."""
    subject = load(plan, path)
    images = as_images(draw(plan, 1, AUDITED, plan.strength), "audited")
    fair = draw(plan, 2, EVALUATED, 0.0)
    right = predict(subject, fair) == fair.labels
    agree = fair.cue == fair.labels.astype(bool)
    start = time.perf_counter()
    found: dict[str, Any] = plan._asdict() | {"groups": group_accuracies(right, fair)}
    found["gap"] = None if plan.kind == "clean" else float(right[agree].mean() - right[~agree].mean())
    for name, asked in VARIANTS.items():
        sweep = vt.audit_sites(subject, images, SITES, confirm=0, progress=False, **asked)
        row: dict[str, Any] = {"alarms": len(sweep.alarms), "parts": len(sweep.rows)}
        row["shuffled"] = sum(one.controls["alarms with shuffled labels"] for one in sweep.findings)
        row |= told(sweep, subject, fair)
        found[name] = row | (switched(sweep, subject, fair) if sweep.alarms and "masks" in asked else {})
    return found | {"seconds": time.perf_counter() - start}


def told(sweep: Any, subject: vt.Subject, fair: Drawn) -> dict[str, Any]:
    """What the rows' activations tell in pictures whose cue and class are independent.

    `right`: whether the first row stands for the cue; `rank` of the first one that does, None if none does.
    """
    cue, label = {}, {}
    for finding in sweep.findings:
        values = activations(finding, subject, fair)
        for row, column in zip(finding.rows, values.T, strict=True):
            label[finding.site, row.id] = either(column, fair.labels == 1)
            cue[finding.site, row.id] = either(column, fair.cue) if fair.cue.any() else 0.5
    keys = [(site, row.id) for site, row in sweep.rows]
    stands = [cue[key] >= max(TOLD, label[key]) for key in keys]
    site, row = sweep.rows[0]
    found = {"first": f"{site} {row.name}", "suspicion": row.suspicion, "cue": cue[keys[0]], "class": label[keys[0]]}
    return found | {"right": stands[0], "rank": stands.index(True) + 1 if any(stands) else None, "stand": sum(stands)}


@torch.no_grad()
def activations(finding: vt.AuditFinding, subject: vt.Subject, fair: Drawn) -> np.ndarray:
    """(picture, row) at the class token, which the head reads."""
    assert subject.preprocess is not None
    layer, parts = f"{finding.layer['path']}:in", []
    with vt.capture(subject, layer, stop=True) as seen:
        for x in standard(fair.images, subject.preprocess).split(100):
            subject(x)
            parts.append(seen[layer][:, 0].numpy())
    return np.concatenate(parts) @ finding.parts.weight.T + finding.parts.bias


def either(values: np.ndarray, present: np.ndarray) -> float:
    """Area under the curve, whichever way round."""
    found = float(roc_auc_score(present, values))
    return max(found, 1 - found)


def switched(sweep: Any, subject: vt.Subject, fair: Drawn) -> dict[str, Any]:
    """Accuracy on independent pictures, before and after; how many parts is chosen on the audited ones."""
    patch = sweep.switch_off(measure=False)
    groups = None if not fair.cue.any() else np.where(fair.cue, "cue", "none")
    table = patch.before_after(subject, as_images(fair, "fair"), groups=groups)
    found: dict[str, Any] = {"switched": len(patch), "all": table["all pictures"], "changed": table.changed}
    return found | ({} if groups is None else {"worst": table["worst group"]})


def audit_all(runs: Path, share: int, of: int) -> None:
    """Every `of`-th model, so that several processes can share the work; what is there is kept."""
    for plan in plans()[share::of]:
        path, out = runs / f"{plan.name}.safetensors", runs / f"{plan.name}.json"
        if path.exists() and not out.exists():
            found = audit_one(plan, path)
            replace_file(out, json_bytes(found))
            print(plan.name, f"{found['seconds']:.0f} s", found["sub-units"], flush=True)


# -- tables


def interval(hits: int, of: int) -> str:
    """Share with its exact 95 % interval (Clopper and Pearson)."""
    low = beta.ppf(0.025, hits, of - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, hits + 1, of - hits) if hits < of else 1.0
    return f"{hits} of {of} ({low:.2f} to {high:.2f})"


def tables(runs: Path) -> None:
    files = [runs / f"{plan.name}.json" for plan in plans()]
    rows = [json.loads(file.read_text()) for file in files if file.exists()]
    if not rows:
        raise SystemExit(f"no audits in {runs}: train and audit first")
    about = {
        "command": "; ".join(f"python studies/audit_scenes.py {step}" for step in ("train", "audit", "tables")),
        "machine": machine(),
    }
    about |= {"versions": versions(), "models": len(rows), "sites": SITES, "told": TOLD, "relies": RELIES, "rows": rows}
    replace_file(OUT.with_suffix(".json"), json_bytes(about))
    replace_file(OUT.with_suffix(".md"), ("\n".join(written(rows)) + "\n").encode())


def written(rows: list[dict[str, Any]]) -> list[str]:
    planted = [row for row in rows if row["kind"] != "clean"]
    lines = ["# Planted shortcuts in classifiers of scenes", "", *__doc__.split("\n\n")[2].splitlines(), "", *INTRO, ""]
    lines += header(SUMMARY)
    some = {f"strength {s:g}": [row for row in planted if row["strength"] == s] for s in sorted(set(STRENGTHS))[::-1]}
    some[f"gap of {RELIES} or more"] = [row for row in planted if row["gap"] >= RELIES]
    lines += [f"| {name} | " + " | ".join(cells(these)) + " |" for name, these in some.items() if these]
    lines += ["", *false_alarms(rows), ""]
    lines += header(DETAILS)
    order = sorted(rows, key=lambda r: (r["kind"], -r["strength"], r["seed"]))
    return lines + ["| " + " | ".join(detail(row)) + " |" for row in order]


def header(names: tuple[str, ...]) -> list[str]:
    return ["| " + " | ".join(names) + " |", "| --- " * len(names) + "|"]


def false_alarms(rows: list[dict[str, Any]]) -> list[str]:
    """Of models that have nothing to find, by variant."""
    clean = [row for row in rows if row["kind"] == "clean"]
    quiet = clean + [row for row in rows if row["kind"] != "clean" and row["strength"] == 0.0]
    lines = ["| false alarms | clean models | and those whose cue goes with no class | shuffled labels, all models |"]
    lines += ["| --- | --- | --- | --- |"]
    for name in [name for name, asked in VARIANTS.items() if asked.get("masks")]:
        counts = [interval(sum(bool(r[name]["alarms"]) for r in some), len(some)) for some in (clean, quiet)]
        counts.append(interval(sum(r[name]["shuffled"] > 0 for r in rows), len(rows)))
        lines.append(f"| {name} | " + " | ".join(counts) + " |")
    return lines


def cells(some: list[dict[str, Any]]) -> list[str]:
    hits = [interval(sum(row[name]["right"] for row in some), len(some)) for name in ("sub-units", "units", "no masks")]
    ranks = [row["sub-units"]["rank"] or row["sub-units"]["parts"] for row in some]
    worst = [row["sub-units"].get("worst") or [min(row["groups"].values())] * 2 for row in some]
    before, after = np.mean(worst, 0)
    alarms = interval(sum(bool(row["sub-units"]["alarms"]) for row in some), len(some))
    return [hits[0], f"{np.median(ranks):g}", *hits[1:], alarms, f"{before:.3f} -> {after:.3f}"]


def detail(row: dict[str, Any]) -> list[str]:
    def moved(pair: list[float] | None) -> str:
        return "" if pair is None else f"{pair[0]:.3f} -> {pair[1]:.3f}"

    main, clean = row["sub-units"], row["kind"] == "clean"
    said = ["", "", f"- / {main['class']:.2f}", ""]
    if not clean:
        first = f"{main['cue']:.2f} / {main['class']:.2f}"
        said = [str(row["strength"]), f"{row['gap']:+.2f}", first, str(main["rank"] or "none")]
    ends = [f"{main['alarms']} of {main['parts']}", str(main.get("switched", 0))]
    ends += [moved(main.get("all")), moved(main.get("worst")), moved(row["units"].get("worst"))]
    return [row["kind"], said[0], str(row["seed"]), *said[1:], *ends]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("step", choices=("train", "audit", "tables"))
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument(
        "--share", type=int, nargs=2, default=(0, 1), metavar=("K", "N"), help="every N-th model from K"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.step == "train":
        train_all(args.runs, *args.share)
    elif args.step == "audit":
        audit_all(args.runs, *args.share)
    else:
        tables(args.runs)


if __name__ == "__main__":
    main()
