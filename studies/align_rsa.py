"""Does a space learned from V4 neurons look more like other brains? Dissimilarities of 92 pictures (`brain_rsa92`).

    python studies/align_rsa.py DATA --work DIR

For every layer of four networks: 1 - correlation between pictures of the mean over patches, before alignment, after it
(learned from session 201025, other pictures, another animal), and after maps of the same size that were not learned.
Each is compared with dissimilarities of monkey IT, human IT and early visual cortex (fMRI) and human judgements by
Spearman's rank correlation over 4,186 pairs. Controls: shuffled weights and pixels. Ceilings: each person against the
mean of the others. Reads the alignments of `align_brain.py`. Writes studies/results/align_rsa.json and align_rsa.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import vitreous as vt
from align_inputs import NETWORKS, SITES, pixel_patches, recorded
from tokens_inputs import put_tables

OUT = Path(__file__).parent / "results" / "align_rsa"
PAIRS = np.triu_indices(92, 1)


def dissimilarity(rows: np.ndarray) -> np.ndarray:
    """(picture, channel) -> (pair,): 1 - correlation over channels, each channel's mean over pictures taken away."""
    return (1 - np.corrcoef(rows - rows.mean(0)))[PAIRS]


def brains(stored: Any) -> dict[str, np.ndarray]:
    """Name -> (person or animal, pair)."""
    found = {"monkey IT": stored["monkey_IT"], "human IT": stored["fmri_IT"], "early visual": stored["fmri_EVC"]}
    return {name: np.atleast_2d(value) for name, value in found.items()} | {
        "judgements": np.atleast_2d(stored["behaviour"])
    }


def ceiling(people: np.ndarray) -> float | None:
    """Each person against the mean of the others."""
    if len(people) < 3:
        return None
    return float(np.mean([spearmanr(one, np.delete(people, k, 0).mean(0)).statistic for k, one in enumerate(people)]))


def against(rows: np.ndarray, targets: dict[str, np.ndarray]) -> dict[str, float]:
    own = dissimilarity(rows)
    return {name: float(spearmanr(own, people.mean(0)).statistic) for name, people in targets.items()}


def layers(
    stores: dict[str, vt.Store], targets: dict[str, np.ndarray], alignment: vt.ChannelAlign | None, seed: int | None
) -> dict[str, list[dict[str, float]]]:
    """Model -> a line a layer. With `seed` the alignment's maps are replaced by random ones."""
    found: dict[str, list[dict[str, float]]] = {}
    for name, store in stores.items():
        for site in SITES:
            rows = np.asarray(store[site][:], np.float32).mean(1)
            if alignment is not None:
                learned = alignment.map_of(name, site)
                if seed is not None:
                    learned = np.random.default_rng(seed).standard_normal(learned.shape).astype(np.float32)
                rows = rows @ learned
            found.setdefault(name, []).append(against(rows, targets))
    return found


def in_response_space(stores: dict[str, vt.Store], alignment: vt.ChannelAlign) -> np.ndarray:
    """(picture, response): what the alignment predicts that the neurons would answer."""
    parts = [
        alignment.in_response_space(np.asarray(store[site][:], np.float32).mean(1), name, site)
        for name, store in stores.items()
        for site in SITES
    ]
    return np.mean(parts, 0) / alignment.measured.std(0)


def tables(results: dict[str, Any]) -> dict[str, list[str]]:
    names = list(results["ceilings"])
    lines = ["| | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for reading, models in results["by layer"].items():
        for model, rows in models.items():
            best = {name: max(row[name] for row in rows) for name in names}
            mean = {name: float(np.mean([row[name] for row in rows])) for name in names}
            lines.append(
                f"| {model}, {reading} | " + " | ".join(f"{mean[n]:.3f} (best {best[n]:.3f})" for n in names) + " |"
            )
    for name, row in results["others"].items():
        lines.append(f"| {name} | " + " | ".join(f"{row[n]:.3f}" for n in names) + " |")
    told = {name: "one animal" if value is None else f"{value:.3f}" for name, value in results["ceilings"].items()}
    lines.append("| a person against the others | " + " | ".join(told.values()) + " |")
    return {"brains": lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="201025")
    options = parser.parse_args()
    stored = np.load(options.data / "brain_rsa92" / "brain_rsa92.npz")
    images = vt.ImageSet.from_arrays(stored["images"], name="rsa92")
    targets = brains(stored)
    stores = recorded(options.data, images, options.work / "rsa92" / "trained")
    controls = recorded(options.data, images, options.work / "rsa92" / "shuffled", shuffled=True)
    learned = {
        f"after, λ_eigen {weight:g}": vt.ChannelAlign.load(options.work / options.session / f"lambda-{weight}" / "0")
        for weight in (1.0, 0.0)
    }
    plain = learned["after, λ_eigen 0"]
    by_layer = {"before": layers(stores, targets, None, None)}
    by_layer |= {name: layers(stores, targets, one, None) for name, one in learned.items()}
    by_layer |= {
        "random maps": layers(stores, targets, plain, 0),
        "shuffled weights": layers(controls, targets, None, None),
    }
    pixels = pixel_patches(images)["pixels"]["patches"].reshape(92, -1)
    others = {"pixels": against(pixels, targets)}
    others |= {
        f"predicted V4 responses, {n.removeprefix('after, ')}": against(in_response_space(stores, a), targets)
        for n, a in learned.items()
    }
    assert set(by_layer["before"]) == set(NETWORKS)
    results = {
        "session": options.session,
        "ceilings": {name: ceiling(people) for name, people in targets.items()},
        "by layer": by_layer,
        "others": others,
    }
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    put_tables(OUT.with_suffix(".md"), tables(results))
    print("\n".join(tables(results)["brains"]))


if __name__ == "__main__":
    main()
