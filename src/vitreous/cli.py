"""The command `vitreous`. Each command is a thin layer over one public function; results go to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from vitreous.errors import SettingsError, VitreousError

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject
    from vitreous.store import Store
    from vitreous.texts import TextSet

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Makes transformers transparent: what units, sub-units, tokens and layers stand for, with the evidence.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Weights = Annotated[str | None, typer.Option(help="Local .safetensors or .pth file, or 'random'.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Setting of the model's own constructor; may be repeated."),
]


def _version(wanted: bool) -> None:
    if wanted:
        from vitreous import __version__

        typer.echo(f"vitreous {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it and stop.")
    ] = False,
) -> None:
    del version


@contextmanager
def _plain_errors() -> Iterator[None]:
    """What we refuse on purpose is a message, not a traceback; an interrupted run says that nothing is lost."""
    try:
        yield
    except VitreousError as error:
        _stop(str(error), 2)
    except KeyboardInterrupt:
        _stop("interrupted; run the same command again to go on", 130)


def _stop(message: str, code: int) -> NoReturn:
    typer.secho(message, fg="red", err=True)
    raise typer.Exit(code)


def _parse_settings(pairs: list[str] | None) -> dict[str, Any]:
    """`img_size=224` -> {"img_size": 224}: values are JSON where they can be, text otherwise."""
    settings: dict[str, Any] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise SettingsError("a setting is KEY=VALUE", given=pair, accepted="--set img_size=224")
        try:
            settings[key] = json.loads(value)
        except json.JSONDecodeError:
            settings[key] = value
    return settings


# -- commands


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("vitreous-demo"),
    scenes: Annotated[int, typer.Option(help="How many scenes to look at.", min=16)] = 512,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Records the bundled models on scenes and writes a first report. Needs no network."""
    from vitreous.demo import run_demo

    with _plain_errors():
        report = run_demo(out, scenes=scenes, seed=seed, device=device)
    typer.echo(f"report: {report.resolve()}")


