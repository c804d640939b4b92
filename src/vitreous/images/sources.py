"""Where pictures come from: folders and zips. Picklable, read late, and no open file is shared between processes."""

from __future__ import annotations

import os
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vitreous.errors import ImageError
from vitreous.images.decode import SUFFIXES, Decoded, decode

SIDECARS = frozenset(
    ".txt .md .rst .json .jsonl .csv .tsv .xml .yaml .yml .toml .ini .html .htm .pdf .npy .npz .mat .pkl .pt .pth "
    ".safetensors .h5 .parquet .lst .db .url .sha256 .md5 .log .py .sh .m .zip .tar .gz .tgz".split()
)
SIDECAR_NAMES = frozenset({"license", "licence", "readme", "copying", "checksums", "md5sums", "sha256sums", "__macosx"})


@dataclass(frozen=True, eq=False)
class Marks:
    """What is known about a picture besides its pixels and its label."""

    mask: np.ndarray | None = None
    instances: np.ndarray | None = None
    boxes: np.ndarray | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Pictures by position, with what belongs to them."""

    def image(self, at: int) -> Decoded:
        """The picture, upright RGB."""

    def marks(self, at: int) -> Marks:
        """Its masks, boxes and the rest."""

    def contents(self, at: int) -> Iterator[bytes]:
        """The bytes that stand for picture, masks and boxes in the fingerprint, whatever path they lie at."""


@dataclass(frozen=True)
class Folder:
    """Files under a folder, by relative name."""

    root: Path

    def where(self, name: str) -> str:
        return str(self.root / name)

    def read(self, name: str) -> bytes:
        try:
            return (self.root / name).read_bytes()
        except OSError as error:
            raise ImageError(f"a file that cannot be read ({error.strerror})", given=self.where(name)) from error


class Archive:
    """Files in a zip, by their name inside. The zip is opened once a process and read by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[int, zipfile.ZipFile] | None = None

    def __getstate__(self) -> Path:
        return self.path

    def __setstate__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def where(self, name: str) -> str:
        return f"{self.path}!{name}"

    def _handle(self) -> zipfile.ZipFile:
        if self._open is None or self._open[0] != os.getpid():  # a forked process must not share a file position
            try:
                self._open = os.getpid(), zipfile.ZipFile(self.path)
            except (OSError, zipfile.BadZipFile) as error:
                raise ImageError(f"not a zip that can be read ({error})", given=str(self.path)) from error
        return self._open[1]

    def names(self) -> list[str]:
        with self._lock:
            return [info.filename for info in self._handle().infolist() if not info.is_dir()]

    def read(self, name: str) -> bytes:
        with self._lock:
            handle = self._handle()
            try:
                return handle.read(name)
            except (OSError, KeyError, zipfile.BadZipFile, RuntimeError, EOFError, NotImplementedError) as error:
                raise ImageError(f"a damaged or locked entry of a zip ({error})", given=self.where(name)) from error


@dataclass(frozen=True)
class Side:
    """One file a picture for its masks, boxes or the rest. `how` names the decoding in the fingerprint."""

    names: tuple[str | None, ...]
    decode: Callable[[bytes, str], Any]
    how: str


@dataclass(frozen=True, eq=False)
class Files:
    """Pictures that are encoded files; `sides` are read for 'mask', 'instances', 'boxes' and 'about'."""

    files: Folder | Archive
    names: tuple[str, ...]
    sides: Mapping[str, Side] = field(default_factory=dict)
    facts: Sequence[Mapping[str, Any]] | None = None  # goes into `about` as it is
    decode: Callable[[bytes, str], Decoded] = decode

    def image(self, at: int) -> Decoded:
        return self.decode(self.files.read(self.names[at]), self.files.where(self.names[at]))

    def marks(self, at: int) -> Marks:
        found: dict[str, Any] = {}
        for part, side in self.sides.items():
            if (name := side.names[at]) is not None:
                found[part] = side.decode(self.files.read(name), self.files.where(name))
        facts = {} if self.facts is None else self.facts[at]
        found["about"] = {"file": self.names[at], **facts, **found.get("about", {})}
        return Marks(**found)

    def contents(self, at: int) -> Iterator[bytes]:
        yield self.files.read(self.names[at])
        for part, side in self.sides.items():
            if part != "about" and (name := side.names[at]) is not None:
                yield f"{part}:{side.how}".encode()
                yield self.files.read(name)


def natural(name: str) -> tuple[Any, ...]:
    """Sorts 'img2' before 'img10'; the name itself decides between '1' and '01'."""
    parts = re.split(r"([0-9]+)", name)
    return (*((int(p), "") if k % 2 else (-1, p) for k, p in enumerate(parts)), (-2, name))


def list_folder(root: Path, recursive: bool) -> list[str]:
    """The relative names of all files, hidden ones left out. Folders behind links are followed, once each."""
    found: list[str] = []
    todo, seen = [""], {root.resolve()}
    while todo:
        prefix = todo.pop()
        with os.scandir(root / prefix) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if not entry.is_dir():
                    found.append(prefix + entry.name)
                elif recursive and (real := Path(entry).resolve()) not in seen:
                    todo.append(f"{prefix}{entry.name}/")
                    seen.add(real)
    return found


def pick_pictures(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """(picture names in natural order, names that are neither a picture nor something to pass over).

    Passed over: whatever has a part that starts with a dot or is named __MACOSX, and side-cars (`SIDECARS`).
    """
    pictures, unknown = [], []
    for name in names:
        parts = name.split("/")
        if any(part.startswith(".") or part.lower() == "__macosx" for part in parts):
            continue
        stem, dot, ending = parts[-1].lower().rpartition(".")
        if dot and f".{ending}" in SUFFIXES:
            pictures.append(name)
        elif not (f".{ending}" in SIDECARS or (stem if dot else ending) in SIDECAR_NAMES):
            unknown.append(name)
    return sorted(pictures, key=natural), sorted(unknown, key=natural)


def folder_labels(names: Sequence[str], labels: str) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Labels from the first folder of each name; classes in plain sorted order, as in torchvision's ImageFolder."""
    if labels not in ("auto", "folders", "none"):
        raise ImageError("unknown way to get labels", given=labels, accepted=("auto", "folders", "none"))
    parts = [name.split("/") for name in names]
    classes = tuple(sorted({part[0] for part in parts if len(part) > 1}))
    clear = len(classes) > 1 and all(len(part) == 2 for part in parts)
    if labels == "none" or (labels == "auto" and not clear):
        return None, None
    if flat := [name for name in names if "/" not in name]:
        raise ImageError(
            "a picture outside of the class folders has no label",
            given=flat[0],
            remedy="move it into a class folder, or labels='none'",
        )
    number = {name: k for k, name in enumerate(classes)}
    return np.array([number[part[0]] for part in parts], np.int64), classes


def existing(path: str | os.PathLike[str], what: str = "file or folder") -> Path:
    """The absolute path, or an error that lists what lies at the deepest folder that does exist."""
    full = Path(path).expanduser().absolute()
    if full.exists():
        return full
    missing, parent = full, full.parent
    while not parent.exists():
        missing, parent = parent, parent.parent
    try:
        beside = sorted(entry.name for entry in parent.iterdir() if not entry.name.startswith("."))
    except OSError:
        beside = []
    raise ImageError(f"no such {what}: {missing.name!r} is not in {parent}", given=missing.name, accepted=beside)
