"""What is looked at: pictures, token maps, segments, neighbours, units, steering, words, the universal space."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from vitreous.errors import SettingsError
from vitreous.explorer.album import PICTURE, NotThereError, seen_box
from vitreous.explorer.answers import segments_answer
from vitreous.explorer.cloud import cloud_bytes
from vitreous.explorer.room import BYTES, JSON, PNG, REFUSALS, InRoom, landed
from vitreous.explorer.steered import LARGEST_FACTOR, MOST_STEERED
from vitreous.explorer.units import UNIT, UnitId, refuse_block, refuse_model

look = APIRouter(responses=REFUSALS)

Model = Annotated[str, Query(max_length=200)]
Picture = Annotated[str, Query(pattern=PICTURE, description="Number of a picture, or id of one that was dropped in.")]
Block = Annotated[int, Query(ge=-1000, le=1000)]


def _json(answer: bytes) -> Response:
    return Response(answer, media_type=JSON)


@look.get("/state")
async def state(room: InRoom) -> dict[str, Any]:
    """What there is: models, how many pictures, which were dropped in."""
    models = [
        {
            "name": entry.name,
            "about": entry.about,
            "depth": entry.depth,
            "rows": entry.grid.rows,
            "columns": entry.grid.columns,
            "prefix": list(entry.prefix),
            "blocks": list(entry.blocks),
            "loaded": room.live.workers[entry.name].loaded,
        }
        for entry in room.examination.models
    ]
    uploads = [upload.about() for upload in room.live.album.uploads]
    parts = await asyncio.to_thread(room.parts)
    return {"models": models, "pictures": len(room.examination.pictures), "parts": parts, "uploads": uploads}


@look.get("/picture/{id}", response_class=Response, responses={200: {"content": {PNG: {}}}})
async def picture(id: str, room: InRoom, model: Annotated[str | None, Query(max_length=200)] = None) -> Response:
    """A picture; with a model, what that model sees of it."""
    if model is not None:
        refuse_model(room.examination, model)
    steps = None if model is None else room.examination.model(model).preprocess
    return Response(await asyncio.to_thread(room.live.album.png, id, steps), media_type=PNG)


@look.post(
    "/pictures",
    status_code=201,
    openapi_extra={
        "requestBody": {"required": True, "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
    },
)
async def drop(request: Request, room: InRoom, name: Annotated[str, Query(max_length=400)] = "") -> dict[str, Any]:
    """Drops in a picture: the bytes of a file. It is kept in memory while the explorer runs."""
    data = await request.body()
    upload = await asyncio.to_thread(room.live.album.add, data, name)
    width, height = upload.image.size
    views = {}
    for entry in room.examination.models:
        left, top, right, bottom = seen_box(entry.preprocess, upload.image)
        views[entry.name] = [left / width, top / height, right / width, bottom / height]
    return upload.about() | {"views": views}


@look.get("/maps")
async def maps(
    request: Request,
    room: InRoom,
    model: Model,
    picture: Picture,
    block: Block = -1,
    target: Literal["sum", "energy"] = "sum",
) -> Response:
    """What each token after a block stands for: all tokens at once."""
    flight = room.live.maps(model, picture, block, target)
    return _json(await landed(request, room.live.worker(model), flight))


@look.get("/segments")
async def segments(
    request: Request,
    room: InRoom,
    model: Model,
    picture: Picture,
    block: Block = -1,
    k: Annotated[int | None, Query(ge=1, le=100_000)] = None,
) -> Response:
    """Patches in k segments, from a tree that is kept: changing k computes no map again."""
    tree = await landed(request, room.live.worker(model), room.live.segments(model, picture, block))
    return _json(segments_answer(tree, k))


@look.get("/neighbours")
async def neighbours(
    request: Request,
    room: InRoom,
    model: Model,
    layer: Block,
    picture: Picture,
    token: Annotated[int, Query(ge=0, le=1_000_000)],
    count: Annotated[int, Query(ge=1, le=200)] = 24,
) -> dict[str, Any]:
    """The most similar patches over pictures, layers and models. Tokens count from the first prefix token."""
    layer = refuse_block(room.examination, model, layer)
    near = await asyncio.to_thread(lambda: room.live.neighbourhood)
    patch = token - len(room.examination.model(model).prefix)
    if patch < 0:
        raise NotThereError("a prefix token is no patch, and has no neighbours", given=token)
    if picture.isdecimal():
        node = near.node(model, layer, room.live.album.number(picture), patch)
        vector, but = near.rows[node], (model, int(picture))
    else:
        placed = await landed(request, room.live.worker(model), room.live.placed(model, picture, layer))
        if not patch < len(placed):
            raise NotThereError("no such token", given=token, accepted=f"below {len(placed) + token - patch}")
        vector, but = placed[patch], None
    found = await asyncio.to_thread(near.nearest, vector, count, but)
    prefixes = {entry.name: len(entry.prefix) for entry in room.examination.models}
    for item in found:
        item["token"] = item.pop("patch") + prefixes.get(item["model"], 0)
    return {"items": found}


@look.get("/activations")
async def activations(
    request: Request,
    room: InRoom,
    model: Model,
    picture: Picture,
    unit: Annotated[str, Query(pattern=UNIT)],
) -> Response:
    """How much a unit or sub-unit answers to each patch of a picture."""
    asked = UnitId.read(unit)
    if asked.model != model:
        raise SettingsError("the unit belongs to another model", given=unit, accepted=model[:80])
    flight = await asyncio.to_thread(room.live.activations, asked, picture)
    return _json(await landed(request, room.live.worker(model), flight))


class Factor(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: Annotated[str, Field(pattern=UNIT)]
    factor: Annotated[float, Field(ge=-LARGEST_FACTOR, le=LARGEST_FACTOR)]


class Steering(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: Annotated[str, Field(max_length=200)]
    picture: Annotated[str | int, Field(union_mode="left_to_right")]
    block: Annotated[int, Field(ge=-1000, le=1000)]
    subunits: Annotated[list[Factor], Field(min_length=1, max_length=MOST_STEERED)]
    prefix: bool = False


@look.post("/steer")
async def steer(request: Request, room: InRoom, asked: Annotated[Steering, Body()]) -> Response:
    """The class scores and the map with some sub-units made stronger or weaker. The model stays as it is."""
    block = refuse_block(room.examination, asked.model, asked.block)
    factors = [(one.id, one.factor) for one in asked.subunits]
    ask = (asked.model, str(asked.picture), block, factors, asked.prefix)
    flight = await asyncio.to_thread(room.live.steer, *ask)
    return _json(await landed(request, room.live.worker(asked.model), flight))


@look.get("/search")
async def search(room: InRoom, q: Annotated[str, Query(max_length=200)]) -> dict[str, Any]:
    """Units and pictures by what they are called: labels, and what people wrote."""
    hits = await asyncio.to_thread(lambda: room.words.search(q, room.journal.read()))
    return {"items": [vars(hit) for hit in hits]}


@look.get("/cloud", response_class=Response, responses={200: {"content": {BYTES: {}}}})
async def cloud(room: InRoom) -> Response:
    """The universal space: four bytes of length, little-endian, a JSON head that says what follows, and arrays."""
    return Response(await asyncio.to_thread(cloud_bytes, room.examination), media_type=BYTES)
