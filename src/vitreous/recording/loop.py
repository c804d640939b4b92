"""Activations to disk: one pass over the data for any number of sites, which can be killed and taken up again.

What is recorded is settled by model, data and settings alone. Batches always begin at the same samples, because the
batch size can change the last bits of a result, and a shard holds whole batches: a run that is taken up again computes
the very batches it missed.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from vitreous.axes import Size
from vitreous.errors import SettingsError, StoreError
from vitreous.hooks import evaluating
from vitreous.provenance import read_status, replace_file, start_run
from vitreous.recording.passes import OnNonfinite, Pass
from vitreous.recording.plan import Order, Plan
from vitreous.recording.writing import ShardWriter, locked, write_manifest
from vitreous.store.manifest import MANIFEST, Manifest, read_manifest
from vitreous.store.reader import Store, file_hash
from vitreous.texts import TextSet

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

SPARE = 1.05  # free space that is asked for, as a share of what will be written


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
    progress: bool = True,
    on_nonfinite: OnNonfinite = "raise",
) -> Store:
    """Records activations of every sample at the sites into the folder `out`, in one pass, and opens the store.

    Killed at any moment and called again with the same arguments, it goes on where it was and ends with the same bytes.
    A folder that holds anything else is refused; nothing is ever deleted. `tokens=n` keeps n random tokens a sample,
    the same ones at every site; `size` is another input size in pixels; `batch_size=None` picks one that fits.

    >>> store = vt.record(subject, images, "blocks.*.resid.out", "activations", tokens=32)
    >>> store["blocks.-1.resid.out"][:100].mean(axis=(0, 1))
    """
    out = Path(out)
    wanted = Size(size, size) if isinstance(size, int) else size and Size(*size)
    order = Order(subject, images, subject.resolve(sites), tokens, dtype, seed, shard_mb, batch_size, wanted)
    order.check()
    if on_nonfinite not in ("raise", "keep"):
        raise SettingsError("unknown on_nonfinite", given=on_nonfinite, accepted=("raise", "keep"))
    with locked(out, resume), evaluating(subject.module):
        old = _whole(out, read_manifest(out)) if (out / MANIFEST).exists() else None
        plan = order.plan(old, out)
        _refuse_full_disk(out, plan.manifest)
        if not _finished(out, plan.manifest):
            _write(order, plan, out, progress, on_nonfinite)
    return Store.open(out)


# -- before the work


def _whole(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest without shards whose files are gone or cut short: they are recorded again."""
    paths = {shard: folder / shard.file for shard in manifest.shards}
    there = [s for s, path in paths.items() if path.is_file() and path.stat().st_size == s.bytes]
    return replace(manifest, shards=tuple(there))


def _finished(folder: Path, manifest: Manifest) -> bool:
    """Whether a run has ended here and left everything; one killed at the very end is run again to tidy up."""
    there = all(_is_there(folder, manifest, name) for name in manifest.files)
    return manifest.complete and there and read_status(folder) == "done"


def _is_there(folder: Path, manifest: Manifest, name: str) -> bool:
    path = folder / name
    return path.is_file() and file_hash(path) == manifest.files[name]["sha256"]


def _missing(manifest: Manifest) -> list[int]:
    there = {shard.first for shard in manifest.shards}
    return [number for number in range(manifest.shard_count) if manifest.span(number)[0] not in there]


def _refuse_full_disk(folder: Path, manifest: Manifest) -> None:
    need = int(SPARE * sum(manifest.layout(number)[2] for number in _missing(manifest)))
    if need > (free := shutil.disk_usage(folder).free):
        raise StoreError(
            f"the disk is too small: {_bytes(need)} are needed at {folder} for {len(manifest.sites)} sites of "
            f"{manifest.samples} samples as {manifest.dtype}",
            given=f"{_bytes(free)} free",
            remedy='fewer sites, fewer tokens (tokens=16), a smaller dtype ("float16"), or another disk',
        )


# -- the work


