"""Why does the eigen-constraint not help the prediction of V4, as it helps fMRI in the paper's Table 1?

    python studies/align_constraint.py DATA --work DIR [--only NAME ...] [--seeds 0 1 2]

Session 210325, three layers of four networks. One thing is changed at a time (how large maps are at the start, number
of pictures, learning rate and length, width), with several λ_eigen and nothing stopped early: the curve of the error on
held-out pictures shows both what early stopping would keep (its lowest point) and what it would prevent (its end).
Other seeds, which also hold out other pictures, repeat the main rows.
Beside it: how large the constraint's gradient is against the response loss's, how far the maps end from keeping the
cut, and ridge regression from means over patches (the alignment's means hold the class token too), about the best
that eq. 2 could do, and from 4 x 4 places.
Writes studies/results/align_constraint.json and the tables of align_constraint.md.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import vitreous as vt
from align_inputs import NETWORKS, recorded, session
from tokens_inputs import put_tables
from vitreous.evidence.responses import explained
from vitreous.lenses import align_training
from vitreous.lenses.align_nodes import open_nodes
from vitreous.lenses.align_training import AlignNet, Weights, losses, read_features

OUT = Path(__file__).parent / "results" / "align_constraint"
SITES = [f"blocks.{n}.attn.out" for n in (3, 7, 11)]
LAMBDAS = (0.0, 1.0)
MORE = {"as in the table": (0.0, 0.001, 0.01, 0.1, 1.0), "three times as long": (1.0,)}
EPOCHS = 60
BASE: dict[str, Any] = {"width": 128, "lr": 1e-3, "epochs": EPOCHS, "pictures": 640, "start": align_training.SMALL}
CHANGES: dict[str, dict[str, Any]] = {
    "as in the table": {},
    "three times as long": {"epochs": 3 * EPOCHS},
    "maps begin ten times as large": {"start": 1.0},
    "160 pictures": {"pictures": 160},
    "learning rate 0.003": {"lr": 3e-3},
    "learning rate 0.0003, twice as long": {"lr": 3e-4, "epochs": 2 * EPOCHS},
    "width 16": {"width": 16},
    "width 512": {"width": 512},
}
SEEDED = {"as in the table": (0.0, 0.01, 0.1, 1.0), "three times as long": (1.0,), "width 512": (0.0, 1.0)}


def features(stores: dict[str, vt.Store]) -> dict[str, dict[str, np.ndarray]]:
    return {name: {site: np.asarray(store[site][:]) for site in SITES} for name, store in stores.items()}


def run(sources: Any, responses: vt.Responses, change: dict[str, Any], weight: float, seed: int) -> dict[str, Any]:
    settings = {**BASE, **change}
    pictures, begin, epochs = settings.pop("pictures"), settings.pop("start"), settings["epochs"]
    some = {name: {site: rows[:pictures] for site, rows in part.items()} for name, part in sources.items()}
    start = time.process_time()
    with patch.object(align_training, "SMALL", begin):
        settings |= {"lambda_eigen": weight, "seed": seed, "patience": epochs}
        found = vt.align(some, None, responses[:pictures], progress=False, **settings)
    errors = [line["held out"] for line in found.log]
    best = int(np.argmin(errors))
    return {
        "R2 at the best epoch": found.means()["all"],
        "best epoch": best + 1,
        "held-out error, best": errors[best],
        "held-out error, last": errors[-1],
        "training error, best": found.log[best]["response"],
        "training error, last": found.log[-1]["response"],
        "eigen, best": found.log[best].get("eigen"),
        "curve": [round(error, 4) for error in errors],
        "seconds": round(time.process_time() - start, 1),
    }


def gradients(sources: Any, responses: vt.Responses) -> dict[str, float]:
    """Length of the constraint's gradient (λ = 1) over that of the response loss, at the maps, at the start and after
    some steps of the response loss alone; and cosine of two draws of the constraint's gradient."""
    seen = read_features(open_nodes(sources, same_width=False).blocks, 4, 0, False)
    target = torch.from_numpy((responses.values - responses.values.mean(0)) / responses.values.std(0))
    net = AlignNet([p.shape[1] for p in seen.pooled], 128, target.shape[1], 0)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    weights, alone = Weights(1.0, 0.0, 0.0, 100, 6), Weights(0.0, 0.0, 0.0, 100, 6)

    def gradient(name: str) -> torch.Tensor:
        pictures = torch.randperm(len(target), generator=generator)[:64]
        found = losses(net, seen, pictures, target, weights, generator)[name]
        return torch.cat([g.flatten() for g in torch.autograd.grad(found, list(net.maps))])

    result = {}
    for step in range(201):
        if step in (0, 10, 200):
            response, first, second = gradient("response"), gradient("eigen"), gradient("eigen")
            result[f"constraint over response, step {step}"] = float(first.norm() / response.norm())
            result[f"two draws of the constraint, cosine, step {step}"] = float(
                torch.nn.functional.cosine_similarity(first, second, dim=0)
            )
        optimiser.zero_grad()
        pictures = torch.arange(64 * step, 64 * step + 64) % len(target)
        losses(net, seen, pictures, target, alone, generator)["response"].backward()
        optimiser.step()
    return result


