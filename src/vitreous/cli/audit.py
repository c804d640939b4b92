"""The command that audits a classifier."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vitreous.cli.options import (
    Data,
    Device,
    Json,
    Seed,
    Settings,
    Split,
    Weights,
    app,
    load_model,
    open_images,
    parse_numbers,
    parse_settings,
    plain_errors,
)
from vitreous.errors import ImageError, SettingsError

if TYPE_CHECKING:
    from vitreous.auditing import SwitchOff
    from vitreous.auditing.folder import AuditAbout
    from vitreous.auditing.places import PlacesFinding
    from vitreous.auditing.sweep import AuditSweep
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject

LISTED = 12  # rows that are printed
SITE = "blocks.-1.mlp.out"


@app.command()
def audit(
    model: Annotated[str, typer.Argument(help="A classifier, such as timm:vit_tiny_patch16_224.")],
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the findings, the patch and a page.")],
    masks: Annotated[
        str | None, typer.Option(help="The set's own: masks, instances or boxes; or a folder of PNG masks.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="File with 'picture,group' a line, or what pictures tell about themselves.")
    ] = None,
    train: Annotated[str | None, typer.Option(help="Pictures that a probe is fitted on.")] = None,
    head: Annotated[str | None, typer.Option(help="own or probe.", show_default="own if there is one")] = None,
    targets: Annotated[str | None, typer.Option(help="Which output each class is, e.g. 0,1.")] = None,
    site: Annotated[
        list[str] | None, typer.Option(help="A layer; may be repeated; 'all' that write.", show_default=SITE)
    ] = None,
    subunits: Annotated[Path | None, typer.Option(help="Folder that `disentangle` wrote.")] = None,
    labels: Annotated[Path | None, typer.Option(help="File that `label` wrote for these sub-units.")] = None,
    structure: Annotated[
        Path | None, typer.Option(help="Folder that `structure` wrote: mates of a part in other layers.")
    ] = None,
    units: Annotated[bool, typer.Option("--units", help="Whole units; nothing is split.")] = False,
    places: Annotated[
        bool, typer.Option("--places", help="Kinds of places beside the object too; with masks.")
    ] = False,
    tested: Annotated[int, typer.Option(help="Parts of a layer that are tested.")] = 256,
    confirm: Annotated[int, typer.Option(help="First parts that are taken out for real.")] = 8,
    repeats: Annotated[int, typer.Option(help="Exchanges of labels of the test.")] = 10_000,
    alpha: Annotated[float, typer.Option(help="Chance of any alarm on a clean model.")] = 0.05,
    correction: Annotated[str, typer.Option(help="For many tests, as statsmodels calls it.")] = "fdr_bh",
    off: Annotated[
        str | None, typer.Option(help="Ids to switch off: 3,17, or SITE/3,SITE/17.", show_default="alarms")
    ] = None,
    split: Split = None,
    weights: Weights = None,
    settings: Settings = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Finds parts of a classifier that speak for a class because of something that is not the object."""
    asked: dict[str, Any] = {"tested": tested, "confirm": confirm, "repeats": repeats, "alpha": alpha}
    asked |= {"correction": correction, "head": head, "seed": seed}
    with plain_errors():
        subject = load_model(model, weights, settings, device)
        images = open_images(data, subject, split, seed)
        asked["targets"] = None if targets is None else parse_numbers("targets", targets)
        asked |= {"train": None if train is None else open_images(train, subject, split, seed)}
        asked |= {"masks": _masks(masks, images), "groups": _groups(groups, images)} | _parts(subunits, units)
        asked |= _described(labels, structure)
        found = _places(subject, images, asked, masks) if places else None
        sweep = _audited(subject, images, site or [SITE], asked)
        chosen = _chosen(sweep, off)
        about = _about(sweep, chosen, (model, weights, parse_settings(settings)), (data, split), seed, alpha)
        patch, page = _written(sweep, found, about, out)
    if as_json:
        typer.echo(json.dumps(_facts(sweep, about, patch, out, page) | {"places": _of_places(found)}, indent=1))
    else:
        _said(sweep, patch, out, page)
        _said_places(found, out)


def _masks(given: str | None, images: ImageSet) -> Any:
    """As `vt.audit` takes them."""
    from vitreous.baselines.masks import GIVEN, mask_files

    if given is None or given in GIVEN:
        return given
    if not Path(given).is_dir():
        raise SettingsError("no such masks", given=given, accepted=(*GIVEN, "a folder of PNG files"))
    return mask_files(images, given)