def _write(order: Order, plan: Plan, out: Path, progress: bool, on_nonfinite: OnNonfinite) -> None:
    manifest = plan.manifest
    write_manifest(out, manifest)  # first of all: from now on the folder is known as this store
    settings = {**manifest.settings, "shard_mb": order.shard_mb, "on_nonfinite": on_nonfinite}
    inputs = {"model": manifest.model["fingerprint"], "data": manifest.data["fingerprint"]}
    device = str(order.subject.device)
    with start_run(out, "record", settings, seeds={"seed": order.seed}, inputs=inputs, device=device) as run:
        for name, data in plan.files.items():
            if not _is_there(out, manifest, name):
                replace_file(out / name, data)
        (out / "shards").mkdir(exist_ok=True)
        compute = Pass(
            order.subject, manifest.sites, order.dtype, plan.draws, order.images.ids, order.lengths, on_nonfinite
        )
        try:
            _loop(order, manifest, compute, out, progress)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise StoreError(
                f"the disk filled up while recording into {out}",
                remedy="make room and run the same record(...) again: finished shards are kept",
            ) from error
        run.note(samples=manifest.samples, computed_shards=len(_missing(manifest)))


def _loop(order: Order, manifest: Manifest, compute: Pass, out: Path, progress: bool) -> None:
    began = time.monotonic()
    with ShardWriter(out, manifest) as writer, _bar(manifest, progress) as (say, advance):
        for done, (positions, x) in enumerate(_batches(order, manifest)):
            arrays = compute(positions, x)
            if done == 0:
                say(describe(manifest, len(positions), time.monotonic() - began))
            writer.put(int(positions[0]), arrays)
            advance(len(positions))


def _batches(order: Order, manifest: Manifest) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Input batches of the missing shards; neighbouring shards are read in one go."""
    missing, size = _missing(manifest), manifest.settings["batch_size"]
    while missing:
        run = [number for i, number in enumerate(missing) if number == missing[0] + i]
        missing = missing[len(run) :]
        last = manifest.span(run[-1])[1]
        with closing(order.batches(size, manifest.span(run[0])[0] // size)) as batches:
            for positions, x in batches:
                yield positions, x
                if positions[-1] == last:
                    break


# -- what is said


def describe(manifest: Manifest, samples: int, seconds: float) -> str:
    """Size of what will be recorded, site by site, and how long it will take if `samples` took `seconds`."""
    sizes = manifest.site_bytes()
    left = sum(last - first + 1 for first, last in map(manifest.span, _missing(manifest)))
    shards = "1 shard" if manifest.shard_count == 1 else f"{manifest.shard_count} shards"
    lines = [
        f"recording {len(sizes)} sites of {manifest.model['name']} on {manifest.data['name']}: "
        f"{manifest.samples} samples, {_bytes(sum(sizes.values()))} as {manifest.dtype} in {shards}"
    ]
    for size in dict.fromkeys(sizes.values()):
        sites = [site for site, other in sizes.items() if other == size]
        each = f"{_bytes(size)} each" if len(sites) > 1 else _bytes(size)
        lines.append(f"  {each}: {', '.join(sites[:4])}{f', ... ({len(sites)} sites)' if len(sites) > 4 else ''}")
    if left < manifest.samples:
        lines.append(f"  going on: {left} samples are left")
    return "\n".join(
        [*lines, f"  about {_duration(seconds / samples * left)} (the first {samples} took {seconds:.2g} s)"]
    )


@contextmanager
def _bar(manifest: Manifest, show: bool) -> Iterator[tuple[Callable[[str], None], Callable[[int], None]]]:
    """A bar over samples, and a way to say something above it, both on the error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True, quiet=not show, soft_wrap=True)
    columns = ("record", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    total = sum(last - first + 1 for first, last in map(manifest.span, _missing(manifest)))
    with Progress(*columns, console=console, disable=not show, transient=True) as progress:
        task = progress.add_task("record", total=total)
        yield (
            lambda text: console.print(text, highlight=False, markup=False),
            lambda count: progress.advance(task, count),
        )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
