"""A whole layer of a ViT-B split on one GPU: 768 units, 3,072 inputs, 400,000 of 2.56 million instances a unit.

    PYTHONPATH=src python benchmarks/disentangle_gpu.py --json layer.json          the size of the paper, on the GPU
    PYTHONPATH=src python benchmarks/disentangle_gpu.py --units 64 --seconds 60    fewer units; the whole extrapolated
    PYTHONPATH=src python benchmarks/disentangle_gpu.py --small                    a rehearsal of half a minute on cores

The layer is timed from an array in the machine's memory to the shares of every unit: the array is hashed, checked and
copied to the device, the strongest instances of every unit are found, clustered and divided, all of it by the code that
`vt.disentangle` runs. The paper reports 26 to 30 hours for this on an A100.

Instances are planted: each shows one of 24 concepts, some rare, or a pattern of its own (noise), and some of 12
patterns that say nothing. Units have random weights, so that each answers to concepts of its own. Agreement is told
with what was planted, and at 20,000 instances, of fewer in the same proportion, with exact HDBSCAN of scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.kernels import density_device
from vitreous.kernels.density_device import Instances, contribution_clusters_on_device
from vitreous.lenses.disentangle import EXAMPLES
from vitreous.lenses.disentangle_device import OnDevice, cluster_sums_on_device
from vitreous.lenses.disentangle_rows import Rows, describe_source, open_rows
from vitreous.lenses.disentangle_units import Options, UnitTop, divided
from vitreous.subunits.layers import find_layer

PAPER = {"tokens": 2_562_334, "instances": 400_000, "units": 768, "inputs": 3072}
SMALL = {"tokens": 6000, "instances": 900, "units": 12, "inputs": 384}
SHARE = 400  # a cluster has at least one of so many instances
CONCEPTS, SHARED, NOISE = 24, 12, 0.3
BATCH = 1 << 15

Found = TypeVar("Found")


@dataclass(frozen=True)
class Layer:
    """Inputs float16 (instance, input) in the machine's memory, the concept of each, and weights (unit, input)."""

    q: np.ndarray
    truth: np.ndarray
    weight: np.ndarray


def planted_layer(tokens: int, inputs: int, units: int, device: torch.device, seed: int) -> Layer:
    rng = torch.Generator(device).manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=rng, device=device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=rng, device=device)

    def patterns(count: int) -> Tensor:
        return (1.5 + 0.5 * normal(count, inputs)) * (uniform(count, inputs) < 0.05)

    known = patterns(CONCEPTS + SHARED)
    often = 1 / (5 + torch.arange(CONCEPTS, device=device, dtype=torch.float32))
    truth = torch.multinomial(often, tokens, replacement=True, generator=rng)
    truth[uniform(tokens) < NOISE] = -1
    weight = normal(units, inputs).cpu().numpy()
    q = np.empty((tokens, inputs), np.float16)
    for start in range(0, tokens, BATCH):
        here = truth[start : start + BATCH]
        count = len(here)
        shared = (uniform(count, SHARED) < 0.15) * (0.5 + 0.5 * uniform(count, SHARED))
        drive = 0.5 * normal(count, inputs) - 0.5 + shared @ known[CONCEPTS:]
        own = torch.where(here[:, None] < 0, patterns(count), known[here.clamp_min(0)])
        drive += (1 + 0.6 * uniform(count, 1)) * own
        q[start : start + BATCH] = (drive * torch.sigmoid(1.702 * drive)).half().cpu().numpy()
    return Layer(q, truth.cpu().numpy(), weight)


# -- the layer


def clocked(name: str, times: dict[str, float], device: torch.device, work: Callable[[], Found]) -> Found:
    begin = time.perf_counter()
    found = work()
    synchronise(device)
    times[name] = times.get(name, 0.0) + time.perf_counter() - begin
    return found


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rows_of(q: np.ndarray, weight: np.ndarray) -> Rows:
    """As `vt.disentangle` opens an array."""
    module = nn.Linear(*weight.shape[::-1], device="meta")
    with TemporaryDirectory() as nowhere:
        return open_rows(module, find_layer(module, ""), q, "all", 0, Path(nowhere), False)


