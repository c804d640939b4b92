"""The command that serves a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vitreous.cli.options import Device, app, plain_errors


@app.command()
def explore(
    run: Annotated[Path, typer.Argument(help="Folder that `vitreous examine` or `vitreous demo` wrote.")],
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 for any that is free.", show_default="8765, or a free one")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Also open it in the browser.")] = False,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on, for others to look; the link then holds a token.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="Folder that `vitreous audit` wrote.", show_default="RUN/audit, if it is there")
    ] = None,
    device: Device = "auto",
) -> None:
    """Serves the pages of a run with its models alive: maps under the mouse, steering, notes. On this machine only."""
    from vitreous.explorer import explore as serve

    with plain_errors():
        serve(run, port=port, host=host, open_browser=open_browser, audit=audit, device=device, say=typer.echo)
