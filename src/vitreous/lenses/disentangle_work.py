"""Units that are done, one file each: a run that was killed goes on where it was and ends with the same bytes.

Processes that share a folder share its units too. Each takes those that nobody has, and all end with the same finding.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from vitreous.errors import StoreError, VitreousError
from vitreous.kernels.split_weights import divide
from vitreous.lenses.disentangle_finding import ABOUT, Disentanglement, Examples
from vitreous.lenses.disentangle_share import Claim, alone, claim
from vitreous.provenance import json_bytes, replace_file
from vitreous.subunits.layers import LinearLayer

ASKED, UNITS, CHOSEN, LOCK = "asked.json", "work", "chosen.json", ".lock"
BEGUN = {LOCK, UNITS, ASKED, f"{ASKED}.tmp"}  # what is there while another process begins


class UnitSplit(NamedTuple):
    """One unit's sub-units: `clusters` found; sizes, representatives and members of max(1, clusters) sub-units."""

    clusters: int
    sizes: np.ndarray
    representatives: np.ndarray
    members: np.ndarray
    rho: float
    score: float
    noise: float
    top: Examples | None = None
    subunit_top: Examples | None = None

    def with_examples(
        self,
        q: np.ndarray,
        values: np.ndarray,
        weight: np.ndarray,
        bias: np.float32,
        images: np.ndarray,
        tokens: np.ndarray,
        keep: int,
    ) -> UnitSplit:
        """The strongest of these instances for the unit and for each sub-unit."""
        weights, biases = divide(weight, float(bias), self.members)
        parts = (q @ weights.T + biases).T if len(weights) > 1 else values[None]
        top = _strongest(values[None], images, tokens, keep)
        return self._replace(top=top, subunit_top=_strongest(parts, images, tokens, keep))


def _strongest(values: np.ndarray, images: np.ndarray, tokens: np.ndarray, keep: int) -> Examples:
    """(unit, instance) -> the `keep` strongest of each, one an image."""
    # as many instances hold the strongest of `keep` images even if each image has its most
    enough = min(len(images), keep * int(np.bincount(images).max()))
    order = np.sort(np.argpartition(-values, enough - 1)[:, :enough])
    order = np.take_along_axis(order, np.argsort(-np.take_along_axis(values, order, 1), kind="stable"), 1)
    return first_of_images(np.take_along_axis(values, order, 1), images[order], tokens[order], keep)


def first_of_images(values: np.ndarray, images: np.ndarray, tokens: np.ndarray, keep: int) -> Examples:
    """Instances (unit, instance), the strongest first -> the first `keep` of each unit that are not of one image."""
    found = Examples(
        np.full((len(values), keep), -1, np.int64),
        np.full((len(values), keep), -1, np.int64),
        np.full((len(values), keep), np.nan, np.float32),
    )
    for at, of_unit in enumerate(images):
        _, first = np.unique(of_unit, return_index=True)
        kept = np.sort(first)[:keep]
        for part, of in zip(found, (images, tokens, values), strict=True):
            part[at, : len(kept)] = of[at, kept]
    return found


