"""Writes the site: one small file a unit, thumbnails in sheets, data as scripts, which a page on disk may load."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vitreous.site.sprites as sprites
from vitreous.errors import SettingsError
from vitreous.mirrors import kept_at
from vitreous.progress import tqdm
from vitreous.site.cloud import cloud_data
from vitreous.site.downloads import downloads
from vitreous.site.front import index_data
from vitreous.site.lens_pages import LensPage, lens_pages
from vitreous.site.several import Gathered, gather

if TYPE_CHECKING:
    from vitreous.examination import Examination

PAGE, SCRIPTS = "index.html", ("app.js", "app.css", "map.js")
CARDS_INLINED = 40  # cards of a single file


@kept_at("out")
def write_site(
    examination: Examination | Sequence[Examination],
    out: str | Path,
    *,
    single_file: bool = False,
    extra: Sequence[LensPage] = (),
    progress: bool = True,
) -> Path:
    """Writes the report of one run, or of several of the same pictures, into `out`, and gives the path of its page.

    With `single_file` it is one file to mail: the overview, the pages of the lenses and the best cards, everything
    inside it. `extra` pages stand beside those of the lenses.

    >>> vt.write_site(vt.open_run("run"), "report")
    """
    out = Path(out)
    app = app_files()
    if out.is_file():
        raise SettingsError("a report is a folder", given=str(out))
    gathered = gather(examination)
    pages = [*lens_pages(gathered), *extra]
    out.mkdir(parents=True, exist_ok=True)
    if single_file:
        return _write_single(out, app, gathered, pages, progress)
    _put(out / PAGE, app[PAGE].encode())
    for name in SCRIPTS:
        _put(out / "app" / name, app[name].encode())
    _write_pictures(out, gathered, progress)
    index = index_data(gathered, pages)
    index["downloads"] = [{"label": label, "href": _put(out / name, data)} for label, name, data in downloads(gathered)]
    for key, value in _data(gathered, index, pages):
        _put_data(out, key, value)
    if (run := spaced(gathered)) is not None:
        _put_data(out, "cloud", cloud_data(run))
    for card in tqdm(gathered.cards(), "cards", len(gathered), disable=not progress, delay=1, leave=False):
        _put_data(out, f"unit/{card['id']}", card)
    return out / PAGE


def app_files() -> dict[str, str]:
    """The built front end; a package without it is refused."""
    folder = resources("vitreous.site") / "app"
    found = {}
    for name in (PAGE, *SCRIPTS):
        part = folder / name
        if not part.is_file():
            raise SettingsError(
                "the front end is not built",
                given=f"no site/app/{name} in the package",
                remedy="install a release, or in a clone: make front",
            )
        found[name] = part.read_text(encoding="utf-8")
    return found


def _data(gathered: Gathered, index: dict[str, Any], pages: Sequence[LensPage]) -> Iterator[tuple[str, Any]]:
    """What a short version holds too: all but cards, and the map, which is as large as all the rest."""
    yield "live", None
    yield "index", index
    yield "units", gathered.columns
    for page in pages:
        yield f"lens/{page.name}", page.data()


def spaced(gathered: Gathered) -> Examination | None:
    """The run whose universal space the map shows: each run has one of its own."""
    first = gathered.first
    return first if first.missing(lambda: (first.spectral, first.places)) is None else None


def _write_pictures(out: Path, gathered: Gathered, progress: bool) -> None:
    for k, data in enumerate(sprites.sheets(gathered)):
        _put(out / "sprites" / f"pictures-{k}.jpg", data)
        _put_data(out, f"sprite/{k}", f"data:image/jpeg;base64,{base64.b64encode(data).decode()}")
    for run, k, name in tqdm(gathered.pictures, "pictures", disable=not progress, delay=1, leave=False):
        if (found := sprites.large(run, k)) is not None:
            _put(out / "pictures" / name, found)


def _write_single(
    out: Path, app: dict[str, str], gathered: Gathered, pages: Sequence[LensPage], progress: bool
) -> Path:
    index = index_data(gathered, pages)
    links = [f"data:image/jpeg;base64,{base64.b64encode(data).decode()}" for data in sprites.sheets(gathered)]
    index["pictures"]["sheet"]["files"] = links
    index["pictures"]["files"] = [None] * len(gathered.pictures)
    index["single"] = True
    chosen = _best(gathered)
    kept = {key: [values[k] for k in chosen] for key, values in gathered.columns.items()}
    scripts = []
    for key, value in _data(gathered, index, pages):
        scripts.append(script(key, kept if key == "units" else value))
    for k in tqdm(chosen, "cards", disable=not progress, delay=1, leave=False):
        card = gathered.card(k)
        scripts.append(script(f"unit/{card['id']}", card))
    style = '<link rel="stylesheet" href="app/app.css">'
    loader = '<script src="app/app.js"></script>'
    page = app[PAGE]
    if style not in page or loader not in page:
        raise SettingsError("the front end's page is of another version", given="site/app/index.html")
    body = "".join(f"<script>{text}</script>\n" for text in (_in_page(app["app.js"]), *scripts))
    page = page.replace(style, f"<style>{app['app.css']}</style>").replace(loader, body)
    _put(out / PAGE, page.encode())
    return out / PAGE


def _best(gathered: Gathered) -> list[int]:
    """Units for a short version: named ones that stand out from their control the most, each model in its turn."""
    columns = gathered.columns

    def merit(k: int) -> tuple[int, float]:
        ms, control = columns["ms"][k], columns["control"][k]
        return (columns["label"][k] is not None) - columns["dead"][k], (ms or 0.0) - (control or 0.0)

    ranked = sorted(range(len(gathered)), key=lambda k: (*(-part for part in merit(k)), k))
    models = range(len(gathered.models))
    turns = [[k for k in ranked if columns["model"][k] == model] for model in models]
    each = -(-CARDS_INLINED // max(1, len(turns)))
    return sorted([k for turn in turns for k in turn[:each]])


def script(key: str, value: Any) -> str:
    """One line of a data file. Nothing in it can end the script that it stands in, or begin another."""
    return f"vitreous.put({_json(key)}, {_json(value)});"


def _json(value: Any) -> str:
    text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _in_page(code: str) -> str:
    """A script file as it can stand inside a page."""
    return code.replace("</", "<\\/").replace("<!--", "<\\!--")


def _put_data(out: Path, key: str, value: Any) -> None:
    _put(out / "data" / f"{key}.js", (script(key, value) + "\n").encode())


def _put(path: Path, data: bytes) -> str:
    """In one step, without waiting for the disk: a site can always be written again. Gives folder and name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    draft.write_bytes(data)
    draft.replace(path)
    return f"{path.parent.name}/{path.name}"
