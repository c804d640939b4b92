"""One page that holds everything: opened from the file system, mailed or printed, it needs nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from vitreous.errors import SettingsError
from vitreous.provenance import Run, replace_file
from vitreous.render import templates
from vitreous.views.colours import SERIES, SERIES_DARK
from vitreous.views.panels import Card, Overview, Panel, Pictures, Section

PAGE = "report.html"


def write_report(folder: str | Path, title: str, sections: Sequence[Section], run: Run, *, overview: Overview) -> Path:
    """Writes `report.html` into the folder, in one step, and gives its path.

    Of the run it shows settings, seeds, hashes of inputs and versions, but neither times nor the machine: the same
    inputs give the same bytes.
    """
    from markupsafe import Markup

    _refuse_broken_links(sections, overview)
    page = templates().get_template("report.html.j2")
    html = page.render(
        title=title,
        overview=overview,
        sections=sections,
        series=SERIES,
        series_dark=SERIES_DARK,
        has_heat=any(has_heat(panel) for section in sections for group in section.groups for panel in group.panels),
        provenance=provenance(run.record),
        css=Markup((files("vitreous") / "templates" / "report.css").read_text(encoding="utf-8")),
    )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / PAGE, html.encode())
    return folder / PAGE


def has_heat(panel: Panel) -> bool:
    """Whether heat maps lie over its pictures, so that one may want to hide them."""
    if isinstance(panel, Card):
        return any(has_heat(part) for part in (*panel.aside, *panel.panels))
    return isinstance(panel, Pictures) and any(tile.heat is not None for tile in panel.tiles)


def provenance(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the foot of the page shows of a `run.json`."""
    tables = {
        "Settings": {
            "command": record["command"],
            "device": record["device"] or "",
            **record["settings"],
            **record["seeds"],
        },
        "Content hashes (sha256)": record["inputs"],
        "Versions": {name: version or "not installed" for name, version in record["versions"].items()},
    }
    shown = {name: {key: _line(value) for key, value in entries.items()} for name, entries in tables.items()}
    return {"versions": record["versions"], "tables": {name: entries for name, entries in shown.items() if entries}}


def _line(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_line(item)}" for key, item in value.items())
    return ", ".join(map(_line, value)) if isinstance(value, list | tuple) else str(value)


def _refuse_broken_links(sections: Sequence[Section], overview: Overview) -> None:
    names = [section.name for section in sections]
    if len(set(names)) < len(names):
        raise SettingsError("two sections have the same name", given=names)
    for statement in overview.statements:
        if statement.section not in names:
            raise SettingsError(
                "a statement points to a section that is not there", given=statement.section, accepted=names
            )
