"""The synthetic half of the structure paper's Table 1: a plain ViT against the structure loss in both readings.

    python studies/structure_spiral.py run --out DIR [--kinds vit mean sum] [--seconds 580] [--epochs 3600] [--whole]

The networks train side by side, each in a process of its own. If the full 3,600 epochs do not fit into `--seconds`, all
train for the same smaller number, which the results name; with `--whole` they stop where the seconds end, and the same
command goes on until all epochs are done (status 3 says that it must be given again). It is for a GPU. Steps are timed
alone first. What comes out is for studies/structure_spiral_tables.py: runs.json, clusters.npz, and weights in half
precision, in pieces under 16 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("vit", "mean", "sum")
LAST_SECONDS = 30  # kept for the analysis at the end
TIMED = 200
CHECKPOINT = ".checkpoint.pt"
Kept = tuple[dict[str, Any], int, int, list[Any]]  # times, epochs to train, epochs done, log
UNFINISHED = 3  # the exit status of a run that must be given again
SMALL = {"img_size": (1, 2), "patch_size": 1, "in_chans": 1, "depth": 4, "embed_dim": 32, "num_heads": 2}


def features(model, points: np.ndarray, device) -> np.ndarray:
    """Residual stream after every block, in evaluation mode: (sample, layer, token, channel)."""
    import torch

    import vitreous as vt
    from vitreous.training.spiral import as_pictures

    subject = vt.wrap(model.eval())
    with torch.no_grad(), vt.capture(subject, "blocks.*.resid.out") as seen:
        model(torch.from_numpy(as_pictures(points)).to(device))
        return np.stack([seen[f"blocks.{n}.resid.out"].float().cpu().numpy() for n in range(subject.depth)], 1)


def point_sets(seed: int) -> dict[str, np.ndarray]:
    from vitreous.training.spiral import TEST, TRAIN, grid, spiral

    generator = np.random.default_rng(seed)
    spiral(TRAIN, generator)
    return {"test": spiral(TEST, generator)[0], "grid": grid()}


def meet(folder: Path, kind: str, kinds: list[str], word: str, value: object = None) -> dict[str, object]:
    """Waits until every process has said `word`; gives what each of them said."""
    (folder / f"{kind}.{word}.tmp").write_text(json.dumps(value))
    (folder / f"{kind}.{word}.tmp").rename(folder / f"{kind}.{word}")
    while not all((folder / f"{k}.{word}").exists() for k in kinds):
        time.sleep(0.02)
    return {k: json.loads((folder / f"{k}.{word}").read_text()) for k in kinds}


def time_steps(trainee, x, y, steps: int) -> float:
    """Milliseconds a step."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        trainee.step(x, y, 1e-4)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / steps


def short_attention(q, k, v, attn_mask=None, dropout_p=0.0, **others):
    """Attention over three tokens, element by element: compiled, a fifth of the time of kernels made for many."""
    import torch

    if attn_mask is not None or dropout_p or any(others.values()):
        raise ValueError("only plain attention")
    weights = ((q[..., :, None, :].float() * k[..., None, :, :].float()).sum(-1) * q.shape[-1] ** -0.5).softmax(-1)
    return (weights[..., None] * v[..., None, :, :].float()).sum(-2).to(torch.result_type(q, v))


def prepare(kind: str, options: argparse.Namespace):
    import torch

    from vitreous.training.batches import Share, open_batches
    from vitreous.training.recipes import RECIPES
    from vitreous.training.trainee import Trainee

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.nn.functional.scaled_dot_product_attention = short_attention
    changes = {"settings": SMALL, "batch": 4096, "warmup": 1} if options.small else {}
    reading = {"reduce": "mean" if kind == "vit" else kind}
    recipe = RECIPES["spiral"].with_(structure=reading, amp=options.amp, **changes)
    batches = open_batches(recipe, None, device, Share(), 0)
    return Trainee(recipe, 2, device, structure=kind != "vit"), batches