@dataclass(frozen=True)
class Work:
    """The folder of a run: rows and finished units while it goes on, the finding when it has ended."""

    folder: Path
    finished: Disentanglement | None
    kept: Path | None
    asked: bytes = b""

    def read(self, unit: int) -> UnitSplit | None:
        """A unit that an earlier run finished; one whose file was cut short since is made anew."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        try:
            found = load(self._file(unit).read_bytes())
        except FileNotFoundError:  # not done, or the finding has taken the place of all units
            return None
        except SafetensorError:
            self._file(unit).unlink(missing_ok=True)
            return None
        clusters, rho, score, noise = found["numbers"].tolist()
        tops = [Examples(*(found[f"{name}.{part}"] for part in Examples._fields)) for name in ("top", "subunit_top")]
        members = np.unpackbits(found["codes"], 1, found["representatives"].shape[1]).astype(bool)
        return UnitSplit(int(clusters), found["sizes"], found["representatives"], members, rho, score, noise, *tops)

    def write(self, unit: int, split: UnitSplit) -> None:
        from safetensors.numpy import save

        if self.kept is None:
            return
        assert split.top is not None and split.subunit_top is not None
        arrays = {"sizes": split.sizes, "representatives": split.representatives}
        arrays |= {"codes": np.packbits(split.members, 1)}
        arrays |= {"numbers": np.array([split.clusters, split.rho, split.score, split.noise])}
        for name, top in (("top", split.top), ("subunit_top", split.subunit_top)):
            arrays |= {f"{name}.{part}": value for part, value in top._asdict().items()}
        replace_file(self._file(unit), save(arrays))

    def _file(self, unit: int) -> Path:
        return self.folder / f"unit-{unit:06d}.safetensors"

    # -- with other processes

    @property
    def alone(self) -> AbstractContextManager[None]:
        """What is inside is done by one process at a time."""
        return nullcontext() if self.kept is None else alone(self.kept / LOCK)

    @contextmanager
    def settling(self) -> Iterator[None]:
        """What all units need is made inside, by one process at a time; the others wait for it.

        A refusal gives the folder up: no unit is done yet, and what is asked for next may be something else.
        """
        with self.alone:
            if self.kept is not None:
                _refuse_other(self.kept, self.asked)  # of a process that began meanwhile
                if self.ended:
                    _tidy(self.kept)
                else:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    replace_file(self.kept / ASKED, self.asked)
            try:
                yield
            except VitreousError:
                if self.kept is not None and not (self.folder / CHOSEN).exists():
                    shutil.rmtree(self.folder, ignore_errors=True)
                    (self.kept / ASKED).unlink(missing_ok=True)
                raise

    @property
    def ended(self) -> bool:
        """Whether another process has put the finding into the folder."""
        return self.kept is not None and (self.kept / ABOUT).exists()

    def claim(self, unit: int) -> Claim | None:
        """A unit to work on, unless another process has it or has done it; to be released when it is written."""
        if self.ended or self._file(unit).exists():
            return None
        try:
            held = claim(self.folder / f"unit-{unit:06d}.lock")
        except FileNotFoundError:  # the folder is gone: it has ended
            return None
        if held is not None and self._file(unit).exists():  # done just now
            held.release()
            return None
        return held

    def remembered(self, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What was settled once for all processes, and for runs that go on; to be asked for `alone`."""
        path = self.folder / CHOSEN
        if not path.exists():
            replace_file(path, json_bytes(make()))
        return json.loads(path.read_bytes())

    def finish(self, finding: Disentanglement) -> None:
        """The finding in place of what was needed to make it."""
        if self.kept is None:
            return
        with self.alone:
            if not self.ended:
                finding.save(self.kept)
            _tidy(self.kept)


@contextmanager
def open_work(out: str | Path | None, made_of: Mapping[str, Any]) -> Iterator[Work]:
    """A folder to work in: below `out`, or one that is gone afterwards. Work on anything else is never mixed in."""
    if out is None:
        with TemporaryDirectory(prefix="disentangle-", ignore_cleanup_errors=True) as scratch:
            yield Work(Path(scratch), None, None)
        return
    out = Path(out)
    folder, asked = out / UNITS, json_bytes(made_of)
    _refuse_other(out, asked)
    out.mkdir(parents=True, exist_ok=True)
    with alone(out / LOCK):
        if finished := (out / ABOUT).exists():
            _tidy(out)  # after a run that was killed while it did so
    yield Work(folder, Disentanglement.load(out) if finished else None, out, asked)


def _tidy(out: Path) -> None:
    shutil.rmtree(out / UNITS, ignore_errors=True)
    (out / LOCK).unlink(missing_ok=True)  # whoever waits for it sees that there is nothing left to do


def _refuse_other(out: Path, asked: bytes) -> None:
    if out.exists() and not out.is_dir():
        raise StoreError("a disentanglement is a folder, and this is a file", given=str(out))
    if (out / ASKED).exists():
        before, now = json.loads((out / ASKED).read_bytes()), json.loads(asked)
        if other := [name for name in now if before.get(name) != now[name]]:
            raise StoreError(
                f"{out} holds a disentanglement of something else",
                given={name: now[name] for name in other},
                accepted=str({name: before.get(name) for name in other}),
                remedy="choose another folder, or ask for the same",
            )
    elif out.exists() and (found := sorted({path.name for path in out.iterdir()} - BEGUN)):
        raise StoreError(f"{out} is not empty and not ours", given=found[:5], accepted="a new or empty folder")


def assemble(
    layer: LinearLayer,
    units: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray,
    splits: Sequence[UnitSplit],
    settings: Mapping[str, Any],
) -> Disentanglement:
    """All units' sub-units in one row."""

    def joined(tops: Sequence[Examples | None]) -> Examples:
        return Examples(*(np.concatenate(parts) for parts in zip(*(top for top in tops if top), strict=True)))

    return Disentanglement(
        site=layer.site,
        path=layer.path,
        first=layer.first,
        units=units,
        weight=weight,
        bias=bias,
        counts=np.array([split.clusters for split in splits], np.int64),
        rho=np.array([split.rho for split in splits]),
        scores=np.array([split.score for split in splits]),
        noise=np.array([split.noise for split in splits]),
        top=joined([split.top for split in splits]),
        parents=np.repeat(np.arange(len(splits)), [len(split.members) for split in splits]),
        sizes=np.concatenate([split.sizes for split in splits]).astype(np.int64),
        representatives=np.concatenate([split.representatives for split in splits]),
        codes=np.concatenate([np.packbits(split.members, 1) for split in splits]),
        subunit_top=joined([split.subunit_top for split in splits]),
        settings=settings,
    )
