"""Density clusters of a unit's contributions against exact HDBSCAN, in one run, with planted concepts as truth.

    python benchmarks/disentangle.py                      20,000 instances of 3,072 inputs, three seeds of two mixtures
    python benchmarks/disentangle.py --instances 5000     smaller
    python benchmarks/disentangle.py --memory             only the memory of 400,000 instances, in a process of its own

Peers: scikit-learn's HDBSCAN with brute distances, which is the fastest exact one in many dimensions, and fast_hdbscan
after a random projection to 256 dimensions where it and pynndescent are installed (warm: a first call compiles). Peers
get the contributions ready-made; ours starts from the inputs. CPU time is told beside the wall clock, which other
processes disturb. scikit-learn's distances are computed on all cores (`n_jobs`), each product on one thread, because
numpy's crash on two at this size (see `_by_scikit_learn`); the rest of it has one thread anyway.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics import adjusted_rand_score

import vitreous as vt
from turns import Case, Growth, Way
from vitreous.kernels.density import contribution_clusters, density_clusters
from vitreous.kernels.density_device import Instances, contribution_clusters_on_device
from vitreous.kernels.density_reduce import contributions

INPUTS = 3072
SHARE = 400  # instances a cluster has at least: one of this many


#: How often each concept is shown. "uneven" is hard: one has two fifths, which chance must not split, and six are just
#: large enough to be clusters.
MIXTURES = {"even": (1,) * 6, "uneven": (40, 30, 20, 10, 0.9, 0.8, 0.7, 0.65, 0.6, 0.55)}


def planted(instances: int, seed: int, mixture: str = "even", noise: float = 0.3, kind: type = np.float32):
    """Inputs q after GELU, one unit's weights, and the concept of every instance, -1 where it has none.

    Every instance also carries some of twelve patterns that say nothing about its concept.
    """
    rng = np.random.default_rng(seed)
    often = np.array(MIXTURES[mixture])
    concepts = len(often)
    weight = rng.standard_normal(INPUTS, np.float32)
    patterns = rng.normal(1.5, 0.5, (concepts + 12, INPUTS)) * (rng.random((concepts + 12, INPUTS)) < 0.05)
    patterns = patterns.astype(np.float32)
    truth = np.where(rng.random(instances) < noise, -1, rng.choice(concepts, instances, p=often / often.sum()))
    q = np.empty((instances, INPUTS), kind)
    for start in range(0, instances, 1024):
        here = truth[start : start + 1024]
        shared = (rng.random((len(here), 12)) < 0.15) * rng.uniform(0.5, 1, (len(here), 12))
        own = np.zeros((len(here), concepts))
        own[np.arange(len(here)), here] = rng.uniform(1.0, 1.6, len(here))
        own[here < 0] = 0
        spread = np.where(here < 0, 0.6, 0.5)[:, None].astype(np.float32)
        drive = rng.standard_normal((len(here), INPUTS), np.float32) * spread - np.float32(0.5)
        drive += np.concatenate([own, shared], 1).astype(np.float32) @ patterns
        q[start : start + 1024] = drive / (1 + np.exp(-1.702 * drive))
    return q, weight, truth


def by_fast_hdbscan(points: np.ndarray, size: int) -> np.ndarray:
    from fast_hdbscan import HDBSCAN

    projection = np.random.default_rng(0).standard_normal((points.shape[1], 256), np.float32) / 16
    return HDBSCAN(min_cluster_size=size, cluster_selection_method="leaf").fit_predict(points @ projection)


def clocked(work: Callable[[], np.ndarray]) -> dict:
    wall, cpu = time.perf_counter(), time.process_time()
    labels = work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "labels": labels}


def agreement(row: dict, seed: int, truth: np.ndarray, exact: np.ndarray) -> dict:
    """Puts what the labels are worth in their place."""
    labels = row.pop("labels")
    row |= {"seed": seed, "clusters": int(labels.max()) + 1}
    row |= {"ari_planted": adjusted_rand_score(truth, labels), "ari_exact": adjusted_rand_score(exact, labels)}
    return row


def measure(instances: int, seeds: int, repeats: int, peers: bool, mixture: str) -> dict:
    size = max(instances // SHARE, 5)
    contribution_clusters(*planted(2000, 99)[:2], min_cluster_size=size)  # compile
    peers = peers and all(map(importlib.util.find_spec, ("fast_hdbscan", "pynndescent")))
    rows: dict[str, list[dict]] = {}
    for seed in range(seeds):
        q, weight, truth = planted(instances, seed, mixture)
        points = contributions(q, weight)
        ways: dict[str, Callable[[], np.ndarray]] = {
            "auto": lambda q=q, weight=weight: contribution_clusters(q, weight, min_cluster_size=size).labels,
            "exact": lambda points=points: density_clusters(points, min_cluster_size=size, method="exact").labels,
        }
        if peers:
            if not rows:
                by_fast_hdbscan(points[:2000], size)  # compile
            ways["fast_hdbscan, projected to 256"] = lambda points=points: by_fast_hdbscan(points, size)
        turns = [(name, clocked(work)) for name, work in ways.items()]
        turns += [("auto", clocked(ways["auto"])) for _ in range(repeats - 1)]
        exact = next(row["labels"] for name, row in turns if name == "exact")
        for name, row in turns:
            rows.setdefault(name, []).append(agreement(row, seed, truth, exact))
            told = f"{row['wall']:7.2f} s  CPU {row['cpu']:7.2f} s  clusters {row['clusters']:3}"
            told += f"  ARI planted {row['ari_planted']:.3f}  exact {row['ari_exact']:.3f}"
            print(f"{mixture:6} {seed}  {name:32} {told}", flush=True)
    return {"instances": instances, "inputs": INPUTS, "min_cluster_size": size, "runs": rows, **summary(rows)}


def summary(rows: dict[str, list[dict]]) -> dict:
    """Ratios of medians to ours, in wall and CPU time, and the worst loss of agreement with the truth."""
    told: dict = {}
    middle = {n: {c: statistics.median(r[c] for r in found) for c in ("wall", "cpu")} for n, found in rows.items()}
    exact = {row["seed"]: row["ari_planted"] for row in rows["exact"]}
    for peer in (name for name in rows if name != "auto"):
        told[f"times faster than {peer}"] = {c: middle[peer][c] / middle["auto"][c] for c in ("wall", "cpu")}
    lost = [exact[row["seed"]] - row["ari_planted"] for row in rows["auto"]]
    told["ARI planted below exact, worst"] = max(lost)
    for name, value in told.items():
        print(name, value)
    return told


def extra_memory(instances: int) -> dict:
    """GiB that the peak lies above what the process held with its inputs; an upper bound."""
    q, weight, truth = planted(instances, 0, kind=np.float16)
    contribution_clusters(q[:2000], weight, min_cluster_size=20)  # compile
    contribution_clusters(q[:3000], weight, min_cluster_size=100, sample=900)
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    row = clocked(lambda: contribution_clusters(q, weight, min_cluster_size=instances // SHARE).labels)
    labels = row.pop("labels")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row |= {"instances": instances, "q_gib": q.nbytes / 2**30, "extra_gib": (peak - held) / 2**30}
    return row | {"clusters": int(labels.max()) + 1, "ari_planted": adjusted_rand_score(truth, labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mixtures", default=",".join(MIXTURES), help="of concepts")
    parser.add_argument("--repeats", type=int, default=3, help="of ours; peers run once a seed")
    parser.add_argument("--no-peers", action="store_true", help="leave fast_hdbscan out")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.memory:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            found = {"memory": pool.submit(extra_memory, 400_000).result()}
        print(found)
    else:
        found = {
            f"{args.instances:,} instances, {mixture}": measure(
                args.instances, args.seeds, args.repeats, not args.no_peers, mixture
            )
            for mixture in args.mixtures.split(",")
        }
    found |= {"machine": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()}
    if args.json:
        before = json.loads(args.json.read_text()) if args.json.exists() else {}
        args.json.write_text(json.dumps(before | found, indent=1) + "\n")


# -- for run.py


def by_hdbscan(points: np.ndarray, size: int) -> np.ndarray:
    """Its generic algorithm, which is its fastest in many dimensions and wants float64."""
    from hdbscan import HDBSCAN

    settings = {"cluster_selection_method": "leaf", "algorithm": "generic"}
    return HDBSCAN(min_cluster_size=size, **settings).fit_predict(points.astype(np.float64))


def by_evoc(points: np.ndarray, size: int) -> np.ndarray:
    """The layer that it chooses itself, by persistence."""
    from evoc import EVoC

    return EVoC(base_min_cluster_size=size).fit_predict(points)


def on_device(q: np.ndarray, weight: np.ndarray, size: int, device: str) -> np.ndarray:
    lying, w = torch.from_numpy(q).to(device), torch.from_numpy(weight).to(device)
    rows = Instances(lambda at: lying[at], len(q), len(weight), lying.device)
    return contribution_clusters_on_device(rows, w, min_cluster_size=size).labels.cpu().numpy()


def ways(instances: int, device: str | None) -> dict[str, Way]:
    q, weight, _ = planted(instances, 0)
    points, size = contributions(q, weight), max(instances // SHARE, 5)
    ours: dict[str, Way] = {
        "contribution_clusters": lambda: contribution_clusters(q, weight, min_cluster_size=size).labels
    }
    if device is not None:
        ours = {"contribution_clusters_on_device": lambda: on_device(q, weight, size, device)}
    return ours | {
        "scikit-learn, brute": lambda: density_clusters(points, min_cluster_size=size, method="exact").labels,
        "hdbscan, generic": lambda: by_hdbscan(points, size),
        "fast_hdbscan": lambda: by_fast_hdbscan(points, size),
        "evoc": lambda: by_evoc(points, size),
    }


def quality(instances: int, found: dict) -> dict[str, str]:
    truth = planted(instances, 0)[2]
    return {
        name: f"ARI with what was planted {adjusted_rand_score(truth, labels):.3f}" for name, labels in found.items()
    }


def layer(units: int) -> Way:
    """A whole call of `vt.disentangle` on the inputs of a layer with so many units."""
    q, _, _ = planted(4000, 0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        linear = torch.nn.Linear(INPUTS, units)
    settings = {"top_k": 2000, "min_cluster_size": 20, "tokens_per_image": "all", "progress": False}
    return lambda: vt.disentangle(linear, q[:, None], **settings)


CASES = [
    Case("density clusters", lambda n: f"{n:,} contributions of {INPUTS:,} inputs to one unit", ways,
         5000, 1000, 10_000, {"hdbscan, generic": "hdbscan", "fast_hdbscan": "fast_hdbscan", "evoc": "evoc"}, quality,
         lambda n: {"bytes": 4.0 * n * INPUTS},
         "peers get contributions ready-made, ours begins with the inputs; fast_hdbscan gets a projection to 256 "
         "dimensions, which costs it agreement and saves it time; of evoc's layers the one that it chooses counts"),
]  # fmt: skip
GROWTH = [Growth("disentangling", "units", layer, (16, 32, 64, 128), (2, 4, 8), 1)]


if __name__ == "__main__":
    main()
