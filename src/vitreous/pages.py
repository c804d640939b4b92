"""Findings to whole pages: a folder with the report, the findings themselves, and where both come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.errors import SettingsError
from vitreous.provenance import replace_file, start_run
from vitreous.render import to_png
from vitreous.report import write_report
from vitreous.views.dictionaries import (
    comparison_overview,
    comparison_scatter,
    comparison_sections,
    comparison_title,
)
from vitreous.views.structure_page import look_at, structure_overview, structure_sections, structure_title

if TYPE_CHECKING:
    import numpy as np

    from vitreous.dictionary_comparison import DictionaryComparison
    from vitreous.images import ImageSet
    from vitreous.lenses.structure import StructureFinding
    from vitreous.lenses.structure_comparison import Comparison
    from vitreous.store import Store


def structure_report(
    findings: Mapping[str, StructureFinding],
    out: str | Path,
    *,
    sources: Mapping[str, Store | np.ndarray] | None = None,
    comparison: Comparison | None = None,
    progress: bool = True,
) -> Path:
    """Writes `report.html`, `run.json` and the findings (`finding.npz`, `finding-2.npz`, ...) into `out`.

    `findings` and `sources` go by the names that the page uses. Units and differences are drawn if a finding holds what
    it was made from (`vt.structure(..., keep_transformed=True)`), or if that is given as its source: a store, or
    activations. Findings are saved without it, for it is large.

    >>> vt.structure_report({"mae": finding}, "structure", sources={"mae": store})
    """
    sources = sources or {}
    if not findings or not set(sources) <= set(findings):
        raise SettingsError("every source belongs to a finding", given=sorted(sources), accepted=sorted(findings))
    settings = {name: _settings(finding) for name, finding in findings.items()}
    inputs = {key: value for name, finding in findings.items() for key, value in _inputs(name, finding).items()}
    out = Path(out)
    with start_run(out, "structure", settings, inputs=inputs) as run:
        looked = look_at(findings, sources)
        for number, finding in enumerate(findings.values(), 1):
            name = "finding.npz" if number == 1 else f"finding-{number}.npz"
            replace(finding, transformed=None, distances=None).save(out / name)
        sections = structure_sections(looked, comparison, progress=progress)
        path = write_report(out, structure_title(looked), sections, run, overview=structure_overview(looked))
        run.note(report=path.name, clusters={one.name: len(one.finding.sizes) for one in looked})
    return path


def dictionary_report(found: DictionaryComparison, out: str | Path, *, images: ImageSet | None = None) -> Path:
    """Writes `report.html`, `scatter.png` and `run.json` into `out`, which may be the comparison's own folder.

    `images` are the pictures that it was measured on: with them the page shows units of every method.

    >>> vt.dictionary_report(vt.compare_dictionaries(subject, train, evaluate=held, out="compared"), "compared")
    """
    settings = dict(found.settings)
    measured = settings["measured on"]
    if images is not None and images.fingerprint != measured["fingerprint"]:
        raise SettingsError(
            "these are not the pictures it was measured on", given=images.name, accepted=measured["name"]
        )
    inputs = {part: settings[part]["fingerprint"] for part in ("model", "made from", "measured on")}
    said = {name: value for name, value in settings.items() if name not in inputs and not isinstance(value, dict)}
    out = Path(out)
    with start_run(out, "compare-dictionaries", said, inputs=inputs) as run:
        replace_file(out / "scatter.png", to_png(comparison_scatter(found)))
        sections = comparison_sections(found, images)
        path = write_report(out, comparison_title(found), sections, run, overview=comparison_overview(found))
        run.note(report=path.name, methods=list(found.methods))
    return path


def _settings(finding: StructureFinding) -> dict[str, object]:
    chosen = {key: value for key, value in finding.settings.items() if key != "source"}
    return chosen | {"layers": len(finding.layers), "tokens": list(finding.tokens)}


def _inputs(name: str, finding: StructureFinding) -> dict[str, str]:
    """Content hashes of the model and the data, where the finding comes from a store."""
    source = finding.settings.get("source") or {}
    return {f"{name}, {part}": source[part]["fingerprint"] for part in ("model", "data") if part in source}
