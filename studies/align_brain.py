"""Four networks in one channel space, learned from neurons of macaque V4 (AlignedCut, Table 1 and Figure 3).

    python studies/align_brain.py DATA --work DIR [--sessions 210325 201025]

Networks and layers: `align_inputs.py`. Responses: `brain_v4`, session 201025 (1,200 pictures, 89 neurons), and session
210325 (640 pictures, 50 neurons), whose repeats give a noise ceiling. Reports R² on held-out pictures with λ_eigen
1 / 0.1 / 0, against weights shuffled inside each tensor and against pixels, and the cosine similarity of the same place
in two networks before and after, with every seed's alignment and intervals over pictures.
Writes studies/results/align_brain.json and the tables of align_brain.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from align_inputs import SITES, aligned, pixel_patches, recorded, session
from align_measures import Features, cosines, mean_over, spoken
from tokens_inputs import put_tables
from vitreous.evidence.responses import explained, noise_ceiling

OUT = Path(__file__).parent / "results" / "align_brain"
LAMBDAS = (1.0, 0.1, 0.0)
CONTROLS = 0.1  # λ_eigen of the controls and of networks alone
WIDE = ("text", "contrast", "mae")  # of one width, so that there is a cosine before alignment to compare with
PICTURES = 200  # whose patches are compared
PAPER = {1.0: 0.196, 0.1: 0.193, 0.0: 0.188}


def r2_of(alignment: vt.ChannelAlign, ceiling: np.ndarray | None) -> dict[str, float]:
    r2 = alignment.score()["all"]
    found = {"R2": float(np.nanmean(r2)), "R2 of the median neuron": float(np.nanmedian(r2))}
    if ceiling is not None:
        found["share of the ceiling"] = float(np.nanmean(r2) / np.nanmean(ceiling))
    return found


def likeness(features: Features, runs: list[vt.ChannelAlign]) -> dict[str, Any]:
    """Mean cosine of the same patch at the same depth in two networks of one width, of another patch, and how far the
    first is above the second and above what it was before alignment; intervals over pictures."""
    before = cosines(features, networks=WIDE)
    if not runs:
        return {name: mean_over([row]) for name, row in zip(("same patch", "another patch"), before, strict=True)}
    after = np.stack([cosines(features, run.transform, WIDE) for run in runs])
    return {
        "same patch": mean_over(after[:, 0]),
        "another patch": mean_over(after[:, 1]),
        "above another patch": mean_over(after[:, 0] - after[:, 1]),
        "above before": mean_over(after[:, 0] - before[0]),
    }


def untouched(folder: Path, stores: dict[str, Any], responses: vt.Responses, seed: int) -> dict[str, float]:
    """R² on a tenth of the pictures that neither trained nor chose the epoch, and on the tenth that did choose it."""
    order = np.random.default_rng([seed, 1]).permutation(len(responses))
    tested, rest = np.sort(order[: len(order) // 10]), np.sort(order[len(order) // 10 :])
    rows = {name: {site: np.asarray(store[site][:]) for site in SITES} for name, store in stores.items()}
    others = {name: {site: part[rest] for site, part in layers.items()} for name, layers in rows.items()}
    run = aligned(folder, others, responses[rest], lambda_eigen=0.0, seed=seed)
    parts = [run.in_response_space(rows[m][s][tested].mean(1, dtype=np.float32), m, s) for m, s in run.slots]
    predicted = np.mean(parts, 0) + run.bias
    return {
        "untouched": float(np.nanmean(explained(responses.values[tested], predicted))),
        "chose the epoch": run.means()["all"],
    }


class Kept:
    """Results on disk, and the tables made from them."""

    def __init__(self) -> None:
        self.path = OUT.with_suffix(".json")
        self.results: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}

    def __call__(self) -> None:
        self.path.write_text(json.dumps(self.results, indent=1) + "\n")
        put_tables(OUT.with_suffix(".md"), {name: table(result) for name, result in self.results.items()})


def study(data: Path, work: Path, name: str, options: argparse.Namespace, keep: Kept) -> None:
    """Fills `keep.results` and writes it after each step."""
    images, responses = session(data, name)
    ceiling = None if responses.repeats is None else noise_ceiling(responses.repeats).reliability
    stores = recorded(data, images, work / name / "trained")
    result = keep.results.setdefault(name, {"pictures": len(images), "neurons": responses.values.shape[1]})
    if ceiling is not None:
        result["ceiling"] = float(np.nanmean(ceiling))
    features = {m: {site: np.asarray(stores[m][site][:PICTURES], np.float32)[:, 1:] for site in SITES} for m in WIDE}
    result["cosine before"] = likeness(features, [])
    for weight in options.weights:
        folder = work / name / f"lambda-{weight}"
        runs = [aligned(folder / str(s), stores, responses, lambda_eigen=weight, seed=s) for s in options.seeds]
        scores = [r2_of(run, ceiling) for run in runs]
        result.setdefault("constraint", {})[str(weight)] = {
            "R2 of seeds": [score["R2"] for score in scores],
            **{key: float(np.mean([score[key] for score in scores])) for key in scores[0]},
            "cosine after": likeness(features, runs),
            "epochs": [len(run.log) for run in runs],
        }
        keep()
    sources: dict[str, Any] = {}
    if "pixels" in options.controls:
        sources["pixels"] = pixel_patches(images)
    if "shuffled" in options.controls:
        sources["shuffled weights"] = recorded(data, images, work / name / "shuffled", shuffled=True)
    if "alone" in options.controls:
        sources |= {f"{key} alone": {key: store} for key, store in stores.items()}
    result["controls with"] = CONTROLS
    for control, source in sources.items():
        folder = work / name / control.replace(" ", "-")
        runs = [aligned(folder / str(s), source, responses, lambda_eigen=CONTROLS, seed=s) for s in options.seeds]
        scores = [r2_of(run, ceiling)["R2"] for run in runs]
        result.setdefault("controls of seeds", {})[control] = scores
        result[control] = float(np.mean(scores))
        keep()
    if "untouched" in options.controls:
        found = [untouched(work / name / "untouched" / str(s), stores, responses, s) for s in options.seeds]
        result["untouched pictures"] = {key: [one[key] for one in found] for key in found[0]}
        keep()


def table(result: dict[str, Any]) -> list[str]:
    before = result["cosine before"]
    lines = [
        f"{result['pictures']:,} pictures, {result['neurons']} neurons, "
        + (f"noise ceiling {result['ceiling']:.3f}." if "ceiling" in result else "no repeats, so no ceiling."),
        "",
        "| λ_eigen | R² | of each seed | same patch, cosine | another patch | paper, R² (all) |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| before alignment | | | {spoken(before['same patch'])} | {spoken(before['another patch'])} | |",
    ]
    for weight in LAMBDAS:
        if (row := result.get("constraint", {}).get(str(weight))) is None:
            continue
        seeds = ", ".join(f"{value:.3f}" for value in row["R2 of seeds"])
        same, other = (spoken(row["cosine after"][f"{which} patch"]) for which in ("same", "another"))
        lines += [f"| {weight:g} | {row['R2']:.3f} | {seeds} | {same} | {other} | {PAPER[weight]} |"]
    others = {key: value for key, value in result.items() if key.endswith((" alone", "weights", "pixels"))}
    if others:
        lines += ["", f"| with λ_eigen {result['controls with']:g} | R² | of each seed |", "| --- | --- | --- |"]
        for key, value in others.items():
            seeds = ", ".join(f"{score:.3f}" for score in result.get("controls of seeds", {}).get(key, []))
            lines.append(f"| {key} | {value:.3f} | {seeds} |")
    if (found := result.get("untouched pictures")) is not None:
        own, chose = (", ".join(f"{r2:.3f}" for r2 in found[key]) for key in ("untouched", "chose the epoch"))
        lines += ["", f"λ_eigen 0, pictures that chose no epoch either: R² {own}; those that did: {chose}."]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for recordings, which are large")
    parser.add_argument("--sessions", nargs="+", default=["210325", "201025"])
    parser.add_argument("--weights", nargs="+", type=float, choices=LAMBDAS, default=[0.0, 0.1, 1.0], help="λ_eigen")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    known = ["pixels", "shuffled", "alone", "untouched"]
    parser.add_argument("--controls", nargs="*", choices=known, default=known, help="alone: single networks")
    options = parser.parse_args()
    keep = Kept()
    for name in options.sessions:
        study(options.data, options.work, name, options, keep)
    print(OUT.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
