"""The explorer's application for tests, with a site of two files."""

from __future__ import annotations

from contextlib import contextmanager

from starlette.testclient import TestClient

from vitreous.examination import open_run
from vitreous.explorer.app import BODIES, make_app
from vitreous.explorer.room import Room
from vitreous.explorer.safety import Rules

HOST = "127.0.0.1:8765"


def small_site(folder):
    (folder / "data").mkdir(parents=True)
    (folder / "index.html").write_text("<p>start</p>")
    (folder / "data" / "index.js").write_text('vitreous.put("index", {})')
    return folder


@contextmanager
def client_of(run, site, rules=None, **settings):
    """A client of a server for this run; errors of ours are answers, as for everybody."""
    room = Room(open_run(run), device="cpu", **settings)
    app = make_app(room, small_site(site), rules or Rules.local(BODIES))
    with TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False) as client:
        client.room = room
        yield client
