"""Activations to disk: one pass over the data for any number of sites, which can be killed and taken up again.

What is recorded is settled by model, data and settings alone. Batches always begin at the same samples, because the
batch size can change the last bits of a result, and a shard holds whole batches: a run that is taken up again computes
the very batches it missed.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vitreous.axes import Size
from vitreous.engine import Engine, Here, open_engine
from vitreous.errors import SettingsError, StoreError
from vitreous.hooks import evaluating
from vitreous.memory import Parts
from vitreous.progress import duration, tqdm, voice
from vitreous.provenance import start_run
from vitreous.recording.destination import Destination, size_text
from vitreous.recording.passes import OnNonfinite, Pass
from vitreous.recording.plan import Order, Plan
from vitreous.recording.writing import ShardWriter, locked
from vitreous.store.manifest import Manifest, Shard
from vitreous.store.reader import Store
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject


def record(
    subject: Subject,
    images: ImageSet | TextSet,
    sites: str | Sequence[str],
    out: str | Path,
    *,
    tokens: Literal["all"] | int = "all",
    dtype: Literal["float16", "float32", "bfloat16"] = "float16",
    seed: int = 0,
    shard_mb: float = 256,
    resume: bool = True,
    batch_size: int | None = None,
    size: int | tuple[int, int] | None = None,
    engine: str | Engine = "local",
    progress: bool = True,
    on_nonfinite: OnNonfinite = "raise",
) -> Store:
    """Records activations of every sample at the sites into the folder `out`, in one pass, and opens the store.

    Killed at any moment and called again with the same arguments, it goes on where it was and ends with the same bytes.
    A folder that holds anything else is refused; nothing is ever deleted. `tokens=n` keeps n random tokens a sample,
    the same ones at every site; `size` is another input size in pixels; `batch_size=None` picks one that fits.

    `out` may be an address that fsspec knows, such as `s3://bucket/store`. `engine` says who does the work, shard by
    shard: "local" this process, "local:4" worker processes, "ray" a cluster, "torchrun" the processes of that.

    >>> store = vt.record(subject, images, "blocks.*.resid.out", "activations", tokens=32)
    >>> store["blocks.-1.resid.out"][:100].mean(axis=(0, 1))
    """
    where = Destination.at(out)
    wanted = Size(size, size) if isinstance(size, int) else size and Size(*size)
    order = Order(subject, images, subject.resolve(sites), tokens, dtype, seed, shard_mb, batch_size, wanted)
    order.check()
    if on_nonfinite not in ("raise", "keep"):
        raise SettingsError("unknown on_nonfinite", given=on_nonfinite, accepted=("raise", "keep"))
    runner = open_engine(engine)
    with _lock(where, resume, runner.lead), evaluating(subject.module):
        plan, finished = runner.agree(lambda: _settled(order, where, resume))
        if not finished:
            _write(_Work(order, plan, where, on_nonfinite), runner, progress)
        runner.agree(lambda: None)  # nobody reads before all is written
    return Store.open(where.address)


# -- before the work


def _lock(where: Destination, resume: bool, lead: bool) -> AbstractContextManager[None]:
    return locked(where.folder, resume or where.bucket is not None) if lead else nullcontext()


def _settled(order: Order, where: Destination, resume: bool) -> tuple[Plan, bool]:
    """What will be recorded, and whether it is there already."""
    plan = order.plan(where.begun(resume), where.address)
    manifest = plan.manifest
    described = f"{len(manifest.sites)} sites of {manifest.samples} samples as {manifest.dtype}"
    where.refuse_full_disk(manifest, _missing(manifest), described)
    return plan, where.finished(manifest)


def _missing(manifest: Manifest) -> list[int]:
    there = {shard.first for shard in manifest.shards}
    return [number for number in range(manifest.shard_count) if manifest.span(number)[0] not in there]


# -- the work


@dataclass(frozen=True)
class _Work:
    """What has to be recorded. Called with the number of a shard, in whichever process, it records that."""

    order: Order
    plan: Plan
    where: Destination
    on_nonfinite: OnNonfinite
    parts: Parts = field(default_factory=Parts)  # what did not fit once is not tried with every shard

    @property
    def manifest(self) -> Manifest:
        return self.plan.manifest

    def compute(self) -> Pass:
        order = self.order
        about = (order.images.ids, order.lengths, self.on_nonfinite, self.parts)
        return Pass(order.subject, self.manifest.sites, order.dtype, self.plan.draws, *about)

    def __call__(self, number: int) -> Shard:
        (self.where.folder / "shards").mkdir(parents=True, exist_ok=True)
        compute, made = self.compute(), list[Shard]()
        with _plain_full_disk(self.where), evaluating(self.order.subject.module):
            with ShardWriter(self.where.folder, self.manifest, lambda shard, _: made.append(shard)) as writer:
                for positions, arrays in compute.batches(self.batches([number])):
                    writer.put(int(positions[0]), arrays)
            self.where.send(made[0])
        return made[0]

    def batches(self, missing: list[int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Input batches of shards; neighbouring shards are read in one go."""
        manifest, size = self.manifest, self.manifest.settings["batch_size"]
        while missing:
            run = [number for i, number in enumerate(missing) if number == missing[0] + i]
            missing = missing[len(run) :]
            last = manifest.span(run[-1])[1]
            with closing(self.order.batches(size, manifest.span(run[0])[0] // size)) as batches:
                for positions, x in batches:
                    yield positions, x
                    if positions[-1] == last:
                        break


def _write(work: _Work, runner: Engine, progress: bool) -> None:
    if not runner.lead:
        for _ in runner.map(work, _missing(work.manifest)):
            pass
        return
    order, manifest, where = work.order, work.manifest, work.where
    where.note(manifest)  # first of all: from now on the folder is known as this store
    settings = {**manifest.settings, "shard_mb": order.shard_mb, "on_nonfinite": work.on_nonfinite}
    more: dict[str, Any] = {"seeds": {"seed": order.seed}, "device": str(order.subject.device)}
    more |= {"inputs": {"model": manifest.model["fingerprint"], "data": manifest.data["fingerprint"]}}
    more |= {"keep": where.bucket.write if where.bucket else None}
    with start_run(where.folder, "record", settings, **more) as run, _plain_full_disk(where):
        for name, data in work.plan.files.items():
            if not where.has(manifest, name):
                where.write(name, data)
        (where.folder / "shards").mkdir(exist_ok=True)
        with _bar(manifest, progress and runner.lead) as (say, advance):
            if isinstance(runner, Here):
                _stream(work, say, advance)
            else:
                _spread(work, runner, say, advance)
        run.note(samples=manifest.samples, computed_shards=len(_missing(manifest)))


def _stream(work: _Work, say: Callable[[str], None], advance: Callable[[int], None]) -> None:
    """All shards by this process, whose disk is busy while the model is."""
    began, compute, manifest = time.monotonic(), work.compute(), work.manifest
    with ShardWriter(work.where.folder, manifest, work.where.keep) as writer:
        for done, (positions, arrays) in enumerate(compute.batches(work.batches(_missing(manifest)))):
            if done == 0:
                say(describe(manifest, len(positions), time.monotonic() - began))
            writer.put(int(positions[0]), arrays)
            advance(len(positions))


def _spread(work: _Work, runner: Engine, say: Callable[[str], None], advance: Callable[[int], None]) -> None:
    """Shards by others; the manifest is written here alone."""
    began, manifest = time.monotonic(), work.manifest
    gpu = work.order.subject.device.type == "cuda"
    for done, shard in enumerate(runner.map(work, _missing(manifest), gpu=gpu)):
        if done == 0:
            seconds = (time.monotonic() - began) / runner.workers
            say(describe(manifest, shard.last - shard.first + 1, seconds))
        manifest = manifest.with_shard(shard)
        work.where.note(manifest)
        advance(shard.last - shard.first + 1)


@contextmanager
def _plain_full_disk(where: Destination) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise StoreError(
            f"the disk filled up while recording into {where.address}",
            remedy="make room and run the same record(...) again: finished shards are kept",
        ) from error


# -- what is said


def describe(manifest: Manifest, samples: int, seconds: float) -> str:
    """Size of what will be recorded, site by site, and how long it will take if `samples` took `seconds`."""
    sizes = manifest.site_bytes()
    left = sum(last - first + 1 for first, last in map(manifest.span, _missing(manifest)))
    shards = "1 shard" if manifest.shard_count == 1 else f"{manifest.shard_count} shards"
    lines = [
        f"recording {len(sizes)} sites of {manifest.model['name']} on {manifest.data['name']}: "
        f"{manifest.samples} samples, {size_text(sum(sizes.values()))} as {manifest.dtype} in {shards}"
    ]
    for size in dict.fromkeys(sizes.values()):
        sites = [site for site, other in sizes.items() if other == size]
        each = f"{size_text(size)} each" if len(sites) > 1 else size_text(size)
        lines.append(f"  {each}: {', '.join(sites[:4])}{f', ... ({len(sites)} sites)' if len(sites) > 4 else ''}")
    if left < manifest.samples:
        lines.append(f"  going on: {left} samples are left")
    return "\n".join(
        [*lines, f"  about {duration(seconds / samples * left)} (the first {samples} took {seconds:.2g} s)"]
    )


@contextmanager
def _bar(manifest: Manifest, show: bool) -> Iterator[tuple[Callable[[str], None], Callable[[int], None]]]:
    """A bar over samples, and a way to say something above it, both on the error stream."""
    total = sum(last - first + 1 for first, last in map(manifest.span, _missing(manifest)))
    with tqdm(total=total, desc="record", unit="sample", disable=not show, leave=False) as bar:
        yield voice(show), bar.update
