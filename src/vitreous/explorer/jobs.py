"""Long work, piece by piece behind whatever is urgent, with its progress; it can be stopped between two pieces."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any

from vitreous.errors import SettingsError, VitreousError
from vitreous.explorer.album import NotThereError
from vitreous.explorer.workers import Flight

ACTIVE, KEPT = 4, 64
LARGEST = 1_000_000  # pieces
RUNNING = ("waiting", "running")


@dataclass(eq=False)
class Job:
    """`state` is waiting, running, done, cancelled or failed."""

    id: str
    total: int
    done: int = 0
    state: str = "waiting"
    error: str | None = None
    _stop: threading.Event = field(default_factory=threading.Event, repr=False)

    def about(self) -> dict[str, Any]:
        return {"job": self.id, "state": self.state, "done": self.done, "total": self.total, "error": self.error}

    def run(self, pieces: Sequence[Callable[[], Flight]]) -> None:
        self.state = "running" if not self._stop.is_set() else "cancelled"
        for piece in pieces:
            if self._stop.is_set():
                self.state = "cancelled"
                return
            try:
                piece().future.result()
            except VitreousError as error:
                self.state, self.error = "failed", str(error).splitlines()[0]
                return
            except CancelledError:
                self.state = "cancelled"
                return
            except Exception:
                self.state, self.error = "failed", "something went wrong; the terminal says what"
                raise
            self.done += 1
        self.state = "done"


class Jobs:
    """Those that run, and the latest that have ended."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, pieces: Sequence[Callable[[], Flight]]) -> Job:
        if not 0 < len(pieces) <= LARGEST:
            raise SettingsError(
                "a job makes one map or more, and not too many", given=len(pieces), accepted=f"1 to {LARGEST:,} maps"
            )
        with self._lock:
            if sum(job.state in RUNNING for job in self._jobs.values()) >= ACTIVE:
                raise SettingsError("too many jobs are running", accepted=f"{ACTIVE} jobs at once", remedy="stop one")
            job = Job(secrets.token_hex(8), len(pieces))
            self._jobs[job.id] = job
            for old in [id for id, known in self._jobs.items() if known.state not in RUNNING]:
                if len(self._jobs) > KEPT:
                    del self._jobs[old]
        threading.Thread(target=job.run, args=(pieces,), daemon=True, name="vitreous job").start()
        return job

    def find(self, id: str) -> Job:
        job = self._jobs.get(id)
        if job is None:
            raise NotThereError("no such job", given=id[:40])
        return job

    def stop(self, id: str) -> Job:
        job = self.find(id)
        job._stop.set()
        return job

    def close(self) -> None:
        """Stops everything, and says so to whoever listens."""
        self.closed.set()
        for job in self._jobs.values():
            job._stop.set()
