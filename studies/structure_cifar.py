"""The CIFAR-10 half of the structure paper's Table 1, and its Tables 13 to 15, on 32 pixels (recipe cifar10-32).

    python studies/structure_cifar.py run --data DATA --out DIR [--seconds 560] [--epochs 300] [--whole]
                                      [--kinds vit ours ...]

All networks see the same pictures in the same order with the same augmentation: they are prepared once, and each
network trains in a process of its own. If the epochs asked for do not fit into `--seconds`, all train for the same
smaller number, which the results name; with `--whole` they stop where the seconds end, and the same command goes on
until all epochs are done (status 3 says that it must be given again). This CIFAR-10 was stored as JPEG (see the data's
README): its accuracies do not compare with published ones.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from structure_spiral import (
    CHECKPOINT,
    UNFINISHED,
    Kept,
    meet,
    read_checkpoint,
    time_steps,
    watch,
    write_checkpoint,
)
from vitreous.provenance import replace_file

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
#: What each network changes of the recipe's structure loss; None is the plain network.
KINDS: dict[str, dict[str, Any] | None] = {
    "vit": None,
    "ours": {},
    "ours_one_batch": {"every": 1},  # Table 14: clustering on as many samples as a batch has
    "threshold_half": {"threshold": 0.5},  # Table 15
    "rank": {"transform": "rank"},  # Table 13
    "raw": {"transform": "raw"},
    "normalised_raw": {"transform": "normalised_raw"},
    "sum": {"reduce": "sum"},  # the other reading of section 3.5
}
KEPT = ("vit", "ours")  # whose weights come back
LAST_SECONDS = 12
TIMED = 30


def pictures(data: Path, split: str, count: int | None = None):
    """An image set from the file that the data folder holds."""
    from PIL import Image

    import vitreous as vt

    stored = np.load(data / "cifar10" / "cifar10.npz")
    head, raw, offsets = stored["head"].tobytes(), stored[f"{split}_data"].tobytes(), stored[f"{split}_offsets"]
    parts = [raw[a:b] for a, b in pairwise(offsets[: None if count is None else count + 1])]
    images = np.stack([np.asarray(Image.open(io.BytesIO(head + part)).convert("RGB")) for part in parts])
    labels = stored[f"{split}_labels"][: len(images)].astype(np.int64)
    return vt.ImageSet.from_arrays(images, labels=labels, classes=CLASSES, name=f"cifar10/{split}")


def recipe_of(kind: str, small: bool):
    from vitreous.training.recipes import RECIPES

    recipe = RECIPES["cifar10-32"].with_(structure=KINDS[kind] or {})
    if small:
        tiny = {**recipe.settings, "depth": 3, "embed_dim": 24, "num_heads": 2}
        recipe = recipe.with_(settings=tiny, batch=128, warmup=1)
    return recipe


# -- pictures prepared once, for all


def prepare(job: tuple[Path, Path, int, bool, list[int]]) -> None:
    """Augments a part of an epoch into shared memory."""
    from timm.data import create_transform

    from vitreous.training.batches import Augmented, keep_a_bit

    data, shared, epoch, small, places = job
    train = _loaded(data, small)
    recipe = recipe_of("vit", small)
    augment = keep_a_bit(create_transform((3, 32, 32), is_training=True, use_prefetcher=True, **recipe.augmentation))
    made = Augmented(train, augment, recipe.seed)
    out = np.load(shared / f"{epoch}.npy", mmap_mode="r+")
    order = epoch_order(len(train), recipe.seed, epoch)
    for place in places:
        out[place] = made[epoch, int(order[place])][0]


_STORED: dict[str, Any] = {}


def _loaded(data: Path, small: bool) -> Any:
    if "train" not in _STORED:
        _STORED["train"] = pictures(data, "train", 1000 if small else None)
    return _STORED["train"]


def epoch_order(count: int, seed: int, epoch: int) -> np.ndarray:
    from vitreous.training.batches import order

    return order(count, seed, epoch)


def prepare_all(data: Path, shared: Path, small: bool, workers: int, first: int) -> None:
    """Epoch after epoch from the first that a network still needs, at most 40 of 150 MB each ahead of a reader."""
    count, epochs_file = len(_loaded(data, small)), shared / "epochs"
    with get_context("fork").Pool(workers) as pool:
        epoch = first
        while not (epochs_file.exists() and epoch >= int(epochs_file.read_text())):
            while epoch - first - len(list(shared.glob("*.done"))) > 40:
                time.sleep(0.1)
            np.lib.format.open_memmap(shared / f"{epoch}.npy", "w+", np.uint8, (count, 3, 32, 32)).flush()
            pieces = np.array_split(np.arange(count), workers * 2)
            pool.map(prepare, [(data, shared, epoch, small, piece.tolist()) for piece in pieces])
            (shared / f"{epoch}.ready").touch()
            epoch += 1


class Prepared:
    """Batches out of shared memory."""

    def __init__(self, data: Path, shared: Path, recipe: Any, device: Any, small: bool) -> None:
        import torch

        self.shared, self.recipe, self.device, self.classes = shared, recipe, device, 10
        train, test = pictures(data, "train", 1000 if small else None), pictures(data, "test", 200 if small else None)
        self.count, self.steps = len(train), len(train) // recipe.batch
        self.labels = torch.tensor(train.labels).to(device)
        x = np.stack([np.asarray(p.image) for p in test]).transpose(0, 3, 1, 2)
        self._test = torch.from_numpy(np.ascontiguousarray(x)).to(device), torch.tensor(test.labels).to(device)

    def epoch(self, epoch: int) -> Iterator[Any]:
        import torch

        from vitreous.training.batches import normalised

        while not (self.shared / f"{epoch}.ready").exists():
            time.sleep(0.01)
        x = torch.from_numpy(np.load(self.shared / f"{epoch}.npy")).to(self.device)
        y = self.labels[torch.from_numpy(epoch_order(self.count, self.recipe.seed, epoch)).to(self.device)]
        batch = self.recipe.batch
        for n in range(self.steps):
            yield normalised(x[n * batch : (n + 1) * batch]), y[n * batch : (n + 1) * batch]

    def test(self) -> Iterator[Any]:
        """Whole pictures: a centre crop of 0.95 would be resampled at this size, and the paper's 256 are not here."""
        from vitreous.training.batches import normalised

        for x, y in zip(*(part.split(2500) for part in self._test), strict=True):
            yield normalised(x), y


