"""Commands that look through a lens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitreous.cli.options import (
    Device,
    EngineOption,
    Json,
    Model,
    Seed,
    Settings,
    SplitSite,
    Weights,
    app,
    drawn_tokens,
    load_model,
    open_data,
    parse_numbers,
    plain_errors,
)
from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from vitreous.store import Store


@app.command()
def structure(
    store: Annotated[str, typer.Argument(help="Folder or address of a store that holds blocks.*.resid.out.")],
    layers: Annotated[str, typer.Option(help="'all', or numbers of recorded layers, e.g. 0,1,2.")] = "all",
    tokens: Annotated[str, typer.Option(help="'first 3', 'all', or numbers of tokens, e.g. 0,5,6.")] = "first 3",
    bins: Annotated[int, typer.Option(help="Bins of the ranks.")] = 100,
    threshold: Annotated[float, typer.Option(help="Units that differ by less, in bins on average, are joined.")] = 1.0,
    transform: Annotated[str, typer.Option(help="grouped_rank, rank, raw or normalised_raw.")] = "grouped_rank",
    keep_nearly_dead: Annotated[bool, typer.Option(help="Also join units that are nearly always at one value.")] = True,
    compare: Annotated[str | None, typer.Option(help="Another store, to test whether the two differ.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder or address for the finding and a page.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Finds units of the residual stream that do the same job, within and across layers."""
    import vitreous as vt
    from vitreous.cli.text import distinct_names, print_structure, structure_facts

    with plain_errors():
        stores = [vt.Store.open(path) for path in (store, compare) if path is not None]
        names = distinct_names(stores)
        findings = {
            name: vt.structure(
                opened,
                layers=parse_numbers("layers", layers),
                tokens=choose_tokens(opened, name, tokens),
                bins=bins,
                threshold=threshold,
                transform=transform,
                keep_nearly_dead=keep_nearly_dead,
                keep_transformed=out is not None or compare is not None,
            )
            for name, opened in zip(names, stores, strict=True)
        }
        tested = None
        if compare is not None:
            tested = vt.compare(*findings.values(), names=(names[0], names[1]), seed=seed)
        if out is not None:
            sources = dict(zip(names, stores, strict=True))
            page = vt.structure_report(findings, out, sources=sources, comparison=tested)
            typer.echo(f"report: {page.resolve()}", err=True)
    if as_json:
        typer.echo(json.dumps(structure_facts(findings, tested), indent=1))
    else:
        print_structure(findings, tested)


@app.command()
def disentangle(
    model: Model,
    data: Annotated[str, typer.Argument(help="What `record` takes, or the folder of a store with what enters SITE.")],
    out: Annotated[str, typer.Option(help="Folder for the finding, or an address (s3://...); the same goes on.")],
    site: SplitSite = "blocks.-1.mlp.out",
    units: Annotated[str, typer.Option(help="'all', or numbers of units, e.g. 0,1,2.")] = "all",
    top_k: Annotated[int | None, typer.Option(help="Strongest instances of a unit.")] = None,
    tokens: Annotated[str, typer.Option(help="'all', or how many random tokens a sample.")] = "2",
    min_cluster_size: Annotated[int | None, typer.Option(help="Instances of a cluster at least.")] = None,
    expansion: Annotated[float | None, typer.Option(help="Sub-units a unit to aim for.")] = None,
    selection: Annotated[str, typer.Option(help="leaf or eom: which clusters of the tree count.")] = "leaf",
    min_samples: Annotated[int | None, typer.Option(help="Instances around one in a dense place.")] = None,
    clusterer: Annotated[str, typer.Option(help="auto, full or exact.")] = "auto",
    page: Annotated[str | None, typer.Option(help="Folder for a page of units and sub-units, with pictures.")] = None,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    engine: EngineOption = "local",
    as_json: Json = False,
) -> None:
    """Splits units of a layer into sub-units that answer to one thing each. Killed and run again, it goes on."""
    import vitreous as vt
    from vitreous.cli.text import print_table
    from vitreous.places import is_remote

    with plain_errors():
        subject = load_model(model, weights, settings, device)
        stored = is_remote(data) or (Path(data) / "manifest.json").is_file()
        source = vt.Store.open(data) if stored else open_data(data, subject, None, "raise", seed)
        asked: dict[str, Any] = {"top_k": top_k, "min_cluster_size": min_cluster_size, "expansion": expansion}
        asked |= {"units": parse_numbers("units", units) or "all", "clusterer": clusterer, "seed": seed}
        asked |= {"selection": selection, "min_samples": min_samples}
        asked |= {"tokens_per_image": drawn_tokens(tokens), "out": out, "engine": engine}
        if page is not None and not isinstance(source, vt.ImageSet):
            raise SettingsError("a page shows pictures", given=data, remedy="give pictures, or leave --page out")
        finding = vt.disentangle(subject, source, site, **asked)
        if page is not None and isinstance(source, vt.ImageSet):
            path = vt.disentangle_report(finding, subject, source, page, seed=seed)
            typer.echo(f"report: {path.resolve()}", err=True)
    facts = finding.facts()
    typer.echo(json.dumps(facts, indent=1)) if as_json else print_table(f"{finding.site}: {out}", [facts])


def choose_tokens(store: Store, name: str, tokens: str) -> list[int] | None:
    """What --tokens means for a store. Units grow with tokens, so three have to do where nobody asked for more."""
    if tokens != "first 3":
        return parse_numbers("tokens", tokens)
    stream = [site for site in store.sites if site.endswith(".resid.out")]
    there = store[stream[0]].shape[1] if stream else 0
    if there > 3:
        typer.echo(f"{name}: tokens 0, 1 and 2 of {there}; --tokens chooses others", err=True)
    return list(range(min(3, there))) if stream else None
