"""What very large models and sets would take, from measured costs, and a cluster of many light workers that checks it.

    python studies/scale_simulation.py simulate [--workers 4 8 16 24]   Ray on this machine; workers sleep and write
    python studies/scale_simulation.py subsample                        clusters of units from fewer samples
    python studies/scale_simulation.py plan                             reads benchmarks/RESULTS.json

Each writes its part of studies/results/scale.json; `docs/write_tables.py` puts the tables into docs/scale.md. Workers
of the simulation do what recording does to an engine, without the products: take a piece, be busy for a while that
varies (log-normal, some five times slower), write a file, and now and then die. The plan is arithmetic: operations and
bytes of the architecture, times what was measured here or on a GPU. What is assumed and not measured is in ASSUMED.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "studies" / "results" / "scale.json"
PIECE = 0.5  # seconds that a light worker is busy, in the middle
EACH = 30  # pieces a worker
DEATHS = 0.01  # of pieces kill their worker, once
#: Of a picture-sized ViT on a GPU: a compiled training step in bfloat16, plain torch 2.11. A forward pass is taken to
#: reach what that does, not the 770 TFLOP/s of one large product (benchmarks/results/gpu).
H200 = {"batch": 784, "tokens": 197, "width": 256, "blocks": 14, "step_s": 0.053}
ASSUMED = {
    "GPUs a node": 8,
    "bytes a second a node writes to object storage": 2e9,
    "cores a node": 64,
    "instances a unit is split by": 400_000,
    "tokens a picture, sub-sampled": 2,
    "tokens of text, sub-sampled": 2_562_334,
}


@dataclass(frozen=True)
class Model:
    """`samples` are pictures or tokens of text, `tokens` of each are seen; `flop` of one sample's forward pass.

    `inputs` are those of the second layer of an MLP, whose units are split.
    """

    said: str
    samples: int
    tokens: int
    blocks: int
    width: int
    inputs: int
    flop: float


def vit_flop(tokens: int, width: int, blocks: int) -> float:
    return float(blocks * tokens * (24 * width**2 + 4 * tokens * width))


MODELS = [
    Model("ImageNet-21k, ViT-g/14", 14_197_122, 257, 40, 1536, 4096, vit_flop(257, 1536, 40)),
    Model("a billion tokens, 70-billion language model", 10**9, 1, 80, 8192, 28_672, 2 * 70e9),
]


# -- the simulation


@dataclass(frozen=True)
class Piece:
    """Busy for `seconds[item]`, then a file. Where `fatal` says so the process dies, the first time.

    The first piece of each of the `workers` waits until they are all there. Begin and end are told with the result.
    """

    folder: str
    seconds: tuple[float, ...]
    workers: int
    fatal: frozenset[int] = frozenset()

    def __call__(self, item: int) -> tuple[int, float, float]:
        (Path(self.folder) / f"up-{os.getpid()}").touch()
        while len(list(Path(self.folder).glob("up-*"))) < self.workers:
            time.sleep(0.05)
        begun = time.monotonic()
        time.sleep(self.seconds[item] / 2)
        mark = Path(self.folder) / f"died-{item}"
        if item in self.fatal and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds[item] / 2)
        (Path(self.folder) / f"{item}.bin").write_bytes(bytes(4096))
        return item * item, begun, time.monotonic()


def simulated(workers: int, uneven: bool, fatal_share: float, seed: int) -> dict[str, float]:
    """Seconds from when all workers are there to the end of the last piece, beside the work divided by the workers."""
    from vitreous.engine import open_engine

    rng = np.random.default_rng(seed)
    count = workers * EACH
    busy = PIECE * rng.lognormal(0, 0.2, count) * np.where(rng.random(count) < 0.01, 5, 1)
    busy = busy if uneven else np.full(count, PIECE)
    fatal = frozenset(int(n) for n in np.flatnonzero(rng.random(count) < fatal_share) if n >= workers)
    with tempfile.TemporaryDirectory() as folder:
        asked = time.monotonic()
        found = list(open_engine(f"ray:{workers}").map(Piece(folder, tuple(busy), workers, fatal), range(count)))
        assert [square for square, _, _ in found] == [n * n for n in range(count)], "not what one process finds"
        assert len(list(Path(folder).glob("*.bin"))) == count
        died = len(list(Path(folder).glob("died-*")))
    first, last = min(begun for _, begun, _ in found), max(ended for _, _, ended in found)
    told = {"pieces": count, "died": died, "start_s": first - asked, "ideal_s": busy.sum() / workers, "s": last - first}
    return told | {"share_of_ideal": told["ideal_s"] / told["s"]}


def hand_over_rate(workers: int, pieces: int = 2000) -> float:
    """Pieces a second that one process can hand out and take back when there is nothing to do in them."""
    from vitreous.engine import open_engine

    work = open_engine(f"ray:{workers}").map(Nothing(), range(pieces))
    next(work)
    begun = time.perf_counter()
    left = sum(1 for _ in work)
    return left / (time.perf_counter() - begun)


class Nothing:
    def __call__(self, item: int) -> int:
        return item


def simulate(workers: list[int], seed: int) -> dict[str, Any]:
    import ray

    found: dict[str, Any] = {"piece_s": PIECE, "pieces_a_worker": EACH, "seed": seed, "runs": {}}
    for count in workers:
        ray.init("local", num_cpus=count, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        kinds = {"even": (False, 0.0), "uneven": (True, 0.0), "deaths": (True, DEATHS)}
        found["runs"][count] = {name: simulated(count, *kind, seed) for name, kind in kinds.items()}
        if count == workers[0]:
            found["pieces_a_second"] = hand_over_rate(count)
        ray.shutdown()
        print(count, json.dumps(found["runs"][count]), flush=True)
    found |= {"machine": f"{os.cpu_count()} cores, {platform.machine()}", "load": os.getloadavg()[0]}
    return found | {"ray": ray.__version__}


# -- fewer samples


def subsample(seed: int) -> dict[str, Any]:
    """Clusters from fewer samples against those from all (ARI): of clear copies, and with some about the limit."""
    from sklearn.metrics import adjusted_rand_score

    import vitreous as vt

    rng = np.random.default_rng(seed)
    samples, units, pairs = 65_536, 1024, 128
    found: dict[str, Any] = {"samples": samples, "units": units, "copies": pairs, "seed": seed}
    for kind, most in (("clear", 0.02), ("doubtful", 0.05)):
        features = rng.standard_normal((samples, units), np.float32)
        noise = rng.uniform(0.005, most, pairs)[None].astype(np.float32)
        features[:, -pairs:] = features[:, :pairs] + noise * rng.standard_normal((samples, pairs), np.float32)
        labels = {n: vt.unit_clusters(features[:n]) for n in (512, 1024, 4096, 15_680, samples)}
        whole = alone(labels[samples])
        found[kind] = {
            n: {"ari": adjusted_rand_score(whole, alone(few)), "clusters": int(few.max()) + 1}
            for n, few in labels.items()
        }
        print(kind, found[kind], flush=True)
    return found


def alone(labels: np.ndarray) -> np.ndarray:
    """Units of no cluster are clusters of one."""
    return np.where(labels < 0, labels.max() + 1 + np.arange(len(labels)), labels)


# -- the plan


def gpu_rate() -> float:
    """Operations a second that an H200 was seen to do: a training step is three forward passes' work."""
    return 3 * H200["batch"] * vit_flop(int(H200["tokens"]), int(H200["width"]), int(H200["blocks"])) / H200["step_s"]