# -- one network


def train_one(kind: str, options: argparse.Namespace) -> None:
    import torch

    from vitreous.training.run import run_epoch
    from vitreous.training.trainee import Trainee

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    recipe, work = recipe_of(kind, options.small), options.shared
    batches = Prepared(options.data, work, recipe, device, options.small)
    trainee = Trainee(recipe, 10, device, structure=KINDS[kind] is not None)
    path = options.out / f"{kind}{CHECKPOINT}"
    kept = read_checkpoint(path, trainee) if path.exists() else begin(kind, options, trainee, batches)
    times, epochs, done, log = kept
    last = recipe.warmup + epochs
    (work / "epochs").write_text(str(last))
    trainee.recipe = recipe.with_(epochs=epochs)
    for epoch in range(done):  # a network that is behind need not wait for this one
        (work / f"{epoch}.{kind}.read").touch()
    for epoch in range(done, last):
        entry = run_epoch(trainee, batches.epoch(epoch), epoch, batches.steps)
        entry["accuracy"] = trainee.accuracy(batches.test())
        log.append(entry)
        replace_file(options.out / f"{kind}.json", json.dumps({"epochs": epochs, **times, "log": log}).encode())
        (work / f"{epoch}.{kind}.read").touch()
        if all((work / f"{epoch}.{k}.read").exists() for k in options.kinds):
            (work / f"{epoch}.done").touch()
            (work / f"{epoch}.npy").unlink(missing_ok=True)
        if epoch % 10 == 0:
            print(kind, entry, round(time.time() - options.began), flush=True)
        if options.whole and epoch + 1 < last and time.time() - options.began > options.seconds - LAST_SECONDS:
            write_checkpoint(path, trainee, times, epochs, epoch + 1, log)
            return
    path.unlink(missing_ok=True)
    if kind in KEPT:
        flat = np.concatenate([t.detach().half().cpu().numpy().ravel() for t in trainee.model.state_dict().values()])
        for n, part in enumerate(np.array_split(flat, 2)):
            np.save(options.out / f"{kind}.weights.{n}.npy", part)
    print(kind, "done", log[-1], round(time.time() - options.began), flush=True)


