"""What the commands print: facts for `--json`, and the same as tables for people."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vitreous.models.families import FAMILIES
from vitreous.models.sources import SOURCES

if TYPE_CHECKING:
    from vitreous.laws import Law
    from vitreous.lenses.structure import StructureFinding
    from vitreous.lenses.structure_comparison import Comparison
    from vitreous.models.subject import Subject
    from vitreous.store import Problem, Store


def _console() -> Console:
    return Console(highlight=False)


def print_table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in rows[0] if rows else ():
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row.values()))  # brackets are no markup
    _console().print(table)
    _console().print()


def source_rows() -> list[dict[str, Any]]:
    return [
        {"source": f"{name}:", "about": row.about, "names": len(row.names()) or ""} for name, row in SOURCES.items()
    ]


def family_rows() -> list[dict[str, Any]]:
    return [
        {
            "family": row.name,
            "input": row.modality,
            "attention": "yes" if row.attention else "no",
            "examples": ", ".join(row.examples),
        }
        for row in FAMILIES
    ]


def name_rows(source: str, like: str) -> list[str]:
    names = SOURCES[source].names() or tuple(e for f in FAMILIES if f.source == source for e in f.examples)
    return [full for n in names if fnmatch.fnmatch(full := n if ":" in n else f"{source}:{n}", f"*{like}*")]


def subject_facts(subject: Subject) -> dict[str, Any]:
    grid = subject.grid()
    steps = subject.preprocess
    return {
        "name": subject.name,
        "family": subject.family.name,
        "input": subject.modality,
        "blocks": subject.depth,
        "width": subject.width,
        "heads": subject.heads,
        "prefix": list(subject.prefix),
        "grid": list(grid) if grid else None,
        "input_size": list(steps.size) if steps else None,
        "preprocessing": steps.source if steps else None,
    }


def print_subject(subject: Subject, names: Sequence[str]) -> None:
    print_table("Model", [{"": key, " ": _show(value)} for key, value in subject_facts(subject).items()])
    console = _console()
    console.print(f"[bold]{len(names)} sites[/bold]")
    for name in names:
        console.print(name, soft_wrap=True, markup=False)


def _show(value: Any) -> str:
    if isinstance(value, list):
        return (" x " if value and isinstance(value[0], int) else ", ").join(map(str, value)) or "none"
    return str(value)


def print_laws(laws: Sequence[Law]) -> None:
    if laws:
        rows = [{"law": law.says, "holds": "yes" if law.holds else "NO", "value": law.value} for law in laws]
        print_table("Laws", rows)


def store_facts(store: Store) -> dict[str, Any]:
    manifest = store.manifest
    return {
        "path": store.address,
        "model": dict(manifest.model),
        "data": dict(manifest.data),
        "samples": len(store),
        "complete": manifest.complete,
        "sites": {site: {"shape": list(store[site].shape), "dtype": str(manifest.dtype)} for site in store.sites},
        "shards": len(manifest.shards),
        "bytes": sum(shard.bytes for shard in manifest.shards),
        "settings": dict(manifest.settings),
    }


def print_store(store: Store) -> None:
    facts = store_facts(store)
    state = "complete" if facts["complete"] else "NOT complete: run the same `vitreous record` again to go on"
    console = _console()
    console.print(f"[bold]{facts['path']}[/bold]: {state}", soft_wrap=True)
    console.print(f"model   {facts['model']['name']}  {facts['model']['fingerprint'][:12]}", markup=False)
    console.print(
        f"data    {facts['data']['name']}, {facts['samples']} samples  {facts['data']['fingerprint'][:12]}",
        markup=False,
    )
    console.print(f"shards  {facts['shards']}, {facts['bytes'] / 1e6:.1f} MB\n")
    print_table("", [{"site": s, "shape": tuple(f["shape"]), "dtype": f["dtype"]} for s, f in facts["sites"].items()])


def print_problems(problems: Sequence[Problem]) -> None:
    console = _console()
    for problem in problems:
        console.print(str(problem), style="red", markup=False, soft_wrap=True)
    if not problems:
        console.print("every byte is as it was written")


def distinct_names(stores: Sequence[Store]) -> list[str]:
    """What was recorded in each, with its folder where that is not enough to tell them apart."""
    names = [str(store.manifest.model["name"]) for store in stores]
    if len({*names}) < len(names):
        names = [f"{name} in {store.address}" for name, store in zip(names, stores, strict=True)]
    return [name if names.count(name) == 1 else f"{name}, {k}" for k, name in enumerate(names, 1)]


def structure_facts(findings: Mapping[str, StructureFinding], comparison: Comparison | None) -> dict[str, Any]:
    facts = {name: _finding_facts(finding) for name, finding in findings.items()}
    return {"findings": facts, "comparison": None if comparison is None else asdict(comparison)}


def _finding_facts(finding: StructureFinding) -> dict[str, Any]:
    counts, edges = finding.histogram()
    return {
        "settings": dict(finding.settings),
        "layers": list(finding.layers),
        "tokens": list(finding.tokens),
        **finding.facts(),
        "differences": finding.differences.tolist(),
        "counts": finding.counts.tolist(),
        "histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
    }


def print_structure(findings: Mapping[str, StructureFinding], comparison: Comparison | None) -> None:
    """The tables of the page, and the tests if there are two findings."""
    from vitreous.views.structure_tables import layer_table, summary_table

    summary, layers = summary_table(findings), layer_table(findings)
    turned = zip(*summary.rows, strict=True)
    names, *rows = [(column, *cells) for column, cells in zip(summary.columns, turned, strict=True)]
    print_table(summary.title, [dict(zip(("", *names[1:]), row, strict=True)) for row in rows])
    print_table(layers.title, [dict(zip(layers.columns, row, strict=True)) for row in layers.rows])
    if comparison is not None:
        _console().print(comparison.table(), markup=False, soft_wrap=True)


def recipe_rows() -> list[dict[str, Any]]:
    from vitreous.training.recipes import RECIPES

    return [
        {"recipe": r.name, "data": r.data, "model": r.model, "batch": r.batch, "epochs": r.epochs, "about": r.about}
        for r in RECIPES.values()
    ]
