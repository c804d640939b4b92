"""The one trainer of all dictionaries: AdamW, warm-up and cosine, atoms of length 1, a seed."""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitreous.baselines.dictionaries.dictionary import Dictionary, DictionaryConfig
from vitreous.baselines.dictionaries.kinds import Kind, kind_of
from vitreous.baselines.dictionaries.rows import Rows
from vitreous.baselines.dictionaries.trainee import Start, Trainee
from vitreous.checks import number, whole
from vitreous.errors import SettingsError
from vitreous.progress import tqdm

WARM = 0.05  # share of the steps in which the learning rate rises
LONGEST_GRADIENT = 1.0


def train_dictionary(
    activations: Any,
    kind: str = "topk",
    *,
    expansion: float = 8,
    k: int | None = None,
    penalty: float | None = None,
    learning_rate: float = 5e-4,
    dead_weight: float = 1e-4,
    epochs: int = 50,
    batch_size: int = 1024,
    targets: Any = None,
    seed: int = 42,
    device: str | torch.device | None = None,
    progress: bool = True,
    **options: Any,
) -> Dictionary:
    """Trains a dictionary on activations: a tensor or array (row, channel) or (sample, token, channel), or a site.

    `expansion` times as many units as output channels. Sparsity is `k`, codes a row, by default the paper's 20 (a tenth
    of the units for "archetypal"), or `penalty` for "vanilla", "jumprelu" and "transcoder". A transcoder predicts
    `targets`, the layer's output, row by row. `options` are those of the kind (`KINDS[kind].options`). Runs where the
    activations are unless `device` says otherwise; on a CPU the same arguments give the same weights.

    >>> dictionary = vt.train_dictionary(store["blocks.-1.mlp.out"], "batch_topk", k=20)
    >>> dictionary.encode(x), dictionary.reconstruct(x)
    """
    row = kind_of(kind)
    expansion, k, penalty, learning_rate, dead_weight, epochs, batch_size, seed = map(
        _plain, (expansion, k, penalty, learning_rate, dead_weight, epochs, batch_size, seed)
    )
    rows, aims = Rows(activations), None if targets is None else Rows(targets, "targets")
    if (aims is None) == (kind == "transcoder"):
        raise SettingsError(
            "a transcoder, and nothing else, has targets", given={"kind": kind, "targets": aims is not None}
        )
    if aims is not None and len(aims) != len(rows):
        raise SettingsError("activations and targets have the same rows", given=(len(rows), len(aims)))
    settings: dict[str, Any] = {
        "expansion": expansion,
        "penalty": _penalty(row, penalty, k),
        "learning_rate": learning_rate,
    }
    settings |= {"dead_weight": dead_weight, "epochs": epochs, "batch_size": batch_size, "seed": seed}
    settings |= {"options": _options(row, options)}
    _check(settings, len(rows))
    where = rows.device if device is None else _device(device)
    outputs = (aims or rows).channels
    units = round(expansion * outputs)
    k = None if row.penalties else _k(row, k, units)
    trainee = _begin(row, rows, aims or rows, units, k or 0, settings).to(where)
    _learn(trainee, rows, aims or rows, settings, where, progress)
    config = DictionaryConfig(kind, rows.channels, outputs, units, k, trainee.centred, settings)
    return Dictionary(config, trainee.finished())


def _begin(kind: Kind, rows: Rows, aims: Rows, units: int, k: int, settings: dict[str, Any]) -> Trainee:
    mean_in, scale_in = rows.moments()
    mean_out, scale_out = (mean_in, scale_in) if aims is rows else aims.moments()
    start = Start(
        rows.channels, aims.channels, units, k, settings["batch_size"],
        mean_in / scale_in, mean_out / scale_out, scale_in, scale_out,
        rows, torch.Generator().manual_seed(settings["seed"]), settings["options"],
    )  # fmt: skip
    return kind.trainee(start)