def whole_layer(layer: Layer, k: int, device: torch.device, seconds: float) -> tuple[dict, OnDevice, Options]:
    """Seconds of every part. When the time is up the rest of the units is extrapolated, and this is said."""
    times: dict[str, float] = {}
    units = len(layer.weight)
    clocked("hash of the array", times, device, lambda: describe_source(layer.q))
    rows = clocked("check of the array", times, device, lambda: rows_of(layer.q, layer.weight))
    route = OnDevice(rows, layer.weight, np.zeros(units, np.float32), device, False)
    kind = clocked("rows to the device", times, device, lambda: route.held).kind
    print(f"rows held as {kind}: " + told(times), flush=True)
    options = Options(k, max(10, k // SHARE), "leaf", None, "auto", 0)
    begin = time.perf_counter()
    clusters: list[int] = []
    for at, split in route.splits(route.top(range(units), k), options, EXAMPLES):
        clusters.append(max(1, split.clusters))
        spent = time.perf_counter() - begin
        if not at:
            times["first unit, and the strongest instances of the first units"] = spent
            print(f"  first unit after {spent:.2f} s", flush=True)
        elif not (at + 1) % max(1, units // 12):
            print(f"  {at + 1} units in {spent:.1f} s, {spent / (at + 1):.3f} s a unit", flush=True)
        if spent > seconds:
            break
    times["strongest instances, clusters and shares"] = time.perf_counter() - begin
    done = len(clusters)
    fixed = sum(seconds for name, seconds in times.items() if name not in LOOP)
    each = times["strongest instances, clusters and shares"] / done
    row: dict = {"seconds": times, "units": units, "units_done": done, "seconds_a_unit": each}
    row |= {"whole_layer_seconds": fixed + each * units, "extrapolated": done < units}
    row |= {"expansion": float(np.mean(clusters)), "rows_held_as": str(kind)}
    if device.type == "cuda":
        row["peak_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
    word = f"extrapolated from {done} of {units} units" if row["extrapolated"] else "measured"
    print(f"whole layer {row['whole_layer_seconds']:.1f} s ({word}), {each:.3f} s a unit", flush=True)
    return row, route, options


LOOP = (
    "strongest instances, clusters and shares",
    "first unit, and the strongest instances of the first units",
)


def told(times: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.2f} s" for name, seconds in times.items())


def one_unit(route: OnDevice, top: UnitTop, options: Options) -> dict[str, float]:
    """Milliseconds of the steps of one unit alone, the device waited for after each."""
    device, times = route.device, {}
    weight = torch.from_numpy(route.weight[top.at]).to(device)
    take = route.held.take
    q = Instances(lambda at: take(top.ids[at]), len(top.ids), len(weight), device)
    rng = np.random.default_rng(options.seed)
    frame = clocked("subspace", times, device, lambda: density_device._subspace(q, weight, density_device.DIMS, rng))
    cloud, _ = clocked("coordinates", times, device, lambda: density_device._cloud(q, weight, frame))
    rule = density_device.checked_rule(q.count, options.min_cluster_size, None, "leaf", 64, density_device.SAMPLE)
    drawn = density_device.drawn_sample(q.count, rule, options.seed)
    sample, scaled = (cloud, rule) if drawn is None else (cloud.take(torch.from_numpy(drawn[0]).to(device)), drawn[1])
    tree = clocked("spanning tree", times, device, lambda: density_device.spanning_tree(sample, scaled.min_samples))
    flat = clocked(
        "tree on the host",
        times,
        device,
        lambda: density_device.flat_clusters(tree[0], np.sqrt(tree[1]), scaled.min_cluster_size, "leaf"),
    )
    members = density_device._members(flat, tree[2])
    if drawn is not None:
        blocks = torch.arange(q.count, device=device).split(max(1, density_device.PAIRS // len(sample.half)))
        for block in blocks:
            work = lambda: density_device._join(cloud.take(block), sample, members, scaled)  # noqa: B023, E731
            clocked("the rest assigned", times, device, work)
    size = options.min_cluster_size
    found = clocked(
        "all of these",
        times,
        device,
        lambda: contribution_clusters_on_device(q, weight, min_cluster_size=size, seed=options.seed),
    )
    sums, sizes = clocked("sums of clusters", times, device, lambda: cluster_sums_on_device(q, found))
    bias = route.bias[top.at]
    split = clocked(
        "shares", times, device, lambda: divided(found.clusters, 0, sums, sizes, route.weight[top.at], bias)
    )
    clocked("examples", times, device, lambda: route._with_examples(split, q, top, EXAMPLES))
    return {name: 1e3 * seconds for name, seconds in times.items()}


# -- agreement


def ari(a: np.ndarray, b: np.ndarray) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(a, b))


def clusters_of(route: OnDevice, top: UnitTop, size: int) -> np.ndarray:
    weight = torch.from_numpy(route.weight[top.at]).to(route.device)
    take = route.held.take
    q = Instances(lambda at: take(top.ids[at]), len(top.ids), len(weight), route.device)
    return contribution_clusters_on_device(q, weight, min_cluster_size=size).labels.cpu().numpy()


def exact_labels(task: tuple[np.ndarray, np.ndarray, int]) -> tuple[np.ndarray, float]:
    from vitreous.kernels.density import contribution_clusters

    q, weight, size = task
    begin = time.perf_counter()
    return contribution_clusters(q, weight, min_cluster_size=size, method="exact").labels, time.perf_counter() - begin


def against_exact(layer: Layer, k: int, fewer: int, units: int, device: torch.device, workers: int) -> list[dict]:
    """The same at fewer instances, in the same proportion, against scikit-learn in processes of their own."""
    few = layer.q[: round(len(layer.q) * fewer / k)]
    weight = layer.weight[:units]
    route = OnDevice(rows_of(few, weight), weight, np.zeros(units, np.float32), device, False)
    size = max(10, fewer // SHARE)
    tops = [top._replace(ids=top.ids) for top in route.top(range(units), fewer)]
    begin = time.perf_counter()
    ours = [clusters_of(route, top, size) for top in tops]
    each = (time.perf_counter() - begin) / units
    ids = [top.ids.cpu().numpy() for top in tops]
    tasks = [(few[i].astype(np.float32), weight[n], size) for n, i in enumerate(ids)]
    rows = []
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        for n, (labels, seconds) in enumerate(pool.map(exact_labels, tasks)):
            row = {"unit": n, "clusters": int(ours[n].max()) + 1, "clusters_exact": int(labels.max()) + 1}
            row |= {"ari_exact": ari(labels, ours[n]), "ari_planted": ari(layer.truth[ids[n]], ours[n])}
            row |= {"ari_planted_of_exact": ari(layer.truth[ids[n]], labels)}
            rows.append(row | {"seconds": each, "seconds_exact": seconds})
            print(f"  unit {n} at {fewer} instances: " + ", ".join(f"{a} {b:.3g}" for a, b in row.items()), flush=True)
    return rows


def quality(layer: Layer, route: OnDevice, options: Options, units: int) -> list[dict]:
    """What was planted against what was found at full size, and how long each step took."""
    rows = []
    for top in route.top(range(units), options.top_k):
        labels = clusters_of(route, top, options.min_cluster_size)
        truth = layer.truth[top.ids.cpu().numpy()]
        enough = (np.bincount(truth[truth >= 0]) >= options.min_cluster_size).sum()
        row = {"unit": top.at, "clusters": int(labels.max()) + 1, "concepts_large_enough": int(enough)}
        row |= {"noise_planted": float((truth < 0).mean()), "noise": float((labels < 0).mean())}
        row |= {"ari_planted": ari(truth, labels)}
        print(f"  unit {top.at}: " + ", ".join(f"{a} {b:.3g}" for a, b in row.items()), flush=True)
        rows.append(row)
        if not top.at:
            one_unit(route, top, options)  # warm
            steps = one_unit(route, top, options)
            row["milliseconds"] = steps
            print("  one unit alone, ms: " + ", ".join(f"{name} {ms:.1f}" for name, ms in steps.items()), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, size in PAPER.items():
        parser.add_argument(f"--{name}", type=int, help=f"default {size}")
    parser.add_argument("--small", action="store_true", help="a rehearsal")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=240, help="for the units; the rest is extrapolated")
    parser.add_argument("--exact", type=int, default=4, help="units that are compared with exact HDBSCAN")
    parser.add_argument("--exact-instances", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=4, help="processes for exact HDBSCAN, 7 GB each")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    sizes = {name: vars(args)[name] or size for name, size in (SMALL if args.small else PAPER).items()}
    device, fewer = torch.device(args.device), min(args.exact_instances, sizes["instances"])
    begin = time.perf_counter()
    layer = planted_layer(sizes["tokens"], sizes["inputs"], sizes["units"], device, args.seed)
    print(f"{sizes}: made in {time.perf_counter() - begin:.1f} s", flush=True)
    found: dict = {"sizes": sizes, "device": args.device, "torch": torch.__version__}
    found["machine"] = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    found["layer"], route, options = whole_layer(layer, sizes["instances"], device, args.seconds)
    write(args.json, found)
    found["planted"] = quality(layer, route, options, min(4, sizes["units"]))
    write(args.json, found)
    del route
    compared = min(args.exact, sizes["units"])
    found["exact"] = against_exact(layer, sizes["instances"], fewer, compared, device, args.workers)
    found["worst_ari_exact"] = min(row["ari_exact"] for row in found["exact"])
    found["all_seconds"] = time.perf_counter() - begin
    print(
        f"worst adjusted Rand index against exact {found['worst_ari_exact']:.4f}; all in {found['all_seconds']:.0f} s"
    )
    write(args.json, found)


def write(path: Path | None, found: dict) -> None:
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
