"""Four networks in one channel space, learned from neurons of macaque V4 (AlignedCut, Table 1 and Figure 3).

    python studies/align_brain.py DATA --work DIR [--epochs 60]

Networks: tin-vit-text, tin-vit-contrast, tin-vit-mae (64 pixels) and dinov2s_saliency (112 pixels), six layers of each,
attention outputs without the residual. Responses: `brain_v4`, session 201025 (1,200 pictures, 89 neurons), and session
210325 (640 pictures, 50 neurons), whose repeats give a noise ceiling. Reports R² on held-out pictures with λ_eigen
1 / 0.1 / 0, against weights shuffled inside each tensor and against pixels, and the cosine similarity of the same place
in two networks before and after. Writes studies/results/align_brain.json and .md.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import vitreous as vt
from real_models import dinov2s_saliency, tin_vit
from vitreous.evidence.responses import noise_ceiling

OUT = Path(__file__).parent / "results" / "align_brain"
LAYERS = (1, 3, 5, 7, 9, 11)
SEEDS = (0, 1, 2)
LAMBDAS = (1.0, 0.1, 0.0)


def session(data: Path, name: str) -> tuple[vt.ImageSet, vt.Responses]:
    stored = np.load(data / "brain_v4" / f"v4_{name}.npz")
    raw, offsets = stored["jpeg"].tobytes(), stored["offsets"]
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")) for a, b in pairwise(offsets)])
    repeats = None
    if "repeats" in stored:
        repeats = np.where(stored["repeats"] == 255, np.nan, stored["repeats"].astype(np.float64))
    return vt.ImageSet.from_arrays(pixels, name=f"v4-{name}"), vt.Responses(stored["responses"], repeats=repeats)


def shuffled(subject: vt.Subject, seed: int) -> vt.Subject:
    """The same numbers in each tensor, in random places."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in subject.module.state_dict().values():
            if value.is_floating_point() and value.ndim > 1:
                flat = value.flatten()
                value.copy_(flat[torch.randperm(len(flat), generator=generator)].view_as(value))
    return subject


def networks(data: Path) -> dict[str, vt.Subject]:
    found = {name: tin_vit(data, name) for name in ("text", "contrast", "mae")}
    dino = dinov2s_saliency(data, "cpu")
    assert dino.preprocess is not None
    found["dino"] = vt.wrap(dino.module, name="dinov2s_saliency", preprocess=dino.preprocess.at(112))
    return found


def recorded(subjects: dict[str, vt.Subject], images: vt.ImageSet, folder: Path) -> dict[str, vt.Store]:
    sites = [f"blocks.{n}.attn.out" for n in LAYERS]
    return {name: vt.record(one, images, sites, out=folder / name) for name, one in subjects.items()}


