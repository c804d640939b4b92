"""Commands for the whole: all lenses over some models, and the report of one run or several."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from vitreous.cli.options import (
    Device,
    Json,
    Seed,
    Settings,
    Split,
    app,
    open_pictures,
    parse_numbers,
    parse_settings,
    plain_errors,
    say,
)


@app.command()
def examine(
    models: Annotated[list[str], typer.Argument(help="One model or more, e.g. bundled:scenes-text.")],
    images: Annotated[str, typer.Option(help="Pictures: a folder, a zip, LAYOUT:FOLDER, or scenes:512.")],
    out: Annotated[str, typer.Option(help="Folder of the run, or an address (s3://...); the same goes on.")],
    blocks: Annotated[str, typer.Option(help="'auto' (early, middle, last), or numbers, e.g. 5,-1.")] = "auto",
    units: Annotated[
        int | None, typer.Option(min=1, help="So many units of each block, drawn; all without it.")
    ] = None,
    close: Annotated[int, typer.Option(min=4, help="Pictures that are looked at patch by patch.")] = 128,
    split: Split = None,
    on_error: Annotated[str, typer.Option(help="raise, or skip unreadable pictures and list them.")] = "raise",
    weights: Annotated[
        list[str] | None, typer.Option(help="Local weights, once a model in their order; '-' for the published ones.")
    ] = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Looks at models through all four lenses, with evidence. Killed and run again, it goes on: same bytes."""
    import vitreous as vt

    with plain_errors():
        files = None if weights is None else [None if file == "-" else file for file in weights]
        chosen = parse_settings(settings)
        loaded = [
            vt.load(name, weights=None if files is None or k >= len(files) else files[k], device=device, **chosen)
            for k, name in enumerate(models)
        ]
        size = min((min(one.preprocess.size) for one in loaded if one.preprocess), default=64)
        pictures = open_pictures(images, size, split, on_error, seed)
        asked: dict[str, Any] = {"units": units, "close": close, "seed": seed, "device": device}
        asked |= {"blocks": None if blocks == "auto" else parse_numbers("blocks", blocks)}
        asked |= {"weights": files, "settings": chosen}
        run = vt.examine(loaded, pictures, out, **asked)
    facts: dict[str, Any] = {"folder": str(out), "models": [one.name for one in run.models]}
    facts |= {"pictures": len(run.pictures), "units": len(run.unit_ids), "absent": dict(run.absent)}
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    typer.echo(f"{len(run.unit_ids):,} units of {', '.join(facts['models'])} on {len(run.pictures):,} pictures: {out}")
    for name, why in run.absent.items():
        typer.echo(f"  left out {name}: {why}")
    typer.echo(f"  vitreous report {out} --out {out}/report    writes pages that open anywhere")
    typer.echo(f"  vitreous explore {out} --open    the same with the models at hand")


@app.command()
def report(
    runs: Annotated[list[str], typer.Argument(help="Folders or addresses that `vitreous examine` wrote.")],
    out: Annotated[str, typer.Option(help="Folder of the report, or an address.")],
    single_file: Annotated[
        bool, typer.Option("--single-file", help="One file to mail: overview, lenses and the best cards.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Writes the report of one run or several: pages that open from the file system, without a server or network."""
    import vitreous as vt

    with plain_errors():
        path = vt.write_site([vt.open_run(run) for run in runs], out, single_file=single_file)
    size = path.stat().st_size if single_file else sum(p.stat().st_size for p in path.parent.rglob("*") if p.is_file())
    facts = {"report": str(path), "bytes": size}
    say(facts, f"{path}  ({size / 1e6:.1f} MB): open it in any browser", as_json)