def train_one(kind: str, options: argparse.Namespace) -> None:
    from vitreous.training.run import run_epoch

    trainee, batches = prepare(kind, options)
    trainee.begin(*next(next(batches.train(0, 1))))
    path = options.out / f"{kind}{CHECKPOINT}"
    times, epochs, done, log = (
        read_checkpoint(path, trainee) if path.exists() else begin(kind, options, trainee, batches)
    )
    trainee.recipe = trainee.recipe.with_(epochs=epochs)
    last = trainee.recipe.warmup + epochs
    for epoch, stream in zip(range(done, last), batches.train(done, last), strict=True):
        entry = run_epoch(trainee, stream, epoch, batches.steps)
        if (epoch + 1) % trainee.recipe.test_every == 0 or epoch + 1 == last:
            entry["accuracy"] = trainee.accuracy(batches.test())
            log.append(entry)
            if epoch % 100 == 19:
                print(kind, entry, round(time.time() - options.began), flush=True)
                (options.out / f"{kind}.json").write_text(json.dumps({"log": log}))
        seconds = times["seconds"] + time.time() - options.began
        if options.whole and epoch + 1 < last and time.time() - options.began > options.seconds - LAST_SECONDS:
            write_checkpoint(path, trainee, times | {"seconds": seconds}, epochs, epoch + 1, log)
            return
    times["seconds"] = round(seconds)
    save(kind, trainee, {"epochs": epochs, "log": log, "times": times}, options.out)
    path.unlink(missing_ok=True)


def begin(kind: str, options: argparse.Namespace, trainee, batches) -> Kept:
    """Times steps alone and together; gives the times, the epochs to train, how many are done, and the log so far."""
    folder, start = options.out / "work", trainee.state()
    x, y = next(next(batches.train(0, 1)))
    time_steps(trainee, x, y, 3)
    meet(folder, kind, options.kinds, "ready")
    alone: list[float] = []
    for turn in range(3):  # nobody else runs while one is timed
        for k in options.kinds:
            if k == kind:
                alone.append(time_steps(trainee, x, y, options.timed))
            meet(folder, kind, options.kinds, f"turn{turn}{k}")
    together = meet(folder, kind, options.kinds, "together", time_steps(trainee, x, y, options.timed))
    trainee.load(start)
    epochs = options.epochs
    if not options.whole:
        epoch_ms = max(together.values()) * batches.steps * 1.04  # and the tests between
        left = options.began + options.seconds - LAST_SECONDS - time.time()
        epochs = max(1, min(epochs, int(1000 * left / epoch_ms) - trainee.recipe.warmup))
        epochs = min(meet(folder, kind, options.kinds, "epochs", epochs).values())  # clocks differ
    return {"alone ms a step": alone, "together ms a step": together, "seconds": 0}, epochs, 0, []


