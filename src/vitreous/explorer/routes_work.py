"""Long work: started, watched and stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from vitreous.explorer.jobs import RUNNING, Job, Jobs
from vitreous.explorer.room import REFUSALS, InRoom
from vitreous.explorer.units import refuse_block, refuse_model
from vitreous.explorer.workers import LATER

work = APIRouter(responses=REFUSALS, prefix="/jobs")

JobId = Annotated[str, Path(max_length=40)]
EVERY = 0.2  # seconds between two events
Number = Annotated[int, Field(ge=-1000, le=10_000_000)]


class Asked(BaseModel):
    """Maps of all these pictures at all these blocks, ahead of time."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["maps"]
    model: Annotated[str, Field(max_length=200)]
    pictures: Annotated[list[int | str], Field(min_length=1, max_length=20_000)]
    blocks: Annotated[list[Number], Field(min_length=1, max_length=1000)]


@work.post("", status_code=202)
async def start(room: InRoom, asked: Asked) -> dict[str, Any]:
    """Begins; what others ask for in the meantime comes first."""
    refuse_model(room.examination, asked.model)
    blocks = list(dict.fromkeys(refuse_block(room.examination, asked.model, block) for block in asked.blocks))
    pictures = list(dict.fromkeys(str(picture) for picture in asked.pictures))
    for picture in pictures:
        room.live.album.refuse(picture)
    pieces = [
        partial(room.live.maps, asked.model, picture, block, "sum", LATER) for picture in pictures for block in blocks
    ]
    return room.jobs.start(pieces).about()


@work.get("/{job}")
async def read(room: InRoom, job: JobId) -> dict[str, Any]:
    return room.jobs.find(job).about()


@work.delete("/{job}")
async def stop(room: InRoom, job: JobId) -> dict[str, Any]:
    """Stops after the piece that is being worked on; what is done stays."""
    return room.jobs.stop(job).about()


@work.get("/{job}/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def events(request: Request, room: InRoom, job: JobId) -> StreamingResponse:
    """Progress as server-sent events, until it has ended."""
    return StreamingResponse(_events(request, room.jobs, room.jobs.find(job)), media_type="text/event-stream")


async def _events(request: Request, jobs: Jobs, job: Job) -> AsyncIterator[str]:
    said = None
    while True:
        about = job.about()
        if about != said:
            yield f"data: {json.dumps(about)}\n\n"
            said = about
        if about["state"] not in RUNNING or jobs.closed.is_set() or await request.is_disconnected():
            return
        await asyncio.sleep(EVERY)
