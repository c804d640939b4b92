"""What people write about units: names and comments, kept in the run folder as a journal that only grows.

One line of JSON a change. Nothing is ever rewritten: taking a change back is another line, and so is taking that back.
A process that is killed leaves at most half a line at the end, which is passed over and never joined to the next.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from vitreous.errors import SettingsError, StoreError

FILE = "notes.jsonl"
LONGEST_ID, LONGEST_NAME, LONGEST_COMMENT = 400, 200, 4000
LONGEST_LINE = 64 * 1024  # bytes; whatever is longer was not written by us
LARGEST = 64 * 1024 * 1024  # bytes of a journal


@dataclass(frozen=True)
class Note:
    """What is written about a unit or sub-unit now; a name of None is the label as it was found."""

    id: str
    name: str | None = None
    comment: str | None = None
    when: str = ""


@dataclass(frozen=True)
class Change:
    """One line: new values of some fields of a note, or the number of a change that it takes back."""

    number: str
    when: str
    id: str | None = None
    values: tuple[tuple[str, str | None], ...] = ()
    undoes: str | None = None


@dataclass(frozen=True)
class Notes:
    """All changes in their order, and how many lines were none."""

    changes: tuple[Change, ...] = ()
    damaged: int = 0

    @cached_property
    def standing(self) -> tuple[Change, ...]:
        """The changes that nobody took back, in their order."""
        gone: set[str] = set()
        kept = []
        for change in reversed(self.changes):
            if change.number in gone:
                continue
            if change.undoes is not None:
                gone.add(change.undoes)
            else:
                kept.append(change)
        return tuple(reversed(kept))

    @cached_property
    def current(self) -> Mapping[str, Note]:
        """By id, what is written now; units with neither name nor comment are not in it."""
        found: dict[str, Note] = {}
        for change in self.standing:
            assert change.id is not None
            before = found.get(change.id, Note(change.id))
            said = {"name": before.name, "comment": before.comment, **dict(change.values)}
            found[change.id] = Note(change.id, said["name"], said["comment"], change.when)
        return {id: note for id, note in found.items() if note.name is not None or note.comment is not None}


def read_notes(run: str | Path) -> Notes:
    """The notes of a run folder; none if there is no journal. Lines that are damaged are counted and passed over."""
    path = Path(run) / FILE
    try:
        with path.open("rb") as file:
            return _read(file)
    except FileNotFoundError:
        return Notes()
    except OSError as error:
        raise StoreError(f"the notes cannot be read: {error.strerror}", given=path.name) from None


def _read(file: BinaryIO) -> Notes:
    changes, damaged = [], 0
    if os.fstat(file.fileno()).st_size > LARGEST:
        raise StoreError("the notes are larger than any that we write", given=FILE, accepted=f"{LARGEST:,} bytes")
    for line in file.read().split(b"\n"):
        if not line.strip():
            continue
        change = _change(line)
        changes += [change] if change else []
        damaged += change is None
    return Notes(tuple(changes), damaged)


def _change(line: bytes) -> Change | None:
    """A change, or None if the line is torn or somebody else's."""
    if len(line) > LONGEST_LINE:
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or not all(isinstance(said.get(key), str) for key in ("number", "when")):
        return None
    if isinstance(said.get("undoes"), str):
        return Change(said["number"], said["when"], undoes=said["undoes"])
    values = tuple((key, said[key]) for key in ("name", "comment") if key in said)
    if not isinstance(said.get("id"), str) or not all(v is None or isinstance(v, str) for _, v in values):
        return None
    return Change(said["number"], said["when"], said["id"], values)


class Journal:
    """Writes notes of a run folder. Several processes may write at once: each line is added under a lock."""

    def __init__(self, run: str | Path) -> None:
        self.path = Path(run) / FILE

    def read(self) -> Notes:
        return read_notes(self.path.parent)

    def write(self, id: str, **values: str | None) -> Change:
        """Sets `name`, `comment` or both; None takes one away. The change is on disk when this returns."""
        cleaned = tuple((key, _cleaned(key, value)) for key, value in values.items())
        if not cleaned or set(values) - {"name", "comment"}:
            raise SettingsError("a note has a name, a comment, or both", given=sorted(values))
        if not id or len(id) > LONGEST_ID or not id.isprintable():
            raise SettingsError("not the id of a unit", given=id[:80], accepted="MODEL/SITE/UNIT")
        return self._add({"id": id, **dict(cleaned)})

    def undo(self, number: str) -> Change:
        """Takes back a change; taking back an undoing brings the change to life again."""
        if number not in {change.number for change in self.read().changes}:
            raise SettingsError("there is no such change", given=number[:80], remedy="it may be of another run")
        return self._add({"undoes": number})

    def _add(self, said: Mapping[str, Any]) -> Change:
        when = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"number": secrets.token_hex(8), "when": when, **said}).encode()
        try:
            with self.path.open("ab+") as file, _locked(file):
                file.seek(0, os.SEEK_END)
                torn = file.tell() > 0 and (file.seek(-1, os.SEEK_END), file.read(1))[1] != b"\n"
                file.write(b"\n" * torn + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(
                f"the note cannot be kept: {error.strerror}",
                given=self.path.name,
                remedy="is the run folder writable, and is there room on the disk?",
            ) from None
        change = _change(line)
        assert change is not None
        return change


def _cleaned(key: str, value: str | None) -> str | None:
    """Text without space around it; nothing is None. Control characters other than line ends are refused."""
    text = (value or "").strip()
    most = LONGEST_NAME if key == "name" else LONGEST_COMMENT
    if len(text) > most:
        raise SettingsError(f"the {key} is too long", given=f"{len(text)} characters", accepted=f"up to {most}")
    allowed = "\n\t" if key == "comment" else ""
    if any(not c.isprintable() and c not in allowed for c in text):
        raise SettingsError(f"the {key} has characters that cannot be printed", given=text[:40])
    return text or None


@contextmanager
def _locked(file: BinaryIO) -> Iterator[None]:
    """Alone with the file; Windows, which has no such lock, relies on appending in one piece."""
    if os.name == "nt":
        yield
        return
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)
