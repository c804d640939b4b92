"""Trains a recipe into a folder. Killed at any moment and run again, it goes on and ends with the same curve."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import nn

from vitreous.checks import flag, number, whole
from vitreous.errors import SettingsError, StoreError
from vitreous.finding import Finding, columns
from vitreous.mirrors import kept_at
from vitreous.progress import tqdm
from vitreous.provenance import Run, json_bytes, replace_file, start_run
from vitreous.subjects import pick_device
from vitreous.training import ranks
from vitreous.training.batches import Batches, Share, open_batches
from vitreous.training.recipes import Recipe, find_recipe, learning_rate
from vitreous.training.trainee import Trainee, build

LOG, WEIGHTS, SETTINGS = "log.jsonl", "model.safetensors", "recipe.json"
NEXT = ".next"  # a checkpoint that not all processes may have written yet
DELETE = "delete the folder to train from the start"
SAVE_SECONDS = 60.0


@dataclass(frozen=True)
class Trained(Finding):
    """A finished run: its folder, test accuracy in percent, and one entry an epoch of the log."""

    folder: Path
    accuracy: float
    log: tuple[Mapping[str, Any], ...]

    def facts(self) -> dict[str, Any]:
        return {"folder": self.folder.name, "test accuracy (%)": self.accuracy, "epochs": len(self.log)}

    def columns_of_rows(self) -> dict[str, Any]:
        """The log, one row an epoch."""
        return columns(self.log)

    def model(self) -> nn.Module:
        """The trained network, in evaluation mode."""
        return trained_model(self.folder)


@kept_at("out")
def train(
    recipe: str | Recipe,
    out: str | Path,
    *,
    data: Any = None,
    structure: bool = True,
    epochs: int | None = None,
    device: str = "auto",
    workers: int | None = None,
    progress: bool = True,
    save_seconds: float = SAVE_SECONDS,
    **changes: Any,
) -> Trained:
    """Trains a recipe with the structure loss, or without it as the baseline.

    >>> vt.train("scenes", "runs/scenes")
    >>> vt.train("cifar10-32", "runs/plain", data="cifar10", structure=False, epochs=30)

    `data` is the folder of the data set, or (train, test) pictures. Other keywords change the recipe: `batch=`, `lr=`,
    `seed=`, `model=` ...; `structure_settings={"threshold": 0.5}` those of the loss. Under `torchrun` each process
    takes its share of every batch. The folder gets `log.jsonl`, checkpoints, `model.safetensors` and `run.json`.
    """
    changes |= {"epochs": epochs} if epochs is not None else {}
    if "structure_settings" in changes:
        changes["structure"] = changes.pop("structure_settings")
    chosen = find_recipe(recipe).with_(**changes)
    flag(structure=structure, progress=progress)
    number(save_seconds=save_seconds)
    if workers is not None:
        whole(0, workers=workers)
    out = Path(out)
    with _together(device) as (share, where):
        batches = open_batches(chosen, data, where, share, workers)
        facts = json.loads(json_bytes(asdict(chosen) | {"with_structure": structure, "inputs": batches.fingerprints}))
        facts["classes"] = batches.classes
        _refuse_another(out, facts, share)
        ranks.wait()
        trainee = Trainee(chosen, batches.classes, where, structure=structure)
        noted = _noted(out, facts, where) if share.rank == 0 else nullcontext()
        with noted as run, torch.random.fork_rng([where] if where.type == "cuda" else []):
            log = _epochs(trainee, batches, out, share, progress, save_seconds)
            if run is not None:
                _save_weights(trainee.model, out)
                run.note(accuracy=log[-1]["accuracy"])
    return Trained(out, log[-1]["accuracy"], tuple(log))


def _epochs(
    trainee: Trainee, batches: Batches, out: Path, share: Share, progress: bool, save_seconds: float
) -> list[dict[str, Any]]:
    recipe = trainee.recipe
    last = recipe.warmup + recipe.epochs
    log = _resume(trainee, out, share)
    start = len(log)
    saved = time.monotonic()
    bar = tqdm(total=last, initial=start, desc=recipe.name, unit="epoch", disable=not progress or share.rank > 0)
    with bar:
        for epoch, stream in zip(range(start, last), batches.train(start, last), strict=True):
            entry = run_epoch(trainee, stream, epoch, batches.steps)
            if (epoch + 1) % recipe.test_every == 0 or epoch + 1 == last:
                entry["accuracy"] = trainee.accuracy(batches.test())
                bar.set_postfix(loss=f"{entry['loss']:.3f}", accuracy=f"{entry['accuracy']:.2f}")
            log.append(entry)
            bar.update()
            (due,) = ranks.least(int(time.monotonic() - saved >= save_seconds), device=trainee.device)
            if due or epoch + 1 == last:  # all of them or none: clocks differ
                _save(trainee, log, out, share)
                saved = time.monotonic()
    return log


def run_epoch(trainee: Trainee, stream: Iterator[Any], epoch: int, steps: int) -> dict[str, Any]:
    """One epoch; its randomness depends on the seed and the epoch alone."""
    torch.manual_seed((trainee.recipe.seed << 20) + epoch)
    losses = torch.zeros(steps, device=trainee.device)
    for n, (x, y) in enumerate(stream):
        if epoch == 0 and n == 0:
            trainee.begin(x, y)
        losses[n] = trainee.step(x, y, learning_rate(trainee.recipe, epoch * steps + n, steps))
    finite = torch.isfinite(losses)
    total, lost = ranks.mean(torch.where(finite, losses, 0).sum(), (~finite).sum().float())
    # half precision overflows now and then; its scaler leaves such a step out, and the weights stay as they were
    if (skipped := float(lost)) and (skipped >= steps or not trainee.scaler.is_enabled()):
        remedy = "lower lr, or amp='bfloat16' or 'none'"
        raise SettingsError("the loss became NaN or infinite", given=f"epoch {epoch}", remedy=remedy)
    entry: dict[str, Any] = {"epoch": epoch, "loss": round(float(total) / (steps - skipped), 6)}
    if skipped:
        entry["skipped"] = skipped
    if trainee.structure is not None:
        entry |= {name: round(value, 6) for name, value in trainee.structure.log().items()}
    return entry


# -- files


def _refuse_another(out: Path, facts: dict[str, Any], share: Share) -> None:
    """A folder belongs to one recipe, in whatever words, one data set, one loss and one number of processes."""
    path = out / SETTINGS
    if not path.exists():
        return
    try:
        there = json.loads(path.read_bytes())
    except ValueError as error:
        raise StoreError(
            "the settings of a run cannot be read", given=str(path), remedy="choose another folder"
        ) from error
    if different := sorted(name for name in facts if name != "about" and there.get(name) != facts[name]):
        raise StoreError(
            "the folder holds another training run",
            given=f"{out}: " + ", ".join(f"{n}={there.get(n)!r}, now {facts[n]!r}" for n in different),
            remedy="choose another folder, or the same settings to go on",
        )
    kept = {file.name for file in out.glob("checkpoint*.pt")}
    if kept and not kept & {_checkpoint(out, Share(rank, share.ranks)).name for rank in range(share.ranks)}:
        raise StoreError(
            "the folder holds checkpoints of another number of processes",
            given=f"{sorted(kept)}, now {share.ranks}",
            remedy="go on with as many processes as before, or delete them to train from the start",
        )


def _noted(out: Path, facts: dict[str, Any], where: torch.device) -> Run:
    """The folder with what is trained in it, and its `run.json`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / SETTINGS, json_bytes(facts))
    except OSError as error:
        raise StoreError(
            f"the folder of a run cannot be written: {error.strerror}", given=str(out), remedy="out= another folder"
        ) from error
    settings = {name: value for name, value in facts.items() if name not in ("inputs", "seed")}
    return start_run(out, "train", settings, seeds={"seed": facts["seed"]}, inputs=facts["inputs"], device=str(where))