def _learn(
    trainee: Trainee, rows: Rows, aims: Rows, settings: dict[str, Any], device: torch.device, progress: bool
) -> None:
    steps = settings["epochs"] * (len(rows) // settings["batch_size"])
    learned = [parameter for parameter in trainee.parameters() if parameter.requires_grad]
    # no decay: atoms have length 1 anyway, and biases and thresholds have no reason to shrink
    optimizer = torch.optim.AdamW(learned, lr=settings["learning_rate"], weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    into, out = trainee.start.scale_in, trainee.start.scale_out
    total = torch.zeros((), device=device)
    for index in tqdm(_batches(len(rows), settings), "dictionary", steps, disable=not progress, delay=1):
        x = rows.take(index, device) / into
        y = x if aims is rows else aims.take(index, device) / out
        loss = trainee.loss(x, y, settings["penalty"] or 0.0, settings["dead_weight"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, LONGEST_GRADIENT)
        optimizer.step()
        scheduler.step()
        trainee.constrain()
        total += loss.detach()
    if not bool(torch.isfinite(total)):
        raise SettingsError(
            "training ended in NaN or infinity", given=settings, remedy="lower the learning rate or the penalty"
        )


def _batches(count: int, settings: dict[str, Any]) -> Iterator[Tensor]:
    """Row numbers, shuffled anew each epoch; rows that fill no batch wait for the next epoch."""
    generator = torch.Generator().manual_seed(settings["seed"])
    size = settings["batch_size"]
    for _ in range(settings["epochs"]):
        order = torch.randperm(count, generator=generator)
        yield from order[: count // size * size].split(size)


def _rate(step: int, steps: int) -> float:
    warm = max(round(WARM * steps), 1)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + cos(pi * (step - warm) / max(steps - warm, 1)))


# -- what was given


def _penalty(kind: Kind, penalty: float | None, k: int | None) -> float | None:
    if kind.penalties and k is not None:
        raise SettingsError(f"sparsity of a {kind.name} dictionary is asked for by penalty, not by k", given={"k": k})
    if not kind.penalties and penalty is not None:
        raise SettingsError(f"sparsity of a {kind.name} dictionary is asked for by k, not by penalty", given=penalty)
    if penalty is not None:
        number(penalty=penalty)
    return kind.penalties[1] if kind.penalties and penalty is None else penalty


def _k(kind: Kind, k: int | None, units: int) -> int:
    k = kind.default_k(units) if k is None else k
    whole(1, k=k)
    if not 1 <= k <= units:
        raise SettingsError(
            f"k is between 1 and the number of units, {units}", given=k, remedy="give another k or a larger expansion"
        )
    return k


def _options(kind: Kind, options: dict[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in kind.options:
            raise SettingsError(
                f"a {kind.name} dictionary has no option {name!r}", given=name, accepted=tuple(kind.options)
            )
    found = {**kind.options, **{name: _plain(value) for name, value in options.items()}}
    for name, usual in kind.options.items():
        if isinstance(usual, int):
            whole(0, **{name: found[name]})
        elif isinstance(usual, float):
            number(**{name: found[name]})
    return found


def _device(device: str | torch.device) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError):
        raise SettingsError("no such device", given=device, accepted=("cpu", "cuda", "cuda:1", "...")) from None


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python: it is kept in a file, and handed to a generator."""
    return value.item() if isinstance(value, np.generic) else value


def _check(settings: dict[str, Any], rows: int) -> None:
    number(expansion=settings["expansion"], dead_weight=settings["dead_weight"])
    number(above=True, learning_rate=settings["learning_rate"])
    if settings["expansion"] < 1:
        raise SettingsError("expansion is 1 or more", given=settings["expansion"])
    whole(1, epochs=settings["epochs"], batch_size=settings["batch_size"])
    whole(0, seed=settings["seed"])
    if rows < settings["batch_size"]:
        raise SettingsError(
            f"{rows} rows do not fill one batch of {settings['batch_size']}",
            given=rows,
            remedy="record more samples or give a smaller batch_size",
        )
