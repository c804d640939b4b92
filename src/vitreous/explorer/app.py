"""The explorer as an ASGI application: pages, and an API under /api whose refusals are JSON that says what to do."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from vitreous.errors import ImageError, ModelError, SettingsError, StoreError, VitreousError
from vitreous.explorer.album import LARGEST_FILE, NotThereError
from vitreous.explorer.pages import TYPES, addresses, live_script
from vitreous.explorer.room import Gone, Room
from vitreous.explorer.routes_audit import audit
from vitreous.explorer.routes_look import look
from vitreous.explorer.routes_notes import notes
from vitreous.explorer.routes_work import work
from vitreous.explorer.safety import Guard, Rules

log = logging.getLogger("vitreous.explorer")

BODIES = {"/api/pictures": LARGEST_FILE}
STATUS: tuple[tuple[type[VitreousError], int], ...] = (
    (NotThereError, 404),
    (ImageError, 415),
    (StoreError, 409),
    (ModelError, 409),
    (SettingsError, 400),
)


def make_app(room: Room, site: Path, rules: Rules) -> Guard:
    """`site` is the folder of the static pages."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        room.close()

    app = FastAPI(
        title="vitreous explorer",
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.room = room
    for router in (look, notes, work, audit):
        app.include_router(router, prefix="/api")
    _refusals(app)
    _pages(app, site, live_script(room.audit is not None))
    return Guard(app, rules)


def _problem(status: int, parts: Any) -> JSONResponse:
    return JSONResponse({"error": dict(parts)}, status)


def _refusals(app: FastAPI) -> None:
    """Every error is a message: what happened, what was given, what is accepted, what to do."""

    @app.exception_handler(VitreousError)
    async def refused(_: Request, error: VitreousError) -> JSONResponse:
        return _problem(next((code for kind, code in STATUS if isinstance(error, kind)), 400), error.parts)

    @app.exception_handler(RequestValidationError)
    async def misread(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return _problem(422, {"what": f"{where}: {first['msg']}", "remedy": "/api/openapi.json says what is accepted"})

    @app.exception_handler(HTTPException)
    async def told(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": {"what": str(error.detail)}}, error.status_code, error.headers)

    @app.exception_handler(Gone)
    async def gone(_: Request, __: Gone) -> Response:
        return Response(status_code=499)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        log.error("%s %s failed: %r", request.method, request.url.path, error, exc_info=error)
        return _problem(500, {"what": "something went wrong in the explorer", "remedy": "the terminal says what"})


def _pages(app: FastAPI, site: Path, script: str) -> None:
    files = addresses(site)

    @app.get("/data/live.js", include_in_schema=False)
    async def live() -> Response:
        return Response(script, media_type=TYPES[".js"])

    @app.api_route("/{address:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page(address: str) -> Response:
        path = files.get(f"/{address}")
        if path is None:
            return _problem(404, {"what": "there is no such page", "remedy": "the start page is at /"})
        if not path.is_file():
            return _problem(409, {"what": "a file of the pages is gone", "remedy": "start `vitreous explore` again"})
        return FileResponse(path, media_type=TYPES.get(path.suffix, "application/octet-stream"))
