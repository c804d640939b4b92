"""Figure and ground by layer, before and after alignment (AlignedCut, Figure 5; figure/ground responses, Figure 7).

    python studies/align_segments.py DATA --work DIR [--session 201025]

`pets` (animal or background) and `voc_animals` (figure or ground; and its classes), 120 pictures of each, 8 x 8
patches. Every layer is cut on its own, 10 eigenvectors; the centre of each class is told, patches take the nearest
(C.4). Mean IoU in pixels, for features as they are, after alignment with λ_eigen 1 and with 0, and after random maps of
the same size; what patches in random order get is drawn too. Then what patches on objects and on the ground add to the
responses of V4 neurons: do the networks agree? Reads the alignments of `align_brain.py`. Writes align_segments.json,
.md and .png.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from align_inputs import LAYERS, NETWORKS, SITES, pictures_of
from structure_cifar_curves import fewer_colours
from tokens_inputs import IGNORE, put_tables

OUT = Path(__file__).parent / "results" / "align_segments"
READINGS = ("before", "after, λ_eigen 1", "after, λ_eigen 0", "random maps")
CLASSES = {8: 1, 10: 2, 12: 3, 13: 4, 17: 5, 15: 6}  # VOC's ids: cat, cow, dog, horse, sheep, person


def readings(work: Path, session: str) -> dict[str, vt.ChannelAlign | Callable[..., np.ndarray] | None]:
    with_it, without = (vt.ChannelAlign.load(work / session / f"lambda-{weight}" / "0") for weight in (1.0, 0.0))

    def at_random(features: np.ndarray, model: str, layer: str) -> np.ndarray:
        shape = without.map_of(model, layer).shape
        return features @ np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    return dict(zip(READINGS, (None, with_it, without, at_random), strict=True))


def tasks(truths: dict[str, list[np.ndarray]]) -> dict[str, tuple[str, list[np.ndarray]]]:
    """Name -> which pictures, and class maps."""
    voc = truths["voc_animals"]
    binary = [np.where(t == IGNORE, IGNORE, (t > 0).astype(int)) for t in voc]
    named = [np.select([t == k for k in (0, *CLASSES)], [0, *CLASSES.values()], IGNORE) for t in voc]
    return {
        "pets, figure and ground": ("pets", truths["pets"]),
        "voc_animals, figure and ground": ("voc_animals", binary),
        "voc_animals, classes": ("voc_animals", named),
    }


def figure_ground(alignment: vt.ChannelAlign, stores: dict[str, vt.Store], masks: list[np.ndarray]) -> dict[str, Any]:
    """Correlation over neurons of (figure - ground), between networks at the same layer; its mean."""
    found = vt.region_means(alignment, stores, masks, progress=False)
    gap = (found.mean[:, 1] - found.mean[:, 0]) / found.spread  # (slot, neuron)
    by_model = {m: np.stack([gap[found.slots.index((m, site))] for site in SITES]) for m in NETWORKS}
    names = list(by_model)
    pairs = {
        f"{a} and {b}": [float(np.corrcoef(x, y)[0, 1]) for x, y in zip(by_model[a], by_model[b], strict=True)]
        for i, a in enumerate(names)
        for b in names[i + 1 :]
    }
    return {"correlation by layer": pairs, "mean gap": {m: [float(v) for v in g.mean(1)] for m, g in by_model.items()}}


def draw(results: dict[str, Any], path: Path) -> None:
    import io

    from matplotlib.figure import Figure

    styles = dict(zip((*READINGS, "shuffled patches"), ("k-", "C0-", "C1-", "C2:", "0.6"), strict=True))
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    rows = figure.subplots(len(results["scores"]), len(NETWORKS), sharex=True, sharey="row")
    for row, (task, models) in zip(rows, results["scores"].items(), strict=True):
        for axes, (model, by_reading) in zip(row, models.items(), strict=True):
            for reading, values in by_reading.items():
                style = styles[reading]
                colour = {"color": style} if style == "0.6" else {}
                axes.plot(LAYERS, values, "--" if colour else style, marker=".", label=reading, **colour)
            axes.set_title(f"{NETWORKS[model]}\n{task}", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        row[0].set_ylabel("mean IoU")
    for axes in rows[-1]:
        axes.set_xlabel("layer")
        axes.set_xticks(LAYERS)
    rows[0][-1].legend(frameon=False, fontsize=8)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90)
    path.write_bytes(fewer_colours(buffer.getvalue()))


def tables(results: dict[str, Any]) -> dict[str, list[str]]:
    names = (*READINGS, "shuffled patches")
    lines = ["| pictures | network | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    for task, models in results["scores"].items():
        for model, by_reading in models.items():
            numbers = " | ".join(f"{np.mean(by_reading[name]):.3f}" for name in names)
            lines.append(f"| {task} | {model} | {numbers} |")
    pairs = ["| networks | " + " | ".join(f"layer {n}" for n in LAYERS) + " |", "| --- |" + " --- |" * len(LAYERS)]
    for name, values in results["figure minus ground"]["correlation by layer"].items():
        pairs.append(f"| {name} | " + " | ".join(f"{v:.2f}" for v in values) + " |")
    return {"segmentation": lines, "responses": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="201025")
    options = parser.parse_args()
    sets = {name: pictures_of(options.data, name, options.work) for name in ("pets", "voc_animals")}
    named = readings(options.work, options.session)
    path = OUT.with_suffix(".json")
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if results.get("session") != options.session:
        results = {"session": options.session, "scores": {}}
    for task, (which, truths) in tasks({name: truths for name, (_, _, truths) in sets.items()}).items():
        if task in results["scores"]:
            continue
        found = vt.segmentation_by_layer(sets[which][1], truths, named, progress=False)
        results["scores"][task] = {
            model: {reading: [found.best(reading, model)[site] for site in SITES] for reading in found.readings}
            for model in NETWORKS
        }
        path.write_text(json.dumps(results, indent=1) + "\n")
    alignment = named["after, λ_eigen 0"]
    assert isinstance(alignment, vt.ChannelAlign)
    results["figure minus ground"] = figure_ground(alignment, sets["pets"][1], sets["pets"][2])
    path.write_text(json.dumps(results, indent=1) + "\n")
    put_tables(OUT.with_suffix(".md"), tables(results))
    draw(results, OUT.with_suffix(".png"))


if __name__ == "__main__":
    main()
