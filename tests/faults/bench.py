"""Does stages of work in children of a nursery, and disturbs them."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path


def files(folder: Path) -> dict[str, str]:
    """Hash of every file, hidden ones and drafts too, apart from the one that says when and where."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(folder)): hashlib.sha256(content(path)).hexdigest() for path in paths}


def content(path: Path) -> bytes:
    """What a file holds. The bytes of a pickle also tell which of its parts were one object; of those, values count."""
    if path.suffix != ".pt":
        return path.read_bytes()
    import torch

    return repr(plain(torch.load(path, weights_only=True))).encode()


def plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value  # type: ignore[attr-defined]


class Nursery:
    """A process with everything loaded that forks a stage for every request."""

    def __init__(self, said: Path) -> None:
        self.said = said
        env = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("stages.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the nursery died"
        return line

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def start(self, stage: str, folder: Path) -> int:
        """The number of the child, which `end` waits for."""
        self.said.unlink(missing_ok=True)
        self._tell(json.dumps({"stage": stage, "folder": str(folder), "said": str(self.said)}))
        return int(self._line())

    def end(self) -> int:
        """0 if it got through, 3 if it raised, minus the signal that killed it otherwise."""
        self._tell("wait")
        return int(self._line())

    def run(self, stage: str, folder: Path) -> float:
        """The stage undisturbed, to its end; how long it took."""
        began = time.monotonic()
        self.start(stage, folder)
        ended = self.end()
        assert ended == 0, f"{stage} ended with {ended}: {self.said.read_text() if self.said.exists() else ''}"
        return time.monotonic() - began

    def struck(self, stage: str, folder: Path, kind: signal.Signals, after: float, seen: str = "") -> bool:
        """The stage with a signal so many seconds in, or after a file is `seen`; whether that came before the end."""
        child = self.start(stage, folder)
        while seen and not any(folder.glob(seen)) and Path(f"/proc/{child}/cmdline").read_bytes():  # empty at its end
            time.sleep(0.002)
        time.sleep(after)
        os.kill(child, kind)  # not reaped before the nursery hears of it, so the number is still its own
        return self.end() == -kind

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


def workers_of(parent: int) -> list[int]:
    """Worker processes that a child has started, without Python's own helper among them."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            of = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (entry / "cmdline").read_bytes()
        except (OSError, IndexError):
            continue
        if of == parent and b"spawn_main" in command:
            found.append(int(entry.name))
    return found
