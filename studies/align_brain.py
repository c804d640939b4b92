"""Four networks in one channel space, learned from neurons of macaque V4 (AlignedCut, Table 1 and Figure 3).

    python studies/align_brain.py DATA --work DIR [--sessions 210325 201025]

Networks and layers: `align_inputs.py`. Responses: `brain_v4`, session 201025 (1,200 pictures, 89 neurons), and session
210325 (640 pictures, 50 neurons), whose repeats give a noise ceiling. Reports R² on held-out pictures with λ_eigen
1 / 0.1 / 0, against weights shuffled inside each tensor and against pixels, and the cosine similarity of the same place
in two networks before and after. Writes studies/results/align_brain.json and the tables of align_brain.md.
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from align_inputs import SITES, aligned, pixel_patches, recorded, session
from tokens_inputs import put_tables
from vitreous.evidence.responses import noise_ceiling

OUT = Path(__file__).parent / "results" / "align_brain"
LAMBDAS = (1.0, 0.1, 0.0)
CONTROLS = 0.1  # λ_eigen of the controls and of networks alone
PAPER = {1.0: 0.196, 0.1: 0.193, 0.0: 0.188}


def r2_of(alignment: vt.ChannelAlign, ceiling: np.ndarray | None) -> dict[str, float]:
    r2 = alignment.score()["all"]
    found = {"R2": float(np.nanmean(r2)), "R2 of the median neuron": float(np.nanmedian(r2))}
    if ceiling is not None:
        found["share of the ceiling"] = float(np.nanmean(r2) / np.nanmean(ceiling))
    return found


def likeness(stores: dict[str, Any], alignment: vt.ChannelAlign | None, pictures: int = 100) -> dict[str, float]:
    """Mean cosine of the same patch at the same depth in two networks of one width; and of another patch."""
    found: dict[str, list[float]] = {"same patch": [], "another patch": []}
    turn = np.random.default_rng(0).permutation(64 * pictures)
    names = [n for n in stores if n != "dino"]  # another width, so nothing before alignment to compare with
    for layer in SITES:
        rows = {}
        for name in names:
            part = np.asarray(stores[name][layer][:pictures], np.float32)[:, 1:]
            part = part if alignment is None else alignment.transform(part, name, layer)
            flat = part.reshape(-1, part.shape[-1])
            rows[name] = flat / np.linalg.norm(flat, axis=1, keepdims=True)
        for a, b in combinations(names, 2):
            found["same patch"].append(float((rows[a] * rows[b]).sum(1).mean()))
            found["another patch"].append(float((rows[a] * rows[b][turn]).sum(1).mean()))
    return {name: float(np.mean(values)) for name, values in found.items()}


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
    result["cosine before"] = likeness(stores, None)
    for weight in options.weights:
        folder = work / name / f"lambda-{weight}"
        runs = [aligned(folder / str(s), stores, responses, lambda_eigen=weight, seed=s) for s in options.seeds]
        scores = [r2_of(run, ceiling) for run in runs]
        result.setdefault("constraint", {})[str(weight)] = {
            "R2 of seeds": [score["R2"] for score in scores],
            **{key: float(np.mean([score[key] for score in scores])) for key in scores[0]},
            "cosine after": likeness(stores, runs[0]),
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


def table(result: dict[str, Any]) -> list[str]:
    before = result["cosine before"]
    lines = [
        f"{result['pictures']:,} pictures, {result['neurons']} neurons, "
        + (f"noise ceiling {result['ceiling']:.3f}." if "ceiling" in result else "no repeats, so no ceiling."),
        "",
        "| λ_eigen | R² | of each seed | same patch, cosine | another patch | paper, R² (all) |",
        "| --- | --- | --- | --- | --- | --- |",
        f"| before alignment | | | {before['same patch']:.3f} | {before['another patch']:.3f} | |",
    ]
    for weight in LAMBDAS:
        if (row := result.get("constraint", {}).get(str(weight))) is None:
            continue
        seeds = ", ".join(f"{value:.3f}" for value in row["R2 of seeds"])
        same, other = (f"{row['cosine after'][f'{which} patch']:.3f}" for which in ("same", "another"))
        lines += [f"| {weight:g} | {row['R2']:.3f} | {seeds} | {same} | {other} | {PAPER[weight]} |"]
    others = {key: value for key, value in result.items() if key.endswith((" alone", "weights", "pixels"))}
    if others:
        lines += ["", f"| with λ_eigen {result['controls with']:g} | R² | of each seed |", "| --- | --- | --- |"]
        for key, value in others.items():
            seeds = ", ".join(f"{score:.3f}" for score in result.get("controls of seeds", {}).get(key, []))
            lines.append(f"| {key} | {value:.3f} | {seeds} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for recordings, which are large")
    parser.add_argument("--sessions", nargs="+", default=["210325", "201025"])
    parser.add_argument("--weights", nargs="+", type=float, default=[0.0, 0.1, 1.0], help="λ_eigen")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--controls", nargs="*", default=["pixels", "shuffled", "alone"], help="alone: single networks")
    options = parser.parse_args()
    keep = Kept()
    for name in options.sessions:
        study(options.data, options.work, name, options, keep)
    print(OUT.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
