"""Who made this, from what, with which versions: a `run.json` in every folder that a run writes.

Time stamps and machine names live here and nowhere else, so that every other file can be compared byte for byte.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from vitreous.errors import SettingsError

PACKAGES = ("vitreous", "torch", "timm", "transformers", "torchvision", "numpy", "pillow", "safetensors")


def sync_folder(folder: Path) -> None:
    """Makes renames in `folder` survive a power cut; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Puts `data` at `path` in one step: whoever looks, or dies in between, finds the old file or the new one."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_folder(path.parent)


def json_bytes(value: object) -> bytes:
    """JSON as every file of ours is written: the same value always gives the same bytes."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def versions() -> dict[str, str | None]:
    """Installed versions without importing anything; None is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return found


def machine() -> dict[str, object]:
    return {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()}


def _plain(value: object) -> object:
    """A value as JSON can hold it: what JSON does not know is written as its text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value not in (float("inf"), float("-inf")) and value == value:
        return value
    return value if value is None or isinstance(value, str | bool | int) else str(value)


@dataclass
class Run:
    """One run of a command; as a context manager it writes how it ended, also when it failed."""

    folder: Path
    record: dict[str, Any]
    keep: Callable[[str, bytes], None] | None = None
    _clock: float = field(default_factory=time.monotonic, repr=False)

    @property
    def path(self) -> Path:
        return self.folder / "run.json"

    def note(self, **facts: object) -> None:
        """Adds facts known only later (numbers of samples, hashes of outputs); written when the run ends."""
        self.record["notes"].update(_plain(facts))

    def end(self, status: str = "done", error: str | None = None) -> None:
        self.record |= {
            "status": status,
            "error": error,
            "ended": _now(),
            "seconds": round(time.monotonic() - self._clock, 3),
        }
        self.write()

    def write(self) -> None:
        data = json_bytes(self.record)
        replace_file(self.path, data)
        if self.keep is not None:
            self.keep(self.path.name, data)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.end()
        else:
            self.end("failed", f"{kind.__name__}: {error}")


def read_status(folder: str | Path) -> str | None:
    """How the run in a folder ended: "done", "failed", "running" (or killed); None if nothing there says so."""
    try:
        record = json.loads((Path(folder) / "run.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return str(record.get("status")) if isinstance(record, dict) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def start_run(
    folder: str | Path,
    command: str,
    settings: Mapping[str, object],
    *,
    seeds: Mapping[str, int] | None = None,
    inputs: Mapping[str, str] | None = None,
    device: str | None = None,
    keep: Callable[[str, bytes], None] | None = None,
) -> Run:
    """Writes `folder/run.json` with status "running" and gives the `Run` that will say how it ended.

    `inputs` names what went in by content hash; `keep` is given name and content too, where they lie elsewhere as well.
    A `run.json` that still says "running" long after belongs to a run that was killed.
    """
    folder = Path(folder)
    if re.match(r"\w{2,}:/", folder.as_posix()):  # as pathlib spells an address
        raise SettingsError(f"{command} writes into a folder, not at an address", given=str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "command": command,
        "argv": list(sys.argv),
        "settings": _plain(settings),
        "seeds": _plain(seeds or {}),
        "inputs": _plain(inputs or {}),
        "device": device,
        "versions": versions(),
        "machine": machine(),
        "started": _now(),
        "status": "running",
        "error": None,
        "ended": None,
        "seconds": None,
        "notes": {},
    }
    run = Run(folder, record, keep)
    run.write()
    return run