def _save(trainee: Trainee, log: list[dict[str, Any]], out: Path, share: Share) -> None:
    """Each process keeps its own: what has been collected for the next clustering differs.

    The old one stays until all have written the new one, so that there is always an epoch that all of them have.
    """
    file = BytesIO()
    torch.save({"epoch": len(log), "state": trainee.state()}, file)
    if share.rank == 0:
        replace_file(out / LOG, b"".join((json.dumps(entry) + "\n").encode() for entry in log))
    path = _checkpoint(out, share)
    replace_file(path.with_suffix(NEXT), file.getvalue())
    ranks.wait()
    path.with_suffix(NEXT).replace(path)


def _resume(trainee: Trainee, out: Path, share: Share) -> list[dict[str, Any]]:
    """From the last epoch that every process has kept."""
    path = _checkpoint(out, share)
    kept = {state["epoch"]: state for file in (path, path.with_suffix(NEXT)) if (state := _read(file)) is not None}
    common = set(kept)
    if share.ranks > 1:
        mine = torch.tensor([*kept, -1, -1][:2], device=trainee.device)
        every = ranks.gather(mine[None]).tolist()
        common = set.intersection(*map(set, every)) - {-1}
        if not common and any(epoch >= 0 for row in every for epoch in row):
            raise StoreError(
                "checkpoints of different epochs", given=str(out), remedy="delete them to train from the start"
            )
    if not common:
        return []
    epoch = max(common)
    entries = _read_log(out, epoch)
    trainee.load(kept[epoch]["state"])
    return entries