@app.command()
def models(
    source: Annotated[str | None, typer.Argument(help="timm, hf, torchvision or bundled.")] = None,
    like: Annotated[str, typer.Option(help="Only names that match, e.g. '*dinov2*'.")] = "*",
    as_json: Json = False,
) -> None:
    """What can be loaded: families and sources, or all names of one source."""
    from vitreous.cli_text import family_rows, name_rows, print_table, source_rows
    from vitreous.models.sources import SOURCES

    with _plain_errors():
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
    from vitreous.cli_text import print_laws, print_subject, subject_facts
    from vitreous.laws import check_laws
    from vitreous.subjects import load, skeleton

    with _plain_errors():
        values = _parse_settings(settings)
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
    model: Annotated[str, typer.Argument(help="Such as timm:vit_small_patch14_dinov2 or bundled:scenes-text.")],
    data: Annotated[str, typer.Argument(help="Folder, zip, picture, scenes:N, LAYOUT:ROOT, or a .txt file of texts.")],
    out: Annotated[Path, typer.Option(help="Folder for the store.")],
    sites: Annotated[list[str] | None, typer.Option("--site", help="Site or glob; may be repeated.")] = None,
    tokens: Annotated[str, typer.Option(help="'all', or how many random tokens a sample.")] = "all",
    dtype: Annotated[str, typer.Option(help="float16, bfloat16 or float32.")] = "float16",
    size: Annotated[int | None, typer.Option(help="Input size in pixels, where it is not the model's own.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1)] = None,
    shard_mb: Annotated[float, typer.Option(help="Size of one shard in MB.")] = 256,
    split: Annotated[str | None, typer.Option(help="Split of a data set layout.")] = None,
    on_error: Annotated[str, typer.Option(help="raise, or skip unreadable pictures and list them.")] = "raise",
    weights: Weights = None,
    settings: Settings = None,
    resume: Annotated[bool, typer.Option(help="Go on with an unfinished store.")] = True,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Records activations into a store. Killed and run again, it goes on and ends with the same bytes."""
    from vitreous.cli_text import print_store, store_facts
    from vitreous.recording import record as record_into
    from vitreous.subjects import load

    with _plain_errors():
        subject = load(model, weights=weights, device=device, **_parse_settings(settings))
        for note in subject.notes:
            typer.echo(note, err=True)
        if tokens != "all" and not tokens.isdigit():
            raise SettingsError("tokens is 'all' or a number", given=tokens)
        store = record_into(
            subject,
            _open_data(data, subject, split, on_error, seed),
            sites or ["blocks.*.resid.out"],
            out=out,
            tokens="all" if tokens == "all" else int(tokens),
            dtype=dtype,  # type: ignore[arg-type]
            size=size,
            batch_size=batch_size,
            shard_mb=shard_mb,
            resume=resume,
            seed=seed,
        )
    typer.echo(json.dumps(store_facts(store), indent=1)) if as_json else print_store(store)


@app.command()
def inspect(
    store: Annotated[Path, typer.Argument(help="Folder of a store.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and compare with the manifest.")] = False,
    as_json: Json = False,
) -> None:
    """What a store holds; with --verify, whether it is whole. Ends with status 1 if it is not."""
    from vitreous.cli_text import print_problems, print_store, store_facts
    from vitreous.store import Store

    with _plain_errors():
        opened = Store.open(store, allow_partial=True)
        problems = opened.verify(progress=sys.stderr.isatty()) if verify else []
    if as_json:
        facts = store_facts(opened) | ({"problems": [str(p) for p in problems]} if verify else {})
        typer.echo(json.dumps(facts, indent=1))
    else:
        print_store(opened)
        if verify:
            print_problems(problems)
    if problems:
        raise typer.Exit(1)


@app.command()
def structure(
    store: Annotated[Path, typer.Argument(help="Folder of a store that holds blocks.*.resid.out.")],
    layers: Annotated[str, typer.Option(help="'all', or numbers of recorded layers, e.g. 0,1,2.")] = "all",
    tokens: Annotated[str, typer.Option(help="'first 3', 'all', or numbers of tokens, e.g. 0,5,6.")] = "first 3",
    bins: Annotated[int, typer.Option(help="Bins of the ranks.")] = 100,
    threshold: Annotated[float, typer.Option(help="Units that differ by less, in bins on average, are joined.")] = 1.0,
    transform: Annotated[str, typer.Option(help="grouped_rank, rank, raw or normalised_raw.")] = "grouped_rank",
    keep_nearly_dead: Annotated[bool, typer.Option(help="Also join units that are nearly always at one value.")] = True,
    compare: Annotated[Path | None, typer.Option(help="Another store, to test whether the two differ.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the finding and a page.")] = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Finds units of the residual stream that do the same job, within and across layers."""
    import vitreous as vt
    from vitreous.cli_text import distinct_names, print_structure, structure_facts

    progress = sys.stderr.isatty()
    with _plain_errors():
        stores = [vt.Store.open(path) for path in (store, compare) if path is not None]
        names = distinct_names(stores)
        findings = {
            name: vt.structure(
                opened,
                layers=_parse_numbers("layers", layers),
                tokens=_choose_tokens(opened, name, tokens),
                bins=bins,
                threshold=threshold,
                transform=transform,
                keep_nearly_dead=keep_nearly_dead,
                keep_transformed=out is not None or compare is not None,
                progress=progress,
            )
            for name, opened in zip(names, stores, strict=True)
        }
        tested = None
        if compare is not None:
            tested = vt.compare(*findings.values(), names=(names[0], names[1]), seed=seed, progress=progress)
        if out is not None:
            sources = dict(zip(names, stores, strict=True))
            page = vt.structure_report(findings, out, sources=sources, comparison=tested, progress=progress)
            typer.echo(f"report: {page.resolve()}", err=True)
    if as_json:
        typer.echo(json.dumps(structure_facts(findings, tested), indent=1))
    else:
        print_structure(findings, tested)


@app.command()
def disentangle(
    model: Annotated[str, typer.Argument(help="Such as timm:vit_small_patch14_dinov2 or bundled:scenes-text.")],
    data: Annotated[str, typer.Argument(help="What `record` takes, or the folder of a store with what enters SITE.")],
    out: Annotated[Path, typer.Option(help="Folder for the finding; the same folder goes on.")],
    site: Annotated[str, typer.Option(help="mlp.out, attn.out, .q, .k, .v, or a layer's path.")] = "blocks.-1.mlp.out",
    units: Annotated[str, typer.Option(help="'all', or numbers of units, e.g. 0,1,2.")] = "all",
    top_k: Annotated[int | None, typer.Option(help="Strongest instances of a unit.")] = None,
    tokens: Annotated[str, typer.Option(help="'all', or how many random tokens a sample.")] = "2",
    min_cluster_size: Annotated[int | None, typer.Option(help="Instances of a cluster at least.")] = None,
    expansion: Annotated[float | None, typer.Option(help="Sub-units a unit to aim for.")] = None,
    clusterer: Annotated[str, typer.Option(help="auto, full or exact.")] = "auto",
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Splits units of a layer into sub-units that answer to one thing each. Killed and run again, it goes on."""
    import vitreous as vt
    from vitreous.cli_text import disentangle_facts, print_table

    with _plain_errors():
        subject = vt.load(model, weights=weights, device=device, **_parse_settings(settings))
        stored = (Path(data) / "manifest.json").is_file()
        source = vt.Store.open(data) if stored else _open_data(data, subject, None, "raise", seed)
        asked: dict[str, Any] = {"top_k": top_k, "min_cluster_size": min_cluster_size, "expansion": expansion}
        asked |= {"units": _parse_numbers("units", units) or "all", "clusterer": clusterer, "seed": seed}
        many = _parse_numbers("tokens", tokens)
        asked |= {"tokens_per_image": many[0] if many else "all", "out": out}
        finding = vt.disentangle(subject, source, site, progress=sys.stderr.isatty(), **asked)
    facts = disentangle_facts(finding)
    typer.echo(json.dumps(facts, indent=1)) if as_json else print_table(f"{finding.site}: {out.resolve()}", [facts])


@app.command()
def train(
    recipe: Annotated[str | None, typer.Argument(help="Name of a recipe; without it, they are listed.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the run; the same folder goes on.")] = None,
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
    from vitreous.cli_text import print_table, recipe_rows
    from vitreous.training.run import train as train_into

    with _plain_errors():
        if recipe is None:
            typer.echo(json.dumps(recipe_rows(), indent=1)) if as_json else print_table("Recipes", recipe_rows())
            return
        if out is None:
            raise SettingsError("a run needs a folder", given="no --out", remedy=f"--out runs/{recipe}")
        changes = _parse_settings(settings) | ({} if seed is None else {"seed": seed})
        if loss:
            changes["structure_settings"] = _parse_settings(loss)
        trained = train_into(
            recipe, out, data=data, structure=structure, epochs=epochs, device=device, workers=workers, **changes
        )
    facts = {"folder": str(out), "epochs": len(trained.log), "accuracy": trained.accuracy}
    typer.echo(json.dumps(facts) if as_json else f"accuracy {trained.accuracy:.2f} %  {out.resolve()}")


def _choose_tokens(store: Store, name: str, tokens: str) -> list[int] | None:
    """What --tokens means for a store. Units grow with tokens, so three have to do where nobody asked for more."""
    if tokens != "first 3":
        return _parse_numbers("tokens", tokens)
    stream = [site for site in store.sites if site.endswith(".resid.out")]
    there = store[stream[0]].shape[1] if stream else 0
    if there > 3:
        typer.echo(f"{name}: tokens 0, 1 and 2 of {there}; --tokens chooses others", err=True)
    return list(range(min(3, there))) if stream else None


def _parse_numbers(what: str, text: str) -> list[int] | None:
    """`0,5,-1` -> [0, 5, -1]; None for all."""
    if text == "all":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"{what} are 'all' or numbers", given=text, accepted=f"--{what} 0,1,2") from None


def _open_data(data: str, subject: Subject, split: str | None, on_error: str, seed: int) -> ImageSet | TextSet:
    """What DATA names: scenes, a published layout, texts for a language model, or pictures."""
    from vitreous.datasets import LAYOUTS, dataset
    from vitreous.images import ImageSet
    from vitreous.scenery import scenes
    from vitreous.texts import TextSet

    kind, colon, rest = data.partition(":")
    if subject.modality == "text":
        path = Path(data)
        if not path.is_file():
            raise SettingsError(f"{subject.name} reads texts", given=data, accepted="a text file, one text a line")
        return TextSet.from_texts(path.read_text().splitlines(), subject.tokenizer)
    if colon and kind == "scenes":
        if not rest.isdigit():
            raise SettingsError("scenes:N needs a number", given=data, accepted="scenes:512")
        size = subject.preprocess.size if subject.preprocess else (64, 64)
        return scenes(int(rest), size=min(size), seed=seed)
    if colon and kind in LAYOUTS:
        return dataset(kind, rest, split, on_error=on_error)  # type: ignore[arg-type]
    images = ImageSet.open(data, on_error=on_error)
    for name, reason in images.skipped:
        typer.echo(f"skipped {name}: {reason}", err=True)
    return images
