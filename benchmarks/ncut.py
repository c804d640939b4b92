"""Normalized cut against ncut-pytorch in one run: time, memory and how near to the exact eigenvectors.

    python benchmarks/ncut.py [--nodes 100000 1000000] [--quality 16000] [--rounds 3] [--features FILE ...]
    python benchmarks/ncut.py --graph 1000 --work DIR [--device cuda]     7 million nodes from disk: ncut_graph.py

768 channels, 20 eigenvectors; nodes are groups in a signal of 48 dimensions with noise in all channels. The peer is
given unit vectors and sigma 1, which is the same affinity; its defaults, which choose sigma from the data, are timed
too. Subspace error is 1 - mean cos² of the principal angles between the two spaces of 20 vectors. Memory is what the
process takes beyond the features at the worst moment. ncut-pytorch (`pip install --no-deps ncut-pytorch fpsample`) is
left out if it is not there. Adds to benchmarks/results/ncut.json, or to `--json FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitreous as vt
from ncut_graph import Memory, graph
from turns import Case, Growth, Way
from vitreous.kernels.ncut import exp_cos

RESULTS = Path(__file__).parent / "results" / "ncut.json"
CHANNELS, SIGNAL, GROUPS, EIGENVECTORS = 768, 48, 40, 20


def nodes(count: int, noise: float, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    basis = generator.standard_normal((SIGNAL, CHANNELS)).astype(np.float32) / SIGNAL**0.5
    centres = generator.standard_normal((GROUPS, SIGNAL)).astype(np.float32)
    found = np.empty((count, CHANNELS), np.float32)
    for start in range(0, count, 65_536):
        part = found[start : start + 65_536]
        which = generator.integers(0, GROUPS, len(part))
        inside = centres[which] + 0.6 * generator.standard_normal((len(part), SIGNAL), np.float32)
        part[:] = inside @ basis + noise * generator.standard_normal((len(part), CHANNELS), np.float32)
    return found


def peer(sigma: float | None, device: str = "cpu") -> Callable[[np.ndarray], np.ndarray] | None:
    try:
        from ncut_pytorch import Ncut
    except ImportError as error:
        print(f"ncut-pytorch is left out: {error}", flush=True)
        return None

    def run(rows: np.ndarray) -> np.ndarray:
        given = torch.from_numpy(rows)
        if sigma is not None:
            given = torch.nn.functional.normalize(given, dim=1)
        return Ncut(n_eig=EIGENVECTORS, sigma=sigma, device=device).fit_transform(given.to(device)).cpu().numpy()

    return run


def routes() -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    def ours(method: str, **more: Any) -> Callable[[np.ndarray], np.ndarray]:
        return lambda rows: vt.ncut(rows, EIGENVECTORS, method=method, progress=False, **more).eigenvectors

    found: dict[str, Any] = {
        "ours, low rank": ours("low_rank"),
        "ours, low rank, 1,024 landmarks": ours("low_rank", n_sample=1024),
        "the paper's recipe, m = 4,000, K = 100": ours("paper", n_sample=4000),
        "ncut-pytorch, defaults": peer(None),
        "ncut-pytorch, same affinity": peer(1.0),
    }
    return {name: run for name, run in found.items() if run is not None}


def subspace_error(a: np.ndarray, b: np.ndarray) -> float:
    a, b = np.linalg.qr(a.astype(np.float64))[0], np.linalg.qr(b.astype(np.float64))[0]
    return float(1 - (np.linalg.svd(a.T @ b, compute_uv=False) ** 2).mean())


def quality(count: int, seeds: int, files: list[Path]) -> dict[str, Any]:
    """Errors on made-up nodes, and on features in files: `count` rows of each, drawn at random."""
    given: dict[str, Callable[[], np.ndarray]] = {
        f"noise {noise}" + (f", seed {seed}" if seed else ""): partial(nodes, count, noise, seed)
        for noise in (0.02, 0.1)
        for seed in range(seeds)
    }
    given |= {path.stem: partial(some_rows, path, count) for path in files}
    found: dict[str, Any] = {}
    for name, make in given.items():
        rows = make()
        exact = vt.ncut(rows, EIGENVECTORS, method="exact", progress=False).eigenvectors
        errors = {way: subspace_error(exact, run(rows)) for way, run in routes().items() if "defaults" not in way}
        found[name] = errors
        print(json.dumps({f"subspace error, {count} nodes, {name}": errors}, indent=1), flush=True)
    return found


def some_rows(path: Path, count: int) -> np.ndarray:
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    chosen = np.sort(np.random.default_rng(0).choice(len(rows), min(count, len(rows)), replace=False))
    return np.asarray(rows[chosen], np.float32)


def timed(count: int, rounds: int) -> dict[str, Any]:
    rows = nodes(count, 0.05)
    found: dict[str, list[float]] = {name: [] for name in routes()}
    extra: dict[str, float] = {}
    for _ in range(rounds):  # in turn: a neighbour on the machine disturbs all of them
        for name, run in routes().items():
            if count > 200_000 and name not in ("ours, low rank", "ncut-pytorch, defaults"):
                continue
            with Memory() as memory:
                held = memory.now()["RssAnon"]
                start = time.perf_counter()
                run(rows)
                found[name].append(round(time.perf_counter() - start, 3))
            extra[name] = max(extra.get(name, 0), round((memory.own - held) / 2**30, 2))
            print(count, name, round(found[name][-1], 2), flush=True)
    seconds = {name: statistics.median(times) for name, times in found.items() if times}
    ours = seconds["ours, low rank"]
    ratios = {name: round(value / ours, 2) for name, value in seconds.items()}
    kept = {name: times for name, times in found.items() if times}
    return {"seconds": kept, "times as long as ours": ratios, "memory beyond the features, GiB": extra}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--quality", type=int, default=16_000)
    parser.add_argument("--seeds", type=int, default=3, help="of the nodes whose exact answer is compared")
    parser.add_argument("--features", type=Path, nargs="*", default=[], help=".npy (node, channel) to compare on, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--graph", type=int, metavar="PICTURES", help="cut a graph from stores on disk instead")
    parser.add_argument("--work", type=Path, help="folder for its stores: 10.9 MB a picture")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--routes", nargs="+", default=["low_rank"], help="of vt.ncut: low_rank, paper")
    parser.add_argument("--sample", type=int, default=50_000, help="m of the paper's route")
    options = parser.parse_args()
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(os.cpu_count() or 1)
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    machine = (
        f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    if options.graph:
        if options.work is None:
            parser.error("--graph needs --work, a folder for its stores")
        found = graph(options.graph, options.work, options.device, options.routes, options.sample)
        results[f"graph of {found['nodes']} nodes on {found['device']}"] = {**found, "machine": machine}
    else:
        if options.quality:
            found = quality(options.quality, options.seeds, options.features)
            results.setdefault(f"subspace error, {options.quality} nodes", {}).update(found)
        for count in options.nodes:
            results[f"{count} nodes"] = {**timed(count, options.rounds), "machine": machine}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


# -- for run.py


def by_scikit_learn(rows: np.ndarray) -> np.ndarray:
    """Eigenvectors of all pairs, by ARPACK. It divides them by the roots of the degrees; here they are given back."""
    from sklearn.manifold import spectral_embedding

    x = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    affinity = exp_cos(torch.from_numpy(x @ x.T)).numpy()
    found = spectral_embedding(
        affinity, n_components=EIGENVECTORS, eigen_solver="arpack", drop_first=False, random_state=0
    )
    degrees = affinity.sum(1, keepdims=True) - affinity.diagonal()[:, None]
    return found * np.sqrt(degrees)


def large(count: int, device: str | None) -> dict[str, Way]:
    rows, on = nodes(count, 0.05), device or "cpu"
    found: dict[str, Way] = {
        LOW: lambda: vt.ncut(rows, EIGENVECTORS, method="low_rank", device=on, progress=False).eigenvectors
    }
    for name, sigma in {SAME: 1.0, "ncut-pytorch, defaults": None}.items():
        found[name] = lambda sigma=sigma: peer(sigma, on)(rows)  # type: ignore[misc]
    return found


def moderate(count: int, device: str | None) -> dict[str, Way]:
    rows = nodes(count, 0.05)
    exact: dict[str, Way] = {EXACT: lambda: vt.ncut(rows, EIGENVECTORS, method="exact", progress=False).eigenvectors}
    return large(count, device) | exact | {"scikit-learn, ARPACK": lambda: by_scikit_learn(rows)}


def distance_to_exact(count: int, found: dict[str, Any]) -> dict[str, str]:
    exact = vt.ncut(nodes(count, 0.05), EIGENVECTORS, method="exact", progress=False).eigenvectors
    return {
        name: f"subspace error {subspace_error(exact, v):.0e}" for name, v in found.items() if "defaults" not in name
    }


def low_rank(count: int) -> Way:
    return large(count, None)[LOW]


LOW, EXACT = "vt.ncut, low rank", "vt.ncut, exact (its choice up to 4,096 nodes)"
SAME = "ncut-pytorch, same affinity"
PEERS = {SAME: "ncut_pytorch", "ncut-pytorch, defaults": "ncut_pytorch"}
LANDMARKS = 512


def said(count: int) -> str:
    return f"{count:,} nodes of {CHANNELS} channels, {EIGENVECTORS} eigenvectors"


CASES = [
    Case("ncut, all pairs fit", said, moderate, 4000, 600,
         packages=PEERS, quality=distance_to_exact, also_ours=(EXACT,)),
    Case("ncut, many nodes", said, large, 100_000, 2000,
         1_000_000, PEERS, work=lambda n: {"flop": 2.0 * n * CHANNELS * LANDMARKS}),
]  # fmt: skip
GROWTH = [Growth("ncut", "nodes", low_rank, (25_000, 50_000, 100_000, 200_000), (1000, 2000, 4000), 1)]


if __name__ == "__main__":
    main()