def _read(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        kept = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(kept, dict) or set(kept) != {"epoch", "state"}:
            raise ValueError("something else is in the file")
    except (RuntimeError, EOFError, ValueError, OSError, UnpicklingError) as error:
        raise StoreError(
            "a checkpoint that cannot be read", given=str(path), remedy="delete it to train from the start"
        ) from error
    return kept


def _read_log(out: Path, epochs: int) -> list[dict[str, Any]]:
    """Entries up to a checkpoint; after a kill between the two files there are more."""
    try:
        entries = [json.loads(line) for line in (out / LOG).read_text().splitlines()[:epochs]]
    except (OSError, ValueError) as error:
        raise StoreError("a log that cannot be read", given=str(out / LOG), remedy=DELETE) from error
    if len(entries) < epochs:
        raise StoreError(
            "a log that is shorter than the run", given=f"{out / LOG}: {len(entries)} of {epochs}", remedy=DELETE
        )
    return entries


def _checkpoint(out: Path, share: Share) -> Path:
    return out / (f"checkpoint-{share.rank}-of-{share.ranks}.pt" if share.ranks > 1 else "checkpoint.pt")


def _save_weights(model: nn.Module, out: Path) -> None:
    from safetensors.torch import save

    replace_file(out / WEIGHTS, save({name: t.contiguous().cpu() for name, t in model.state_dict().items()}))


def trained_model(folder: str | Path) -> nn.Module:
    """The network of a finished run."""
    from safetensors.torch import load_file

    folder = Path(folder)
    for name in (SETTINGS, WEIGHTS):
        if not (folder / name).exists():
            raise StoreError("not a finished training run", given=str(folder), remedy="run the same training again")
    facts = json.loads((folder / SETTINGS).read_bytes())
    known = {name: facts[name] for name in ("name", "about", "data", "size", "model", "settings", "seed")}
    model = build(Recipe(**known), facts["classes"])
    model.load_state_dict(load_file(folder / WEIGHTS))
    return model.eval()


# -- several processes


@contextmanager
def _together(device: str) -> Iterator[tuple[Share, torch.device]]:
    """Under `torchrun`, the processes find each other; otherwise there is one."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes == 1:
        yield Share(), pick_device(device)
        return
    import torch.distributed as group

    where = pick_device(device)
    if where.type == "cuda":
        where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(where)
    begun = group.is_initialized()
    if not begun:
        group.init_process_group("nccl" if where.type == "cuda" else "gloo")
    try:
        yield Share(group.get_rank(), processes), where
    finally:
        if not begun:
            group.destroy_process_group()
