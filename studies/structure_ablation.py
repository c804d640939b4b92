"""Tables 13 to 15 of the structure paper in small: a little ViT on some of CIFAR-10, several seeds, on a CPU.

    PYTHONPATH=src python studies/structure_ablation.py DATA [--seeds 0 1 2] [--kinds vit sum ...] [--out FILE]
    PYTHONPATH=src python studies/structure_ablation.py DATA --no-maps

Every kind and seed is one training run; a run that is in the results already, maps and all, is not run again, so it
can be killed and taken up. The maps take several times as long as the training, and --no-maps leaves them out. Runs of
one seed start from the same weights and see the same pictures in the same order. What differs from the paper in size
and length is said in the results; `structure_ablation_tables.py` writes them up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm.auto import tqdm

import vitreous as vt
from structure_ablation_tables import write_tables
from structure_cifar import CLASSES, pictures
from structure_cifar_maps import SEEN, Shown, pets, voc_animals
from vitreous.evidence.pointing import energy_point_game, point_game
from vitreous.provenance import replace_file
from vitreous.training.batches import normalised, order
from vitreous.training.recipes import RECIPES, Recipe
from vitreous.training.run import run_epoch
from vitreous.training.trainee import Trainee

OUT = Path(__file__).parent / "results" / "structure_ablation.json"
SUM = {"reduce": "sum"}  # as section 3.5 is printed; the mean is too weak at this size to change anything
#: What each network changes of the structure loss; None is the plain network.
KINDS: dict[str, dict[str, Any] | None] = {
    "vit": None,
    "mean": {},
    "sum": SUM,
    "rank": {**SUM, "transform": "rank"},  # Table 13
    "raw": {**SUM, "transform": "raw"},
    "normalised_raw": {**SUM, "transform": "normalised_raw"},
    "one_batch": {**SUM, "every": 1},  # Table 14
    "ten_batches": {**SUM, "every": 10},
    "threshold_half": {**SUM, "threshold": 0.5},  # Table 15
    # Table 13 with thresholds as strict as 1 bin of 100: a correlation of 0.999 of normal variables
    "rank_fit": {**SUM, "transform": "rank", "threshold": 25.6},  # 2,560 samples in 100 bins
    "raw_fit": {**SUM, "transform": "raw", "threshold": 0.01},  # 0.035 deviations; units deviate by 0.27 on average
    "normalised_raw_fit": {**SUM, "transform": "normalised_raw", "threshold": 0.035},
}
NETWORK = {"img_size": 32, "patch_size": 8, "depth": 4, "embed_dim": 64, "num_heads": 2, "mlp_ratio": 3}
TRAIN, TEST, BATCH, EPOCHS, WARMUP = 5_000, 1_000, 128, 9, 1
SHIFT = 2  # pixels that a picture may be moved by
LOOKED = 1_000  # test pictures over which the units of a trained network are clustered


def recipe_of(kind: str, seed: int, epochs: int = EPOCHS) -> Recipe:
    """The recipe cifar10-32 with a network, a batch and a rate for two cores."""
    base = RECIPES["cifar10-32"]
    kept = {name: base.settings[name] for name in ("drop_rate", "drop_path_rate")}
    return base.with_(
        settings={**kept, **NETWORK},
        batch=BATCH,
        lr_batch=BATCH,
        lr=0.001,
        epochs=epochs,
        warmup=WARMUP,
        seed=seed,
        structure=KINDS[kind] or {},
    )


class Shifted:
    """Batches of pictures that are mirrored and moved a little: timm's augmentation is too dear for two cores."""

    def __init__(self, data: Path, train: int, test: int) -> None:
        self.sets = {"train": _tensors(data, "train", train), "test": _tensors(data, "test", test)}
        self.steps = train // BATCH

    def epoch(self, seed: int, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        x, y = self.sets["train"]
        rng = np.random.default_rng((seed, epoch, 1))
        padded = torch.nn.functional.pad(x.float(), (SHIFT,) * 4, mode="reflect").to(torch.uint8)
        for rows in order(len(x), seed, epoch)[: self.steps * BATCH].reshape(self.steps, -1):
            down, right = rng.integers(0, 2 * SHIFT + 1, (2, len(rows)))
            flip = rng.random(len(rows)) < 0.5
            some = torch.stack(
                [padded[r, :, d : d + 32, c : c + 32] for r, d, c in zip(rows, down, right, strict=True)]
            )
            some[torch.from_numpy(flip)] = some[torch.from_numpy(flip)].flip(-1)
            yield normalised(some), y[torch.from_numpy(rows)]

    def test(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        x, y = self.sets["test"]
        for part, labels in zip(x.split(500), y.split(500), strict=True):
            yield normalised(part), labels


def _tensors(data: Path, split: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    images = pictures(data, split, count)
    x = np.stack([np.asarray(picture.image) for picture in images]).transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(x)), torch.tensor(images.labels)


def train_one(
    kind: str, seed: int, batches: Shifted, epochs: int, animals: Mapping[str, Shown] | None = None
) -> dict[str, Any]:
    """One run: what its log says by epoch, how the units of the trained network cluster.

    With animals, also where its maps point.
    """
    recipe = recipe_of(kind, seed, epochs)
    trainee = Trainee(recipe, len(CLASSES), torch.device("cpu"), structure=KINDS[kind] is not None)
    untrained = None if animals is None else pointing(trainee.model, animals)
    log, began = [], time.process_time()
    last = WARMUP + epochs
    for epoch in tqdm(range(last), f"{kind}, seed {seed}", leave=False):
        log.append(run_epoch(trainee, batches.epoch(seed, epoch), epoch, batches.steps))
        log[-1]["accuracy"] = trainee.accuracy(batches.test())
    seconds = round(time.process_time() - began, 1)
    run = {"log": log, "cpu seconds": seconds, "inside": inside(trainee.model, batches)}
    if animals is not None:
        run["pointing"] = {"before training": untrained, "after training": pointing(trainee.model, animals)}
    return run


def pointing(model: torch.nn.Module, animals: Mapping[str, Shown]) -> dict[str, Any]:
    """Point Game and Energy PG with true masks: by pictures, class and method."""
    training = model.training
    subject, found = vt.wrap(model.eval(), name="small", preprocess=SEEN), {}
    for name, some in animals.items():
        for which, targets in (("predicted", None), ("true", some.labels)):
            for method, maps in vt.gradcams(subject, some.images, targets, batch_size=100).items():
                scores = [float(f(maps.at(), some.masks).mean()) for f in (point_game, energy_point_game)]
                found.setdefault(name, {}).setdefault(which, {})[method] = scores
    model.train(training)
    return found


@torch.no_grad()
def inside(model: torch.nn.Module, batches: Shifted) -> dict[str, Any]:
    """Groups of alike units over all layers and tokens 7 to 9, and how far units move from block to block."""
    seen: dict[int, torch.Tensor] = {}
    hooks = [
        block.register_forward_hook(lambda _m, _i, out, n=n: seen.__setitem__(n, out[:, 7:10]))
        for n, block in enumerate(model.blocks)
    ]
    model.eval()
    model(normalised(batches.sets["test"][0][:LOOKED]))
    for hook in hooks:
        hook.remove()
    features = torch.stack([seen[n] for n in range(len(seen))], 1).numpy()
    finding = vt.structure(features, progress=False)
    moved = np.square(np.diff(features, axis=1)).mean((0, 2, 3))
    return {
        "mean group": float(finding.mean_size),
        "clusters": len(finding.sizes),
        "units in clusters": int((finding.labels >= 0).sum()),
        "inefficient": int(finding.inefficient.sum()),
        "largest": int(finding.largest),
        "moved, relative": float((moved / features[:, 1:].var(0).mean((1, 2))).mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--train", type=int, default=TRAIN, help="training pictures")
    parser.add_argument("--test", type=int, default=TEST, help="test pictures")
    parser.add_argument("--no-maps", action="store_true", help="do not ask where the maps of the networks point")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    settings = {"network": NETWORK, "train": args.train, "test": args.test, "batch": BATCH, "epochs": args.epochs}
    settings |= {"warmup": WARMUP, "torch": torch.__version__, "looked at": min(LOOKED, args.test)}
    result = json.loads(args.out.read_text()) if args.out.exists() else {"settings": settings, "runs": {}}
    if result["settings"] != settings:
        raise SystemExit(f"{args.out} holds runs with other settings: {result['settings']}")
    batches = Shifted(args.data, args.train, args.test)
    animals = None if args.no_maps else {"pets": pets(args.data), "voc_animals": voc_animals(args.data)}
    for seed in args.seeds:
        for kind in args.kinds:
            name = f"{kind} {seed}"
            wanted = "log" if args.no_maps else "pointing"
            if wanted not in result["runs"].get(name, {}):
                result["runs"][name] = train_one(kind, seed, batches, args.epochs, animals)
                replace_file(args.out, (json.dumps(result, indent=1) + "\n").encode())
                print(name, result["runs"][name]["log"][-1], result["runs"][name]["cpu seconds"], flush=True)
    args.out.with_suffix(".md").write_text(write_tables(result))


if __name__ == "__main__":
    main()