def _groups(given: str | None, images: ImageSet) -> list[str] | None:
    """One name a picture, from lines 'picture,group' or from what pictures tell about themselves."""
    import csv

    if given is None:
        return None
    path = Path(given)
    if not path.is_file():
        told = [picture.about.get(given) for picture in images]
        if any(one is None for one in told):
            accepted = ["a file of lines 'picture,group'", *map(str, images[0].about)]
            raise SettingsError("no such file, and not all pictures tell this", given=given, accepted=accepted)
        return [str(one) for one in told]
    try:
        lines = [line for line in csv.reader(path.read_text().splitlines()) if line]
    except (OSError, ValueError, csv.Error) as error:
        raise SettingsError(f"groups cannot be read: {error}", given=path.name) from None
    if wrong := [line for line in lines if len(line) != 2]:
        raise SettingsError("a line is 'picture,group'", given=",".join(wrong[0])[:60], accepted="cat/7.jpg,snow")
    found = {name.strip(): group.strip() for name, group in lines}
    if missing := [name for name in images.ids if name not in found]:
        raise ImageError(f"{len(missing)} pictures have no group", given=missing[:3], accepted=f"lines of {path.name}")
    return [found[name] for name in images.ids]


def _parts(subunits: Path | None, units: bool) -> dict[str, Any]:
    import vitreous as vt

    if subunits is None:
        return {"split": not units}
    if units:
        raise SettingsError("sub-units or whole units", given="--subunits and --units", accepted="one of them")
    return {"disentanglement": vt.Disentanglement.load(subunits)}


def _described(labels: Path | None, structure: Path | None) -> dict[str, Any]:
    import vitreous as vt

    found: dict[str, Any] = {} if labels is None else {"labels": vt.Labels.load(labels)}
    if structure is not None:
        file = structure / "finding.npz" if structure.is_dir() else structure
        found |= {"structure": vt.StructureFinding.load(file)}
    return found


def _audited(subject: Subject, images: ImageSet, sites: list[str], asked: dict[str, Any]) -> AuditSweep:
    import vitreous as vt
    from vitreous.auditing.sweep import WRITES, AuditSweep

    names = subject.resolve(list(WRITES) if sites == ["all"] else sites)
    if len(names) == 1:
        return AuditSweep((vt.audit(subject, images, names[0], **asked),))
    return vt.audit_sites(subject, images, names, **asked)


def _places(subject: Subject, images: ImageSet, asked: dict[str, Any], masks: str | None) -> PlacesFinding:
    """Learned from the probe's pictures where these have masks of their own, or from half of those that are audited."""
    import vitreous as vt
    from vitreous.baselines.masks import GIVEN

    names = ("masks", "head", "train", "targets", "repeats", "alpha", "correction", "seed")
    look = asked["train"] if masks in GIVEN else None
    return vt.audit_places(subject, images, look=look, **{name: asked[name] for name in names})


def _of_places(found: PlacesFinding | None) -> dict[str, Any] | None:
    from dataclasses import asdict

    if found is None:
        return None
    said = {"site": found.site, "alarm": found.alarm, "overall": asdict(found.overall)}
    said |= {"together": asdict(found.together), "left": found.left, "rows": [asdict(row) for row in found.rows]}
    return said if found.effect is None else said | {"before_after": asdict(found.effect)}


def _said_places(found: PlacesFinding | None, out: Path) -> None:
    from vitreous.cli.text import print_table
    from vitreous.views.audit_places import PLACES

    if found is None:
        return
    title = f"places at {found.site}: {'alarm' if found.alarm else 'no alarm'} (chance {found.together.p:.4f})"
    rows = [
        {
            "speaks for": found.classes[row.target],
            "suspicion": round(row.suspicion, 3),
            "chance": round(row.corrected, 4),
        }
        | {"found beside the object": f"{row.fires:.0%}", "in other classes": f"{row.elsewhere:.0%}"}
        for row in found.rows
    ]
    print_table(title, rows)
    if found.effect is not None:
        typer.echo(f"\nplaces switched off, right decisions before and after:\n{found.effect}")
        typer.echo(f"\npatch: {(out / PLACES).resolve()}")


def _chosen(sweep: AuditSweep, off: str | None) -> tuple[tuple[str, int], ...]:
    """(site, id) of what is switched off: what was asked for, or alarms; of one layer all, of several as many as do."""
    sites = [finding.site for finding in sweep.findings]
    if off is None:
        count = len(sweep.alarms) if len(sites) == 1 or not sweep.alarms else sweep.enough()
        return tuple((site, row.id) for site, row in sweep.alarms[:count])
    found = []
    for word in off.split(","):
        where, _, number = word.strip().rpartition("/")
        if not number.isdigit() or (not where and len(sites) > 1):
            accepted = "--off 3,17" if len(sites) == 1 else f"--off {sites[0]}/3,{sites[-1]}/17"
            raise SettingsError("parts are named by their ids", given=word, accepted=accepted)
        found.append((where or sites[0], int(number)))
    return tuple(found)


