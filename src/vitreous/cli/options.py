"""What commands share: the program, options that mean the same everywhere, and how input is read."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from vitreous.errors import SettingsError, VitreousError

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject
    from vitreous.texts import TextSet


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Makes transformers transparent: what units, sub-units, tokens and layers stand for, with the evidence.",
)

Model = Annotated[str, typer.Argument(help="Such as timm:vit_small_patch14_dinov2 or bundled:scenes-text.")]
SplitSite = Annotated[str, typer.Option(help="mlp.out, attn.out, .q, .k, .v, or a layer's path.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
EngineOption = Annotated[
    str, typer.Option("--engine", help="local, local:4 (worker processes), ray, ray:4, or torchrun.")
]
Weights = Annotated[str | None, typer.Option(help="Local .safetensors or .pth file, or 'random'.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Setting of the model's own constructor; may be repeated."),
]
Data = Annotated[str, typer.Argument(help="Pictures, as for `record`.")]
Split = Annotated[str | None, typer.Option(help="Split of a data set layout.")]


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
def plain_errors() -> Iterator[None]:
    """What we or the system refuse is a message, not a traceback; an interrupted run says that nothing is lost."""
    try:
        yield
    except VitreousError as error:
        _stop(str(error), 2)
    except OSError as error:
        if error.filename is None and error.errno != errno.ENOSPC:
            raise
        remedy = "is it the right path, may it be written to, and is there room? What is finished is kept"
        _stop(str(VitreousError(f"the system says: {error.strerror}", given=error.filename, remedy=remedy)), 2)
    except KeyboardInterrupt:
        _stop("interrupted; run the same command again to go on", 130)


def _stop(message: str, code: int) -> NoReturn:
    typer.secho(message, fg="red", err=True)
    raise typer.Exit(code)


def parse_settings(pairs: list[str] | None) -> dict[str, Any]:
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


def load_model(model: str, weights: str | None, settings: list[str] | None, device: str) -> Subject:
    """The model that a command's own options ask for."""
    import vitreous as vt

    return vt.load(model, weights=weights, device=device, **parse_settings(settings))


def say(facts: dict[str, Any], line: str, as_json: bool) -> None:
    """What a command found: facts for programs, or a line for people."""
    typer.echo(json.dumps(facts, indent=1) if as_json else line)


def parse_numbers(what: str, text: str) -> list[int] | None:
    """`0,5,-1` -> [0, 5, -1]; None for all."""
    if text == "all":
        return None
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError(f"{what} are 'all' or numbers", given=text, accepted=f"--{what} 0,1,2") from None


def drawn_tokens(text: str) -> int | Literal["all"]:
    """What --tokens means where tokens are drawn at random: how many of a sample, or all."""
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise SettingsError("tokens is 'all' or a number", given=text, accepted="--tokens 2")
    return int(text)


def open_data(data: str, subject: Subject, split: str | None, on_error: str, seed: int) -> ImageSet | TextSet:
    """What DATA names: texts for a language model, else pictures."""
    from vitreous.texts import TextSet

    if subject.modality == "text":
        if not Path(data).is_file():
            raise SettingsError(f"{subject.name} reads texts", given=data, accepted="a text file, one text a line")
        if subject.tokenizer is None:
            remedy = "save it into the model's folder: tokenizer.save_pretrained(folder)"
            raise SettingsError(f"{subject.name} has no tokenizer", remedy=remedy)
        return TextSet.from_texts(read_text(Path(data)).splitlines(), subject.tokenizer)
    size = subject.preprocess.size if subject.preprocess else (64, 64)
    return open_pictures(data, min(size), split, on_error, seed)


def read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SettingsError("this file is no text in UTF-8", given=f"{path.name}: {error}") from None


def open_images(data: str, subject: Subject, split: str | None, seed: int) -> ImageSet:
    """What DATA names, for a command that looks at pictures only."""
    from vitreous.images import ImageSet

    images = open_data(data, subject, split, "raise", seed)
    if not isinstance(images, ImageSet):
        raise SettingsError(f"{subject.name} reads texts; this command looks at pictures", given=data)
    return images


def open_pictures(data: str, size: int, split: str | None, on_error: str, seed: int) -> ImageSet:
    """Scenes, a published layout, or pictures; what was left out is said."""
    from vitreous.datasets.spoken import spoken_pictures

    images = spoken_pictures(data, size, split, on_error, seed)
    for name, reason in images.skipped:
        typer.echo(f"skipped {name}: {reason}", err=True)
    return images
