"""The log of the CIFAR-10 networks: accuracy by epoch (Figure 6), what the structure loss did, and step times."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from structure_cifar import KEPT
from vitreous.views.colours import SERIES

LAST, FIRST = 5, 30  # epochs of a mean at the end, and of Figure 6's beginning
MILESTONES = (0.02, 0.1, 0.25, 0.5, 0.75, 1.0)  # of a run, where its log is quoted


def curves(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracies by epoch and what becomes of them; means over the first and last epochs, and step times."""
    accuracy = {kind: [entry["accuracy"] for entry in run["log"]] for kind, run in runs.items()}
    epochs = min(map(len, accuracy.values()))
    early = min(FIRST, epochs)
    plain = np.array(accuracy["vit"])
    rows = {}
    for kind, values in accuracy.items():
        v = np.array(values)
        n = min(len(v), len(plain))
        rows[kind] = {
            "final": float(v[-1]),
            "last five": float(v[-LAST:].mean()),
            "best": float(v.max()),
            "first 30": float(v[:early].mean()),
            "epochs above vit": [int((v[:early] > plain[:early]).sum()), int((v[:n] > plain[:n]).sum())],
        }
    return {
        "epochs": {kind: len(values) for kind, values in accuracy.items()},
        "early": early,
        "rows": rows,
        "accuracy": accuracy,
        "loss": {kind: milestones(run["log"]) for kind, run in runs.items() if kind != "vit"},
        "step": step_times(runs),
    }


def milestones(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries of the log at some places, and the means over the whole of it."""
    names = ("clusters", "members", "terms", "kept", "structure", "main")
    places = sorted({max(0, round(share * len(log)) - 1) for share in MILESTONES})
    some = [{"epoch": k + 1} | {name: log[k].get(name, 0.0) for name in names} for k in places]
    return [*some, {"epoch": "mean"} | {n: float(np.mean([e.get(n, 0.0) for e in log])) for n in names}]


def step_times(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Milliseconds a step when no other network trains; what the loss adds, from the faster of the turns."""
    alone = {kind: runs[kind]["alone ms a step"] for kind in KEPT if kind in runs}
    best = {kind: min(turns) for kind, turns in alone.items() if turns}
    added = {"added percent": 100 * (best["ours"] / best["vit"] - 1)} if len(best) == 2 else {}
    return {"alone ms": alone, **added}


def draw_curves(found: Mapping[str, Any], path: Path) -> None:
    """Figure 6: the first 30 epochs, and all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.6), layout="constrained")
    for axes, epochs in zip(figure.subplots(1, 2), (found["early"], max(found["epochs"].values())), strict=True):
        for n, (kind, values) in enumerate(found["accuracy"].items()):
            colour, style = SERIES[n % len(SERIES)], "--" if n >= len(SERIES) else "-"
            width, above = (2.0, 3) if kind in KEPT else (0.9, 2)
            y = values[:epochs]
            axes.plot(range(1, len(y) + 1), y, style, color=colour, linewidth=width, zorder=above, label=kind)
        axes.set_xlabel("epoch (the first 5 are warm-up)")
        axes.set_ylabel("test accuracy, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"first {epochs} epochs" if axes.get_subplotspec().is_first_col() else "all epochs", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100)
    path.write_bytes(fewer_colours(buffer.getvalue()))


def fewer_colours(png: bytes) -> bytes:
    """256 colours are enough for a look, and a third of the size."""
    buffer = io.BytesIO()
    Image.open(io.BytesIO(png)).quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()
