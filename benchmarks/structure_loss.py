"""What the structure loss adds to a training step on a GPU, for the recipes spiral and cifar10-32.

    python benchmarks/structure_loss.py [--steps 200] [--recipes spiral] [--out FILE]

Steps with the loss, without it, and with the plain route (argsort and `torch.cdist`) are timed in turn, on random
inputs of the right shape; the clustering on its own and its agreement with the route of the CPU come with it.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from vitreous.kernels import device_clusters
from vitreous.training import clustering
from vitreous.training.recipes import RECIPES
from vitreous.training.trainee import Trainee

SHAPES = {"spiral": (1, 1, 2), "cifar10-32": (3, 32, 32)}


def wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def timed(steps: int, run) -> float:
    """Milliseconds a step."""
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        run()
    wait()
    return 1000 * (time.perf_counter() - start) / steps


def plain_roots(flat, *, bins, threshold, transform):  # noqa: ARG001
    """The way people would write it: two argsorts, the whole matrix, components on the host."""
    from scipy.sparse.csgraph import connected_components

    ranks = flat.argsort(dim=0, stable=True).argsort(dim=0) * bins // len(flat)
    near = torch.cdist(ranks.t().float(), ranks.t().float(), p=1) < threshold * len(flat)
    alive = (flat != flat[:1]).any(0)
    near &= alive[:, None] & alive[None, :]
    _, labels = connected_components(near.cpu().numpy(), directed=False)
    _, first = np.unique(labels, return_index=True)
    return torch.from_numpy(first[labels]).to(flat.device)


def steps_of(name: str, device: torch.device, steps: int, small: bool) -> dict[str, object]:
    recipe = RECIPES[name]
    if small:
        recipe = recipe.with_(settings={**recipe.settings, "depth": 4, "embed_dim": 32, "num_heads": 2}, batch=64)
    g = torch.Generator().manual_seed(0)
    x = torch.rand(recipe.batch, *SHAPES[name], generator=g).mul_(2).sub_(1).to(device)
    y = torch.randint(10, (recipe.batch,), generator=g).to(device)
    trainees = {kind: Trainee(recipe, 10, device, structure=kind != "without") for kind in ("without", "with")}
    for trainee in trainees.values():
        trainee.begin(x, y)
        for _ in range(2 * 20 + 1):
            trainee.step(x, y, 1e-4)
    rounds: dict[str, list[float]] = {"without": [], "with": [], "plain route": []}
    for _ in range(3):
        for kind in rounds:
            kept = clustering.unit_roots
            if kind == "plain route":
                clustering.unit_roots = plain_roots
            trainee = trainees["without" if kind == "without" else "with"]
            rounds[kind].append(timed(steps, lambda t=trainee: t.step(x, y, 1e-4)))
            clustering.unit_roots = kept
    best = {kind: min(times) for kind, times in rounds.items()}
    added = {k: round(100 * (best[k] / best["without"] - 1), 2) for k in ("with", "plain route")}
    return {"ms a step": rounds, "added percent": added, "log": trainees["with"].structure.log()}


def clusterings(device: torch.device, units: int, samples: int) -> dict[str, object]:
    """Milliseconds for ranks and components, and whether the CPU's route gives the same."""
    from vitreous.kernels.near_pairs import near_components
    from vitreous.kernels.ranks import rank_bins

    g = torch.Generator().manual_seed(0)
    found = {}
    for kind in ("independent", "copies", "layers", "0.9", "0.99", "0.999", "ties"):
        x = torch.randn(samples, units, generator=g)
        if kind == "copies":
            x[:, units // 2 :] = x[:, : units // 2].exp() + 0.03 * torch.randn(samples, units // 2, generator=g)
        elif kind == "layers":  # a young network: three layers that hardly differ, a token that is constant
            third = units // 3
            x[:, : third // 3] = 1.0
            x[:, third : 2 * third] = x[:, :third] * (1 + 1e-3 * torch.randn(samples, third, generator=g))
            x[:, 2 * third : 3 * third] = x[:, :third] * (1 + 1e-2 * torch.randn(samples, third, generator=g))
            x[:, third : third + third // 3] = 1.0
        elif kind == "ties":
            x = torch.randint(5, (samples, units), generator=g).float()
            x[:, units // 2 :] = x[:, : units // 2]
        elif kind != "independent":
            rho = float(kind)
            x = rho**0.5 * torch.randn(samples, 1, generator=g) + (1 - rho) ** 0.5 * x
        there = x.to(device)
        rows, usable = device_clusters.rank_bins(there, 100)
        root = device_clusters.near_components(rows, float(samples), 100, usable, fused=False)
        ours = rank_bins(x.numpy(), 100)
        same = bool((rows.cpu().numpy() == ours).all())
        kept = usable.cpu().numpy()
        alone = np.arange(units)
        alone[kept] = np.flatnonzero(kept)[near_components(ours[kept], float(samples))]
        same &= bool((root.cpu().numpy() == alone).all())
        plain = partial(device_clusters.near_components, rows, float(samples), 100, usable, fused=False)
        found[kind] = {
            "ranks ms": round(timed(5, partial(device_clusters.rank_bins, there, 100)), 3),
            "components ms": round(timed(5, plain), 3),
            "same as the CPU": same,
            "components": len(root.unique()),
        }
        if device.type == "cuda":
            fused = partial(plain, fused=True)
            found[kind] |= {"fused agrees": bool(torch.equal(fused(), root)), "fused ms": round(timed(5, fused), 3)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--recipes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--steps-only", action="store_true", help="not the clustering on its own")
    parser.add_argument("--small", action="store_true", help="tiny networks, to try the script")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    results: dict[str, object] = {"device": name, "torch": torch.__version__, "steps": options.steps}
    sizes = [(96, 500)] if options.small else [(2304, 784), (2304, 15_680)]
    parts = {f"clustering {u} x {n}": partial(clusterings, device, u, n) for u, n in sizes if not options.steps_only}
    parts |= {name: partial(steps_of, name, device, options.steps, options.small) for name in options.recipes}
    for name, part in parts.items():  # written as it goes: borrowed time may end
        results[name] = part()
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
