"""The audit: what is suspicious, its pictures, and the model with some of it switched off."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vitreous.errors import SettingsError
from vitreous.explorer.album import NotThereError
from vitreous.explorer.audited import Audited, picture_png
from vitreous.explorer.room import BYTES, JSON, PNG, REFUSALS, InRoom, Room, landed

audit = APIRouter(responses=REFUSALS, prefix="/audit")

Site = Annotated[str, Query(max_length=200)]
Number = Annotated[int, Query(ge=0, le=10_000_000)]


def audited(room: Room) -> Audited:
    if room.audit is None:
        remedy = "vitreous audit MODEL DATA --out OUT, then vitreous explore RUN --audit OUT"
        raise NotThereError("no audit is open here", remedy=remedy)
    return room.audit


@audit.get("")
async def read(room: InRoom) -> Response:
    """What was found: the answer, what it rests on, its controls, and the most suspicious parts."""
    return Response(await asyncio.to_thread(audited(room).about), media_type=JSON)


@audit.get("/part")
async def part(request: Request, room: InRoom, site: Site, id: Number) -> Response:
    """The pictures where a part speaks loudest for its class, with its map."""
    opened = audited(room)
    flight = await asyncio.to_thread(opened.part, site, id)
    return Response(await landed(request, opened.worker, flight), media_type=JSON)


@audit.get("/picture/{number}", response_class=Response, responses={200: {"content": {PNG: {}}}})
async def picture(request: Request, room: InRoom, number: Annotated[int, Path(ge=0, le=10_000_000)]) -> Response:
    """An audited picture, as the model sees it."""
    opened = audited(room)
    sweep = await landed(request, opened.worker, opened.ready())
    return Response(await asyncio.to_thread(picture_png, sweep, number), media_type=PNG)


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    site: Annotated[str, Field(max_length=200)]
    id: Annotated[int, Field(ge=0, le=10_000_000)]


class Off(BaseModel):
    """Parts that are switched off together."""

    model_config = ConfigDict(extra="forbid")

    parts: Annotated[list[Part], Field(max_length=2000)]

    @property
    def which(self) -> list[tuple[str, int]]:
        return [(part.site, part.id) for part in self.parts]


@audit.post("/switch")
async def switch(request: Request, room: InRoom, asked: Annotated[Off, Body()]) -> Response:
    """Decisions on all audited pictures before and after. The model itself stays as it is."""
    opened = audited(room)
    flight = await asyncio.to_thread(opened.switch, asked.which)
    return Response(await landed(request, opened.worker, flight), media_type=JSON)


@audit.get("/progress")
async def progress(room: InRoom) -> dict[str, Any]:
    """How many pictures the switch that is being worked on has decided, of how many."""
    return audited(room).progress()


@audit.post("/patch", response_class=Response, responses={200: {"content": {BYTES: {}}}})
async def patch(room: InRoom, asked: Annotated[Off, Body()]) -> Response:
    """The same as a file for `vt.SwitchOff.load`."""
    opened = audited(room)
    if not asked.parts:
        raise SettingsError("at least one part is switched off", given=0)
    data = await asyncio.to_thread(lambda: opened.patch(asked.which).data())
    return Response(data, media_type=BYTES, headers={"content-disposition": 'attachment; filename="patch.safetensors"'})
