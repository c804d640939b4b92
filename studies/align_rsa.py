"""Does a space learned from V4 neurons look more like other brains? Dissimilarities of 92 pictures (`brain_rsa92`).

    python studies/align_rsa.py DATA --work DIR

For every layer of four networks: 1 - correlation between pictures of the mean over tokens, before alignment, after it
(learned from session 201025, other pictures, another animal), and after maps of the same size that were not learned.
Each is compared with dissimilarities of monkey IT, human IT and early visual cortex (fMRI) and human judgements by
Spearman's rank correlation over 4,186 pairs. Controls: shuffled weights and pixels. Ceilings: each person against the
mean of the others. Alignments and random maps are of three seeds, their mean counts; intervals are over pictures, the
same draws for all, so that differences are paired. Reads the alignments of `align_brain.py`. Writes
studies/results/align_rsa.json and align_rsa.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, spearmanr

import vitreous as vt
from align_inputs import SEEDS, SITES, learned, pixel_patches, random_map, recorded
from align_measures import REPEATS, spoken
from tokens_inputs import put_tables
from vitreous.evidence.bootstrap import draws

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


class Compared:
    """Rank correlations with brains, of all 92 pictures and of pictures drawn with replacement, the same for all.

    A draw weighs a pair by how often both its pictures were drawn; ranks stay those of all pairs.
    """

    def __init__(self, targets: dict[str, np.ndarray]) -> None:
        self.names = list(targets)
        self.targets = np.stack([rankdata(people.mean(0)) for people in targets.values()])
        counts = np.stack([np.bincount(rows, minlength=92) for rows in np.concatenate(draws(92, REPEATS, 0))])
        weights = np.concatenate([np.ones((1, 92)), counts])[:, PAIRS[0]]
        weights *= np.concatenate([np.ones((1, 92)), counts])[:, PAIRS[1]]
        self.weights = weights / weights.sum(1, keepdims=True)

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """(picture, channel) -> (target, 1 + draw)."""
        own = rankdata(dissimilarity(rows))
        mean, means = self.weights @ own, self.targets @ self.weights.T
        spread = self.weights @ own**2 - mean**2
        spreads = self.targets**2 @ self.weights.T - means**2
        return ((self.targets * own) @ self.weights.T - means * mean) / np.sqrt(spread * spreads)

    def told(self, values: np.ndarray) -> dict[str, dict[str, float]]:
        """(target, 1 + draw) -> by target a value with its interval."""
        found = {}
        for name, row in zip(self.names, values, strict=True):
            low, high = np.quantile(row[1:], (0.025, 0.975))
            found[name] = {"value": float(row[0]), "low": float(low), "high": float(high)}
        return found


def layers(
    stores: dict[str, vt.Store], compared: Compared, maps: Callable[[str, str, int], np.ndarray] | None
) -> dict[str, np.ndarray]:
    """Model -> (layer, target, 1 + draw)."""
    found = {}
    for name, store in stores.items():
        rows = {site: np.asarray(store[site][:], np.float32).mean(1) for site in SITES}
        read = {site: row if maps is None else row @ maps(name, site, row.shape[1]) for site, row in rows.items()}
        found[name] = np.stack([compared(row) for row in read.values()])
    return found


def over_seeds(runs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([run[name] for run in runs], 0) for name in runs[0]}


def at_random(seed: int) -> Callable[[str, str, int], np.ndarray]:
    def maps(name: str, site: str, channels: int) -> np.ndarray:
        return random_map(seed, name, site, channels)

    return maps


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
        for model, row in models.items():
            said = " | ".join(f"{spoken(row['mean'][n])}, best {row['best'][n]:.3f}" for n in names)
            lines.append(f"| {model}, {reading} | {said} |")
    for name, row in results["others"].items():
        lines.append(f"| {name} | " + " | ".join(spoken(row[n]) for n in names) + " |")
    told = ["one animal" if value is None else f"{value:.3f}" for value in results["ceilings"].values()]
    lines.append("| a person against the others | " + " | ".join(told) + " |")
    gaps = ["| after less before | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for reading, models in results["differences"].items():
        for model, row in models.items():
            gaps.append(f"| {model}, {reading} | " + " | ".join(spoken(row[n]) for n in names) + " |")
    return {"brains": lines, "differences": gaps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="201025")
    options = parser.parse_args()
    stored = np.load(options.data / "brain_rsa92" / "brain_rsa92.npz")
    images = vt.ImageSet.from_arrays(stored["images"], name="rsa92")
    targets = brains(stored)
    compared = Compared(targets)
    stores = recorded(options.data, images, options.work / "rsa92" / "trained")
    controls = recorded(options.data, images, options.work / "rsa92" / "shuffled", shuffled=True)
    alignments = {weight: learned(options.work, options.session, weight) for weight in (1.0, 0.0)}
    by_layer = {"before": layers(stores, compared, None)}
    for weight, runs in alignments.items():
        found = [layers(stores, compared, lambda m, s, _, one=one: one.map_of(m, s)) for one in runs]
        by_layer[f"after, λ_eigen {weight:g}"] = over_seeds(found)
    by_layer["random maps"] = over_seeds([layers(stores, compared, at_random(seed)) for seed in SEEDS])
    by_layer["shuffled weights"] = layers(controls, compared, None)
    pixels = pixel_patches(images)["pixels"]["patches"].reshape(92, -1)
    others = {"pixels": compared(pixels)}
    for weight, runs in alignments.items():
        predicted = np.mean([compared(in_response_space(stores, one)) for one in runs], 0)
        others[f"predicted V4 responses, λ_eigen {weight:g}"] = predicted
    before = by_layer["before"]
    results = {
        "session": options.session,
        "ceilings": {name: ceiling(people) for name, people in targets.items()},
        "by layer": {
            reading: {m: told(compared, values) for m, values in models.items()} for reading, models in by_layer.items()
        },
        "others": {name: compared.told(values) for name, values in others.items()},
        "differences": {
            reading: {m: compared.told((values - before[m]).mean(0)) for m, values in models.items()}
            for reading, models in by_layer.items()
            if reading.startswith(("after", "random"))
        },
    }
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    put_tables(OUT.with_suffix(".md"), tables(results))
    print("\n".join(tables(results)["brains"]))


def told(compared: Compared, values: np.ndarray) -> dict[str, Any]:
    """The mean over layers with its interval, and the best layer's value."""
    best = values[:, :, 0].max(0)
    return {"mean": compared.told(values.mean(0)), "best": dict(zip(compared.names, best.tolist(), strict=True))}


if __name__ == "__main__":
    main()
