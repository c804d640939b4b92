"""The command that trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vitreous.cli.options import Device, Json, app, parse_settings, plain_errors
from vitreous.errors import SettingsError


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="Name of a recipe; without it, they are listed.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the run, or an address; the same goes on.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data set, as its authors publish it.")] = None,
    structure: Annotated[bool, typer.Option(help="With the structure loss, or without it as the baseline.")] = True,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs after the warm-up.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Value of the recipe, e.g. batch=392; may be repeated."),
    ] = None,
    loss: Annotated[
        list[str] | None,
        typer.Option("--loss", metavar="KEY=VALUE", help="Setting of the structure loss, e.g. threshold=0.5."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=0, help="Processes that prepare pictures.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of every random choice; the recipe's by default.")] = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Trains a recipe with the structure loss. Killed and run again, it goes on. Use torchrun for several GPUs."""
    from vitreous.cli.text import print_table, recipe_rows
    from vitreous.training.recipes import find_recipe
    from vitreous.training.run import train as train_into

    with plain_errors():
        if recipe is None:
            typer.echo(json.dumps(recipe_rows(), indent=1)) if as_json else print_table("Recipes", recipe_rows())
            return
        find_recipe(recipe)
        if out is None:
            raise SettingsError("a run needs a folder", given="no --out", remedy=f"--out runs/{recipe}")
        changes = _changes(settings, {"epochs": epochs, "seed": seed})
        if loss:
            changes["structure_settings"] = parse_settings(loss)
        trained = train_into(recipe, out, data=data, structure=structure, device=device, workers=workers, **changes)
    facts = {"folder": str(out), "epochs": len(trained.log), "accuracy": trained.accuracy}
    typer.echo(json.dumps(facts) if as_json else f"accuracy {trained.accuracy:.2f} %  {out}")


def _changes(settings: list[str] | None, options: dict[str, int | None]) -> dict[str, Any]:
    """What `--set` and the options change of a recipe; nothing twice, and nothing that is no value of a recipe."""
    from dataclasses import fields

    from vitreous.training.recipes import Recipe

    changes = parse_settings(settings)
    known = {field.name for field in fields(Recipe)} - {"name", "about", "data", "structure"}
    if wrong := sorted(set(changes) - known):
        remedy = "--data and --loss say what these are" if {*wrong} & {"data", "structure"} else None
        raise SettingsError("a recipe has no such value", given=wrong, accepted=sorted(known), remedy=remedy)
    for name, value in options.items():
        if value is not None:
            if name in changes:
                raise SettingsError(f"{name} is said twice", given=f"--{name} {value} and --set {name}={changes[name]}")
            changes[name] = value
    return changes