def ridge(sources: Any, responses: vt.Responses, seeds: int = 3) -> dict[str, float]:
    """R² of ridge regression on the pictures that the alignment holds out, strength chosen inside the others."""
    from sklearn.linear_model import RidgeCV
    from sklearn.preprocessing import StandardScaler

    def places(rows: np.ndarray, side: int) -> np.ndarray:
        grid = rows[:, 1:].astype(np.float32).reshape(len(rows), side, 8 // side, side, 8 // side, -1)
        return grid.mean((2, 4)).reshape(len(rows), -1)

    found: dict[str, float] = {}
    for name, side in (("mean over patches", 1), ("4 x 4 places", 4)):
        scores = []
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(responses))
            tested, trained = order[: round(0.1 * len(order))], order[round(0.1 * len(order)) :]
            parts = [places(rows, side) for part in sources.values() for rows in part.values()]
            x = np.concatenate([StandardScaler().fit(p[trained]).transform(p) for p in parts], 1)
            fit = RidgeCV(np.logspace(2, 6, 9)).fit(x[trained], responses.values[trained])
            scores.append(float(np.nanmean(explained(responses.values[tested], fit.predict(x[tested])))))
        found[name] = float(np.mean(scores))
    return found


def tables(results: dict[str, Any]) -> dict[str, list[str]]:
    lines = [
        "| changed | λ_eigen | R² at the best epoch | best epoch | held-out error there | at the end "
        "| training error there | at the end | eigen loss |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in results.get("runs", {}).items():
        for weight, row in rows.items():
            numbers = [
                f"{row['R2 at the best epoch']:.3f}",
                f"{row['best epoch']:.0f}",
                *(f"{row[f'{kind} error, {at}']:.3f}" for kind in ("held-out", "training") for at in ("best", "last")),
                "" if row["eigen, best"] is None else f"{row['eigen, best']:.2f}",
            ]
            lines.append(f"| {name} | {float(weight):g} | " + " | ".join(numbers) + " |")
    seeds = [
        "| changed | λ_eigen | R² at the best epoch | of each seed | best epochs | held-out error there | at the end |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rows in results.get("seeds", {}).items():
        for weight, more in rows.items():
            every = [results["runs"][name][weight], *more.values()]
            r2, epochs = ([row[key] for row in every] for key in ("R2 at the best epoch", "best epoch"))
            best, last = (np.mean([row[f"held-out error, {at}"] for row in every]) for at in ("best", "last"))
            cells = [f"{np.mean(r2):.3f}", ", ".join(f"{one:.3f}" for one in r2), ", ".join(str(e) for e in epochs)]
            lines_of = " | ".join([*cells, f"{best:.3f}", f"{last:.3f}"])
            seeds.append(f"| {name} | {float(weight):g} | {lines_of} |")
    other = [f"- {key}: {value:.3f}" for part in ("ridge", "gradients") for key, value in results.get(part, {}).items()]
    return {"runs": lines, "seeds": seeds, "others": other}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="beyond 0: of the main rows")
    options = parser.parse_args()
    images, responses = session(options.data, "210325")
    sources = features(recorded(options.data, images, options.work / "210325" / "trained"))
    assert set(sources) == set(NETWORKS)
    path = OUT.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"runs": {}}

    def keep() -> None:
        path.write_text(json.dumps(results, indent=1) + "\n")
        put_tables(OUT.with_suffix(".md"), tables(results))

    if "ridge" not in results:
        results["ridge"] = {f"R² of ridge, {key}": value for key, value in ridge(sources, responses).items()}
        keep()
    if "gradients" not in results:
        results["gradients"] = gradients(sources, responses)
        keep()
    for name in options.only:
        rows = results["runs"].setdefault(name, {})
        for weight in MORE.get(name, LAMBDAS):
            if str(weight) not in rows:
                rows[str(weight)] = run(sources, responses, CHANGES[name], weight, 0)
                keep()
                print(name, weight, {k: v for k, v in rows[str(weight)].items() if k != "curve"}, flush=True)
    for seed in (seed for seed in options.seeds if seed):
        for name, weights in SEEDED.items():
            for weight in weights if name in options.only else ():
                kept = results.setdefault("seeds", {}).setdefault(name, {}).setdefault(str(weight), {})
                if str(seed) not in kept:
                    kept[str(seed)] = run(sources, responses, CHANGES[name], weight, seed)
                    keep()
                    print(name, weight, seed, kept[str(seed)]["R2 at the best epoch"], flush=True)


if __name__ == "__main__":
    main()
