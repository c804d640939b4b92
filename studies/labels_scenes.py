"""Does a label name what a unit responds to? Hidden units of the bundled models, labelled on scenes; and one real pair.

PYTHONPATH=src python studies/labels_scenes.py MODEL [--pictures 800] [--data DATA]

MODEL is a bundled one (scenes-text, scenes-contrast, scenes-mae), shuffled for scenes-text with the numbers of each
weight array in random order, or tin-vit-text or tin-vit-contrast, which need DATA. Results are added to
studies/results/labels_scenes.json, model by model.

Scenes: pictures and words are embedded by the two towers of `scenes-text`; the vocabulary is its shapes, colours and
textures (words of sizes and backgrounds are left out: a unit's truth is about objects). What a unit really responds to
comes from the exact maps: the attribute with the best AUC over patches on one half of the pictures, with its AUC on the
other (`evidence.selectivity`). Units whose best attribute has no word ("edges", "any object") are counted apart.

Tiny ImageNet: the image tower of `tin-vit-text` and its 200 class texts; the truth of a unit is the class for which
its strongest token has the best AUC over pictures, chosen and measured on two halves.

Control: the labels of other units of the same layer.
"""

from __future__ import annotations

import argparse
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tqdm.auto import tqdm

import vitreous as vt
from real_models import tin_vit
from vitreous.demo import shuffled
from vitreous.evidence.planted import scene_concepts
from vitreous.evidence.selectivity import auc, halves, selectivity
from vitreous.models.bundled import load_words
from vitreous.scenery import ATTRIBUTES

OUT = Path(__file__).parent / "results" / "labels_scenes.json"
WORDS = (*ATTRIBUTES["shape"], *ATTRIBUTES["colour"], *ATTRIBUTES["texture"])
DETECTS = 0.8
SURE = 0.01
PUBLISHED = {"prior": "units"}
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "published prior": PUBLISHED,
    "published prior, temperature 3": {**PUBLISHED, "temperature": 3.0},
    "published prior, temperature 1": {**PUBLISHED, "temperature": 1.0},
    "published prior, 10 pictures": {**PUBLISHED, "top": 10},
    "no prior": {"prior_weight": 0.0},
    "temperature 3": {"temperature": 3.0},
    "temperature 30": {"temperature": 30.0},
    "10 pictures": {"top": 10},
}
FEW = ("default", "published prior")


def word_of(concept: str) -> str:
    """The word for a planted concept: "red objects" -> "red", "stars" -> "star"; nothing for concepts without one."""
    plain = concept.removesuffix(" objects")
    single = {"leaves": "leaf", "crosses": "cross"}.get(plain, plain.removesuffix("s"))
    return next((word for word in (plain, single) if word in WORDS), "")


def agreement(labels: vt.Labels, truth: list[str], units: np.ndarray, seed: int = 0) -> dict[str, float]:
    """Of some units: how often the first label, or one of the first three, is the truth; and labels of other units."""
    there = np.array([u for u in units if truth[u] and labels.indices[u, 0] >= 0], int)
    if not len(there):
        return {"units": 0}
    index = np.array([labels.vocabulary.index(truth[u]) for u in there])
    hit = labels.indices[there] == index[:, None]
    mixed = np.random.default_rng(seed).permuted(np.tile(index, (200, 1)), axis=1)
    return {
        "units": len(there),
        "first": round(float(hit[:, 0].mean()), 3),
        "first three": round(float(hit[:, :3].any(1).mean()), 3),
        "first, labels of other units": round(float((labels.indices[there, 0] == mixed).mean()), 3),
    }


def kind_of(word: str) -> str:
    return next(kind for kind in ("shape", "colour", "texture") if word in ATTRIBUTES[kind])


def summary(labels: vt.Labels, truth: list[str], held_out: np.ndarray, kinds: bool) -> dict[str, Any]:
    """Agreement for all units, for detectors, for those with a sure label, and by kind of attribute."""
    detectors = np.flatnonzero(held_out >= DETECTS)
    sure = detectors[labels.chance[detectors] <= SURE]
    out: dict[str, Any] = {
        "all units": agreement(labels, truth, np.arange(len(truth))),
        f"detectors (held-out AUC >= {DETECTS})": agreement(labels, truth, detectors),
        f"detectors with chance <= {SURE}": agreement(labels, truth, sure),
        "share of units with a sure label": round(float((labels.chance <= SURE).mean()), 3),
    }
    for kind in ("shape", "colour", "texture") if kinds else ():
        mine = np.array([u for u in detectors if truth[u] and kind_of(truth[u]) == kind], int)
        out[f"detectors of a {kind}"] = agreement(labels, truth, mine)
    return out