def begin(kind: str, options: argparse.Namespace, trainee: Any, batches: Prepared) -> Kept:
    """Times steps alone and together; gives the times, the epochs to train, how many are done, and the log so far."""
    x, y = next(batches.epoch(0))
    trainee.begin(x, y)
    start, work, kinds = trainee.state(), options.shared, options.kinds
    time_steps(trainee, x, y, 3)
    meet(work, kind, kinds, "ready")
    alone: list[float] = []
    for turn in range(2):
        for k in [k for k in kinds if k in KEPT]:
            if k == kind:
                alone.append(time_steps(trainee, x, y, 4 * options.timed))
            meet(work, kind, kinds, f"turn{turn}{k}")
    together = meet(work, kind, kinds, "together", time_steps(trainee, x, y, options.timed))
    trainee.load(start)
    epochs = options.epochs
    if not options.whole:
        left = options.began + options.seconds - LAST_SECONDS - time.time()
        epoch_ms = max(together.values()) * batches.steps * 1.03 + 250
        epochs = max(1, min(epochs, int(1000 * left / epoch_ms) - trainee.recipe.warmup))
        epochs = min(meet(work, kind, kinds, "epochs", epochs).values())  # clocks differ
    return {"alone ms a step": alone, "together ms a step": together}, epochs, 0, []


def run(options: argparse.Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    shared = Path(tempfile.mkdtemp(prefix="cifar-"))
    began = time.time()
    common = ["--data", str(options.data), "--out", str(options.out), "--seconds", str(options.seconds)]
    common += ["--epochs", str(options.epochs), "--timed", str(options.timed), "--began", str(began)]
    common += ["--shared", str(shared), "--workers", str(options.workers), *(["--small"] if options.small else [])]
    common += ["--whole"] if options.whole else []
    begun = unfinished(options)
    running = list(begun) or options.kinds
    first = min(begun.values(), default=0)
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    try:
        producer = subprocess.Popen([*command, "prepare", *common, "--first", str(first)], env=env)
        trainers = []
        for kind in running:
            arguments = ["train", "--kind", kind, *common, "--kinds", *running]
            trainers.append(subprocess.Popen([*command, *arguments], env=env))
            if kind == "ours" and not begun:  # the others differ outside of the compiled step, and find it compiled
                while not ((shared / "ours.ready").exists() or trainers[-1].poll() is not None or producer.poll()):
                    time.sleep(0.1)
        code = watch(trainers, [producer])
    finally:
        producer.kill()
        shutil.rmtree(shared, ignore_errors=True)
    if code == 0 and unfinished(options):
        sys.exit(UNFINISHED)
    merged = {}
    for kind in options.kinds:
        if (path := options.out / f"{kind}.json").exists():
            merged[kind] = json.loads(path.read_text())
            path.unlink()
    (options.out / "runs.json").write_text(json.dumps(merged) + "\n")
    sys.exit(code)


def unfinished(options: argparse.Namespace) -> dict[str, int]:
    """Networks that have a checkpoint to go on from, and how many epochs each has done."""
    import torch

    paths = {kind: options.out / f"{kind}{CHECKPOINT}" for kind in options.kinds}
    return {
        kind: torch.load(path, map_location="cpu", weights_only=True)["done"]
        for kind, path in paths.items()
        if path.exists()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "train", "prepare"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--timed", type=int, default=TIMED)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--whole", action="store_true", help="all epochs, in as many calls as it takes")
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--small", action="store_true", help="tiny networks and few pictures, to try the script")
    parser.add_argument("--kind", choices=tuple(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--began", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--shared", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command == "train":
        train_one(options.kind, options)
    elif options.command == "prepare":
        prepare_all(options.data, options.shared, options.small, options.workers, options.first)
    else:
        run(options)


if __name__ == "__main__":
    main()