def write_checkpoint(path: Path, trainee, times: dict[str, Any], epochs: int, done: int, log: list[Any]) -> None:
    import torch

    kept = {"state": trainee.state(), "times": times, "epochs": epochs, "done": done, "log": log}
    torch.save(kept, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def read_checkpoint(path: Path, trainee) -> Kept:
    import torch

    kept = torch.load(path, map_location="cpu", weights_only=True)
    trainee.load(kept["state"])
    return kept["times"], kept["epochs"], kept["done"], kept["log"]


def save(kind: str, trainee, facts: dict[str, object], out: Path) -> None:
    """Weights in half precision, in pieces that are easy to carry; clusters from the full ones."""
    import torch

    import vitreous as vt

    arrays: dict[str, np.ndarray] = {}
    for name, points in point_sets(trainee.recipe.seed).items():
        found = vt.structure(features(trainee.model, points, trainee.device))
        facts[name] = summary(found)
        arrays |= {f"{kind}_{name}_labels": found.labels.astype(np.int32), f"{kind}_{name}_dead": found.dead}
    facts["device"] = torch.cuda.get_device_name() if trainee.device.type == "cuda" else "cpu"
    facts |= {"torch": torch.__version__, "amp": trainee.recipe.amp}
    flat = np.concatenate([t.detach().half().cpu().numpy().ravel() for t in trainee.model.state_dict().values()])
    for n, part in enumerate(np.array_split(flat, 2)):
        np.save(out / f"{kind}.weights.{n}.npy", part)
    np.savez_compressed(out / "work" / f"{kind}.npz", **arrays)
    (out / f"{kind}.json").write_text(json.dumps(facts) + "\n")


def summary(found) -> dict[str, object]:
    counts, edges = found.histogram()
    return {
        "differences": [round(float(d), 2) for d in found.differences],
        "counts": found.counts.tolist(),
        "clusters": len(found.sizes),
        "inefficient": int(found.inefficient.sum()),
        "largest": found.largest,
        "dead": int(found.dead.sum()),
        "nearly dead": int(found.nearly_dead.sum()),
        "sizes": np.bincount(found.sizes, minlength=1).tolist(),
        "histogram": counts.tolist(),
        "edges": edges.tolist(),
    }


def run(options: argparse.Namespace) -> None:
    """Starts a process a kind."""
    options.out.mkdir(parents=True, exist_ok=True)
    work = options.out / "work"
    work.mkdir(exist_ok=True)
    for old in work.iterdir():
        if not (options.whole and old.suffix == ".npz"):  # what a network that is done has left
            old.unlink()
    began = time.time()
    warm = "import numpy as np, vitreous as vt; vt.structure(np.random.default_rng(0).random((200, 2, 1, 8), 'f'))"
    small = ["--small"] if options.small else []
    with subprocess.Popen([sys.executable, "-c", warm]):  # compiles the kernels once, for all
        common = ["--out", str(options.out), "--seconds", str(options.seconds), "--epochs", str(options.epochs)]
        common += ["--began", str(began), "--timed", str(options.timed), "--amp", options.amp, *small]
        env = {**os.environ, "OMP_NUM_THREADS": "4"}
        common += ["--kinds", *options.kinds, *(["--whole"] if options.whole else [])]
        command = [sys.executable, __file__, "train"]
        processes = [subprocess.Popen([*command, kind, *common], env=env) for kind in unfinished(options)]
        code = watch(processes)
    if code == 0 and unfinished(options):
        sys.exit(UNFINISHED)
    gather(options)
    sys.exit(code)


def unfinished(options: argparse.Namespace) -> list[str]:
    """Networks that have a checkpoint to go on from; all of them where none has begun."""
    begun = [kind for kind in options.kinds if (options.out / f"{kind}{CHECKPOINT}").exists()]
    done = [kind for kind in options.kinds if (options.out / "work" / f"{kind}.npz").exists()]
    return begun or ([] if done else options.kinds)


def watch(processes: list[subprocess.Popen], helpers: Sequence[subprocess.Popen] = ()) -> int:
    """Waits for all. They wait for each other and for helpers, so when one fails the others are stopped too."""
    while any(process.poll() is None for process in processes):
        if any(process.poll() for process in (*processes, *helpers)):
            for process in processes:
                process.kill()
        time.sleep(0.2)
    return max(abs(process.wait()) for process in processes)


def gather(options: argparse.Namespace) -> None:
    """Few files are easier to carry."""
    runs, arrays, work = {}, {}, options.out / "work"
    for kind in options.kinds:
        if (facts := options.out / f"{kind}.json").exists():
            runs[kind] = json.loads(facts.read_text())
            facts.unlink()
        if (found := work / f"{kind}.npz").exists():
            arrays |= dict(np.load(found))
    (options.out / "runs.json").write_text(json.dumps(runs) + "\n")
    np.savez_compressed(options.out / "clusters.npz", **arrays)
    shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "train"):
        command = commands.add_parser(name)
        if name == "train":
            command.add_argument("kind", choices=KINDS)
            command.add_argument("--began", type=float, default=time.time())
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--seconds", type=float, default=1e9)
        command.add_argument("--epochs", type=int, default=3600)
        command.add_argument("--amp", choices=("float16", "bfloat16", "none"), default="float16")
        command.add_argument("--timed", type=int, default=TIMED)
        command.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
        command.add_argument("--whole", action="store_true", help="all epochs, in as many calls as it takes")
        command.add_argument("--small", action="store_true", help="tiny networks, to try the script")
    options = parser.parse_args()
    train_one(options.kind, options) if options.command == "train" else run(options)


if __name__ == "__main__":
    main()
