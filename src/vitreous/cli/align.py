"""Commands of the align lens: a cut over stores, and an alignment of several models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from vitreous.cli.options import Device, Json, Seed, app, open_pictures, plain_errors, say
from vitreous.errors import SettingsError

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.responses import Responses
    from vitreous.store import Store

SHOWN = 64  # pixels of a scene whose size nobody knows
Stores = Annotated[list[str], typer.Argument(help="Folders or addresses of stores of the same pictures, one a model.")]
Sites = Annotated[str, typer.Option(help="Which recorded sites are layers.")]


@app.command()
def ncut(
    stores: Stores,
    out: Annotated[str, typer.Option(help="Folder for the atlas, a mosaic and a page, or an address.")],
    sites: Sites = "blocks.*.attn.out",
    eigenvectors: Annotated[int, typer.Option(min=2)] = 20,
    method: Annotated[str, typer.Option(help="auto, exact, low_rank or paper.")] = "auto",
    landmarks: Annotated[int | None, typer.Option(help="Nodes of low_rank (512) or m of paper (10,000).")] = None,
    neighbours: Annotated[int, typer.Option(min=1, help="K of paper.")] = 100,
    alignment: Annotated[str | None, typer.Option(help="Folder of `vitreous align`: cut in its space.")] = None,
    data: Annotated[str | None, typer.Option(help="The pictures that were recorded, to be shown.")] = None,
    shown: Annotated[int, typer.Option(help="Pictures on the page.", min=1)] = 4,
    sample: Annotated[int, typer.Option(help="Nodes that t-SNE places; others follow the nearest.", min=5)] = 4000,
    seed: Seed = 0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Cuts the patches of all pictures, layers and models into concepts: colours, likeness, ways through layers."""
    import vitreous as vt

    with plain_errors():
        opened = _open(stores)
        pictures = _pictures(data, opened, seed)
        read = None if alignment is None else vt.ChannelAlign.load(alignment).transform
        wanted: dict[str, Any] = {"sites": sites, "method": method, "read": read, "seed": seed, "device": device}
        wanted |= {"n_sample": landmarks, "k": neighbours}
        spectral = vt.ncut(opened, eigenvectors, **wanted)
        found = vt.atlas(spectral, ids=next(iter(opened.values())).ids, n_sample=sample, seed=seed)
        page = vt.cut_report(found, out, images=pictures, stores=opened, shown=shown)
    files = sorted(path.name for path in page.parent.iterdir())
    facts = {"nodes": len(spectral), "method": spectral.method, "models": list(opened), "folder": str(out)}
    facts |= {name: spectral.settings[name] for name in ("n_sample", "k")}
    facts |= {"eigenvalues": [round(float(value), 5) for value in spectral.eigenvalues], "files": files}
    said = f"{len(spectral):,} patches of {', '.join(opened)}, {spectral.method}"
    say(facts, f"{said}\nreport: {page.resolve()}", as_json)


@app.command()
def align(
    stores: Stores,
    responses: Annotated[Path, typer.Option(help=".npy (image, response), .npz, or an Algonauts 2023 subject.")],
    out: Annotated[str, typer.Option(help="Folder or address for the alignment and a page; the same goes on.")],
    sites: Sites = "blocks.*.attn.out",
    data: Annotated[str | None, typer.Option(help="The pictures that were recorded; their masks are scored.")] = None,
    width: Annotated[int, typer.Option(min=1, help="Channels of the shared space.")] = 256,
    lambda_eigen: Annotated[float, typer.Option(help="Weight of the eigen-constraint.")] = 1.0,
    lambda_zero: Annotated[float, typer.Option(help="Weight of zero-centred channels.")] = 0.01,
    lambda_cov: Annotated[float, typer.Option(help="Weight of the covariance of channels.")] = 0.01,
    lambda_agree: Annotated[float, typer.Option(help="Weight of patches' likeness to themselves elsewhere.")] = 0.0,
    predict: Annotated[
        str, typer.Option(help="together: the mean of all layers, as in the paper; or alone.")
    ] = "together",
    epochs: Annotated[int, typer.Option(min=1)] = 200,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
) -> None:
    """Brings layers of several models into one channel space that predicts responses. Killed, it goes on."""
    import vitreous as vt

    with plain_errors():
        opened, answers = _open(stores), _responses(responses)
        pictures = _pictures(data, opened, seed)
        found = vt.align(
            opened,
            pictures,
            answers,
            sites=sites,
            width=width,
            lambda_eigen=lambda_eigen,
            lambda_zero=lambda_zero,
            lambda_cov=lambda_cov,
            lambda_agree=lambda_agree,
            predict=predict,
            epochs=epochs,
            out=out,
            seed=seed,
            device=device,
        )
        page = vt.align_report(found, out, stores=opened, images=pictures, responses=answers)
    rows = {row["region"]: row for row in found.records()}
    facts = {"folder": str(out), "layers": len(found.slots), "epochs": len(found.log)}
    facts["held-out R2"] = {name: _digits(row["R2"]) for name, row in rows.items()}
    if found.ceiling is not None:
        facts["noise ceiling"] = {name: _digits(row["ceiling"]) for name, row in rows.items()}
    say(facts, f"{found!r}\nreport: {page.resolve()}", as_json)


def _digits(value: float) -> float | None:
    """None where there is no number: a region without responses, or with constant ones."""
    return round(value, 4) if np.isfinite(value) else None


def _open(folders: list[str]) -> dict[str, Store]:
    """By name of the model; stores of one model by the names of their folders."""
    from vitreous.places import is_remote
    from vitreous.store import Store

    opened = [Store.open(folder) for folder in folders]
    names = [str(store.manifest.model["name"]) for store in opened]
    if len(set(names)) < len(names):
        names = [folder if is_remote(folder) else Path(folder).resolve().name for folder in folders]
    if len(set(names)) < len(names):
        raise SettingsError("two stores have the same name", given=names, remedy="rename a folder")
    if len({store.ids for store in opened}) > 1:
        raise SettingsError("the stores are of different pictures", given=[str(folder) for folder in folders])
    return dict(zip(names, opened, strict=True))


def _pictures(data: str | None, opened: dict[str, Store], seed: int) -> ImageSet | None:
    """What was recorded, to be shown; scenes are drawn at the size that the first model saw."""
    if data is None:
        return None
    store = next(iter(opened.values()))
    size = store.manifest.settings["size"]
    pictures = open_pictures(data, SHOWN if size is None else min(size), None, "raise", seed)
    if tuple(pictures.ids) != store.ids:
        raise SettingsError("these are not the pictures that were recorded", given=data, remedy="--seed, or --data")
    return pictures


def _responses(path: Path) -> Responses:
    import vitreous as vt

    if path.is_dir():
        return vt.algonauts(path)
    arrays = _arrays(path)
    if "responses" not in arrays:
        raise SettingsError("no array `responses` in the file", given=str(path), accepted=sorted(arrays))
    rois = {name.removeprefix("roi."): value for name, value in arrays.items() if name.startswith("roi.")}
    known = {name: arrays.get(name) for name in ("repeats", "vertices")}
    return vt.Responses(arrays["responses"], rois, name=path.stem, **known)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        stored = np.load(path, allow_pickle=False)
        if isinstance(stored, np.ndarray):
            return {"responses": stored}
        with stored:
            return dict(stored)
    except (OSError, ValueError, EOFError) as error:
        raise SettingsError(
            "responses cannot be read", given=str(path), accepted=".npy (image, response), .npz with `responses`"
        ) from error
