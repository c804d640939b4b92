"""Tables and the picture of structure_backbones: what was measured, laid out; nothing is computed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from backbone_inputs import FIRST
from vitreous.evidence.statistics import p_text
from vitreous.views.colours import NEUTRAL, SERIES

WIDEST = 13  # clusters of this size and more share the last bar
LOOK = {"trained": "-", "shuffled": "--", "fresh": ":"}
Kept = dict[str, dict[str, dict[str, np.ndarray]]]
Lines = list[tuple[str, str, str, dict[str, np.ndarray]]]


# -- tables


def put_tables(results: dict[str, Any], page: Path) -> None:
    """Replaces what stands between the markers of the page; a page that is not there is made of the tables alone."""
    made = {"models": _models, "settings": _settings, "states": _states, "tokens": _tokens, "nearest": _nearest}
    tables = {name: make(results) for name, make in {**made, "tests": _tests}.items()}
    if not page.exists():
        page.write_text("\n".join(f"<!-- table: {name} -->\n<!-- end -->\n" for name in tables))
    text = page.read_text()
    for name, rows in tables.items():
        pattern = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text, places = pattern.subn(rf"\g<1>{_lines(rows)}\n\g<2>", text)
        if places != 1:
            raise SystemExit(f"{page} has {places} places for the table {name}, not one")
    page.write_text(text)


def _lines(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]])


def _models(results: dict[str, Any]) -> list[list[str]]:
    """Tables 11 and 12: performance, and clusters at threshold 1 with all channels."""
    rows = [
        "model, performance, samples, units, dead, nearly dead, clusters, mean size, largest, inefficient".split(", ")
    ]
    for name, model in results["models"].items():
        found = model["trained"][FIRST]
        one = found["thresholds"]["1"]
        performance = ", ".join(f"{what} {score:.3f}" for what, score in model.get("accuracy", {}).items())
        counts = [model["samples"], found["units"], found["dead"], found["nearly dead"]["units"], one["clusters"]]
        sizes = [one["mean size"], one["largest"], one["inefficient"]]
        rows.append([name, performance, *map(_number, [*counts, *sizes])])
    return rows


def _settings(results: dict[str, Any]) -> list[list[str]]:
    """Mean sizes at threshold 1 under other settings."""
    head = "model, all channels, every second channel, two channels, half the samples, without nearly dead, as printed"
    rows = [head.split(", ")]
    for name, model in results["models"].items():
        found = model["trained"][FIRST]
        parts = found["slices"]
        sizes = [
            found["thresholds"]["1"]["mean size"],
            parts["every second channel"],
            parts["two channels"]["mean size"],
        ]
        sizes += [found["half the samples"]["mean size"], found["nearly dead"]["mean size without"]]
        rows.append([name, *map(_number, [*sizes, found["mean size as printed"]])])
    return rows


def _number(value: float | int | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _states(results: dict[str, Any]) -> list[list[str]]:
    """Clusters and mean size at every threshold, of every state."""
    thresholds = list(results["correlation at threshold"])
    rows = [["model", "state", *thresholds, "one place at 4"]]
    for name, model in results["models"].items():
        for state in _states_of(model):
            found = model[state][FIRST]["thresholds"]
            cells = [f"{found[t]['clusters']:,} / {found[t]['mean size']:,.3f}" for t in thresholds]
            last = found[thresholds[-1]]
            share = f"{last['one place'] / last['clusters']:.0%}" if last["clusters"] else ""
            rows.append([name, state, *cells, share])
    return rows


def _states_of(model: dict[str, Any]) -> list[str]:
    return [state for state in LOOK if state in model]


def _tokens(results: dict[str, Any]) -> list[list[str]]:
    """Mean size at 1 and 4 for each choice of tokens, and how many states a token has after the first block."""
    rows = [["model", "tokens", "different states", *(f"{state}, {t}" for t in ("1", "4") for state in LOOK)]]
    for name, model in results["models"].items():
        for choice, numbers in model["tokens"].items():
            seen = ", ".join(f"{n:,}" for n in model["trained"][choice]["different states"])
            found = {state: model[state][choice]["thresholds"] for state in _states_of(model)}
            means = [found[s][t]["mean size"] if s in found else None for t in ("1", "4") for s in LOOK]
            rows.append([name, f"{choice} ({numbers[0]} to {numbers[-1]})", seen, *map(_number, means)])
    return rows


def _nearest(results: dict[str, Any]) -> list[list[str]]:
    some = next(iter(results["models"].values()))["trained"][FIRST]
    quantiles = [f"quantile {q}" for q in some["nearest distance"]]
    rows = [["model", "state", "change a block", *quantiles, *some["nearest is"]]]
    for name, model in results["models"].items():
        for state in _states_of(model):
            found = model[state][FIRST]
            distances = [f"{d:.2f}" for d in found["nearest distance"].values()]
            shares = [f"{share:.0%}" for share in found["nearest is"].values()]
            rows.append([name, state, f"{found['change a block']:.2f}", *distances, *shares])
    return rows


def _tests(results: dict[str, Any]) -> list[list[str]]:
    rows = [["a", "b", "threshold", "mean a", "mean b", "KS", "p", "a larger than b", "p"]]
    for row in results["tests"]:
        means = [f"{mean:,.3f}" for mean in row["mean sizes"]]
        gap, rank = row["KS"], row["Mann-Whitney"]
        cells = [f"{gap['statistic']:.3f}", p_text(gap["p"]), f"{rank['share']:.3f}", p_text(rank["p"])]
        rows.append([row["a"], row["b"], f"{row['threshold']:g}", *means, *cells])
    return rows


# -- the picture


def draw(kept: Kept, path: Path) -> None:
    """Figure 5: sizes at thresholds 1 and 4, and how far the nearest unit is; pictures above, texts below."""
    from matplotlib.figure import Figure

    groups = [[n for n in kept if not _is_text(n)], [n for n in kept if _is_text(n)]]
    figure = Figure(figsize=(13, 7), dpi=100, layout="constrained")
    axes = figure.subplots(2, 3)
    for row, names, what in zip(axes, groups, ("pictures", "texts"), strict=True):
        lines = list(_lines_of(kept, names))
        for axis, threshold in zip(row, ("1", "4"), strict=False):
            _sizes(axis, lines, f"sizes {threshold}")
            axis.set_title(f"{what}: sizes at threshold {threshold}", loc="left", fontsize=11)
        _distances(row[2], lines)
        row[2].set_title(f"{what}: how far the nearest unit is", loc="left", fontsize=11)
    figure.savefig(path)


def _lines_of(kept: Kept, names: list[str]) -> Iterator[tuple[str, str, str, dict[str, np.ndarray]]]:
    """Name, colour, style and numbers of every line; models of one architecture share one fresh line, in grey."""
    shared: list[int] = []
    for k, name in enumerate(names):
        for state, arrays in kept[name].items():
            common = state == "fresh" and _is_tiny(name)
            if not common or not shared:
                colour = SERIES[NEUTRAL if common else k % NEUTRAL]
                yield name if state == "trained" else "", colour, LOOK[state], arrays
            shared += [k] if common else []


def _is_tiny(name: str) -> bool:
    return name.startswith("tin-vit")


def _is_text(name: str) -> bool:
    return not _is_tiny(name) and not name.startswith("dinov2s")


def _sizes(axis: Any, lines: Lines, which: str) -> None:
    """How many groups have each size, on a log scale: bars would hide the states behind each other."""
    sizes = np.arange(1, WIDEST + 1)
    for name, colour, line, arrays in lines:
        counts = np.bincount(np.minimum(arrays[which], WIDEST), minlength=WIDEST + 1)[1:]
        shown = np.where(counts > 0, counts, 0.5)  # none: below the axis
        axis.plot(sizes, shown, line, color=colour, marker="o" if name else "", ms=3)
    axis.set(yscale="log", ylim=(0.7, None), xticks=sizes, xlabel="units in a group", ylabel="groups")
    axis.set_xticklabels([*map(str, sizes[:-1]), f"{WIDEST}+"])
    _quiet(axis)


def _distances(axis: Any, lines: Lines) -> None:
    for name, colour, line, arrays in lines:
        found = np.sort(arrays["nearest"])
        axis.plot(found, np.arange(1, len(found) + 1) / len(found), line, color=colour, label=name or None)
    for state, line in LOOK.items():
        axis.plot([], [], line, color=SERIES[NEUTRAL], label=state)
    for threshold in (1, 4):
        axis.axvline(threshold, color="#999999", lw=0.8)
    axis.set(xlim=(0, 30), ylim=(0, 1), xlabel="bins to the nearest unit, a sample", ylabel="share of units")
    axis.legend(fontsize=8, frameon=False, loc="lower right")
    _quiet(axis)


def _quiet(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=8)
