"""Commands of the tokens lens: what tokens stand for, and segments."""

from __future__ import annotations

import json
from hashlib import sha256
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
    Weights,
    app,
    load_model,
    open_data,
    plain_errors,
    read_text,
    say,
)
from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from vitreous.lenses.tokens import TokenMaps
    from vitreous.models.subject import Subject
    from vitreous.views.panels import Page

Data = Annotated[str, typer.Argument(help="What `record` takes: pictures, or a file with one text a line.")]
Target = Annotated[str, typer.Option(help="sum or energy of a token.")]
Order = Annotated[str, typer.Option(help="rollout or printed.")]
Size = Annotated[int | None, typer.Option(help="Another input size in pixels.")]
Dtype = Annotated[str, typer.Option(help="float32 or bfloat16, of the backward pass.")]
Shown = Annotated[int, typer.Option(help="Pictures on the page.", min=1)]


@app.command()
def tokens(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for maps, pictures and a page.")],
    block: Annotated[str, typer.Option(help="Number of a block, or several, e.g. 0,5,-1.")] = "-1",
    only: Annotated[str, typer.Option("--tokens", help="'all', or numbers and names, e.g. class,40.")] = "all",
    summary: Annotated[str | None, typer.Option(help="For a language model: score the words of DATA for it.")] = None,
    target: Target = "sum",
    order: Order = "rollout",
    own: Annotated[str, typer.Option(help="max_of_others or keep: a token's own entry.")] = "max_of_others",
    size: Size = None,
    dtype: Dtype = "float32",
    shown: Shown = 8,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    engine: EngineOption = "local",
    as_json: Json = False,
) -> None:
    """Finds which pixels or words each token after a block is made of."""
    import vitreous as vt

    with plain_errors():
        subject = load_model(model, weights, settings, device)
        if summary is not None:
            _refuse_beside_summary(tokens=only, order=order, own=own, size=size, dtype=dtype, engine=engine)
            return _context(subject, data, summary, _numbers(block), out, target, as_json)
        source: Any = open_data(data, subject, None, "raise", seed)
        asked: dict[str, Any] = {"tokens": _tokens(only), "target": target, "order": order, "own": own}
        asked |= {"size": size, "dtype": dtype}
        found = vt.token_maps(subject, source, _numbers(block), engine=engine, **asked)
        files = _save(found, out)
        page = _page(subject, found, source, min(shown, len(source)))
        said = asked | {"block": [one.block for one in found], "model": model, "data": data}
        made_of = {"model": subject.fingerprint, "data": source.fingerprint}
        files += _write(page, out, "tokens", said, seed, made_of, "tokens.png")
    facts = {"samples": len(found[0]), "tokens": len(found[0].tokens), "blocks": [one.block for one in found]}
    _say(facts | {"folder": str(out), "files": files}, f"{found[-1]!r}", as_json)


@app.command()
def segment(
    model: Model,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for label pictures, run lengths and a page.")],
    k: Annotated[int | None, typer.Option(help="Segments of every picture; without it the tree decides.")] = None,
    threshold: Annotated[float, typer.Option(help="Where the tree is cut, as a share of its height.")] = 0.4,
    linkage: Annotated[str, typer.Option(help="ward, average, complete, single, ...")] = "ward",
    scale: Annotated[str, typer.Option(help="minmax, lift (against the average token) or none.")] = "minmax",
    weigh: Annotated[str, typer.Option(help="sum or mean of the maps of a cluster.")] = "sum",
    block: Annotated[int, typer.Option(help="Number of a block.")] = -1,
    target: Target = "sum",
    order: Order = "rollout",
    size: Size = None,
    dtype: Dtype = "float32",
    shown: Shown = 16,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    engine: EngineOption = "local",
    as_json: Json = False,
) -> None:
    """Cuts pictures up by what the tokens of a model stand for; no training, no labels."""
    import vitreous as vt
    from vitreous.views.token_page import segment_page

    with plain_errors():
        subject = load_model(model, weights, settings, device)
        images: Any = open_data(data, subject, None, "raise", seed)
        asked: dict[str, Any] = {"target": target, "order": order, "size": size, "dtype": dtype}
        maps = vt.token_maps(subject, images, block, engine=engine, **asked)
        chosen: Any = {"linkage": linkage, "scale": scale, "weigh": weigh}
        segments = vt.segment(maps, k, threshold, **chosen)
        files = [path.relative_to(out).as_posix() for path in segments.save(out)]
        seen = min(shown, len(images))
        said = asked | chosen | {"k": k, "threshold": threshold, "block": maps.block, "model": model, "data": data}
        page = segment_page(segments[:seen], [images[i] for i in range(seen)])
        made_of = {"model": subject.fingerprint, "data": images.fingerprint}
        files += _write(page, out, "segment", said, seed, made_of, "segments.png")
    facts = {"pictures": len(segments), "segments": segments.counts.tolist(), "folder": str(out), "files": files}
    _say(facts, f"{segments!r}", as_json)


