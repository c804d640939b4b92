"""Folders of runs on object storage: worked on in a folder of this machine, and sent as they grow.

Whoever writes a run leaves a folder that can be gone on with at any moment. Its files are sent in the order in which
they were last written, so what lies at the address is such a folder too, only a little older. Who wrote there last is
noted: on that machine the folder here is at least as new; on any other it is fetched anew.
"""

from __future__ import annotations

import inspect
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from vitreous.errors import SettingsError, StoreError
from vitreous.places import Bucket, is_remote

Asked = ParamSpec("Asked")
Given = TypeVar("Given")

EVERY = 30.0  # seconds between two rounds of sending
WRITER = ".writer"
UNSENT = (".tmp", ".lock", WRITER)  # drafts, and what belongs to this machine


def kept_at(name: str) -> Callable[[Callable[Asked, Given]], Callable[Asked, Given]]:
    """A function whose argument `name` is the folder that it writes may be given an address there."""
    return _with_folder(name, mirrored)


def read_from(name: str) -> Callable[[Callable[Asked, Given]], Callable[Asked, Given]]:
    """A function whose argument `name` is a folder that it reads may be given an address there."""
    return _with_folder(name, fetched)


def _with_folder(name: str, opened: Callable) -> Callable[[Callable[Asked, Given]], Callable[Asked, Given]]:
    def decorate(function: Callable[Asked, Given]) -> Callable[Asked, Given]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: Asked.args, **kwargs: Asked.kwargs) -> Given:
            bound = signature.bind(*args, **kwargs)
            where = bound.arguments.get(name)
            if where is None or not is_remote(where):
                return function(*args, **kwargs)
            with opened(str(where)) as folder:
                bound.arguments[name] = folder
                return function(*bound.args, **bound.kwargs)

        return call

    return decorate


@contextmanager
def mirrored(url: str) -> Iterator[Path]:
    """A folder on this machine that holds what lies at the address, and whose files are sent there."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SettingsError(
            "the processes of torchrun write into one folder",
            given=url,
            accepted="a folder that all of them see; vt.record alone takes an address there",
        )
    mirror = Mirror(Bucket(url.rstrip("/")))
    mirror.fetch()
    end = threading.Event()
    sender = threading.Thread(target=mirror.send_until, args=(end,), name="vitreous-mirror", daemon=True)
    sender.start()
    try:
        yield mirror.folder
    except Exception:
        end.set()
        sender.join()
        with suppress(StoreError):  # what went wrong first is what matters
            mirror.send()
        raise
    end.set()
    sender.join()
    mirror.send()
    mirror.remove_what_is_gone()


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """A folder on this machine that holds what lies at the address."""
    mirror = Mirror(Bucket(url.rstrip("/")))
    mirror.fetch()
    if not any(mirror.folder.iterdir()):
        raise StoreError("there is nothing at this address", given=url)
    yield mirror.folder


class Mirror:
    """`folder` stands for an address; `sent` has size and time of every file as it was when it was sent last."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.folder = bucket.cache / "run"
        self._own = bucket.cache / "writer"  # the name that this machine signs with
        self._signed = bucket.cache / "signed"  # there once it has
        self._sent: dict[str, tuple[int, int]] = {}

    def fetch(self) -> None:
        """Everything that is there, unless it was this machine that wrote it: then what is here is not older."""
        if self.folder.exists():
            last = self._last_writer()
            if last == self._own.read_bytes() or (last is None and not self._signed.exists()):
                return
        shutil.rmtree(self.folder, ignore_errors=True)
        self._signed.unlink(missing_ok=True)
        draft = self.folder.with_name(f"run.{os.getpid()}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for name in self.bucket.all_names():
            if not name.endswith(UNSENT):
                self.bucket.download(name, draft / name)
        self._own.write_text(uuid.uuid4().hex)
        draft.rename(self.folder)
        self._sent = self._files()

    def _last_writer(self) -> bytes | None:
        try:
            return self.bucket.read(WRITER)
        except FileNotFoundError:
            return None

    def send_until(self, end: threading.Event) -> None:
        while not end.wait(EVERY):
            with suppress(StoreError):  # it may be back the next time; the last time it is said
                self.send()

    def send(self) -> None:
        """What was written since the last time, in the order in which it was."""
        found = self._files()
        changed = [name for name, state in found.items() if self._sent.get(name) != state]
        if changed and not self._signed.exists():
            self.bucket.write(WRITER, self._own.read_bytes())
            self._signed.touch()
        for name in sorted(changed, key=lambda name: found[name][1]):
            with suppress(FileNotFoundError):  # it was taken away meanwhile
                self.bucket.upload(name, self.folder / name)
                self._sent[name] = found[name]

    def _files(self) -> dict[str, tuple[int, int]]:
        found = {}
        for path in self.folder.rglob("*"):
            name = path.relative_to(self.folder).as_posix()
            with suppress(FileNotFoundError):
                if path.is_file() and not name.endswith(UNSENT):
                    found[name] = (path.stat().st_size, path.stat().st_mtime_ns)
        return found

    def remove_what_is_gone(self) -> None:
        here = self._files()
        for name in self.bucket.all_names():
            if name not in here and name != WRITER:
                self.bucket.remove(name)
