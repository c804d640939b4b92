"""The parts of the steering study that steer patches, as the paper does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

import vitreous as vt
from labels_scenes import tiny_imagenet
from real_models import tin_vit
from steering_measures import CONCEPTS, Moved, TextHead, at_change, mean_of, moved, text_embedding, two_halves
from vitreous.evidence.planted import scene_concepts
from vitreous.models.bundled import load_words
from vitreous.scenery import ATTRIBUTES

SURE = 0.05
FACTORS = {"suppress": -50.0, "amplify": 50.0}  # the strongest of the paper


# -- a class token that looks at steered patches


@torch.no_grad()
def read(subject: vt.Subject, head: TextHead, images: vt.ImageSet, path: Path) -> tuple[np.ndarray, np.ndarray]:
    """What enters the layer (picture, token, input) in half precision, and text vectors (picture, channel)."""
    if not path.exists():
        hidden, seen = [], []
        with vt.capture(subject, "blocks.5.mlp.hidden") as recorded:
            for start in tqdm(range(0, len(images), 100), "pictures"):
                seen.append(head.embed(subject([picture.image for picture in images[start : start + 100]])).numpy())
                hidden.append(recorded["blocks.5.mlp.hidden"].half().numpy())
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, hidden=np.concatenate(hidden), seen=np.concatenate(seen))
    kept = np.load(path)
    return kept["hidden"].astype(np.float32), kept["seen"]


def patches_part(data: Path, folder: Path, work: Path, each: int = 12, top_units: int = 50) -> dict[str, Any]:
    """All patches of block 5 by the strongest factors: does the class token say something else six blocks later?"""
    images, subject, head, site = tiny_imagenet(data), tin_vit(data, "text"), TextHead(data), "blocks.5.mlp.out"
    assert images.labels is not None and images.classes is not None
    truth, (learn, held), rng = images.labels, two_halves(images.labels), np.random.default_rng(0)
    q, seen = read(subject, head, images[learn], work / "patches.npz")
    finding = vt.disentangle(subject, q, site, tokens_per_image=8, out=work / "patches")
    active = finding.subunit_activations(q[:, 1:])
    labels = vt.label(active, seen, head.texts.numpy(), images.classes, top=20, progress=False)
    del active, q
    embed, rows = text_embedding(folder), {}
    for concept, classes in tqdm(CONCEPTS.items(), "concepts"):
        mine = np.isin(truth[held], classes)
        shown = np.concatenate([rng.permutation(held[on])[:each] for on in (mine, ~mine)])
        x = subject.inputs([picture.image for picture in images[shown]])
        asked: dict[str, Any] = {"labels": labels, "embed": embed, "chance": SURE, "top_units": top_units}
        with vt.steer(subject, finding, suppress=concept, **asked) as steering:
            ids = steering.subunits
        chosen = {
            "sub-units of the concept": ids,
            "random sub-units": rng.choice(len(finding), len(ids), replace=False),
            "whole units of these sub-units": np.flatnonzero(np.isin(finding.parents, finding.parents[ids])),
        }
        with torch.no_grad():
            before = head(subject(x))
            for name, numbers in chosen.items():
                for side, factor in FACTORS.items():
                    with vt.steer(subject, finding, amplify=numbers, alpha=factor):
                        after = head(subject(x))
                    rows.setdefault((side, name), []).append(moved(before, after, classes, truth[shown]))
            rows.setdefault(("before", ""), []).append(moved(before, before, classes, truth[shown]))
    found: dict[str, Any] = {"finding": repr(finding), "sub-units a concept": top_units, "factors": FACTORS}
    found["pictures a concept, of it and others"] = each
    some = rng.permutation(held)[:200]
    x = subject.inputs([picture.image for picture in images[some]])
    with torch.no_grad(), vt.steer(subject, finding, suppress=range(len(finding)), gamma=0):
        called = [head(subject(x)).argmax(1).numpy()]
    with torch.no_grad():
        called.append(head(subject(x)).argmax(1).numpy())
    right = [round(float((c == truth[some]).mean()), 3) for c in reversed(called)]
    found["accuracy on 200 pictures, and with the layer taken out of all patches"] = right
    found["share of labels with chance <= 0.05"] = round(float((labels.chance <= SURE).mean()), 3)
    for (side, name), moves in rows.items():
        mean = {k: round(v, 4) for k, v in mean_of(moves).__dict__.items()}
        found |= {side: found.get(side, {}) | {name: mean}} if name else {side: mean}
    return found


# -- patches that say what they are


STRENGTHS = (1, 3, 8, 20, 50)
KINDS = ("colour", "texture")


class Scenes:
    """Patches of the last block of scenes-text, and the words that fit each."""

    def __init__(self, count: int, seed: int) -> None:
        self.subject, self.tower = vt.load("bundled:scenes-text", device="cpu"), load_words()
        images = vt.scenes(count, size=64, seed=seed)
        sites = ("blocks.7.resid.mid", "blocks.7.mlp.hidden")
        with torch.no_grad(), vt.capture(self.subject, sites) as seen:
            self.subject([picture.image for picture in images])
            self.middle, self.hidden = (seen[site] for site in sites)
            self.words = {kind: self.tower.text(self.tower.tokens(ATTRIBUTES[kind])) for kind in KINDS}
        grid = self.subject.grid()
        assert grid is not None
        found = scene_concepts([p.instances for p in images], [p.about for p in images], grid)
        present = found.present.reshape(count, grid.patches, -1)
        self.truth = {}
        for kind in KINDS:
            columns = [found.names.index(f"{word} objects") for word in ATTRIBUTES[kind]]
            here = present[..., columns]
            self.truth[kind] = np.where(here.any(-1), here.argmax(-1), -1)

    def tokens(self, which: slice) -> torch.Tensor:
        """(scene, patch, channel) in the space of words, by the model's own layers."""
        module: Any = self.subject.module
        stream = self.middle[which] + module.blocks[7].ls2(module.blocks[7].mlp.fc2(self.hidden[which]))
        return self.tower.image(module.norm(stream)[:, 1:])

    def fits(self, which: slice, kind: str) -> torch.Tensor:
        """Probabilities (patch of an object, word of this kind)."""
        scores = self.tokens(which) @ self.words[kind].T * self.tower.phrase_scale.exp()
        return scores.softmax(-1)[torch.from_numpy(self.truth[kind][which] >= 0)]

    def right(self, which: slice, kind: str) -> np.ndarray:
        """(patch of an object,): its word."""
        return self.truth[kind][which][self.truth[kind][which] >= 0]


