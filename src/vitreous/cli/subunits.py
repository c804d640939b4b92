"""Commands for split units that are on disk: name them, steer with them, judge them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitreous.cli.options import (
    Data,
    Device,
    Json,
    Seed,
    Settings,
    Weights,
    app,
    load_model,
    open_images,
    plain_errors,
    say,
)
from vitreous.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np

    from vitreous.images import ImageSet
    from vitreous.labels import Labels
    from vitreous.lenses.disentangle import Disentanglement
    from vitreous.models.subject import Subject
    from vitreous.towers import Towers

Model = Annotated[str, typer.Argument(help="The model that was split, as for `disentangle`.")]
Subunits = Annotated[Path, typer.Option(help="Folder that `disentangle` wrote.")]
TowersOption = Annotated[
    str | None, typer.Option(help="Pictures and words in one space: 'bundled', or hf:FOLDER of a CLIP or SigLIP model.")
]
Vocabulary = Annotated[Path | None, typer.Option(help="Text file, one word or phrase a line.")]


@app.command()
def label(
    model: Model,
    data: Data,
    subunits: Subunits,
    vocabulary: Annotated[Path, typer.Option(help="Text file, one word or phrase a line.")],
    out: Annotated[Path, typer.Option(help="File for the labels, such as labels.npz.")],
    towers: TowersOption = None,
    embeddings: Annotated[
        Path | None, typer.Option(help="Or .npz with 'pictures' (picture, channel) and 'words' (word, channel).")
    ] = None,
    top: Annotated[int, typer.Option(help="Strongest pictures that a sub-unit is named by.")] = 100,
    chance: Annotated[float, typer.Option(help="Labels shown: those that luck gives at most this often.")] = 0.05,
    page: Annotated[
        Path | None, typer.Option(help="Folder for a page of units and sub-units with their labels.")
    ] = None,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Words for sub-units, by the pictures where they are strongest (CLIP-Dissect)."""
    import vitreous as vt
    from vitreous.subunits.pooled import strongest_in_pictures

    with plain_errors():
        subject, images, finding = _opened(model, data, subunits, weights, settings, device, seed)
        seen, words = _space(towers, embeddings, images, device)
        strongest = strongest_in_pictures(finding, subject, images)
        found = vt.label(strongest.subunits, seen, words, vocabulary, top=min(top, len(images)), seed=seed)
        found.save(out)
        if page is not None:
            path = vt.disentangle_report(finding, subject, images, page, labels=found)
            typer.echo(f"report: {path.resolve()}", err=True)
    rows = _label_rows(finding, found, chance)
    if as_json:
        typer.echo(json.dumps({"labels": str(out), "subunits": len(finding), "sure": rows}, indent=1))
    else:
        from vitreous.cli.text import print_table

        print_table(f"{len(rows)} of {len(finding)} sub-units with a label, chance at most {chance:g}", rows[:40])