def pixel_patches(images: vt.ImageSet) -> dict[str, dict[str, np.ndarray]]:
    """A model that sees colours: patches of 8 pixels of the picture at 64."""
    small = np.stack([np.asarray(p.image.resize((64, 64), Image.Resampling.BICUBIC)) for p in images])
    grid = small.reshape(len(small), 8, 8, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(len(small), 64, -1)
    return {"pixels": {"patches": (grid / 255 - 0.5).astype(np.float32)}}


def r2_of(alignment: vt.ChannelAlign, ceiling: np.ndarray | None) -> dict[str, float]:
    r2 = alignment.score()["all"]
    found = {"R2": float(np.nanmean(r2)), "R2 of the median neuron": float(np.nanmedian(r2))}
    if ceiling is not None:
        found["share of the ceiling"] = float(np.nanmean(r2) / np.nanmean(ceiling))
    return found


def likeness(stores: dict[str, Any], alignment: vt.ChannelAlign | None, pictures: int = 100) -> dict[str, float]:
    """Mean cosine of the same patch at the same depth in two networks of one width and grid; and of other patches."""
    found: dict[str, list[float]] = {"same patch": [], "another patch": []}
    turn = np.random.default_rng(0).permutation(64 * pictures)
    names = [n for n in stores if n != "dino"]  # another width, so nothing before alignment to compare with
    for layer in (f"blocks.{n}.attn.out" for n in LAYERS):
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


def study(data: Path, work: Path, name: str, epochs: int) -> dict[str, Any]:
    images, responses = session(data, name)
    ceiling = None if responses.repeats is None else noise_ceiling(responses.repeats).reliability
    stores = recorded(networks(data), images, work / name)
    settings: dict[str, Any] = {"width": 128, "epochs": epochs, "patience": 10, "progress": False}
    result: dict[str, Any] = {"pictures": len(images), "neurons": responses.values.shape[1], "constraint": {}}
    if ceiling is not None:
        result["ceiling"] = float(np.nanmean(ceiling))
    result["cosine before"] = likeness(stores, None)
    for weight in LAMBDAS:
        start = time.perf_counter()
        runs = [vt.align(stores, responses, lambda_eigen=weight, seed=seed, **settings) for seed in SEEDS]
        scores = [r2_of(run, ceiling) for run in runs]
        result["constraint"][str(weight)] = {
            "R2 of seeds": [score["R2"] for score in scores],
            **{key: float(np.mean([score[key] for score in scores])) for key in scores[0]},
            "cosine after": likeness(stores, runs[0]),
            "epochs": [len(run.log) for run in runs],
            "seconds": round(time.perf_counter() - start),
        }
        print(name, weight, result["constraint"][str(weight)], flush=True)
    controls = {
        "shuffled weights": recorded(
            {key: shuffled(one, 0) for key, one in networks(data).items()}, images, work / f"{name}-shuffled"
        ),
        "pixels": pixel_patches(images),
    }
    for control, source in controls.items():
        runs = [vt.align(source, responses, lambda_eigen=0.1, seed=seed, **settings) for seed in SEEDS]
        result[control] = {"R2": float(np.mean([r2_of(run, ceiling)["R2"] for run in runs]))}
        print(name, control, result[control], flush=True)
    for key in stores:
        runs = [vt.align({key: stores[key]}, responses, lambda_eigen=0.1, seed=seed, **settings) for seed in SEEDS]
        result.setdefault("one network", {})[key] = float(np.mean([r2_of(run, ceiling)["R2"] for run in runs]))
    print(name, result["one network"], flush=True)
    return result


def text(results: dict[str, Any]) -> str:
    lines = [
        "# Four networks aligned by neurons of macaque V4",
        "",
        "Written by `python studies/align_brain.py`. R² over held-out pictures (10 %, another tenth for each of three "
        "seeds), mean over neurons. The paper's are of human fMRI and other networks; only the form is the same.",
        "",
    ]
    for name, result in results.items():
        ceiling = f", noise ceiling {result['ceiling']:.3f}" if "ceiling" in result else ", no repeats"
        lines += [f"## Session {name}: {result['pictures']} pictures, {result['neurons']} neurons{ceiling}", ""]
        lines += ["| λ_eigen | R² | of three seeds | same patch, cosine | another patch | paper, R² (all) |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        before = result["cosine before"]
        lines += [f"| before alignment | | | {before['same patch']:.3f} | {before['another patch']:.3f} | |"]
        for weight, paper in zip(LAMBDAS, ("0.196", "0.193", "0.188"), strict=True):
            row = result["constraint"][str(weight)]
            seeds = ", ".join(f"{value:.3f}" for value in row["R2 of seeds"])
            after = row["cosine after"]
            same, other = after["same patch"], after["another patch"]
            lines += [f"| {weight} | {row['R2']:.3f} | {seeds} | {same:.3f} | {other:.3f} | {paper} |"]
        lines += ["", f"Controls, λ_eigen 0.1: shuffled weights {result['shuffled weights']['R2']:.3f}, pixels "]
        lines[-1] += f"{result['pixels']['R2']:.3f}. One network alone: "
        lines[-1] += ", ".join(f"{key} {value:.3f}" for key, value in result["one network"].items()) + "."
        lines += [""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for recordings, which are large")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--sessions", nargs="+", default=["210325", "201025"])
    options = parser.parse_args()
    path = OUT.with_suffix(".json")
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in options.sessions:
        results[name] = study(options.data, options.work, name, options.epochs)
        path.write_text(json.dumps(results, indent=1) + "\n")
        OUT.with_suffix(".md").write_text(text(results) + "\n")
    print(OUT.with_suffix(".md").read_text())


if __name__ == "__main__":
    main()
