"""What the structure loss adds to a training step on a GPU, for the recipes spiral and cifar10-32.

    python benchmarks/structure_loss.py [--recipes spiral] [--steps-only] [--out FILE]

Steps with the loss and without it are timed in short turns, one after the other, each turn with two clusterings in it,
on random inputs of the right shape. What the loss adds is the median over pairs of neighbouring turns: a clock that
slows down slows both. The plain route (argsort and `torch.cdist`) has a few turns too; the clustering on its own and
its agreement with the route of the CPU come with it. On an H200 `--steps-only --recipes cifar10-32` is made to take two
minutes, half of it compiling.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from vitreous.kernels import device_clusters
from vitreous.training import clustering
from vitreous.training.recipes import RECIPES
from vitreous.training.trainee import Trainee

PLAIN = 3  # turns of the plain route
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


def steps_of(name: str, device: torch.device, rounds: int, small: bool) -> dict[str, object]:
    recipe = RECIPES[name]
    if small:
        tiny = {**recipe.settings, "depth": 4, "embed_dim": 32, "num_heads": 2}
        recipe = recipe.with_(settings=tiny, batch=32, structure={"every": 4})
    g = torch.Generator().manual_seed(0)
    x = torch.rand(recipe.batch, *SHAPES[name], generator=g).mul_(2).sub_(1).to(device)
    y = torch.randint(10, (recipe.batch,), generator=g).to(device)
    trainees = {kind: Trainee(recipe, 10, device, structure=kind == "with") for kind in ("without", "with")}
    assert trainees["with"].structure is not None
    turn = 2 * trainees["with"].structure.every  # as many clusterings in every turn
    for trainee in trainees.values():
        trainee.begin(x, y)
        timed(2 * turn, lambda t=trainee: t.step(x, y, 1e-4))
    turns: dict[str, list[float]] = {"without": [], "with": [], "plain route": []}
    for number in range(rounds):
        for kind in ("without", "with") if number % 2 == 0 else ("with", "without"):
            turns[kind].append(timed(turn, lambda t=trainees[kind]: t.step(x, y, 1e-4)))
    ours, clustering.unit_roots = clustering.unit_roots, plain_roots
    for _ in range(PLAIN):
        turns["plain route"].append(timed(turn, lambda: trainees["with"].step(x, y, 1e-4)))
    clustering.unit_roots = ours
    return {
        "steps a turn": turn,
        "ms a step": {kind: spread(times) for kind, times in turns.items()},
        "added percent": spread([percent(a, b) for a, b in zip(turns["without"], turns["with"], strict=True)]),
        "added percent, plain route": percent(*(statistics.median(turns[k]) for k in ("without", "plain route"))),
        "log": trainees["with"].structure.log(),
    }


def percent(without: float, with_: float) -> float:
    return round(100 * (with_ / without - 1), 2)


def spread(values: list[float]) -> dict[str, float]:
    """The median, the middle half and the ends."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    found = {"median": middle, "quarter": low, "three quarters": high, "least": min(values), "most": max(values)}
    return {name: round(float(value), 3) for name, value in found.items()} | {"turns": len(values)}


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
    parser.add_argument("--rounds", type=int, default=30, help="pairs of turns, with the loss and without it")
    parser.add_argument("--recipes", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--steps-only", action="store_true", help="not the clustering on its own")
    parser.add_argument("--small", action="store_true", help="tiny networks, to try the script")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    results: dict[str, object] = {"device": name, "torch": torch.__version__}
    sizes = [(96, 500)] if options.small else [(2304, 784), (2304, 15_680)]
    parts = {f"clustering {u} x {n}": partial(clusterings, device, u, n) for u, n in sizes if not options.steps_only}
    parts |= {name: partial(steps_of, name, device, options.rounds, options.small) for name in options.recipes}
    for name, part in parts.items():  # written as it goes: borrowed time may end
        results[name] = part()
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        if options.out:
            options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
