"""Cats and dogs with a text box that tells the species: does an audit of places find the box, and does that help?

    python studies/audit_pets_places.py DATA            # one JSON a model and seed in runs/audit_pets_places, a table
    python studies/audit_pets_places.py DATA tables     # the table of what is there

Pictures, probes and seeds are those of `audit_pets.py`. Places are learned from the training pictures and tested on
the audited half; accuracies are of the other half. Nobody is told of boxes, only where the animal is.
"""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

import vitreous as vt
from audit_pets import BOX, DRAWS, MODELS, SHOWN, WAYS, Case, accuracies, case, opened, spread
from audit_pets_inputs import NONE, SIDE, Pets, halves, probe
from audit_pets_runs import RESULTS, Study
from vitreous.auditing.heads import outputs_of
from vitreous.auditing.places_off import tokens_at

SEEDS = (0, 2, 3, 1, 4)  # in the order of running
SETTLED = (0, 1)  # the method, its layer and its settings were settled on these seeds; the others were not looked at
CLEAN = {
    "clean, no boxes": "clean probe, pictures without boxes",
    "clean, boxes": "clean probe, pictures with boxes",
}
OF_BOX = 0.5  # of a patch: with more of the box on it, it is a place of the box


def boxed(images: vt.ImageSet, positions: int) -> np.ndarray:
    """(picture, position): the share of a patch that lies in the box."""
    side = round(positions**0.5)
    pixels = torch.zeros(len(images), 1, SIDE, SIDE)
    for k in range(len(images)):
        x0, y0, x1, y1 = images[k].about["box"]
        pixels[k, 0, y0:y1, x0:x1] = 1
    return torch.nn.functional.adaptive_avg_pool2d(pixels, side).flatten(1).numpy()


def audited(one: Case, images: vt.ImageSet, look: vt.ImageSet, seed: int) -> vt.PlacesFinding:
    return vt.audit_places(one.subject, images, masks="masks", look=look, head=one.head, seed=seed, progress=False)


def said(finding: vt.PlacesFinding) -> dict[str, Any]:
    found: dict[str, Any] = {"alarm": finding.alarm, "together": vars(finding.together)}
    found |= {"alarms": [finding.classes[row.target] for row in finding.alarms]}
    found |= {"rows": [vars(row) for row in finding.rows], "overall": vars(finding.overall), "left": finding.left}
    return found | {"shuffled": finding.controls["alarms with shuffled labels"]}


def of_the_box(finding: vt.PlacesFinding, one: Case) -> dict[str, float]:
    """On measured pictures with truthful boxes, the animal not painted over: are found places those of the box?"""
    images = one.fair["truthful"]
    scores = finding.found.scores(tokens_at(one.subject, finding.site, images))
    box, hit = boxed(images, scores.shape[-1]), (scores > 0).any(0)
    kind = {int(c): s for c, s in zip(finding.found.classes, scores, strict=True)}
    own = np.stack([kind[int(c)][k] for k, c in enumerate(np.asarray(images.labels))])
    found = {"auc": float(roc_auc_score((box > OF_BOX).ravel(), own.ravel()))}
    found |= {"precision": float((box[hit] > 0).mean()), "recall": float(hit[box > OF_BOX].mean())}
    return found | {"area": float((box > 0).mean()), "elsewhere": float(hit[box == 0].mean())}


def run(pets: Pets, subject: vt.Subject, name: str, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    one = case(pets, subject, seed)
    finding = audited(one, one.audited, one.train, seed)
    found: dict[str, Any] = {"model": name, "seed": seed, "site": finding.site} | {"shortcut": said(finding)}
    found |= {"nothing": accuracies(one, finding.head), "box": of_the_box(finding, one)}
    found["off"] = found["nothing"]
    if finding.alarm:
        with finding.switch_off().on(subject):
            found["off"] = accuracies(one, finding.head)
    if seed == SEEDS[0]:
        pictures(finding, one, RESULTS / f"audit_pets_places_{name}.png")
    found |= clean(pets, one, seed)
    return found | {"seconds": time.perf_counter() - start}


def clean(pets: Pets, one: Case, seed: int) -> dict[str, Any]:
    """A probe that never saw a box, audited with pictures without boxes, and with boxes that it does not listen to."""
    rng = np.random.default_rng((seed, 2))
    bare, train = (
        pets.shown(index, np.full(len(index), NONE), rng, BOX)
        for index in (halves(pets, rng)[0], np.flatnonzero(~pets.test))
    )
    head = probe(np.tile(outputs_of(one.subject, train), (DRAWS, 1)), np.tile(np.asarray(train.labels), DRAWS))
    other = one._replace(head=head)
    found = {"clean, no boxes": said(audited(other, bare, train, seed))}
    boxes = audited(other, one.audited, one.train, seed)
    found["clean, boxes"] = said(boxes)
    found["clean"] = accuracies(other, opened(other))
    found["clean, off"] = found["clean"]
    if boxes.alarm:
        with boxes.switch_off().on(one.subject):
            found["clean, off"] = accuracies(other, boxes.head)
    return found


# -- pictures and tables


def pictures(finding: vt.PlacesFinding, one: Case, path: Path, shown: int = 6) -> None:
    """A line a class: measured pictures of it with truthful boxes, places that are found outlined by colour."""
    from matplotlib.figure import Figure

    images = one.fair["truthful"]
    scores = finding.found.scores(tokens_at(one.subject, finding.site, images))
    figure = Figure(figsize=(2 * shown, 2.25 * len(finding.rows)), layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(finding.rows), shown))
    for line, (row, maps) in enumerate(zip(finding.rows, scores, strict=True)):
        mine = np.flatnonzero(np.asarray(images.labels) == row.target)[:shown]
        for axis, k in zip(axes[line], mine, strict=True):
            side = round(maps.shape[1] ** 0.5)
            axis.imshow(images[int(k)].image)
            hit = np.where(maps[k] > 0, 1.0, np.nan).reshape(side, side)
            axis.imshow(hit, cmap="autumn", alpha=0.45, vmin=0.5, vmax=2, extent=(0, SIDE, SIDE, 0))
            axis.set_xticks([])
            axis.set_yticks([])
        alarm = "alarm" if finding.alarm else "no alarm"
        words = f"places that tell '{finding.classes[row.target]}': suspicion {row.suspicion:.2f} ({alarm})"
        axes[line][0].set_title(words, loc="left", fontsize=9).set_in_layout(False)
    figure.savefig(path, dpi=90)