def _page(subject: Subject, found: tuple[TokenMaps, ...], source: Any, shown: int) -> Page:
    from vitreous.views.token_page import spread_tokens, text_page, token_page

    if subject.modality == "image":
        return token_page(found, [source[k] for k in range(shown)], spread_tokens(found[-1], 5))
    from vitreous.lenses.tokens_text import words_of

    return text_page(found, [words_of(subject, source.tokens[k, : source.lengths[k]].tolist()) for k in range(shown)])


def _refuse_beside_summary(**given: Any) -> None:
    """Scores of words have no such choice: what was asked for is not passed over."""
    plain = {"tokens": "all", "order": "rollout", "own": "max_of_others", "size": None, "dtype": "float32"}
    for name, value in given.items():
        if value != plain.get(name, "local"):
            raise SettingsError(f"--{name} does not go with --summary", given=value, remedy=f"leave --{name} out")


def _context(
    subject: Subject, data: str, summary: str, blocks: list[int], out: Path, target: str, as_json: bool
) -> None:
    """Eq. 13, for the whole of a text file."""
    import vitreous as vt
    from vitreous.views.token_page import context_page

    path = Path(data)
    if not path.is_file():
        raise SettingsError("a context is a text file", given=data, accepted="a file that exists")
    if len(blocks) > 1:
        raise SettingsError("scores of words are of one block", given=blocks, accepted="--block -1")
    wanted: Any = target
    text = read_text(path).strip()
    found = vt.context_scores(subject, text, summary, blocks[0], target=wanted, progress=False)
    said = {"model": subject.name, "context": data, "summary": summary, "target": target, "block": found.block}
    made_of = {"model": subject.fingerprint, "data": sha256(text.encode()).hexdigest()}
    files = ["context.npz", *_write(context_page(found), out, "tokens", said, 0, made_of, "context.png")]
    found.save(out / "context.npz")
    scores = [{"word": word, "score": float(score)} for word, score in zip(found.words, found.scores, strict=True)]
    if as_json:
        typer.echo(json.dumps({"scores": scores, "folder": str(out), "files": files}, indent=1))
        return
    from rich.console import Console

    from vitreous.views.token_text import text_terminal

    Console(highlight=False).print(text_terminal(found.words, found.scores))
    typer.echo(f"{out.resolve()}: {', '.join(files)}")


def _save(found: tuple[TokenMaps, ...], out: Path) -> list[str]:
    names = ["maps.npz"] if len(found) == 1 else [f"maps-block{one.block}.npz" for one in found]
    for name, one in zip(names, found, strict=True):
        one.save(out / name)
    return names


def _write(
    page: Page, out: Path, command: str, said: dict[str, Any], seed: int, made_of: dict[str, str], picture: str
) -> list[str]:
    from vitreous.provenance import replace_file, start_run
    from vitreous.render import to_png
    from vitreous.report import write_report

    with start_run(out, command, said, seeds={"seed": seed}, inputs=made_of) as run:
        panels = [panel for section in page.sections for group in section.groups for panel in group.panels]
        replace_file(out / picture, to_png(panels[0], width=10))
        path = write_report(out, page.title, page.sections, run, overview=page.overview)
        run.note(report=path.name)
    return [picture, path.name]


def _say(facts: dict[str, Any], line: str, as_json: bool) -> None:
    files = facts["files"]
    shown = ", ".join(files[:6]) + (f" and {len(files) - 6} more" if len(files) > 6 else "")
    say(facts, f"{line}\n{Path(facts['folder']).resolve()}: {shown}", as_json)


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SettingsError("blocks are numbers", given=text, accepted="--block 0,5,-1") from None


def _tokens(text: str) -> Any:
    """`class,40` -> ["class", 40]."""
    if text == "all":
        return text
    return [int(part) if part.lstrip("-").isdigit() else part for part in text.split(",")]
