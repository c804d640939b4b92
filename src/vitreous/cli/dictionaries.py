"""The command that compares ways to take a layer apart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitreous.cli.options import (
    Device,
    EngineOption,
    Json,
    Model,
    Settings,
    Split,
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
    from vitreous.dictionary_comparison import DictionaryComparison


@app.command("compare-dictionaries")
def compare_dictionaries(
    model: Model,
    data: Annotated[str, typer.Argument(help="What `record` takes: methods are made from it.")],
    out: Annotated[str, typer.Option(help="Folder or address for rows, dictionaries and a page; the same goes on.")],
    site: SplitSite = "blocks.-1.mlp.out",
    methods: Annotated[str, typer.Option(help="'all', or names of rows, e.g. backbone,topk,elude.")] = "all",
    evaluate: Annotated[str, typer.Option(help="A share of the data to hold out, or other data.")] = "0.25",
    judge: Annotated[str | None, typer.Option(help="Another model, whose embedding judges units.")] = None,
    accuracy: Annotated[str, typer.Option(help="auto, head, probe or none.")] = "auto",
    expansion: Annotated[float, typer.Option(help="Units a channel of the layer.")] = 8,
    tokens: Annotated[str, typer.Option(help="'all', or how many random tokens a picture.")] = "8",
    top_k: Annotated[int | None, typer.Option(help="Strongest instances of a unit that ELUDe clusters.")] = None,
    min_cluster_size: Annotated[int | None, typer.Option(help="For ELUDe, in place of the expansion.")] = None,
    steps: Annotated[int, typer.Option(help="Steps a dictionary is trained for.")] = 1000,
    batch_size: Annotated[int, typer.Option(help="Rows of a step.")] = 512,
    learning_rate: Annotated[float, typer.Option(help="Of dictionaries.")] = 1e-3,
    k: Annotated[int | None, typer.Option(help="Active units a row; 20 by default.")] = None,
    sweep: Annotated[str, typer.Option(help="none, penalty (three each) or paper (9 or 27 each).")] = "penalty",
    sweep_steps: Annotated[int | None, typer.Option(help="Fewer steps for candidates of the sweep.")] = None,
    top: Annotated[int | None, typer.Option(help="Samples that MS-Score looks at.")] = None,
    seeds: Annotated[str, typer.Option(help="Seeds of tokens and training, e.g. 42,123,999.")] = "0",
    split: Split = None,
    weights: Weights = None,
    settings: Settings = None,
    device: Device = "auto",
    engine: EngineOption = "local",
    as_json: Json = False,
) -> None:
    """Backbone, sparse dictionaries, ELUDe and controls on one layer. Killed and run again, it goes on."""
    import vitreous as vt
    from vitreous.dictionary_comparison import hold_out

    with plain_errors():
        subject = load_model(model, weights, settings, device)
        source = open_data(data, subject, split, "raise", 0)
        share = _share(evaluate)
        train, held = hold_out(source, share) if share else (source, open_data(evaluate, subject, split, "raise", 1))
        drawn = parse_numbers("seeds", seeds)
        if drawn is None:
            raise SettingsError("seeds are numbers", given=seeds, accepted="--seeds 42,123,999")
        asked: dict[str, Any] = {"expansion": expansion, "tokens": drawn_tokens(tokens), "top_k": top_k}
        asked |= {"min_cluster_size": min_cluster_size, "steps": steps, "batch_size": batch_size, "k": k}
        asked |= {"learning_rate": learning_rate, "sweep": sweep, "top": top, "accuracy": accuracy, "seeds": drawn}
        asked |= {"sweep_steps": sweep_steps}
        found = vt.compare_dictionaries(
            subject,
            train,
            site,
            methods=methods if methods == "all" else methods.split(","),
            evaluate=held,
            judge=None if judge is None else vt.load(judge, device=device),
            out=out,
            engine=engine,
            **asked,
        )
        page = vt.dictionary_report(found, out, images=held if isinstance(held, vt.ImageSet) else None)
    typer.echo(f"report: {page.resolve()}", err=True)
    typer.echo(json.dumps(found.as_json(), indent=1)) if as_json else _print(found)


def _print(found: DictionaryComparison) -> None:
    """The table, in two where a terminal is too narrow for one: what is lost, and what is gained."""
    from vitreous.cli.text import print_table

    cells = found.cells()
    names = list(cells[0])
    cut = names.index("MS-Score") if "MS-Score" in names else len(names)
    title = f"{found.settings['site']} of {found.settings['model']['name']}"
    print_table(f"{title}: faithfulness", [{n: row[n] for n in names[:cut]} for row in cells])
    print_table(f"{title}: interpretability", [{n: row[n] for n in ("method", *names[cut:])} for row in cells])
    for note in found.notes:
        typer.echo(note)


def _share(evaluate: str) -> float | None:
    try:
        return float(evaluate)
    except ValueError:
        return None