def _about(
    sweep: AuditSweep,
    off: tuple[tuple[str, int], ...],
    model: tuple[str, str | None, dict[str, Any]],
    data: tuple[str, str | None],
    seed: int,
    alpha: float,
) -> AuditAbout:
    from vitreous.auditing.folder import AuditAbout, lasting

    weights = model[1] if model[1] is None or not Path(model[1]).exists() else str(Path(model[1]).resolve())
    sites = tuple(finding.site for finding in sweep.findings)
    return AuditAbout(model[0], weights, model[2], lasting(data[0]), data[1], seed, alpha, sites, off)


def _written(
    sweep: AuditSweep, places: PlacesFinding | None, about: AuditAbout, out: Path
) -> tuple[SwitchOff | None, Path]:
    """The findings, the patches, the page, and last what makes the folder an audit."""
    import vitreous as vt
    from vitreous.views.audit_page import PATCH
    from vitreous.views.audit_places import PLACES

    patch = sweep.measured(sweep.patch(about.off)) if about.off else None
    for old in (PATCH, PLACES):
        (out / old).unlink(missing_ok=True)
    page = vt.audit_report(sweep, out, patch=patch, places=places)
    about.save(out)
    return patch, page


def _answer(sweep: AuditSweep) -> str:
    from vitreous.views.audit_page import answer

    return answer(sweep)


def _of_whole(sweep: AuditSweep) -> str:
    from vitreous.views.audit_page import of_whole

    return of_whole(sweep.overall, sweep.findings[0].classes, len(sweep.alarms))


def _rows(sweep: AuditSweep) -> list[dict[str, Any]]:
    classes = sweep.findings[0].classes
    rows = [
        {"site": site, "id": row.id, "part": row.name, "label": row.label, "speaks for": classes[row.target]}
        | {"suspicion": round(row.suspicion, 3), "chance": round(row.corrected, 4), "alarm": row.alarm}
        | {"mates": list(row.mates)}
        for site, row in sweep.rows[:LISTED]
    ]
    empty = [name for name in ("label", "mates") if not any(row[name] for row in rows)]
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _word(value: Any) -> Any:
    return ", ".join(value[:3]) if isinstance(value, list) else "" if value is None else value


def _facts(sweep: AuditSweep, about: AuditAbout, patch: SwitchOff | None, out: Path, page: Path) -> dict[str, Any]:
    from dataclasses import asdict
    from math import isnan

    first = sweep.findings[0]
    controls = {
        one.site: {name: None if isnan(value) else value for name, value in one.controls.items()}
        for one in sweep.findings
    }
    facts = {"answer": _answer(sweep), "basis": first.basis, "accuracy": first.accuracy, "alarms": len(sweep.alarms)}
    facts |= {"parts": len(sweep.rows), "rows": _rows(sweep), "controls": controls, "off": about.off}
    facts |= {"overall": None if sweep.overall is None else asdict(sweep.overall)}
    facts |= {"before_after": None if patch is None else asdict(patch.effect)}
    return facts | {"folder": str(out), "page": str(page)}


def _said(sweep: AuditSweep, patch: SwitchOff | None, out: Path, page: Path) -> None:
    from vitreous.cli.text import print_table
    from vitreous.views.audit_page import PATCH

    several: Sequence[str] = () if len(sweep.findings) > 1 else ("site",)
    rows = [{name: value for name, value in row.items() if name not in several} for row in _rows(sweep)]
    rows = [row | {"alarm": "alarm" if row["alarm"] else ""} for row in rows]
    rows = [{name: _word(value) for name, value in row.items()} for row in rows]
    first = sweep.findings[0]
    title = f"{len(sweep.alarms)} alarms in {len(sweep.rows)} parts; suspicion measured on {first.basis}"
    print_table(title, rows)
    typer.echo(_answer(sweep))
    if whole := _of_whole(sweep):
        typer.echo(whole)
    if patch is not None:
        typer.echo(f"\n{len(patch)} parts switched off, right decisions before and after:\n{patch.effect}")
        typer.echo(f"\npatch: {(out / PATCH).resolve()}")
    typer.echo(f"report: {page.resolve()}")
