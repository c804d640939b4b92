"""Serves a run until it is interrupted: on this machine only, unless an address is asked for by name."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from vitreous.errors import SettingsError
from vitreous.explorer.safety import Rules

if TYPE_CHECKING:
    from vitreous.examination import Examination

PORT = 8765
LOCAL = "127.0.0.1"
PATIENCE = 2  # seconds that open connections are given when the server ends


@dataclass(frozen=True)
class Door:
    """Where the server listens and by which link it is entered."""

    listening: socket.socket
    rules: Rules
    link: str


def explore(
    run: str | Path,
    *,
    port: int | None = None,
    host: str | None = None,
    open_browser: bool = False,
    audit: str | Path | None = None,
    device: str = "auto",
    say: Callable[[str], object] = str,
) -> None:
    """Serves the pages of a run with its models alive, until interrupted.

    Without a `port`, 8765 or any other that is free. Another `host` than this machine's own makes the explorer
    reachable from elsewhere; the link that `say` is given then holds a token, without which nothing is answered.
    `audit` is a folder that `vitreous audit` wrote; without it one in the run is opened, if it is there.
    """
    from vitreous.examination import open_run
    from vitreous.explorer.app import BODIES, make_app
    from vitreous.explorer.pages import write_pages
    from vitreous.explorer.room import Room
    from vitreous.site import write_site

    examination = open_run(run)
    door = open_door(host or LOCAL, port, BODIES)
    try:
        say(f"opening {_told(examination)}")
        site = write_pages(examination, write_site)
        room = Room(examination, audit=audit, device=device)
        app = make_app(room, site, door.rules)
        say(f"explore: {door.link}")
        say("Ctrl-C ends it" if door.rules.token is None else "whoever has this link can look; Ctrl-C ends it")
        if open_browser:
            import webbrowser

            webbrowser.open(door.link)
        serve(app, door.listening, room.jobs.close)
    finally:
        door.listening.close()


def _told(examination: Examination) -> str:
    names = ", ".join(entry.name for entry in examination.models)
    return f"{examination.folder}: {names} on {len(examination.pictures)} pictures"


def serve(app: Any, listening: socket.socket, ending: Callable[[], object] = bool) -> None:
    """Returns after the first interrupt, when open answers are sent or have had their time.

    `ending` is called at once, for those who listen to long work to be told.
    """
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            ending()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_level="critical",  # what goes wrong in an answer is said by the application
        access_log=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="on",
        limit_concurrency=256,
        timeout_graceful_shutdown=PATIENCE,
    )
    try:
        Server(config).run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has ended everything and passes the signal on
        return


def open_door(host: str, port: int | None, bodies: dict[str, int]) -> Door:
    """Binds the address, so that what is in use is said before anything else is done."""
    listening = _bound(host, port)
    taken = listening.getsockname()[1]
    if is_loopback(host):
        shown = f"[{host}]" if ":" in host else host
        return Door(listening, Rules.local(bodies), f"http://{shown}:{taken}/")
    rules = Rules.open_to([host, socket.gethostname(), socket.getfqdn()], taken, bodies)
    everywhere = host in ("0.0.0.0", "::", "")
    name = socket.gethostname() if everywhere else (f"[{host}]" if ":" in host else host)
    return Door(listening, rules, f"http://{name}:{taken}/?token={rules.token}")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bound(host: str, port: int | None) -> socket.socket:
    if port is not None and not 0 <= port < 65536:
        raise SettingsError("no such port", given=port, accepted="0 to 65535; 0 takes any that is free")
    try:
        return _listen(host, PORT if port is None else port)
    except OSError as error:
        if port is None and error.errno == errno.EADDRINUSE:
            return _listen(host, 0)
        raise _refused(error, host, port) from None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family)
    listening.setblocking(False)
    return listening


def _refused(error: OSError, host: str, port: int | None) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        remedy = "another --port, or --port 0 for any that is free; perhaps the explorer runs already"
        return SettingsError(f"port {port} is in use", given=port, remedy=remedy)
    if error.errno == errno.EACCES:
        return SettingsError(f"port {port} may not be used", given=port, accepted="1024 and above")
    return SettingsError(
        f"{host} is no address of this machine: {error.strerror or error}", given=host, remedy="leave --host out"
    )