def written(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["# Boxes that tell cats from dogs: an audit of places", "", *__doc__.split("\n\n")[2].splitlines(), ""]
    lines += [
        f"Boxes of {BOX} of {SIDE} pixels. Accuracies are of both species alike (0.5 is chance); each cell is the mean",
        "over seeds with the smallest and largest; p-values are in the order of seeds. The layer, the settings and the",
        f"order of the tests (after a false alarm without it) were settled on seeds {SETTLED[0]} and {SETTLED[1]},",
        "where the measured half had been seen too; the others were run once. More of units, sub-units, features,",
        "Grad-CAM and retrained probes is in [audit_pets.md](audit_pets.md). Data in `audit_pets_places.json`.",
        "",
    ]
    for name in MODELS:
        some = [row for row in rows if row["model"] == name]
        if some:
            seeds = ", ".join(str(row["seed"]) for row in some)
            lines += [f"## {name}, seeds {seeds}", "", *table(some), "", *told(some), "", *against(some), ""]
    return [*lines, "## Verdict", "", *verdict(rows), ""]


def verdict(rows: list[dict[str, Any]]) -> list[str]:
    """Counts and means over all models and seeds."""

    def mean(key: str, what: str, some: list[dict[str, Any]] = rows) -> str:
        return f"{np.mean([row[key][what] for row in some]):.2f}"

    fresh = [row for row in rows if row["seed"] not in SETTLED]
    found = sum(row["shortcut"]["alarm"] for row in rows)
    false = sum(row[key]["alarm"] for row in rows for key in CLEAN)
    better = sum(row["off"]["lying"] > row["nothing"]["lying"] for row in rows)
    whole = sum(row[key]["overall"]["alarm"] for row in rows for key in CLEAN)
    low, off, high = (
        np.mean([row[key][what] for row in rows])
        for key, what in (("nothing", "lying"), ("off", "lying"), ("nothing", "none"))
    )
    words = (
        f"An alarm in {found} of {len(rows)} probes that take the shortcut, and in {false} of {len(CLEAN) * len(rows)} "
        f"audits of probes that never saw a box (the model's own test: {whole}). Switched off, accuracy where the "
        f"box lies rises in {better} of {len(rows)}, on average from {low:.2f} to {off:.2f}. That is "
        f"{(off - low) / (high - low):.0%} of the way to the {high:.2f} that the probe has without a box. What is "
        "missing are places of the box that are not found, and places beside it that are and are lost as well. Where "
        f"the box is truthful it falls from {mean('nothing', 'truthful')} to {mean('off', 'truthful')}, and where "
        f"there is none it is {mean('off', 'none')}. {of_listening(rows)} "
        f"A probe that never saw one has {mean('clean', 'lying')} where it "
        "lies: retraining stays better. On the fresh seeds alone: an alarm in "
        f"{sum(row['shortcut']['alarm'] for row in fresh)} of {len(fresh)}, in "
        f"{sum(row[key]['alarm'] for row in fresh for key in CLEAN)} of {len(CLEAN) * len(fresh)} clean audits, and "
        f"{mean('nothing', 'lying', fresh)} to {mean('off', 'lying', fresh)} where the box lies, and from "
        f"{np.mean([gap(row['nothing']) for row in fresh]):.2f} to {np.mean([gap(row['off']) for row in fresh]):.2f} "
        "between truthful and lying boxes."
    )
    lines = textwrap.wrap(words, 119)
    shown = [f"[{name}](audit_pets_places_{name}.png)" for name in MODELS]
    return [
        *lines,
        "",
        f"Places that are found, seed {SEEDS[0]} (the alarm is of both species' together): {', '.join(shown)}.",
    ]


def of_listening(rows: list[dict[str, Any]]) -> str:
    """What is gained and lost together, model by model: a lying box alone shows the gain only."""
    said = []
    for name in MODELS:
        some = [row for row in rows if row["model"] == name]
        pairs = [[float(np.mean([of(row[key]) for row in some])) for key in ("nothing", "off")] for of in (gap, by_lot)]
        (open_, shut), (before, after) = pairs
        said.append(f"on {name} from {open_:.2f} to {shut:.2f} and from {before:.2f} to {after:.2f}")
    return (
        "A lying box shows the gain alone. What truthful and lying boxes differ by says how much the probe listens to "
        "them, and a box by lot says what is gained and lost together. The difference and that accuracy go "
        f"{'; '.join(said)}. So the switch makes a probe deaf to much or most of the box, and does not make it good."
    )


def table(some: list[dict[str, Any]]) -> list[str]:
    lines = ["|  | truthful box | no box | lying box | truthful minus lying | a box by lot |"]
    lines += ["| --- " * 6 + "|"]
    names = {"nothing": "the probe as it is", "off": "places switched off", "clean": "probe that never saw a box"}
    for key, words in names.items():
        cells = [spread([row[key][what] for row in some]) for what in SHOWN]
        cells += [spread([of(row[key]) for row in some]) for of in (gap, by_lot)]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    lines += ["", "|  | whole model: p | places together: p | alarm | suspicion of each species' places | left |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for key, words in {"shortcut": "probe that takes the shortcut", **CLEAN}.items():
        these = [row[key] for row in some]
        cells = [", ".join(f"{row[what]['p']:.4f}" for row in these) for what in ("overall", "together")]
        cells += [f"{sum(row['alarm'] for row in these)} of {len(these)}"]
        cells += [", ".join(" / ".join(f"{r['suspicion']:.2f}" for r in row["rows"]) for row in these)]
        cells += [", ".join(f"{row['overall']['suspicion']:.2f} -> {row['left']:.2f}" for row in these)]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return lines


def gap(found: dict[str, float]) -> float:
    """How much a probe listens to the box."""
    return found["truthful"] - found["lying"]


def by_lot(found: dict[str, float]) -> float:
    """Accuracy where the box says nothing."""
    return (found["truthful"] + found["lying"]) / 2


def against(some: list[dict[str, Any]]) -> list[str]:
    """Everything that was tried, on the seeds that both studies have: the same probes and the same pictures."""
    name, file = some[0]["model"], RESULTS / "audit_pets.json"
    every = json.loads(file.read_text())["rows"] if file.exists() else []
    others = {row["seed"]: row for row in every if row["model"] == name}
    both = [row for row in some if row["seed"] in others]
    if not both:
        return []
    peers = [others[row["seed"]] for row in both]
    ways: dict[str, list[dict[str, Any]]] = {WAYS["nothing"]: [row["nothing"] for row in both]}
    ways["places switched off"] = [row["off"] | {"alarms": int(row["shortcut"]["alarm"])} for row in both]
    ways |= {words: [row[key] for row in peers] for key, words in WAYS.items() if key != "nothing"}
    lines = [
        f"Against everything else, seeds {', '.join(str(row['seed']) for row in both)}, the same probes and pictures:"
    ]
    lines += ["", "|  | truthful box | no box | lying box | truthful minus lying | a box by lot | with an alarm |"]
    lines += ["| --- " * 7 + "|"]
    for words, found in ways.items():
        cells = [spread([one[what] for one in found]) for what in SHOWN]
        cells += [spread([of(one) for one in found]) for of in (gap, by_lot)]
        cells += [f"{sum(one['alarms'] > 0 for one in found)} of {len(found)}" if "alarms" in found[0] else ""]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    cam = spread([row["cam"]["auc"] for row in peers])
    words = (
        f"Grad-CAM's energy off the animal tells these probes from those without boxes with an AUC of {cam}; there is "
    )
    return [*lines, "", *textwrap.wrap(f"{words}nothing to switch off.", 119)]


def told(some: list[dict[str, Any]]) -> list[str]:
    def of(what: str) -> str:
        return spread([row["box"][what] for row in some])

    return [
        "On measured pictures the score of the right species' places tells patches of the box from all others with an",
        f"AUC of {of('auc')}. Of the patches that are found {of('precision')} touch the box, which",
        f"{of('area')} of all do; {of('recall')} of those mostly in the box are found, and",
        f"{of('elsewhere')} of those off it.",
    ]


if __name__ == "__main__":
    Study("audit_pets_places", __doc__, MODELS, SEEDS, {"box": BOX, "settled": SETTLED}, run, written).main()