@app.command()
def steer(
    model: Model,
    data: Data,
    subunits: Subunits,
    out: Annotated[Path, typer.Option(help="PNG of pictures before and after.")],
    amplify: Annotated[list[str] | None, typer.Option(help="A label or a sub-unit's number; repeatable.")] = None,
    suppress: Annotated[list[str] | None, typer.Option(help="A label or a sub-unit's number; repeatable.")] = None,
    labels: Annotated[Path | None, typer.Option(help="What `label` wrote.")] = None,
    alpha: Annotated[float, typer.Option(help="Factor of amplified sub-units.")] = 5.0,
    gamma: Annotated[float, typer.Option(help="Factor of suppressed sub-units.")] = -5.0,
    top_units: Annotated[int, typer.Option(help="Sub-units that a label stands for at most.")] = 50,
    patches: Annotated[str, typer.Option(help="'all', or how many patches of a sub-unit, the strongest.")] = "all",
    prefix: Annotated[bool, typer.Option(help="Steer class and register tokens too.")] = False,
    nearest: Annotated[bool, typer.Option(help="Take the nearest labels, in the words' space of --towers.")] = False,
    chance: Annotated[float, typer.Option(help="Leave out labels that may be luck.")] = 1.0,
    towers: TowersOption = None,
    vocabulary: Vocabulary = None,
    pictures: Annotated[int, typer.Option(help="Pictures that are shown.")] = 4,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """What a model says of pictures before and after sub-units are made stronger or weaker.

    What it says are its classes; for a model without a head, how well words fit (--towers and --vocabulary).
    """
    import vitreous as vt
    from vitreous.provenance import replace_file
    from vitreous.render import to_png
    from vitreous.subunits.applied import layer_of
    from vitreous.subunits.layers import grid_at
    from vitreous.views.steering import steering_card

    with plain_errors():
        subject, images, finding = _opened(model, data, subunits, weights, settings, device, seed)
        chosen = [images[k].image for k in range(min(pictures, len(images)))]
        x = subject.inputs(chosen)
        says, names = _reader(subject, towers, vocabulary, device)
        before = says(x)
        asked: dict[str, Any] = {"alpha": alpha, "gamma": gamma, "top_units": top_units, "prefix": prefix}
        asked |= {"patches": patches if patches == "all" else _whole(patches), "chance": chance}
        asked |= {"labels": None if labels is None else vt.Labels.load(labels)}
        asked |= {"embed": _towers(towers, device).text if nearest else None}
        asked |= {"amplify": _concepts(amplify), "suppress": _concepts(suppress)}
        with vt.steer(subject, finding, **asked) as steering:
            after = says(x)
        names = names or [f"class {k}" for k in range(before.shape[-1])]
        seen = steering.places.shape[1]
        grid = grid_at(subject, layer_of(finding, subject), seen) or (1, seen - steering.prefix)
        card = steering_card(steering, _as_seen(subject, chosen), grid, before, after, names)
        out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(out, to_png(card))
    moved = int((before.argmax(1) != after.argmax(1)).sum())
    facts = {"subunits": len(steering.subunits), "pictures": len(before), "first_changes": moved, "file": str(out)}
    facts["largest_change"] = float(abs(after - before).max())
    said = f"{len(steering.subunits)} sub-units steered; what is said first changes for {moved} of {len(before)}: {out}"
    say(facts, said, as_json)


@app.command()
def judge(
    model: Model,
    data: Data,
    subunits: Annotated[
        list[Path], typer.Option(help="Folder that `disentangle` wrote; may be repeated, for one layer.")
    ],
    embedding: Annotated[
        str | None, typer.Option(help="Another model: the coherence judge, which is no LLM Rank.")
    ] = None,
    endpoint: Annotated[
        list[str] | None, typer.Option(help="LLM Rank: MODEL@http://host/v1 of a chat endpoint; may be repeated.")
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="Environment variable that holds the endpoints' key.")
    ] = None,
    journal: Annotated[
        Path, typer.Option(help="Answers of endpoints; run again, only what is missing is asked.")
    ] = Path("judgements.jsonl"),
    pairs: Annotated[int, typer.Option(help="Pairs of units for every two methods.")] = 50,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Whose top pictures are more coherent: units, sub-units, or any pictures."""
    import vitreous as vt
    from vitreous.labels import embed_pictures

    with plain_errors():
        if (embedding is None) == (not endpoint):
            raise SettingsError("one kind of judge", given=(embedding, endpoint), accepted="--embedding or --endpoint")
        subject, images, _ = _opened(model, data, subunits[0], weights, settings, device, seed)
        tops = _tops(subject, images, subunits, seed)
        if embedding is not None:
            other = vt.load(embedding, device=device)
            ranking = vt.coherence_rank(tops, embed_pictures(other, images), pairs=pairs, seed=seed)
        else:
            judges = [_chat(text, key_variable) for text in endpoint or []]
            ranking = vt.llm_rank(tops, images, judges, journal=journal, pairs=pairs, seed=seed)
    say(ranking.as_json(), ranking.table(), as_json)


# -- what the commands share


def _opened(
    model: str, data: str, folder: Path, weights: str | None, settings: list[str] | None, device: str, seed: int
) -> tuple[Subject, ImageSet, Disentanglement]:
    import vitreous as vt

    finding = vt.Disentanglement.load(folder)
    subject = load_model(model, weights, settings, device)
    return subject, open_images(data, subject, None, seed), finding


def _space(towers: str | None, embeddings: Path | None, images: ImageSet, device: str) -> tuple[np.ndarray, Any]:
    """Pictures (picture, channel), and words as an array or a function."""
    import numpy as np

    from vitreous.labels import embed_pictures

    if (towers is None) == (embeddings is None):
        raise SettingsError(
            "pictures and words in one space, from one place",
            given=(towers, embeddings),
            accepted="--towers or --embeddings",
        )
    if embeddings is None:
        pair = _towers(towers, device)
        return embed_pictures(pair.image, images), pair.text
    try:
        with np.load(embeddings, allow_pickle=False) as file:
            return file["pictures"], file["words"]
    except (OSError, ValueError, KeyError) as error:
        raise SettingsError(
            f"no embeddings in this file: {error}",
            given=str(embeddings),
            accepted="an .npz with 'pictures' and 'words'",
        ) from None


def _towers(name: str | None, device: str) -> Towers:
    from vitreous.towers import open_towers

    if name is None:
        raise SettingsError("words have no space yet", remedy="--towers bundled, or --towers hf:FOLDER")
    return open_towers(name, device)


def _reader(
    subject: Subject, towers: str | None, vocabulary: Path | None, device: str
) -> tuple[Callable[[Any], np.ndarray], list[str]]:
    """From inputs to scores (picture, class), and the names of the classes; none if they are numbers."""
    import torch

    from vitreous.labels import read_vocabulary

    if towers is not None and vocabulary is not None:
        words = list(read_vocabulary(vocabulary))
        pair = _towers(towers, device)

        def fits(x: Any) -> np.ndarray:
            with torch.no_grad():
                return pair.fit(subject(x), words)

        return fits, words
    if subject.head is None:
        raise SettingsError(
            f"{subject.name} has no classes to say", given="no head", remedy="--towers bundled --vocabulary words.txt"
        )

    def classes(x: Any) -> np.ndarray:
        with torch.no_grad():
            return subject(x).float().softmax(-1).cpu().numpy()

    return classes, []


def _label_rows(finding: Disentanglement, found: Labels, chance: float) -> list[dict[str, Any]]:
    import numpy as np

    sure = np.flatnonzero((found.chance <= chance) & ~finding.dead)
    rows = []
    for sub in sure[np.argsort(found.chance[sure], kind="stable")].tolist():
        unit = int(finding.units[finding.parents[sub]])
        word, score = found[sub][0]
        rows.append({"sub-unit": sub, "unit": unit, "label": word, "score": round(score, 3)})
        rows[-1]["chance"] = round(float(found.chance[sub]), 3)
    return rows


def _tops(subject: Subject, images: ImageSet, folders: list[Path], seed: int) -> dict[str, np.ndarray]:
    """The nine pictures of units, of sub-units of every folder, and any nine."""
    import numpy as np

    import vitreous as vt
    from vitreous.subunits.pooled import strongest_in_pictures

    if len(images) < SHOWN:
        raise SettingsError("a unit is judged by nine pictures", given=f"{len(images)} pictures")
    findings = [vt.Disentanglement.load(folder) for folder in folders]
    if len({finding.site for finding in findings}) > 1:
        raise SettingsError("sub-units of one layer are compared", given=[finding.site for finding in findings])
    same = len({folder.name for folder in folders}) < len(folders)
    tops: dict[str, np.ndarray] = {}
    for folder, finding in zip(folders, findings, strict=True):
        strongest = strongest_in_pictures(finding, subject, images)
        tops.setdefault("units", vt.top_pictures(strongest.units, progress=False))
        name = "sub-units" if len(folders) == 1 else f"sub-units of {folder if same else folder.name}"
        if name in tops:
            raise SettingsError("one folder of sub-units is named twice", given=str(folder))
        tops[name] = vt.top_pictures(strongest.subunits[:, ~finding.dead], progress=False)
    rng = np.random.default_rng(seed)
    tops["any pictures"] = np.stack([rng.permutation(len(images))[:SHOWN] for _ in range(ANY)])
    return tops


SHOWN, ANY = 9, 200  # pictures of a unit; units of the control


def _chat(text: str, key_variable: str | None) -> Any:
    import vitreous as vt

    name, at, address = text.partition("@")
    if not at:
        raise SettingsError("an endpoint is MODEL@ADDRESS", given=text, accepted="qwen3-vl@http://localhost:8000/v1")
    return vt.ChatJudge(address, name, key_variable=key_variable)


def _concepts(texts: list[str] | None) -> list[str | int]:
    return [int(text) if text.isdigit() else text for text in texts or []]


def _whole(text: str) -> int:
    if not text.isdigit():
        raise SettingsError("patches are 'all' or a number", given=text)
    return int(text)


def _as_seen(subject: Subject, pictures: list[Any]) -> list[np.ndarray]:
    from vitreous.views.subunits import as_seen

    assert subject.preprocess is not None
    return [as_seen(subject.preprocess, picture) for picture in pictures]
