"""Folders on object storage, `s3://bucket/folder` and the like, by way of fsspec.

An object appears whole or not at all, so writing one is one step. What has to be mapped into memory is fetched into a
cache on this machine first, under the hash of its content: a cached file is never out of date.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from vitreous.errors import SettingsError, StoreError

Found = TypeVar("Found")
WAITS = (0.2, 1.0, 3.0)  # seconds before the second, third and fourth attempt
BLOCK = 1 << 20


def is_remote(path: str | Path) -> bool:
    return isinstance(path, str) and "://" in path


def cache_folder() -> Path:
    """VITREOUS_CACHE, or a folder in the user's cache."""
    return Path(os.environ.get("VITREOUS_CACHE") or Path.home() / ".cache" / "vitreous")


@dataclass(frozen=True)
class Bucket:
    """A folder at an address that fsspec knows; keys and endpoints come from where its file systems take them."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def cache(self) -> Path:
        """A folder on this machine that belongs to this address."""
        return cache_folder() / hashlib.sha256(self.url.rstrip("/").encode()).hexdigest()[:20]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            import fsspec

            system, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
        except ImportError as error:
            raise SettingsError(
                f"{self.url} needs a package that is not installed: {error}", remedy="pip install 'vitreous[cloud]'"
            ) from error
        except ValueError as error:
            raise SettingsError(f"no such kind of storage: {error}", given=self.url) from error
        return system, root.rstrip("/")

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url}  # a connection cannot be sent to another process

    def read(self, name: str) -> bytes:
        """The content of an object; FileNotFoundError where there is none."""
        return self._tried(lambda system, root: system.cat_file(f"{root}/{name}"))

    def write(self, name: str, data: bytes) -> None:
        self._tried(lambda system, root: system.pipe_file(f"{root}/{name}", data))

    def upload(self, name: str, file: Path) -> None:
        self._tried(lambda system, root: system.put_file(str(file), f"{root}/{name}"))

    def size(self, name: str) -> int | None:
        """Bytes of an object, None where there is none."""
        try:
            return int(self._tried(lambda system, root: system.info(f"{root}/{name}"))["size"])
        except FileNotFoundError:
            return None

    def names(self, folder: str = "") -> list[str]:
        """What lies directly in a folder, without the folder's own name."""
        try:
            found = self._tried(lambda system, root: system.ls(f"{root}/{folder}".rstrip("/"), detail=False))
        except FileNotFoundError:
            return []
        return sorted(name for path in found if (name := path.rstrip("/").rsplit("/", 1)[-1]))

    def all_names(self) -> list[str]:
        """Every object below the address, by its path from there."""

        def find(system: Any, root: str) -> list[str]:
            names = [path[path.index(root) + len(root) :].lstrip("/") for path in system.find(root)]
            return [name for name in names if name]  # an address that fills while it is listed is taken for a file

        try:
            return sorted(self._tried(find))
        except FileNotFoundError:
            return []

    def download(self, name: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self._tried(lambda system, root: system.get_file(f"{root}/{name}", str(file)))

    def remove(self, name: str) -> None:
        self._tried(lambda system, root: system.rm_file(f"{root}/{name}"))

    def local(self, name: str, sha256: str) -> Path:
        """A copy on this machine, fetched and checked the first time that it is asked for."""
        path = self.cache / "read" / f"{sha256}{Path(name).suffix}"
        if path.exists():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            self._tried(lambda system, root: system.get_file(f"{root}/{name}", str(draft)))
            if (found := file_hash(draft)) != sha256:
                raise StoreError(
                    f"{self.url}/{name} is damaged",
                    given=f"sha256 {found[:12]}... instead of {sha256[:12]}...",
                    remedy="delete it and run the same record(...) again to make it anew",
                )
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return path

    def _tried(self, call: Callable[[Any, str], Found]) -> Found:
        """The call, again after a while if it fails; each file system has errors of its own."""
        system, root = self._opened
        for wait in (*WAITS, None):
            try:
                return call(system, root)
            except FileNotFoundError:
                raise
            except PermissionError as error:  # nothing that time mends
                raise StoreError(
                    f"{self.url} may not be read or written: {error}",
                    remedy="keys that may, where its file system takes them from",
                ) from error
            except Exception as error:
                if wait is None:
                    raise StoreError(
                        f"{self.url} cannot be reached: {error}",
                        remedy="run the same again when it is back: what is finished is kept",
                    ) from error
                time.sleep(wait)
        raise AssertionError


def file_hash(path: Path, tick: Callable[[int], None] = lambda _: None) -> str:
    """sha256 of a file, read in blocks; `tick` hears how many bytes each had."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            tick(len(block))
    return digest.hexdigest()
