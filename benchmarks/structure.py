"""Clusters of units against the straight ways, in one run: ranks to labels, the same labels demanded.

    python benchmarks/structure.py            2,304 units x 15,680 samples, and one common factor that defeats bounds
    python benchmarks/structure.py --quick    a sixth of the units and samples
    python benchmarks/structure.py --memory   the memory of 10,752 units x 4,096 samples, in processes of their own

With --json FILE both write into one file, each its own part.

Peers: torch (stable argsort, torch.cdist with p=1, scipy's connected components) and scipy (argsort, pdist cityblock).
On one common factor the peer is our own byte kernel over all pairs without any bound, pair stage only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numba import njit, prange
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import pdist, squareform

import vitreous as vt
from turns import Case, Growth, Way
from vitreous.kernels import device_clusters
from vitreous.kernels.l1 import l1
from vitreous.kernels.near_pairs import near_components
from vitreous.kernels.ranks import rank_bins

BINS = 100
WIDE = (4096, 10_752)  # samples, units of 14 layers x 3 tokens x 256 channels


def planted(samples: int, units: int, rng: np.random.Generator) -> np.ndarray:
    """Mostly independent units, a twelfth noisy copies, a fifth of one family with correlations of 0.90 to 0.99."""
    features = rng.normal(size=(samples, units))
    copies, family = units // 12, units // 5
    features[:, -copies:] = features[:, :copies] + 0.02 * rng.normal(size=(samples, copies))
    share = rng.uniform(0.9, 0.99, family)
    mixed = features[:, copies : copies + family] * np.sqrt(1 - share)
    features[:, copies : copies + family] = np.sqrt(share) * rng.normal(size=(samples, 1)) + mixed
    return features.astype(np.float32)


def one_factor(samples: int, units: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    common, own = rng.normal(size=(samples, 1)), rng.normal(size=(samples, units))
    return (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own).astype(np.float32)


def labels_of(near: np.ndarray) -> np.ndarray:
    _, component = connected_components(near, directed=False)
    names, first, sizes = np.unique(component, return_index=True, return_counts=True)
    labels, number = np.full(len(component), -1), 0
    for name in names[np.argsort(first)]:
        if sizes[name] > 1:
            labels[component == name] = number
            number += 1
    return labels


def by_torch(features: np.ndarray, device: str = "cpu") -> np.ndarray:
    x = torch.from_numpy(features).to(device)
    order = x.argsort(dim=0, stable=True)
    ranks = torch.empty_like(order).scatter_(0, order, torch.arange(len(x), device=device)[:, None].expand_as(order))
    bins = (ranks * BINS // len(x)).T.float().contiguous()
    return labels_of((torch.cdist(bins, bins, p=1) < len(x)).cpu().numpy())


def by_scipy(features: np.ndarray) -> np.ndarray:
    order = np.argsort(features, axis=0, kind="stable")
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.arange(len(features))[:, None], 0)
    bins = np.ascontiguousarray((ranks * BINS // len(features)).T)
    return labels_of(squareform(pdist(bins, "cityblock") < len(features)))


@njit(parallel=True, nogil=True)
def brute(rows, limit):
    count = np.zeros(rows.shape[0], np.int64)
    for tile in prange((rows.shape[0] + 15) // 16):
        for start in range(0, rows.shape[0], 16):
            for i in range(tile * 16, min(tile * 16 + 16, rows.shape[0])):
                for j in range(max(start, i + 1), min(start + 16, rows.shape[0])):
                    count[i] += l1(rows[i], rows[j]) < limit
    return count


def seconds(work, *args) -> tuple[float, object]:
    begun = time.perf_counter()
    found = work(*args)
    return time.perf_counter() - begun, found


def extra_memory(path: str, work: str) -> float:
    """GiB that the peak of this fresh process lies above what it held before the work, the activations included.

    An upper bound: a higher peak from before, when the kernels were compiled, would count as the work's.
    """
    features = np.load(path)
    if work == "structure":
        vt.structure(planted(400, 64, np.random.default_rng(0)).reshape(400, 2, 1, 32), progress=False)  # compile
    else:
        vt.unit_clusters(planted(400, 64, np.random.default_rng(0)))
    held = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if work == "structure":
        vt.structure(features.reshape(len(features), 14, 3, 256), progress=False)
    else:
        vt.unit_clusters(features)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - held) / 2**30


def measure_memory() -> dict:
    found: dict = {"units": WIDE[1], "samples": WIDE[0]}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/features.npy"
        np.save(path, planted(*WIDE, np.random.default_rng(0)))
        found["activations_gib"] = Path(path).stat().st_size / 2**30
        for work in ("unit_clusters", "structure"):
            # spawned, not forked: a forked process begins with its parent's peak
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[f"{work}_extra_gib"] = pool.submit(extra_memory, path, work).result()
            print(f"{WIDE[1]:,} units x {WIDE[0]:,} samples, {work}: {found[f'{work}_extra_gib']:.2f} GiB extra")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    found = {"memory": measure_memory()} if args.memory else measure_time(args.quick)
    if args.json:
        before = json.loads(args.json.read_text()) if args.json.exists() else {}
        args.json.write_text(json.dumps(before | found, indent=1) + "\n")


def measure_time(quick: bool) -> dict:
    units, samples = (384, 2613) if quick else (2304, 15680)
    rng = np.random.default_rng(0)
    vt.unit_clusters(planted(400, 64, rng))  # compile
    wide: dict = {}
    if not quick:
        broad = planted(*WIDE, rng)
        took, _ = seconds(vt.unit_clusters, broad)
        wide = {"units": WIDE[1], "samples": WIDE[0], "s": took}
        print(f"{WIDE[1]:,} units x {WIDE[0]:,} samples: {took:.2f} s")
        del broad
    features = planted(samples, units, rng)
    ours = [seconds(vt.unit_clusters, features) for _ in range(5)]
    labels, fast = ours[0][1], statistics.median(t for t, _ in ours)
    found: dict = {
        "wide": wide,
        "units": units,
        "samples": samples,
        "clusters": int(labels.max() + 1),
        "ours_s": fast,
        "peers": {},
    }
    print(f"{units} units x {samples} samples: {fast:.3f} s, {labels.max() + 1} clusters")
    for name, peer in {"torch.cdist": by_torch, "scipy pdist": by_scipy}.items():
        took, theirs = seconds(peer, features)
        same = bool((theirs == labels).all())
        found["peers"][name] = {"s": took, "ratio": took / fast, "same_labels": same}
        print(f"  {name}: {took:.2f} s, {took / fast:.0f} x; same labels: {same}")
    found["one_factor"] = {}
    for correlation in (0.9, 0.99, 0.999):
        rows = rank_bins(one_factor(samples, units, correlation, rng), BINS)
        brute(rows[:64], samples)
        all_pairs = min(seconds(brute, rows, samples)[0] for _ in range(3))
        pruned = min(seconds(near_components, rows, samples)[0] for _ in range(3))
        found["one_factor"][str(correlation)] = {"brute_s": all_pairs, "ours_s": pruned, "ratio": all_pairs / pruned}
        print(f"  one factor, {correlation}: {pruned:.3f} s, all pairs without bounds {all_pairs:.3f} s")
    return found | {"machine": platform.machine(), "threads": torch.get_num_threads(), "torch": torch.__version__}


# -- for run.py


def on_device(features: np.ndarray, device: str) -> np.ndarray:
    """As the structure loss finds clusters where the features lie: the smallest unit of each unit's cluster."""
    rows, usable = device_clusters.rank_bins(torch.from_numpy(features).to(device), BINS)
    return device_clusters.near_components(rows, len(features), BINS, usable).cpu().numpy()


