"""Shard files written so that a run can be killed at any moment: a file under its own name is always whole.

A shard is written under a draft name, synced, hashed and renamed; then the manifest that lists it is replaced in one
step. What a killed run leaves behind are drafts, which the next run writes over.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from vitreous.errors import StoreError
from vitreous.places import file_hash
from vitreous.provenance import json_bytes, replace_file, sync_folder
from vitreous.store.manifest import MANIFEST, Manifest, Shard, shard_name

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
AHEAD = 2  # batches that wait for the disk before the model has to wait as well
SEALERS = 2  # shards that are synced and hashed at once, beside the one that is written


@contextmanager
def locked(folder: Path, resume: bool) -> Iterator[None]:
    """Makes the folder and keeps every other recording out of it; the system frees the lock of a killed process.

    What is in the folder must be a store, and is touched only with `resume`. A folder that was made here and stayed
    empty is removed again.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise StoreError("a store is a folder, and this is a file", given=str(folder)) from None
    refuse_foreign(folder, resume)
    handle = _lock(folder / LOCK)
    try:
        yield
    finally:
        _unlock(folder / LOCK, handle)
        if made and not any(folder.iterdir()):
            folder.rmdir()


def refuse_foreign(folder: Path, resume: bool) -> None:
    found = sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, MANIFEST + ".tmp"))
    if found and MANIFEST not in found:
        raise StoreError(
            f"{folder} is not empty and not a store",
            given=found[:5],
            accepted="a new or empty folder, or a store to go on with",
        )
    if found and not resume:
        raise StoreError(
            f"{folder} already holds a store and resume=False",
            remedy="record into another folder, go on with resume=True, or delete the folder yourself",
        )


def _lock(path: Path) -> int:
    if fcntl is None:
        return _lock_by_deleting(path)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            current = path.exists() and os.fstat(handle).st_ino == path.stat().st_ino
        except BlockingIOError:
            owner = os.read(handle, 32).decode(errors="replace")
            os.close(handle)
            raise _busy(path, owner) from None
        if current:
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
            return handle
        os.close(handle)  # its owner deleted it when it ended, between our two calls


def _lock_by_deleting(path: Path) -> int:
    """Windows refuses to delete a file that somebody has open, and closes the files of a killed process."""
    try:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    except (PermissionError, FileExistsError):
        raise _busy(path, "") from None
    os.write(handle, str(os.getpid()).encode())
    return handle


def _unlock(path: Path, handle: int) -> None:
    if fcntl is None:  # Windows: only a file that is closed can be deleted
        os.close(handle)
        path.unlink(missing_ok=True)
        return
    try:
        path.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _busy(path: Path, owner: str) -> StoreError:
    return StoreError(
        f"another process{f' ({owner})' if owner else ''} is recording into {path.parent}",
        remedy="wait for it, or record into another folder",
    )


class ShardWriter:
    """Takes batches in order and writes them in a thread of its own, straight to their place in the draft of a shard.

    Memory holds the batches that wait, never a whole shard. A full draft is synced, hashed and renamed in other threads
    while the next one is written: hashing is slower than most disks. `keep` hears of every shard that is whole, in
    order and from one thread, with the manifest that lists it; without it the manifest is written into the folder.
    """

    def __init__(self, folder: Path, manifest: Manifest, keep: Callable[[Shard, Manifest], None] | None = None) -> None:
        self.manifest = manifest
        self._folder = folder
        self._keep = keep
        self._writer = ThreadPoolExecutor(1, "vitreous-shards")
        self._sealers = ThreadPoolExecutor(SEALERS, "vitreous-seals")
        self._keeper = ThreadPoolExecutor(1, "vitreous-manifest")
        self._waiting: deque[Future[None]] = deque()
        self._ending: deque[Future[None]] = deque()  # shards that are full, until the manifest lists them
        self._draft: BinaryIO | None = None
        self._next: int | None = None  # the sample that has to come next in an open draft
        self._listed = True  # every shard before, so that what a broken run leaves has no hole

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Shards that are full are kept even where something else went wrong, unless that was one of them."""
        try:
            while kind is None and self._waiting:
                self._waiting.popleft().result()
            while kind is None and self._ending:
                self._ending.popleft().result()
        finally:
            self._writer.shutdown(wait=True, cancel_futures=True)
            self._sealers.shutdown(wait=True)
            self._keeper.shutdown(wait=True)
            if self._draft is not None:
                self._draft.close()

    def put(self, first: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Hands over the batch that begins with sample `first`; waits when the disk is too far behind."""
        self._waiting.append(self._writer.submit(self._write, first, arrays))
        while len(self._waiting) > AHEAD:
            self._waiting.popleft().result()

    def _write(self, first: int, arrays: Mapping[str, np.ndarray]) -> None:
        number, row = divmod(first, self.manifest.shard_samples)
        head, starts, _ = self.manifest.layout(number)
        if first != self._next and (row or self._next is not None):
            raise StoreError(f"sample {first} came after a batch that could not be written", given=self._next)
        self._next = -1  # stays so if anything below fails, and keeps later batches out of a shard with a hole
        if row == 0:
            while len(self._ending) > SEALERS:
                self._ending.popleft().result()
            self._draft = (self._folder / f"{shard_name(number)}.tmp").open("wb")
            self._draft.write(head)
        assert self._draft is not None
        for site, array in arrays.items():
            self._draft.seek(starts[site] + row * array[0].nbytes)
            self._draft.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        last = first + len(next(iter(arrays.values()))) - 1
        if last == self.manifest.span(number)[1]:
            sealed = self._sealers.submit(self._seal, number, self._draft)
            self._ending.append(self._keeper.submit(self._list, sealed))
            self._next = self._draft = None
        else:
            self._next = last + 1

    def _seal(self, number: int, draft: BinaryIO) -> Shard:
        with draft:
            draft.flush()
            os.fsync(draft.fileno())
        written = self._folder / f"{shard_name(number)}.tmp"
        first, last = self.manifest.span(number)
        shard = Shard(shard_name(number), first, last, written.stat().st_size, file_hash(written))
        written.replace(self._folder / shard.file)
        sync_folder(written.parent)
        return shard

    def _list(self, sealed: Future[Shard]) -> None:
        if not self._listed:
            return
        self._listed = False
        shard = sealed.result()
        self.manifest = self.manifest.with_shard(shard)
        if self._keep is None:
            write_manifest(self._folder, self.manifest)
        else:
            self._keep(shard, self.manifest)
        self._listed = True


def write_manifest(folder: Path, manifest: Manifest) -> None:
    replace_file(folder / MANIFEST, json_bytes(manifest.as_json()))
