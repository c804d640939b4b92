"""Names and comments that people give to units."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from vitreous.explorer.room import REFUSALS, InRoom
from vitreous.explorer.units import UNIT, UnitId, refuse_unit
from vitreous.notes import LONGEST_COMMENT, LONGEST_NAME

notes = APIRouter(responses=REFUSALS, prefix="/notes")


class Written(BaseModel):
    """What is left out stays as it is; null takes it away."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=UNIT)]
    name: Annotated[str | None, Field(max_length=LONGEST_NAME)] = None
    comment: Annotated[str | None, Field(max_length=LONGEST_COMMENT)] = None


class Undo(BaseModel):
    model_config = ConfigDict(extra="forbid")

    undo: Annotated[str, Field(max_length=64)]


def _refuse(room: InRoom, id: str) -> None:
    """Notes are about units that there are."""
    unit = UnitId.read(id)
    refuse_unit(room.examination, unit)
    if unit.part is not None:
        unit.number(room.examination)


@notes.get("")
async def read(room: InRoom) -> dict[str, Any]:
    """All of them, and how many lines of the journal were damaged and passed over."""
    found = await asyncio.to_thread(room.journal.read)
    return {"notes": [vars(note) for note in found.current.values()], "damaged": found.damaged}


@notes.post("")
async def write(room: InRoom, written: Written) -> dict[str, Any]:
    """Names a unit or comments on it. `undo` takes it back."""
    await asyncio.to_thread(_refuse, room, written.id)
    values = {key: written.__dict__[key] for key in ("name", "comment") if key in written.model_fields_set}
    change = await asyncio.to_thread(lambda: room.journal.write(written.id, **values))
    return {"undo": change.number}


@notes.delete("")
async def clear(room: InRoom, id: Annotated[str, Query(pattern=UNIT)]) -> dict[str, Any]:
    """Takes away name and comment of a unit. `undo` brings them back."""
    await asyncio.to_thread(_refuse, room, id)
    change = await asyncio.to_thread(lambda: room.journal.write(id, name=None, comment=None))
    return {"undo": change.number}


@notes.post("/undo")
async def undo(room: InRoom, asked: Undo) -> dict[str, Any]:
    """Takes back a change; the number that comes back takes back the taking back."""
    change = await asyncio.to_thread(room.journal.undo, asked.undo)
    return {"undo": change.number}
