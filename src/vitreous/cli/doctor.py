"""What is here and what is missing."""

from __future__ import annotations

import json

import typer

from vitreous.cli.options import Json, app


@app.command()
def doctor(as_json: Json = False) -> None:
    """Versions, devices, what is missing and how to get it. Ends with status 1 if something will not work."""
    from vitreous.cli.text import print_table
    from vitreous.doctor import as_rows, examine_machine

    checks = examine_machine()
    if as_json:
        typer.echo(json.dumps(as_rows(checks), indent=1))
    else:
        print_table("", as_rows(checks))
    if any(check.state == "wrong" for check in checks):
        raise typer.Exit(1)