def activations(subject: vt.Subject, images: vt.ImageSet, sites: tuple[str, ...]) -> tuple[dict[str, Any], np.ndarray]:
    """float16 (picture, token, unit) of every site, and the output (picture, channel), in one pass."""
    found: dict[str, list[np.ndarray]] = {site: [] for site in sites}
    outputs = []
    with torch.no_grad(), vt.capture(subject, sites) as recorded:
        for start in tqdm(range(0, len(images), 64), subject.name):
            outputs.append(subject([p.image for p in images[start : start + 64]]).numpy())
            for site in sites:
                found[site].append(recorded[site].half().numpy())
    return {site: np.concatenate(parts) for site, parts in found.items()}, np.concatenate(outputs)


def on_scenes(name: str, count: int, seed: int = 7) -> dict[str, Any]:
    images = vt.scenes(count, size=64, seed=seed)
    eyes, tower = vt.load("bundled:scenes-text", device="cpu"), load_words()
    sites = ("blocks.5.mlp.hidden", "blocks.7.mlp.hidden")
    subject = shuffled(eyes, seed) if name == "shuffled" else vt.load(f"bundled:{name}", device="cpu")
    values, seen = activations(subject, images, sites)
    seen = seen if name == "scenes-text" else activations(eyes, images, ())[1]
    with torch.no_grad():
        seen, words = tower.image(torch.tensor(seen)).numpy(), tower.text(tower.tokens(WORDS)).numpy()
    concepts = scene_concepts([p.instances for p in images], [p.about for p in images], eyes.grid())
    found: dict[str, Any] = {"pictures": count, "words": len(WORDS)}
    for site in sites:
        patches = values[site][:, 1:]
        truth = selectivity(patches, concepts.present, repeats=1)
        named = [word_of(concepts.names[c]) for c in truth.concept]
        for setting in SETTINGS if name == "scenes-text" and site == sites[1] else FEW:
            labels = vt.label(patches, seen, words, WORDS, **SETTINGS[setting])
            found[f"{site}, {setting}"] = summary(labels, named, truth.held_out, kinds=True)
    return found


def on_tiny_imagenet(name: str, data: Path, count: int) -> dict[str, Any]:
    from safetensors.torch import load_file

    stored = load_file(data / "weights" / "tin-vit-text.safetensors")
    weight, bias, texts = (stored[k].float().numpy() for k in ("text_proj.weight", "text_proj.bias", "text_classes"))
    images = tiny_imagenet(data)[:count]
    assert images.classes is not None and images.labels is not None
    site = "blocks.11.mlp.hidden"
    values, seen = activations(tin_vit(data, name.removeprefix("tin-vit-")), images, (site,))
    seen = seen if name == "tin-vit-text" else activations(tin_vit(data, "text"), images, ())[1]
    strongest = values[site].max(1)
    is_class = images.labels[:, None] == np.arange(len(images.classes))
    choosing = halves(len(strongest), 0)
    truth = np.nan_to_num(auc(strongest[choosing], is_class[choosing])).argmax(1)
    held_out = auc(strongest[~choosing], is_class[~choosing])[np.arange(len(truth)), truth]
    named = [images.classes[c] for c in truth]
    found: dict[str, Any] = {"pictures": len(images), "words": len(images.classes)}
    for setting, options in SETTINGS.items():
        labels = vt.label(strongest, seen @ weight.T + bias, texts, images.classes, **options)
        found[f"{site}, {setting}"] = summary(labels, named, held_out, kinds=False)
    return found


def tiny_imagenet(data: Path) -> vt.ImageSet:
    stored = np.load(data / "tiny_imagenet_val" / "tiny_imagenet_val.npz")
    raw, offsets = stored["jpeg"].tobytes(), stored["offsets"]
    pictures = [np.array(Image.open(io.BytesIO(raw[a:b])).convert("RGB")) for a, b in pairwise(offsets)]
    names = [str(name) for name in stored["names"]]
    unique = [name if names.count(name) == 1 else f"{name} ({k})" for k, name in enumerate(names)]
    return vt.ImageSet.from_arrays(
        np.stack(pictures), labels=stored["labels"], classes=unique, name="tiny-imagenet-val"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--pictures", type=int, default=800)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    tiny = args.model.startswith("tin-vit")
    measured = on_tiny_imagenet(args.model, args.data, args.pictures) if tiny else on_scenes(args.model, args.pictures)
    found = json.loads(OUT.read_text()) if OUT.exists() else {}
    found[args.model] = measured
    print(json.dumps(measured, indent=1))
    OUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