def measured(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "benchmarks" / "results" / name).read_text())


def recording_rate(results: dict[str, Any]) -> float:
    """Bytes a second that a process records from a GPU: 512 pictures, 12 blocks, 197 tokens of 384 float16 channels."""
    return 512 * 12 * 197 * 384 * 2 / results["cases"]["recording"]["ways"]["vt.record"]["seconds"]


def plan() -> dict[str, Any]:
    results = json.loads((ROOT / "benchmarks" / "RESULTS.json").read_text())
    unit = measured("disentangle_memory.json")["memory"]
    on_gpu = measured("disentangle_gpu.json")["layer"]["seconds_a_unit"]
    recorder = recording_rate(measured("gpu/RESULTS.json"))
    core_s = {"unit, 400,000 instances of 3,072 inputs": unit["cpu"]}
    for name, growth in (("structure", "structure, pairs"), ("ncut", "ncut")):
        found = results["growth"][growth]
        core_s[f"{name}, {found['sizes'][-1]:,} {found['counted']}"] = (
            found["seconds"][-1] * results["machine"]["threads"]
        )
    told: dict[str, Any] = {"assumed": ASSUMED, "h200": H200 | {"flop_a_second": gpu_rate()}, "core_seconds": core_s}
    told["gpu"] = {"seconds a unit, 400,000 instances of 3,072 inputs": on_gpu, "bytes a second recorded": recorder}
    told["models"] = {model.said: costs(model, unit["cpu"], results) for model in MODELS}
    for model in MODELS:
        found = told["models"][model.said]
        found["split_gpu_h"] = found["units"] * on_gpu * model.inputs / 3072 / ASSUMED["GPUs a node"] / 3600
        found["record_h"] = found["bytes"] / recorder / ASSUMED["GPUs a node"] / 3600
    print(json.dumps(told, indent=1))
    return told


def costs(model: Model, unit_s: float, results: dict[str, Any]) -> dict[str, float]:
    """Bytes, and hours of one node for each stage as if it did all of it: on its cores but for the forward pass.

    Splitting grows with inputs, cuts with channels and nodes, pairs of units with their square.
    """
    pairs, cut, threads = (
        results["growth"]["structure, pairs"],
        results["growth"]["ncut"],
        results["machine"]["threads"],
    )
    written = ASSUMED["bytes a second a node writes to object storage"] * 3600
    core_h = ASSUMED["cores a node"] * 3600
    units, tokens = model.blocks * model.width, model.samples * model.tokens
    few = ASSUMED["tokens of text, sub-sampled"]
    if model.tokens > 1:
        few = ASSUMED["tokens a picture, sub-sampled"] * model.samples
    structure = pairs["seconds"][-1] * threads * (units / pairs["sizes"][-1]) ** 2 / core_h
    node = cut["seconds"][-1] * threads / cut["sizes"][-1] * model.width / 768
    return {
        "bytes": 2.0 * tokens * units,
        "bytes_few": 2.0 * few * units,
        "forward_h": model.samples * model.flop / gpu_rate() / ASSUMED["GPUs a node"] / 3600,
        "write_h": 2.0 * tokens * units / written,
        "write_few_h": 2.0 * few * units / written,
        "units": units,
        "split_h": units * unit_s * model.inputs / 3072 / core_h,
        "structure_h": structure,
        "structure_by_token_h": structure * model.tokens**2,
        "ncut_h": tokens * model.blocks * node / core_h,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=["simulate", "subsample", "plan"])
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8, 16, 24])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=OUT)
    args = parser.parse_args()
    found = json.loads(args.json.read_text()) if args.json.exists() else {}
    if args.part == "simulate":
        found["simulate"] = simulate(args.workers, args.seed)
    else:
        found[args.part] = subsample(args.seed) if args.part == "subsample" else plan()
    args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
