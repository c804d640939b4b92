"""Commands around models and what is recorded of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from vitreous.cli.options import (
    Device,
    EngineOption,
    Json,
    Model,
    Seed,
    Settings,
    Split,
    Weights,
    app,
    drawn_tokens,
    load_model,
    open_data,
    parse_settings,
    plain_errors,
)
from vitreous.errors import SettingsError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("vitreous-demo"),
    scenes: Annotated[int, typer.Option(help="How many scenes to look at.", min=16)] = 512,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Looks at the bundled models through all four lenses and writes a report. Needs no network."""
    from vitreous.demo import run_demo

    with plain_errors():
        report = run_demo(out, scenes=scenes, seed=seed, device=device)
    typer.echo(f"report: {report.resolve()}")
    typer.echo(f"`vitreous explore {out}` shows the same with the models at hand: hover, segment, steer")


@app.command()
def models(
    source: Annotated[str | None, typer.Argument(help="timm, hf, torchvision or bundled.")] = None,
    like: Annotated[str, typer.Option(help="Only names that match, e.g. '*dinov2*'.")] = "*",
    as_json: Json = False,
) -> None:
    """What can be loaded: families and sources, or all names of one source."""
    from vitreous.cli.text import family_rows, name_rows, print_table, source_rows
    from vitreous.models.sources import SOURCES

    with plain_errors():
        if source is not None and source not in SOURCES:
            raise SettingsError("unknown source", given=source, accepted=tuple(SOURCES))
        if source is not None:
            names = name_rows(source, like)
            typer.echo(json.dumps(names) if as_json else "\n".join(names) or f"no name of {source} matches {like!r}")
        elif as_json:
            typer.echo(json.dumps({"sources": source_rows(), "families": family_rows()}, indent=1))
        else:
            print_table("Sources", source_rows())
            print_table("Families", family_rows())


@app.command()
def sites(
    model: Annotated[str, typer.Argument(help="Such as timm:vit_small_patch14_dinov2 or hf:./folder.")],
    match: Annotated[str, typer.Option(help="Only sites that match, e.g. 'blocks.-1.*'.")] = "*",
    check: Annotated[bool, typer.Option("--check", help="Also run the laws of its family on random input.")] = False,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """The places in a model that can be recorded or replaced. Reads the architecture only: no weights are fetched."""
    from vitreous.cli.text import print_laws, print_subject, subject_facts
    from vitreous.laws import check_laws
    from vitreous.subjects import load, skeleton

    with plain_errors():
        values = parse_settings(settings)
        weights = None if model.startswith("bundled:") else "random"
        subject = load(model, weights=weights, device="cpu", **values) if check else skeleton(model, **values)
        names = subject.sites if match == "*" else subject.resolve(match)
        laws = check_laws(subject) if check else ()
    if as_json:
        facts = subject_facts(subject) | {"sites": list(names)}
        typer.echo(json.dumps(facts | ({"laws": [vars(law) for law in laws]} if check else {}), indent=1))
        return
    print_subject(subject, names)
    print_laws(laws)
    if any(not law.holds for law in laws):
        raise typer.Exit(1)


@app.command()
def record(
    model: Model,
    data: Annotated[str, typer.Argument(help="Folder, zip, picture, scenes:N, LAYOUT:ROOT, or a .txt file of texts.")],
    out: Annotated[str, typer.Option(help="Folder for the store, or an address such as s3://bucket/store.")],
    sites: Annotated[list[str] | None, typer.Option("--site", help="Site or glob; may be repeated.")] = None,
    tokens: Annotated[str, typer.Option(help="'all', or how many random tokens a sample.")] = "all",
    dtype: Annotated[str, typer.Option(help="float16, bfloat16 or float32.")] = "float16",
    size: Annotated[int | None, typer.Option(help="Input size in pixels, where it is not the model's own.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    shard_mb: Annotated[float, typer.Option(help="Size of one shard in MB.")] = 256,
    split: Split = None,
    on_error: Annotated[str, typer.Option(help="raise, or skip unreadable pictures and list them.")] = "raise",
    weights: Weights = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option(help="Go on with an unfinished store.")] = True,
    seed: Seed = 0,
    device: Device = "auto",
    engine: EngineOption = "local",
    as_json: Json = False,
) -> None:
    """Records activations into a store. Killed and run again, it goes on and ends with the same bytes."""
    from vitreous.cli.text import print_store, store_facts
    from vitreous.recording import record as record_into

    with plain_errors():
        subject = load_model(model, weights, settings, device)
        for note in subject.notes:
            typer.echo(note, err=True)
        store = record_into(
            subject,
            open_data(data, subject, split, on_error, seed),
            sites or ["blocks.*.resid.out"],
            out=out,
            tokens=drawn_tokens(tokens),
            dtype=dtype,  # type: ignore[arg-type]
            size=size,
            batch_size=batch_size,
            shard_mb=shard_mb,
            resume=resume,
            seed=seed,
            engine=engine,
        )
    typer.echo(json.dumps(store_facts(store), indent=1)) if as_json else print_store(store)


@app.command()
def inspect(
    store: Annotated[str, typer.Argument(help="Folder of a store, or its address.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and compare with the manifest.")] = False,
    as_json: Json = False,
) -> None:
    """What a store holds; with --verify, whether it is whole. Ends with status 1 if it is not."""
    from vitreous.cli.text import print_problems, print_store, store_facts
    from vitreous.store import Store

    with plain_errors():
        opened = Store.open(store, allow_partial=True)
        problems = opened.verify(progress=True) if verify else []
    if as_json:
        facts = store_facts(opened) | ({"problems": [str(p) for p in problems]} if verify else {})
        typer.echo(json.dumps(facts, indent=1))
    else:
        print_store(opened)
        if verify:
            print_problems(problems)
    if problems:
        raise typer.Exit(1)