def ways(units: int, device: str | None) -> dict[str, Way]:
    features = planted(SAMPLES, units, np.random.default_rng(0))
    peers: dict[str, Way] = {"argsort + torch.cdist": lambda: by_torch(features, device or "cpu")}
    if device is not None:
        return {"device_clusters": lambda: on_device(features, device)} | peers
    return {"unit_clusters": lambda: vt.unit_clusters(features)} | peers | {"scipy pdist": lambda: by_scipy(features)}


def quality(_: int, found: dict) -> dict[str, str]:
    """How many clusters, and whether they are those of the plain route."""
    plain = adjacency(found["argsort + torch.cdist"])
    return {n: "same clusters" if (adjacency(v) == plain).all() else "OTHER CLUSTERS" for n, v in found.items()}


def adjacency(labels: np.ndarray) -> np.ndarray:
    """(unit, unit): whether two are in one cluster, whatever the clusters are called."""
    alone = np.where(labels < 0, -1 - np.arange(len(labels)), labels)
    return alone[:, None] == alone


def pairs(units: int) -> Way:
    rows = rank_bins(planted(SAMPLES, units, np.random.default_rng(0)), BINS)
    return lambda: near_components(rows, SAMPLES)


def ranked(units: int) -> Way:
    features = planted(SAMPLES, units, np.random.default_rng(0))
    return lambda: rank_bins(features, BINS)


SAMPLES = 4096
MANY, FEW = (2000, 4000, 8000, 16_000), (128, 256, 512)
CASES = [
    Case("structure", lambda n: f"clusters of {n:,} units over {SAMPLES:,} samples", ways,
         2304, 128, 4096, quality=quality, work=lambda n: {"bytes": 4.0 * n * SAMPLES}),
]  # fmt: skip
GROWTH = [
    Growth("structure, ranks", "units", ranked, MANY, FEW, 1),
    Growth("structure, pairs", "units", pairs, MANY, FEW, 2),
]


if __name__ == "__main__":
    main()
