"""Activations on disk, read back: `Store.open(path)[site]` is an array that is read when it is indexed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vitreous.axes import Grid
from vitreous.errors import SiteError, StoreError
from vitreous.models.site import expand
from vitreous.places import Bucket, file_hash, is_remote
from vitreous.progress import tqdm
from vitreous.store.lazy import SiteArray
from vitreous.store.manifest import DAMAGED, SAMPLES, TOKENS, Manifest, map_tensors, read_manifest, shard_name

OPEN_SHARDS = 64  # memory maps kept open, each of which holds a file handle


@dataclass(frozen=True)
class Problem:
    """What `Store.verify` found wrong with one file."""

    file: str
    kind: Literal["missing", "truncated", "altered", "extra"]
    detail: str

    def __str__(self) -> str:
        return f"{self.file}: {self.kind} ({self.detail})"


class Store:
    """A recording on disk. `store[site]` is (sample, token, channel), or (sample, head, query, key) for patterns.

    Nothing is read before it is indexed, and then only from the shards that hold it.
    """

    def __init__(self, path: Path, manifest: Manifest, samples: int, bucket: Bucket | None = None) -> None:
        self.path = path
        self.bucket = bucket
        self.manifest = manifest
        self._samples = samples
        self._shard = lru_cache(OPEN_SHARDS)(self._map_shard)

    @classmethod
    def open(cls, path: str | Path, *, allow_partial: bool = False) -> Store:
        """Opens a finished store; with `allow_partial` also an unfinished one, up to its first missing shard.

        A path may be an address that fsspec knows, such as `s3://bucket/store`: shards are then fetched when they are
        first read, and kept in a cache on this machine (the folder in VITREOUS_CACHE).
        """
        bucket = Bucket(str(path)) if is_remote(path) else None
        manifest = read_manifest(bucket or Path(path))
        ready = 0
        while ready < len(manifest.shards) and manifest.shards[ready].first == manifest.span(ready)[0]:
            ready += 1
        samples = manifest.span(ready - 1)[1] + 1 if ready else 0
        if not manifest.complete and not allow_partial:
            raise StoreError(
                f"the store at {path} is not complete: {len(manifest.shards)} of {manifest.shard_count} shards",
                given=f"{samples} of {manifest.samples} samples",
                remedy="run the same record(...) again to finish it, or open what is there with allow_partial=True",
            )
        return cls(bucket.cache if bucket else Path(path), manifest, samples, bucket)

    def __reduce__(self) -> tuple[Callable[..., Store], tuple[str, bool]]:
        return _reopen, (self.address, not self.manifest.complete)

    def __repr__(self) -> str:
        part = "" if self.manifest.complete else f" of {self.manifest.samples}"
        model, data = self.manifest.model["name"], self.manifest.data["name"]
        return f"Store({self.address!r}: {model} on {data}, {len(self)}{part} samples, {len(self.sites)} sites)"

    def __len__(self) -> int:
        return self._samples

    # -- what is in it

    @property
    def address(self) -> str:
        """Where it was opened from."""
        return str(self.bucket or self.path)

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.manifest.sites)

    @property
    def prefix(self) -> tuple[str, ...]:
        """Names of the tokens before the patches."""
        return self.manifest.prefix

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._about["ids"][: len(self)])

    @property
    def labels(self) -> np.ndarray | None:
        return self._column("labels")

    @property
    def classes(self) -> tuple[str, ...] | None:
        """What the labels mean."""
        return None if self._about["classes"] is None else tuple(self._about["classes"])

    @property
    def lengths(self) -> np.ndarray | None:
        """Tokens of each text; positions beyond are padding and hold zeros. None for pictures."""
        return self._column("lengths")

    def resolve(self, site: str) -> str:
        """The one recorded site that a name, a negative block index or a glob stands for."""
        blocks = [name for name in self.sites if name.startswith("blocks.")]
        others = [name.removesuffix(":in") for name in self.sites if name not in blocks]
        found = expand(site, blocks, self.manifest.model["depth"], others)
        found = tuple(name for name in found if name in self.manifest.sites)
        if len(found) != 1:
            raise SiteError(
                f"{site!r} stands for {len(found)} sites of this store, not for one", given=site, accepted=self.sites
            )
        return found[0]

    def __getitem__(self, site: str) -> SiteArray:
        name = self.resolve(site)
        shape = (len(self), *self.manifest.sites[name].shape)
        piece = partial(self._piece, name)
        return SiteArray(name, shape, self.manifest.dtype, self.manifest.shard_samples, piece)

    def grid(self, site: str | None = None) -> Grid | None:
        """Rows and columns of patches at a site, by default the last that has any; None where there are no patches."""
        if site is not None:
            return self.manifest.sites[self.resolve(site)].grid
        return next((info.grid for info in reversed(tuple(self.manifest.sites.values())) if info.grid), None)

    def tokens(self, site: str) -> np.ndarray:
        """Which tokens of the model were kept: (sample, kept) positions; for patterns those of the query axis."""
        info = self.manifest.sites[self.resolve(site)]
        if info.tokens is None:
            raise SiteError(f"{site!r} has no tokens", given=site, accepted=f"its axes are {', '.join(info.axes)}")
        if self.manifest.settings["tokens"] == "all":
            return np.broadcast_to(np.arange(info.tokens, dtype=np.int32), (len(self), info.tokens))
        return self._kept[str(info.tokens)][: len(self)]

    # -- is it whole

    def verify(self, *, progress: bool = False) -> list[Problem]:
        """Reads every file and compares its hash with the manifest; an empty list means that all is well."""
        files = [(s.file, s.bytes, s.sha256) for s in self.manifest.shards]
        files += [(name, entry["bytes"], entry["sha256"]) for name, entry in self.manifest.files.items()]
        whole = sum(length for _, length, _ in files)
        with tqdm(total=whole, desc="verify", unit="B", unit_scale=True, disable=not progress, leave=False) as bar:
            found = [problem for file in files if (problem := _problem(self.bucket or self.path, *file, bar.update))]
        listed = {shard.file for shard in self.manifest.shards}
        extra = [f"shards/{name}" for name in self._shards_there() if f"shards/{name}" not in listed]
        return found + [Problem(name, "extra", "the manifest does not list it") for name in extra]

    # -- reading

    def _shards_there(self) -> list[str]:
        if self.bucket is not None:
            return self.bucket.names("shards")
        return sorted(path.name for path in self.path.glob("shards/*"))

    def _file(self, name: str, sha256: str) -> Path:
        """A file of the store on this machine."""
        return inside(self.path, name) if self.bucket is None else self.bucket.local(name, sha256)

    def _piece(self, site: str, number: int) -> np.ndarray:
        return self._shard(number)[site]

    def _map_shard(self, number: int) -> dict[str, np.ndarray]:
        first, last = self.manifest.span(number)
        shapes = {site: (last - first + 1, *info.shape) for site, info in self.manifest.sites.items()}
        return map_tensors(self._file(shard_name(number), self._hashes[first]), shapes, self.manifest.dtype)

    @cached_property
    def _hashes(self) -> dict[int, str]:
        return {shard.first: shard.sha256 for shard in self.manifest.shards}

    @cached_property
    def _kept(self) -> dict[str, np.ndarray]:
        count = self.manifest.settings["tokens"]
        numbers = {info.tokens for info in self.manifest.sites.values() if info.tokens is not None}
        shapes = {str(n): (self.manifest.samples, count) for n in sorted(numbers)}
        return map_tensors(self._file(TOKENS, self.manifest.files[TOKENS]["sha256"]), shapes, "int32")

    @cached_property
    def _about(self) -> dict[str, Any]:
        path = self._file(SAMPLES, self.manifest.files[SAMPLES]["sha256"])
        try:
            about = json.loads(path.read_bytes())
            columns = {name: about[name] for name in ("ids", "labels", "lengths", "classes")}
        except (OSError, ValueError, RecursionError, TypeError, LookupError) as error:
            raise StoreError(f"{path} cannot be read: {error!r}", remedy=DAMAGED) from None
        for name, column in columns.items():
            kind = str if name in ("ids", "classes") else int
            fits = isinstance(column, list) and all(type(value) is kind for value in column)
            if name != "classes":
                fits = fits and len(column) == self.manifest.samples
            if not fits and (column is not None or name == "ids"):
                raise StoreError(f"{path} does not fit the manifest: {name}", remedy=DAMAGED)
        return about

    def _column(self, name: str) -> np.ndarray | None:
        values = self._about[name]
        return None if values is None else np.asarray(values[: len(self)], np.int64)


def _reopen(path: str, allow_partial: bool) -> Store:
    return Store.open(path, allow_partial=allow_partial)


def leads_out(folder: Path, path: Path) -> bool:
    return not path.resolve().is_relative_to(folder.resolve())


def inside(folder: Path, name: str) -> Path:
    """The path of a file of the store; a link that leads out of the folder is refused."""
    path = folder / name
    if leads_out(folder, path):
        raise StoreError(f"{path} leads out of the store", given=str(path.resolve()), remedy="put the file there")
    return path


def _problem(folder: Path | Bucket, name: str, length: int, sha256: str, tick: Callable[[int], None]) -> Problem | None:
    if isinstance(folder, Bucket):
        return _remote_problem(folder, name, length, sha256, tick)
    path = folder / name
    if leads_out(folder, path):
        return Problem(name, "altered", f"a link out of the store, to {path.resolve()}")
    if not path.is_file():
        return Problem(name, "missing", "no such file")
    if (found := path.stat().st_size) != length:
        kind: Literal["truncated", "altered"] = "truncated" if found < length else "altered"
        return Problem(name, kind, f"{found} bytes instead of {length}")
    if (found_hash := file_hash(path, tick)) != sha256:
        return Problem(name, "altered", f"sha256 {found_hash[:12]}... instead of {sha256[:12]}...")
    return None


def _remote_problem(bucket: Bucket, name: str, length: int, sha256: str, tick: Callable[[int], None]) -> Problem | None:
    """Every byte comes over the network: what is cached says nothing about what lies there."""
    try:
        data = bucket.read(name)
    except FileNotFoundError:
        return Problem(name, "missing", "no such object")
    tick(len(data))
    if len(data) != length:
        return Problem(name, "truncated" if len(data) < length else "altered", f"{len(data)} bytes instead of {length}")
    found = hashlib.sha256(data).hexdigest()
    return None if found == sha256 else Problem(name, "altered", f"sha256 {found[:12]}... instead of {sha256[:12]}...")
