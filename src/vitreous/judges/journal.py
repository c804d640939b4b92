"""Judgements on disk, one a line, as they come: what was answered is never asked again.

A line's key is a hash of both grids in their order, the model, how it decodes, and the prompt. A line is written in one
piece; if the machine dies within it, the next run cuts the piece off and asks that one again. One run at a time: a
second one is refused, but on Windows, where a file cannot be locked in this way.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from vitreous.errors import StoreError
from vitreous.judges.answers import Judgement
from vitreous.judges.chat import ChatJudge

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HEADER = {"format": "vitreous judgements", "version": 1}


def question_key(judge: ChatJudge, prompt: str, grids: Sequence[str]) -> str:
    """Where the endpoint is does not count: the same model elsewhere is the same judge."""
    asked = [judge.model, judge.decoding, prompt, list(grids)]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class Journal:
    """What lies at `path`, made if it is not there.

    >>> with Journal("judgements.jsonl") as journal:
    ...     journal.get(key), journal.add(key, judgement, model="...", grids=(...))
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._known: dict[str, Judgement] = {}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self.path.open("a+b")
        try:
            self._lock()
            self._read()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        """Freed by the system when the file is closed, also by a process that dies."""
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError(
                f"another run writes into this journal: {self.path}", remedy="wait until it ends, or name another file"
            ) from None

    def _read(self) -> None:
        """What is known. A line that was torn is cut off."""
        whole = _whole_lines(self.path)
        for number, line in enumerate(whole.splitlines()[1:], start=2):
            key, judgement = _entry(line, self.path, number)
            self._known.setdefault(key, judgement)
        self._file.truncate(len(whole))
        if not whole:
            self._write(HEADER)

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: str) -> Judgement | None:
        return self._known.get(key)

    def add(self, key: str, judgement: Judgement, **about: Any) -> None:
        """Is on disk when this returns."""
        if key in self._known:
            return
        self._write({"key": key, "choice": judgement.choice, "why": judgement.why, "said": judgement.said, **about})
        self._known[key] = judgement

    def _write(self, entry: Any) -> None:
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._file.close()


def _whole_lines(path: Path) -> bytes:
    """The file up to its last whole line; nothing if it has not even a first one. A foreign file is left alone."""
    found = path.read_bytes()
    header = json.dumps(HEADER).encode() + b"\n"
    if header.startswith(found) and found != header:
        return b""  # nothing yet, or torn within the first line
    first, newline, _ = found.partition(b"\n")
    try:
        said = json.loads(first) if newline else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict) or said.get("format") != HEADER["format"]:
        raise StoreError(f"not a journal of judgements: {path}", remedy="name a file that is not there yet")
    if said.get("version") != HEADER["version"]:
        raise StoreError("a journal of another version", given=said.get("version"), accepted=str(HEADER["version"]))
    return found[: found.rfind(b"\n") + 1]


def _entry(line: bytes, path: Path, number: int) -> tuple[str, Judgement]:
    try:
        entry = json.loads(line)
        key, choice, why, said = entry["key"], entry["choice"], str(entry["why"]), tuple(map(str, entry["said"]))
        if not isinstance(key, str) or choice not in ("A", "B", None):
            raise ValueError(choice)
    except (ValueError, LookupError, TypeError, RecursionError):
        raise StoreError(f"line {number} of {path} is damaged", remedy="take the line out: it is asked again") from None
    return key, Judgement(choice, why, said)
