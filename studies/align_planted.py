"""Planted truth: is what a simulated brain answers to found again in networks that were trained on something else?

    python studies/align_planted.py --work DIR [--scenes 300]

Scenes, the three bundled networks (all layers), and `vt.scene_responses`: three regions that answer to the shape of
objects, their colour and the texture of the background, and one that answers to nothing. Scored: R² of each region
against its ceiling (λ_eigen 1, 0.1, 0); whether patches read through the channels that speak for a region tell the
attribute of that region best (mean IoU of oracle segmentation, text model, last layer); whether groups of the shared
space, read through a region, are the planted values, in each network (adjusted mutual information). Control: the same
networks with shuffled weights. Three seeds of the alignment, each with other scenes held out; Student's intervals.
Writes studies/results/align_planted.json and the tables of align_planted.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_mutual_info_score

import vitreous as vt
from align_inputs import SEEDS, aligned
from paper_claims import repeated
from tokens_inputs import control, put_tables
from vitreous.evidence.oracle import patch_classes
from vitreous.scenery.planted import attribute_maps

OUT = Path(__file__).parent / "results" / "align_planted"
ATTRIBUTES = ("shape", "colour", "background")
MODELS = ("text", "contrast", "mae")
SETTINGS: dict[str, Any] = {"width": 64, "epochs": 120, "patience": 15, "lr": 2e-3}
GROUPS = 24


def stores(images: vt.ImageSet, folder: Path, shuffled: bool) -> dict[str, vt.Store]:
    subjects = {name: vt.load(f"bundled:scenes-{name}") for name in MODELS}
    if shuffled:
        subjects = {name: control(subject) for name, subject in subjects.items()}
    return {
        name: vt.record(subject, images, "blocks.*.attn.out", out=folder / name, progress=False)
        for name, subject in subjects.items()
    }


def regions(alignment: vt.ChannelAlign) -> dict[str, Any]:
    rows = {row["region"]: row for row in alignment.records()}
    return {name: {"R2": row["R2"], "ceiling": row["ceiling"]} for name, row in rows.items()}


def told_by(sources: dict[str, vt.Store], maps: dict[str, np.ndarray], alignment: vt.ChannelAlign) -> dict[str, Any]:
    """Attribute -> reading -> mean IoU, at the last layer of the text model."""
    text = sources["text"]
    last = {"text": {text.sites[-1]: np.asarray(text[text.sites[-1]][:])[:, len(text.prefix) :]}}
    readings = {"before": None, "all channels": alignment} | {roi: alignment.reader(roi) for roi in ATTRIBUTES}
    found: dict[str, Any] = {}
    for attribute, truth in maps.items():
        scores = vt.segmentation_by_layer(last, truth, readings, progress=False)
        found[attribute] = {reading: next(iter(scores.best(reading, "text").values())) for reading in scores.readings}
    return found


def groups(sources: dict[str, vt.Store], maps: dict[str, np.ndarray], alignment: vt.ChannelAlign) -> dict[str, Any]:
    """Attribute -> network -> information that groups share with planted values, at the last layer."""
    found: dict[str, Any] = {}
    for attribute, truth in maps.items():
        spectral = vt.ncut(sources, 20, read=alignment.reader(attribute), progress=False)
        labels = vt.group_nodes(spectral, n_sample=2000)(GROUPS)
        pixels = patch_classes(truth, (8, 8))
        true, clear = pixels.argmax(2), pixels.max(2) > 0.9 * pixels.sum(2)
        found[attribute] = {}
        for name, store in sources.items():
            part = spectral.of(name, store.sites[-1], labels)
            found[attribute][name] = float(adjusted_mutual_info_score(true[clear], part[clear]))
    return found


def told(values: list[float], digits: int = 3) -> str:
    gap = repeated(values)
    if gap.low is None or gap.high is None:
        return f"{gap.value:.{digits}f}"
    return f"{gap.value:.{digits}f} [{gap.low:.{digits}f}, {gap.high:.{digits}f}]"


def _ahead(told_by_region: dict[str, float], own: str) -> float:
    """By how much an attribute is told better through its own region than through the best other one."""
    return told_by_region[own] - max(told_by_region[name] for name in ATTRIBUTES if name != own)


def tables(results: dict[str, Any]) -> dict[str, list[str]]:
    names = list(next(iter(results["regions"].values()))[0])
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for run, seeds in results["regions"].items():
        lines.append(f"| {run} | " + " | ".join(told([one[n]["R2"] for one in seeds]) for n in names) + " |")
    first = next(iter(results["regions"].values()))[0]
    lines.append("| ceiling | " + " | ".join(f"{first[n]['ceiling']:.3f}" for n in names) + " |")
    found: dict[str, list[str]] = {"regions": lines}
    for table, head in (("told by", "attribute"), ("groups", "read through")):
        seeds = results[table]
        columns = list(next(iter(seeds[0].values())))
        rows = [f"| {head} | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
        rows += [
            f"| {key} | " + " | ".join(told([one[key][c] for one in seeds]) for c in columns) + " |" for key in seeds[0]
        ]
        found[table] = rows
    return found | {
        "own region": [
            f"- {name}: {told([_ahead(one[name], name) for one in results['told by']])}" for name in ATTRIBUTES
        ]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--scenes", type=int, default=300)
    options = parser.parse_args()
    images = vt.scenes(options.scenes, size=64, seed=21)
    responses = vt.scene_responses(images, seed=1)
    work = options.work / "planted"
    sources, mixed = stores(images, work / "trained", False), stores(images, work / "shuffled", True)
    results: dict[str, Any] = {"scenes": options.scenes, "regions": {}}
    runs: dict[str, list[vt.ChannelAlign]] = {}
    wanted = [(f"λ_eigen {weight:g}", f"lambda-{weight}", sources, weight) for weight in (0.0, 0.1, 1.0)]
    for name, folder, given, weight in (*wanted, ("shuffled weights, λ_eigen 0", "control", mixed, 0.0)):
        settings: dict[str, Any] = {"lambda_eigen": weight, **SETTINGS}
        runs[name] = [aligned(work / folder / str(seed), given, responses, seed=seed, **settings) for seed in SEEDS]
        results["regions"][name] = [regions(found) for found in runs[name]]
        print(name, flush=True)
    maps = {name: attribute_maps(images, name) for name in ATTRIBUTES}
    results["told by"] = [told_by(sources, maps, one) for one in runs["λ_eigen 0"]]
    results["groups"] = [groups(sources, maps, one) for one in runs["λ_eigen 0"]]
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    put_tables(OUT.with_suffix(".md"), tables(results))
    print(OUT.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
