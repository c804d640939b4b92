"""The rows of the table: ways to take a layer apart, each with codes, what takes the layer's place, and atoms."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.baselines.dictionaries import KINDS
from vitreous.baselines.dictionaries.dictionary import CONFIG, Dictionary
from vitreous.baselines.dictionaries.learning import train_dictionary
from vitreous.baselines.dictionaries.selection import sweep
from vitreous.dictionary_comparison.activations import Training
from vitreous.dictionary_comparison.tapped import Codes, swapped
from vitreous.errors import SettingsError
from vitreous.evidence.monosemanticity import random_partition
from vitreous.lenses.disentangle import disentangle
from vitreous.lenses.disentangle_share import alone
from vitreous.provenance import json_bytes, replace_file
from vitreous.subunits.layers import LinearLayer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from vitreous.dictionary_comparison.settings import Settings
    from vitreous.lenses.disentangle_finding import Disentanglement
    from vitreous.models.subject import Subject

TITLES = {
    "backbone": "backbone",
    "vanilla": "Vanilla SAE",
    "topk": "TopK SAE",
    "batch_topk": "BatchTopK SAE",
    "jumprelu": "JumpReLU SAE",
    "matryoshka": "Matryoshka SAE",
    "archetypal": "Archetypal SAE",
    "matching_pursuit": "Matching Pursuit",
    "transcoder": "Transcoder",
    "elude": "ELUDe (ours)",
    "random_partition": "random partition",
    "any_samples": "any samples",
}
METHODS = tuple(TITLES)
CONTROLS = ("random_partition", "any_samples")
CANDIDATES = 4000  # of an archetypal dictionary, at most; as many as it has units
ANY = 256  # units that answer to anything


@dataclass(frozen=True, eq=False)
class Method:
    """One way to take the layer apart, ready to be measured.

    `enter()` puts it into the model and gives its codes pass by pass. `writes` (unit, channel) is what a unit adds to
    the layer's output, `reads` (unit, input) what it is computed from where that is linear; None where there is none.
    `seconds` is what it took to make it. `said` are settings that were chosen along the way.
    """

    name: str
    enter: Callable[[], AbstractContextManager[Codes]]
    seconds: float = 0.0
    writes: np.ndarray | None = None
    reads: np.ndarray | None = None
    said: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Bench:
    """What all methods of one seed are made with."""

    subject: Subject
    layer: LinearLayer
    settings: Settings
    training: Training
    seed: int
    folder: Path
    progress: bool

    def make(self, name: str) -> Method:
        if name in KINDS:
            return _dictionary(self, name)
        return {
            "backbone": _backbone,
            "elude": _elude,
            "random_partition": _partition,
            "any_samples": _any,
        }[name](self)


def _backbone(bench: Bench) -> Method:
    eye = np.eye(bench.layer.count, dtype=np.float32)
    reads = bench.layer.matrix()[0]
    return Method("backbone", lambda: swapped(bench.layer, lambda _, y: (y, None)), writes=eye, reads=reads)


# -- dictionaries


def _dictionary(bench: Bench, kind: str) -> Method:
    folder = bench.folder / f"{kind}-{bench.seed}"
    if not (folder / CONFIG).exists():
        began = time.perf_counter()
        dictionary, said = _train(bench, kind)
        said |= {"seconds": time.perf_counter() - began}
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / "trained.json", json_bytes(said))
        dictionary.save(folder)  # its configuration comes last: a folder that has it is whole
    said = json.loads((folder / "trained.json").read_bytes())
    dictionary = Dictionary.load(folder, bench.subject.device)

    def swap(q: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = dictionary.encode(q if kind == "transcoder" else y)
        return z, dictionary.decode(z)

    seconds = said.pop("seconds")
    atoms = dictionary.atoms.cpu().numpy()
    return Method(kind, lambda: swapped(bench.layer, swap), seconds, atoms, said=said)


def _train(bench: Bench, kind: str) -> tuple[Dictionary, dict[str, Any]]:
    """One dictionary; where settings are swept, with what the first seed has chosen by eq. 9, as in the paper."""
    asked, rows = bench.settings, bench.training.rows
    size = min(asked.batch_size, rows)
    units = round(asked.expansion * bench.layer.count)
    given: dict[str, Any] = {"expansion": asked.expansion, "batch_size": size, "seed": bench.seed}
    given |= {"device": bench.subject.device, "targets": bench.training.y if kind == "transcoder" else None}
    given |= {"k": asked.k} if asked.k is not None and not KINDS[kind].penalties and kind != "archetypal" else {}
    given |= {"candidates": min(CANDIDATES, units)} if kind == "archetypal" else {}
    data = bench.training.q if kind == "transcoder" else bench.training.y
    epochs = max(1, round(asked.steps / (rows // size)))
    said = {"epochs": epochs, "batch_size": size}
    if asked.sweep == "none" or (asked.sweep == "penalty" and not KINDS[kind].penalties):
        given |= {"learning_rate": asked.learning_rate}
    else:
        short = epochs if asked.sweep_steps is None else max(1, round(asked.sweep_steps / (rows // size)))
        choice, winner = _choose(bench, kind, data, given | {"epochs": short})
        said |= choice
        if winner is not None and short == epochs:
            return winner, said
        given |= choice["chosen"]
    return train_dictionary(data, kind, epochs=epochs, progress=bench.progress, **given), said


def _choose(bench: Bench, kind: str, data: Any, given: dict[str, Any]) -> tuple[dict[str, Any], Dictionary | None]:
    """What is said of the best candidate, and that one itself; not if it was chosen before, by this or another seed."""
    kept, wide = bench.folder / f"{kind}-chosen.json", bench.settings.sweep == "paper"
    if kept.exists():
        return json.loads(kept.read_bytes())["best"], None
    narrow = {} if wide else {"learning_rates": (bench.settings.learning_rate,), "dead_weights": (1e-4,)}
    found = sweep(data, kind, progress=bench.progress, **narrow, **given)
    best = {"chosen": found.tried[found.best], "of": len(found.tried), "chosen with seed": bench.seed}
    rows = zip(found.tried, found.qualities, found.scores.tolist(), strict=True)
    tried = [one | asdict(quality) | {"score": score} for one, quality, score in rows]
    bench.folder.mkdir(parents=True, exist_ok=True)
    replace_file(kept, json_bytes({"best": best, "tried": tried}))
    return best, found.dictionary


# -- sub-units


def _finding(bench: Bench) -> tuple[Disentanglement, float]:
    """The split layer and how long it took; both are kept, because the control needs them too."""
    folder, asked = bench.folder / f"elude-{bench.seed}", bench.settings
    clock = bench.folder / f"elude-{bench.seed}.json"
    began = time.perf_counter()
    finding = disentangle(
        bench.subject,
        bench.training.source,
        bench.layer.site,
        top_k=asked.top_k,
        min_cluster_size=asked.min_cluster_size,
        expansion=asked.expansion if asked.min_cluster_size is None else None,
        tokens_per_image=bench.training.tokens,  # type: ignore[arg-type]
        seed=bench.seed,
        out=folder,
        progress=bench.progress,
    )
    with alone(clock.with_suffix(".lock")):  # the control may be made by another worker at the same time
        if not clock.exists():
            replace_file(clock, json_bytes({"seconds": time.perf_counter() - began}))
    return finding, json.loads(clock.read_bytes())["seconds"]


def _elude(bench: Bench) -> Method:
    finding, seconds = _finding(bench)
    alive = np.flatnonzero(~finding.dead)

    @contextmanager
    def enter() -> Iterator[Codes]:
        with finding.applied(bench.subject) as split, split.look(alive) as seen:

            def codes() -> Tensor:
                assert seen.values is not None
                return seen.values

            yield codes

    settings = finding.settings
    said = {name: settings[name] for name in ("top_k", "min_cluster_size", "instances")}
    said |= {"noise": float(finding.noise.mean()), "whole units": int((finding.counts < 2).sum())}
    said |= {"dead": int(finding.dead.sum()), "split": finding.expansion}
    writes = np.eye(bench.layer.count, dtype=np.float32)[finding.parents[alive]]
    return Method("elude", enter, seconds, writes, finding.weights_of(alive)[0], said)


def _partition(bench: Bench) -> Method:
    """Units split as often as ELUDe splits them, inputs given to sub-units at random (Table 7)."""
    import torch

    finding, _ = _finding(bench)
    began = time.perf_counter()
    parts = np.maximum(finding.counts, 1)
    generator = np.random.default_rng((bench.seed, 3))
    weights, biases, parents = random_partition(finding.weight, finding.bias, parts, generator)
    device = bench.subject.device
    weight, bias = (torch.from_numpy(part.astype(np.float32)).to(device) for part in (weights, biases))
    parent = torch.from_numpy(parents).to(device)

    def swap(q: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        z = torch.nn.functional.linear(q.float(), weight, bias)
        return z, torch.zeros(y.shape, device=device).index_add_(-1, parent, z)

    writes = np.eye(bench.layer.count, dtype=np.float32)[parents]
    seconds = time.perf_counter() - began
    return Method("random_partition", lambda: swapped(bench.layer, swap), seconds, writes, weights)


def _any(bench: Bench) -> Method:
    """Units that answer to samples at random: what the scores make of nothing."""
    import torch

    generator = torch.Generator().manual_seed(bench.seed)

    def swap(_: Tensor, y: Tensor) -> tuple[Tensor, None]:
        return torch.rand((*y.shape[:-1], ANY), generator=generator).to(y.device), None

    return Method("any_samples", lambda: swapped(bench.layer, swap))


def chosen_methods(methods: str | Sequence[str]) -> tuple[str, ...]:
    """Names of rows, in the order of the table; "all" for every one."""
    if methods == "all":
        return METHODS
    asked = [methods] if isinstance(methods, str) else list(methods)
    if not asked:
        raise SettingsError("no method to compare", given=asked, accepted=METHODS)
    for name in asked:
        if name not in METHODS:
            raise SettingsError("no such method", given=name, accepted=METHODS)
    return tuple(name for name in METHODS if name in asked)
