"""What all requests share: the run with its live models, notes, words, jobs; and how a request waits for a result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Request
from pydantic import BaseModel

from vitreous.explorer.audited import Audited, audit_folder
from vitreous.explorer.jobs import Jobs
from vitreous.explorer.live import Live
from vitreous.explorer.words import Words
from vitreous.notes import Journal

if TYPE_CHECKING:
    from vitreous.examination import Examination
    from vitreous.explorer.workers import Flight, Worker

LOOK_ROUND = 0.25  # seconds between two looks at whether somebody still waits
JSON, PNG, BYTES = "application/json", "image/png", "application/octet-stream"  # what answers hold


class Room:
    """One for the whole server."""

    def __init__(self, examination: Examination, *, audit: str | Path | None = None, **settings: Any) -> None:
        """`audit` is a folder that `vitreous audit` wrote; without it, one in the run is taken if it is there."""
        self.examination = examination
        self.live = Live(examination, **settings)
        self.journal = Journal(examination.folder)
        self.words = Words(examination)
        self.jobs = Jobs()
        folder = audit_folder(examination.folder, audit)
        self.audit = None if folder is None else Audited(folder, self.live.cache, settings.get("device", "auto"))

    def parts(self) -> dict[str, str | None]:
        """By name, why a part cannot be used; None if it can."""
        seen = self.examination
        found: dict[str, str | None] = {"align": seen.missing(lambda: seen.spectral)}
        for entry in seen.models:
            blocks = {f"disentangle/{entry.name}/{b}": (entry.name, b) for b in entry.blocks}
            found |= {key: seen.missing(lambda at=at: seen.disentanglement(*at)) for key, at in blocks.items()}  # type: ignore[misc]
            found[f"classes/{entry.name}"] = seen.missing(lambda name=entry.name: seen.classes(name))  # type: ignore[misc]
        return found if self.audit is None else found | {"audit": self.audit.missing()}

    def close(self) -> None:
        self.jobs.close()
        if self.audit is not None:
            self.audit.close()
        self.live.close()


def _room(request: Request) -> Room:
    return request.app.state.room


InRoom = Annotated[Room, Depends(_room)]


class Refusal(BaseModel):
    """What happened, what was given, what is accepted, what to do."""

    what: str
    given: str | None = None
    accepted: str | None = None
    nearest: str | None = None
    remedy: str | None = None


class Refused(BaseModel):
    error: Refusal


REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": {"model": Refused}, 422: {"model": Refused}}


class Gone(Exception):  # noqa: N818 - nobody is there to be told of an error
    """Whoever asked has hung up."""


async def landed(request: Request, worker: Worker, flight: Flight) -> Any:
    """The result of a flight. Work that nobody waits for any more is not begun."""
    future = asyncio.wrap_future(flight.future)
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=LOOK_ROUND)
            if not future.done() and await request.is_disconnected():
                raise Gone
        return future.result()
    finally:
        if not future.done():
            worker.leave(flight)