def scenes_part(count: int = 400, top_units: int = 10) -> dict[str, Any]:
    scenes = Scenes(count, seed=11)
    learn, held = slice(0, count // 2), slice(count // 2, count)
    q = scenes.hidden[learn].numpy()
    finding = vt.disentangle(scenes.subject, q, "blocks.-1.mlp.out", tokens_per_image=32)
    vocabulary = [word for kind in KINDS for word in ATTRIBUTES[kind]]
    with torch.no_grad():  # every patch is a picture of its own
        seen = scenes.tokens(learn).flatten(0, 1).numpy()
        texts = torch.cat([scenes.words[kind] for kind in KINDS]).numpy()
    active = finding.subunit_activations(q[:, 1:]).reshape(len(seen), -1)
    labels = vt.label(active, seen, texts, vocabulary, top=100, progress=False)
    found: dict[str, Any] = {"scenes to learn from and to measure on": [count // 2, count // 2]}
    found |= {
        "finding": repr(finding),
        "share of labels with chance <= 0.05": round(float((labels.chance <= SURE).mean()), 3),
    }
    found["share of sub-units that push"] = push(scenes, finding, labels, held)
    meant = {}
    for word in vocabulary:
        named = np.array([name == word for name in labels.names]) & (labels.chance <= SURE) & ~finding.dead
        if named.any():
            with vt.steer(scenes.subject, finding, amplify=word, labels=labels, chance=SURE, top_units=top_units) as s:
                meant[word] = s.subunits
    found["words that are a label"] = len(meant)
    for side, sign in (("suppress", -1), ("amplify", 1)):
        found[side] = compare(scenes, finding, meant, held, sign)
    return found


def push(scenes: Scenes, finding: vt.Disentanglement, labels: vt.Labels, held: slice) -> dict[str, float]:
    """Share of sub-units that push patches towards the word they are called after, where it is true; and others."""
    sure, pushed = np.flatnonzero(labels.chance <= SURE), {"its own": [], "another's": []}
    names = np.array([str(name) for name in labels.names])
    shuffled = np.random.default_rng(0).permutation(names[sure])
    units = finding.units[finding.parents]
    active = finding.subunit_activations(scenes.hidden[held, 1:].numpy(), sure)
    for kind in KINDS:
        for k, word in enumerate(ATTRIBUTES[kind]):
            on = scenes.truth[kind][held] == k
            slope = slope_of(scenes, held, kind, k)[on]
            for which, of in (("its own", names[sure]), ("another's", shuffled)):
                mine = np.flatnonzero(of == word)
                pushed[which] += (active[on][:, mine] * slope[:, units[sure[mine]]]).mean(0).tolist()
    return {f"towards {which} label": round(float(np.mean(np.array(p) > 0)), 3) for which, p in pushed.items()}


def slope_of(scenes: Scenes, which: slice, kind: str, word: int) -> np.ndarray:
    """(scene, patch, unit): how the log odds of a word at a patch move with what the layer gives there."""
    layer: Any = scenes.subject.module.get_submodule("blocks.7.mlp.fc2")
    step = torch.zeros_like(scenes.middle[which], requires_grad=True)
    handle = layer.register_forward_hook(lambda _, __, output: output + step)
    try:
        scores = scenes.tokens(which) @ scenes.words[kind].T * scenes.tower.phrase_scale.exp()
        torch.logit(scores.softmax(-1)[..., word].clamp(1e-6, 1 - 1e-6)).sum().backward()
    finally:
        handle.remove()
    assert step.grad is not None
    return step.grad[:, 1:].numpy()


def compare(
    scenes: Scenes, finding: vt.Disentanglement, meant: dict[str, np.ndarray], held: slice, sign: int
) -> dict[str, Any]:
    rng, what = np.random.default_rng(1), "hit" if sign < 0 else "drawn"
    chance = {word: rng.choice(len(finding), len(ids), replace=False) for word, ids in meant.items()}
    units = {word: np.flatnonzero(np.isin(finding.parents, finding.parents[ids])) for word, ids in meant.items()}
    ways: dict[str, tuple[dict[str, np.ndarray], Any]] = {
        "sub-units of the word": (meant, "all"),
        "sub-units of the word, 8 strongest patches": (meant, 8),
        "random sub-units": (chance, "all"),
        "random sub-units, 8 strongest patches": (chance, 8),
        "whole units of these sub-units": (units, "all"),
    }
    with torch.no_grad():
        before = {kind: scenes.fits(held, kind) for kind in KINDS}
    start = [_moved(scenes, before, before, word, held) for word in meant]
    out: dict[str, Any] = {"before": {k: round(v, 4) for k, v in mean_of(start).__dict__.items()}}
    for name, (chosen, patches) in tqdm(ways.items(), "ways"):
        rows: list[list[Moved]] = []
        for strength in STRENGTHS:
            rows.append([])
            for word, ids in chosen.items():
                asked: dict[str, Any] = {"amplify": ids, "alpha": 1 + sign * strength, "patches": patches}
                with torch.no_grad(), vt.steer(scenes.subject, finding, **asked):
                    kind = _kind(word)
                    after = {kind: scenes.fits(held, kind)}
                rows[-1].append(_moved(scenes, before, after, word, held))
        means = [mean_of(row) for row in rows]
        out[name] = {k: [round(m.__dict__[k], 4) for m in means] for k in ("hit", "drawn", "kept", "odds")}
        if 1 - min(out[name]["kept"]) >= 0.1:
            out[name][f"{what} where 10% of others changed"] = round(float(at_change(rows, start, what, 0.1).mean()), 4)
    return out


def _kind(word: str) -> str:
    return next(kind for kind in KINDS if word in ATTRIBUTES[kind])


def _moved(scenes: Scenes, before: dict[str, Any], after: dict[str, Any], word: str, held: slice) -> Moved:
    kind = _kind(word)
    return moved(before[kind], after[kind], (ATTRIBUTES[kind].index(word),), scenes.right(held, kind))
