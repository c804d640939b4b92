"""`compare_dictionaries`: Table 2 of the disentanglement paper for any model, layer and data.

All methods are made from the same recorded activations and measured on the same held-out samples, in the model: the
layer's output is replaced by what the method makes of it, and the model goes on from there. Every row is saved when it
is done, so a run that was killed goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Integral
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from vitreous.dictionary_comparison.activations import Data, record_training, same_start, some
from vitreous.dictionary_comparison.methods import Bench, chosen_methods
from vitreous.dictionary_comparison.reading import Head, choose_reader, features
from vitreous.dictionary_comparison.result import ROWS, DictionaryComparison
from vitreous.dictionary_comparison.rows import Row, measure, read_row, save_row
from vitreous.dictionary_comparison.settings import Settings
from vitreous.dictionary_comparison.watch import Room
from vitreous.engine import Engine, in_turn, open_engine
from vitreous.errors import SettingsError, StoreError, VitreousError
from vitreous.evidence.directions import directions
from vitreous.images import ImageSet
from vitreous.judges.coherence import coherence_rank
from vitreous.judges.grids import can_be_shown
from vitreous.lenses.disentangle_rows import describe_source
from vitreous.mirrors import kept_at
from vitreous.models.subject import Subject
from vitreous.progress import tqdm
from vitreous.provenance import json_bytes, replace_file
from vitreous.subunits.layers import LinearLayer, find_layer
from vitreous.texts import TextSet

ASKED = "asked.json"
LEAST = 10  # samples to measure on


@kept_at("out")
def compare_dictionaries(
    subject: Subject,
    data: Data,
    site: str = "blocks.-1.mlp.out",
    *,
    methods: Literal["all"] | Sequence[str] = "all",
    evaluate: Data | float = 0.25,
    judge: Subject | np.ndarray | None = None,
    head: Head | None = None,
    accuracy: str = "auto",
    expansion: float = 8,
    tokens: int | Literal["all"] = 8,
    top_k: int | None = None,
    min_cluster_size: int | None = None,
    steps: int = 1000,
    batch_size: int = 512,
    learning_rate: float = 1e-3,
    k: int | None = None,
    sweep: str = "penalty",
    sweep_steps: int | None = None,
    top: int | None = None,
    seeds: Sequence[int] = (0,),
    out: str | Path | None = None,
    engine: str | Engine = "local",
    progress: bool = True,
) -> DictionaryComparison:
    """Backbone, sparse dictionaries, ELUDe and its controls on one linear layer: how faithful, how interpretable.

    Methods are made from `data` (`tokens` random ones a picture; of texts all) and measured on `evaluate`, other
    samples or a share of the data that is then left out of it. Accuracy is that of the model's own head where the
    labels are its classes, of `head` on its pooled output where that is given, or else of a linear probe fitted to the
    training samples; of a language model it is that of the next token. `judge` is another model, or embeddings of the
    evaluation samples (sample, channel) or of their places (sample, position, channel): coherence and a second MS-Score
    are taken there.

    Dictionaries have `expansion` times as many units as the layer and are trained for about `steps` steps; with
    `sweep="penalty"` those that have a penalty are trained with three, and `"paper"` sweeps all that section E.1 does.
    As there, the first seed chooses, by eq. 9, and the others train what it chose; `sweep_steps` trains candidates for
    so many steps only. ELUDe aims for the same expansion unless `min_cluster_size` is given. Each of `seeds` draws
    other tokens and trains anew. Methods and seeds can be added later to the same `out`. `engine` says who makes rows,
    method by method: "local" this process, "local:4" workers, "ray" or "torchrun"; all of them see `out`.

    >>> found = vt.compare_dictionaries(subject, images, methods=["backbone", "topk", "elude"], out="compared")
    >>> print(found.table())
    """
    train, held = _divided(subject, data, evaluate)
    chosen, layer, seeds = chosen_methods(methods), find_layer(subject, site), _checked_seeds(seeds)
    training = steps, batch_size, learning_rate, k, sweep, sweep_steps, top, accuracy
    settings = Settings(layer.site, expansion, tokens, top_k, min_cluster_size, *training).on(layer.count)
    asked = _asked(subject, train, held, judge, head, settings)
    runner = open_engine(engine)
    with _folder(out, asked, runner) as folder:
        given = subject, train, held, judge, head, folder, progress
        work = in_turn(runner, lambda: _begun(layer, settings, *given))
        rows = work.rows(chosen, seeds, runner)
        ranking, said = _ranked(rows, work, judge)
        notes = tuple(note for note in (work.room.reader.note, _about_start(held), said) if note)
        found = DictionaryComparison(rows, ranking, asked | {"read by": work.room.reader.how, "top": work.top}, notes)
        in_turn(runner, lambda: found.save(folder))
    return found


# -- the work


@dataclass(frozen=True, eq=False)
class _Work:
    """Rows are made one by one; those that the folder has are read from it."""

    room: Room
    settings: Settings
    train: Data
    folder: Path
    other: np.ndarray | None

    @property
    def top(self) -> int:
        return self.settings.top_of(len(self.room.data))

    def rows(self, methods: Sequence[str], seeds: Sequence[int], engine: Engine) -> tuple[Row, ...]:
        wanted = [(method, seed) for method in methods for seed in (seeds if method != "backbone" else seeds[:1])]
        there = {pair: read_row(self.folder / ROWS, *pair) for pair in wanted}
        in_turn(engine, lambda: self.room.reference(self.folder))  # for all who make rows
        done = sum(row is not None for row in there.values())
        with tqdm(total=len(wanted), initial=done, desc="rows", disable=not self.room.progress) as bar:
            for seed in seeds:
                missing = [method for method, s in wanted if s == seed and there[method, s] is None]
                if not missing:
                    continue
                job = _MakeRow(self, in_turn(engine, partial(self._bench, seed)))
                for method, made in zip(missing, engine.map(job, missing, gpu=self._on_gpu), strict=True):
                    there[method, seed] = made
                    bar.set_postfix_str(method)
                    bar.update()
        return tuple(row for pair in wanted if (row := there[pair]) is not None)

    def _bench(self, seed: int) -> Bench:
        room, folder = self.room, self.folder / f"activations-{seed}"
        tokens, loud = self.settings.tokens, room.progress
        training = record_training(room.subject, room.layer, self.train, tokens, seed, folder, loud)
        return Bench(room.subject, room.layer, self.settings, training, seed, self.folder / "made", loud)

    @property
    def _on_gpu(self) -> bool:
        return self.room.subject.device.type == "cuda"


@dataclass(frozen=True, eq=False)
class _MakeRow:
    """A job: one method made, measured and saved."""

    work: _Work
    bench: Bench

    def __call__(self, name: str) -> Row:
        work, method = self.work, self.bench.make(name)
        watched, reference = work.room.watch(method), work.room.reference(work.folder)
        row = measure(method, self.bench.seed, watched, reference, work.room.reader, work.top, work.other)
        save_row(row, work.folder / ROWS)
        return row


def _begun(
    layer: LinearLayer,
    settings: Settings,
    subject: Subject,
    train: Data,
    held: Data,
    judge: Subject | np.ndarray | None,
    head: Head | None,
    folder: Path,
    progress: bool,
) -> _Work:
    reader = choose_reader(subject, train, held, settings.accuracy, head, folder, progress)
    other = _embedded(judge, held, folder, progress)
    return _Work(Room(subject, layer, held, reader, progress), settings, train, folder, other)


def _ranked(
    rows: Sequence[Row], work: _Work, judge: Subject | np.ndarray | None
) -> tuple[Mapping[str, Any] | None, str]:
    """Who wins pair by pair, seed by seed, in the judge's space or, without one, in that of the model's own output."""
    if isinstance(work.room.data, TextSet) and (work.other is None or work.other.ndim != 2):
        return None, "texts have no embedding to judge them by: pairs were not compared"
    seeds = sorted({row.seed for row in rows})
    first = {row.method: row for row in rows}
    of = {(row.method, row.seed): row for row in rows}
    sets = [{m: of.get((m, s), first[m]).tops for m in first} for s in seeds]
    able = [m for m in first if all(len(can_be_shown(one[m])) for one in sets)]
    left = [m for m in first if m not in able]
    if len(able) < 2:
        return None, "fewer than two methods have units that are above zero in nine samples: pairs were not compared"
    embeddings = work.other if work.other is not None else work.room.reference(work.folder).kept
    embeddings = embeddings.mean(1) if embeddings.ndim == 3 else embeddings
    found = coherence_rank([{m: one[m] for m in able} for one in sets], embeddings).as_json()
    where = "the judge" if judge is not None else "the model itself: give another one as judge"
    said = f"pairs won: coherence of nine samples in the space of {where}"
    return found, said + (f"; no unit of {', '.join(left)} is above zero in nine" if left else "")


# -- what was given


def _divided(subject: Subject, data: Data, evaluate: Data | float) -> tuple[Data, Data]:
    """Samples to make methods from, and others to measure them on."""
    if not isinstance(subject, Subject):
        raise SettingsError(
            "a model is compared as a subject", given=type(subject).__name__, remedy="vt.wrap(module) makes one"
        )
    for part in (data, evaluate):
        if not isinstance(part, ImageSet | TextSet | float | int):
            raise SettingsError(
                "samples are pictures or texts", given=type(part).__name__, accepted="ImageSet, TextSet"
            )
        if not isinstance(part, float | int) and (subject.modality == "text") != isinstance(part, TextSet):
            raise SettingsError(f"{subject.name} takes {subject.modality}", given=type(part).__name__)
    assert isinstance(data, ImageSet | TextSet)
    if isinstance(evaluate, float | int):
        data, evaluate = hold_out(data, evaluate)
    if data.fingerprint == evaluate.fingerprint:
        raise SettingsError(
            "methods would be measured on the very samples that they are made from",
            given=evaluate.name,
            remedy="other samples, or a share of them to hold out: evaluate=0.25",
        )
    if len(evaluate) < LEAST or len(data) < LEAST:
        raise SettingsError(
            f"{LEAST} samples or more on each side",
            given={"made from": len(data), "measured on": len(evaluate)},
            remedy="more data, or another share",
        )
    return data, evaluate


def hold_out(data: Data, share: float) -> tuple[Data, Data]:
    """The samples without a share of them, and that share, drawn at random but always the same."""
    if not 0 < share < 1:
        raise SettingsError("a share of the data is held out", given=share, accepted="more than 0, less than 1")
    order = np.random.default_rng(0).permutation(len(data))
    cut = round(share * len(data))
    return some(data, np.sort(order[cut:])), some(data, np.sort(order[:cut]))


def _asked(
    subject: Subject,
    train: Data,
    held: Data,
    judge: Subject | np.ndarray | None,
    head: Head | None,
    settings: Settings,
) -> dict[str, Any]:
    model = {"name": subject.name, "fingerprint": subject.fingerprint}
    by: dict[str, Any] | None = None
    if isinstance(judge, Subject):
        by = {"name": judge.name, "fingerprint": judge.fingerprint}
    elif judge is not None:
        if judge.ndim not in (2, 3) or len(judge) != len(held) or judge.dtype.kind != "f":
            raise SettingsError(
                "a judge is a subject, or embeddings of the evaluation samples",
                given=f"{judge.dtype} {judge.shape}",
                accepted=f"floats ({len(held)}, channel) or ({len(held)}, position, channel)",
            )
        by = describe_source(judge)
    data = {"made from": describe_source(train), "measured on": describe_source(held)}
    return {"model": model, "judge": by, "head": head is not None, **data, **asdict(settings)}


def _embedded(judge: Subject | np.ndarray | None, held: Data, folder: Path, progress: bool) -> np.ndarray | None:
    """The judge's embeddings (sample, ..., channel), their mean taken away as `coherence_rank` takes it.

    Embeddings often share one large direction. With it any two samples are alike, whoever chose them.
    """
    if judge is None:
        return None
    path = folder / "judge.npy"
    if isinstance(judge, Subject) and not path.exists():
        draft = folder / "draft.npy"
        np.save(draft, features(judge, held, progress, f"embeddings of {judge.name}"))
        draft.replace(path)
    found = np.load(path) if isinstance(judge, Subject) else judge
    rows = directions(found.reshape(-1, found.shape[-1]))
    return (rows - rows.mean(0, dtype=np.float64)).astype(np.float32).reshape(found.shape)


def _checked_seeds(seeds: Sequence[int]) -> list[int]:
    found = list(dict.fromkeys(seeds))
    if not found or any(not isinstance(seed, Integral) or isinstance(seed, bool) or seed < 0 for seed in found):
        raise SettingsError("seeds are whole numbers from 0 on, one or more", given=list(seeds))
    return [int(seed) for seed in found]


def _about_start(held: Data) -> str:
    start = same_start(held) if isinstance(held, TextSet) else 0
    return f"the first {start} tokens are the same in every text and left out" if start else ""


@contextmanager
def _folder(out: str | Path | None, asked: Mapping[str, Any], engine: Engine) -> Iterator[Path]:
    """A folder for rows and what they need."""
    if out is None:
        with TemporaryDirectory(prefix="compared-", ignore_cleanup_errors=True) as scratch:
            yield Path(scratch)
        return
    in_turn(engine, lambda: _claim(Path(out), json_bytes(dict(asked))))
    try:
        yield Path(out)
    except VitreousError:
        if {path.name for path in Path(out).iterdir()} == {ASKED}:  # nothing is made yet: others may ask for the folder
            (Path(out) / ASKED).unlink(missing_ok=True)
        raise


def _claim(out: Path, now: bytes) -> None:
    """One that holds a comparison of something else is refused."""
    if out.exists() and not out.is_dir():
        raise StoreError("a comparison is a folder, and this is a file", given=str(out))
    if (out / ASKED).exists():
        before, said = json.loads((out / ASKED).read_bytes()), json.loads(now)
        if other := [name for name in said if before.get(name) != said[name]]:
            raise StoreError(
                f"{out} holds a comparison of something else",
                given={name: said[name] for name in other},
                accepted=str({name: before.get(name) for name in other}),
                remedy="choose another folder, or ask for the same",
            )
    elif out.exists() and (found := sorted(path.name for path in out.iterdir())):
        raise StoreError(f"{out} is not empty and not ours", given=found[:5], accepted="a new or empty folder")
    out.mkdir(parents=True, exist_ok=True)
    replace_file(out / ASKED, now)
