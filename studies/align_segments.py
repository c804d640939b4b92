"""Figure and ground by layer, before and after alignment (AlignedCut, Figure 5; figure/ground responses, Figure 7).

    python studies/align_segments.py DATA --work DIR [--session 210325]

`pets` (animal or background) and `voc_animals` (figure or ground; and its classes), 120 pictures of each, 8 x 8
patches. Every layer is cut on its own, 10 eigenvectors; the centre of each class is told, patches take the nearest
(C.4). Mean IoU in pixels, for features as they are, after alignment with λ_eigen 1 and with 0, and after random maps of
the same size, three seeds of each; intervals are over pictures (centres and thresholds stay), of the mean over layers
and seeds, and differences are of the same drawn pictures. What patches in random order get is there too. Then what
patches on objects and on the ground add to the responses of V4 neurons: do the networks agree, and do two seeds of one
network?
Reads the alignments of `align_brain.py`. Writes align_segments.json, .md and .png.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from align_inputs import LAYERS, NETWORKS, SEEDS, SITES, learned, pictures_of, random_map
from align_measures import REPEATS, SIDE, spoken
from structure_cifar_curves import fewer_colours
from tokens_inputs import IGNORE, put_tables
from vitreous.evidence.bootstrap import draws
from vitreous.evidence.oracle import patch_classes
from vitreous.lenses.align_segmentation import SHUFFLED

OUT = Path(__file__).parent / "results" / "align_segments"
READINGS = ("before", "after, λ_eigen 1", "after, λ_eigen 0", "random maps")
DIFFERENCES = (
    ("before", "after, λ_eigen 0"),
    ("before", "after, λ_eigen 1"),
    ("after, λ_eigen 1", "after, λ_eigen 0"),
    ("random maps", "after, λ_eigen 1"),
)
CLASSES = {8: 1, 10: 2, 12: 3, 13: 4, 17: 5, 15: 6}  # VOC's ids: cat, cow, dog, horse, sheep, person


def readings(work: Path, session: str) -> dict[str, list[vt.ChannelAlign | Callable[..., np.ndarray] | None]]:
    """Name -> ways to read, one a seed."""

    def at_random(seed: int) -> Callable[..., np.ndarray]:
        def read(features: np.ndarray, model: str, layer: str) -> np.ndarray:
            return features @ random_map(seed, model, layer, features.shape[-1]).astype(np.float32)

        return read

    ways: list[list[Any]] = [[None], *(list(learned(work, session, weight)) for weight in (1.0, 0.0))]
    return dict(zip(READINGS, (*ways, [at_random(seed) for seed in SEEDS]), strict=True))


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


def scored(
    store: dict[str, vt.Store], truth: list[np.ndarray], named: dict[str, list[Any]]
) -> dict[tuple[str, str], np.ndarray]:
    """(reading, network) -> pixels int64 (seed, layer, picture, class given, true class) at the best threshold."""
    flat = {(name, seed): one for name, ways in named.items() for seed, one in enumerate(ways)}
    found = vt.segmentation_by_layer(store, truth, flat, progress=False)  # type: ignore[arg-type]
    tables: dict[tuple[str, str], np.ndarray] = {}
    for name in (*named, SHUFFLED):
        keys = [SHUFFLED] if name == SHUFFLED else [(name, seed) for seed in range(len(named[name]))]
        for model in NETWORKS:
            parts = [[found.scores[key, model, site].confusion for site in SITES] for key in keys]  # type: ignore[index]
            tables[name, model] = np.array(parts)
    return tables


def mean_iou(table: np.ndarray) -> np.ndarray:
    """(…, class given, true class) -> (…,): over the classes that there are."""
    hits, either = table.diagonal(0, -2, -1), table.sum(-1) + table.sum(-2)
    union = either - hits
    there = table.sum(-2) > 0
    return np.where(there, hits / np.maximum(union, 1), 0).sum(-1) / np.maximum(there.sum(-1), 1)


class Drawn:
    """The pictures as they are and drawn with replacement: the same draws for everything that is compared."""

    def __init__(self, pictures: int) -> None:
        rows = np.concatenate(draws(pictures, REPEATS, 0))
        counts = np.zeros((len(rows), pictures))
        np.add.at(counts, (np.arange(len(rows))[:, None], rows), 1)
        self.weights = np.concatenate([np.ones((1, pictures)), counts])

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """(picture, …) -> (1 + draw, …): sums, of all pictures first."""
        return (self.weights @ values.reshape(len(values), -1)).reshape(-1, *values.shape[1:])


def told(values: np.ndarray) -> dict[str, Any]:
    """(seed, 1 + draw) or (1 + draw,) -> value, interval, seeds."""
    rows = np.atleast_2d(values)
    mean = rows.mean(0)
    low, high = np.quantile(mean[1:], (0.025, 0.975))
    return {"value": float(mean[0]), "low": float(low), "high": float(high), "seeds": rows[:, 0].tolist()}


def with_intervals(tables: dict[tuple[str, str], np.ndarray], drawn: Drawn) -> dict[str, Any]:
    """Network -> reading -> mean IoU by layer, their mean with an interval, and differences of readings."""
    found: dict[str, Any] = {}
    for model in NETWORKS:
        scores = {}
        for (name, of), table in tables.items():
            if of == model:  # (seed, layer, 1 + draw)
                scores[name] = np.array([[mean_iou(drawn(layer)) for layer in seed] for seed in table])
        found[model] = {
            name: {"layers": [told(score[:, n]) for n in range(len(SITES))], "mean": told(score.mean(1))}
            for name, score in scores.items()
        }
        found[model]["differences"] = {
            f"{a} - {b}": told(scores[a].mean(1) - scores[b].mean(1)) for a, b in DIFFERENCES
        }
        found[model]["best layer"] = scores["before"].mean(0).argmax(0)  # (1 + draw,), taken out by `later`
    return found


def later(binary: dict[str, Any], classes: dict[str, Any]) -> dict[str, Any]:
    """By how many layers classes are best after figure and ground (of 12), before alignment, same drawn pictures."""
    layer = np.array(LAYERS)
    return {m: told((layer[classes[m]["best layer"]] - layer[binary[m]["best layer"]]).astype(float)) for m in NETWORKS}


def figure_ground(alignments: list[vt.ChannelAlign], store: dict[str, vt.Store], masks: list[np.ndarray]) -> Any:
    """Correlation over neurons of what figure adds more than ground: between networks at one layer, and as a measure
    of what could be had, of one network between seeds of the alignment."""
    pixels = patch_classes(masks, (SIDE, SIDE), classes=2, ignore=IGNORE).astype(np.float64)
    drawn = Drawn(len(masks))
    weight = drawn(pixels.sum(1))  # (1 + draw, class)
    gaps: dict[tuple[str, int], list[np.ndarray]] = {}
    for model in NETWORKS:
        for n, site in enumerate(SITES):
            rows = np.asarray(store[model][site][:], np.float32)[:, 1:]
            means = drawn(np.einsum("npc,npd->ncd", pixels, rows)) / weight[:, :, None]
            more = means[:, 1] - means[:, 0]
            gaps[model, n] = [one.in_response_space(more, model, site) / one.spread for one in alignments]
    pairs = {
        f"{a} and {b}": np.array(
            [[alike(x, y) for x, y in zip(gaps[a, n], gaps[b, n], strict=True)] for n in range(len(SITES))]
        )
        for a, b in combinations(NETWORKS, 2)
    }
    seeds = np.array([[alike(*two) for two in combinations(gaps[key], 2)] for key in gaps])
    return {
        "by layer": {name: [told(part) for part in values] for name, values in pairs.items()},
        "between networks": told(np.mean(list(pairs.values()), (0, 1))),
        "one network, two seeds": told(seeds.mean(0)),
    }


def alike(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(…, neuron) twice -> (…,): correlation over neurons."""
    x, y = x - x.mean(-1, keepdims=True), y - y.mean(-1, keepdims=True)
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


def draw(results: dict[str, Any], path: Path) -> None:
    import io

    from matplotlib.figure import Figure

    styles = (("k", "-"), ("C0", "-"), ("C1", "-"), ("C2", ":"), ("0.6", "--"))
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    rows = figure.subplots(len(results["scores"]), len(NETWORKS), sharex=True, sharey="row")
    for row, (task, models) in zip(rows, results["scores"].items(), strict=True):
        for axes, (model, by_reading) in zip(row, models.items(), strict=True):
            for reading, (colour, line) in zip((*READINGS, SHUFFLED), styles, strict=True):
                layers = by_reading[reading]["layers"]
                values, low, high = ([one[key] for one in layers] for key in ("value", "low", "high"))
                axes.fill_between(LAYERS, low, high, color=colour, alpha=0.15, linewidth=0)
                axes.plot(LAYERS, values, line, color=colour, marker=".", label=reading)
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
    names = (*READINGS, SHUFFLED)
    lines = ["| pictures | network | " + " | ".join(names) + " |", "| --- | --- |" + " --- |" * len(names)]
    gaps = [f"{a} - {b}" for a, b in DIFFERENCES]
    apart = ["| pictures | network | " + " | ".join(gaps) + " |", "| --- | --- |" + " --- |" * len(gaps)]
    for task, models in results["scores"].items():
        for model, one in models.items():
            lines.append(f"| {task} | {model} | " + " | ".join(f"{one[n]['mean']['value']:.3f}" for n in names) + " |")
            apart.append(f"| {task} | {model} | " + " | ".join(spoken(one["differences"][g]) for g in gaps) + " |")
    found = results["figure minus ground"]
    pairs = ["| networks | " + " | ".join(f"layer {n}" for n in LAYERS) + " |", "| --- |" + " --- |" * len(LAYERS)]
    pairs += [f"| {name} | " + " | ".join(spoken(v, 2) for v in row) + " |" for name, row in found["by layer"].items()]
    means = [f"- {name}: {spoken(found[name], 2)}" for name in ("between networks", "one network, two seeds")]
    late = ["| network | layers later |", "| --- | --- |"]
    late += [f"| {model} | {spoken(one, 1)} |" for model, one in results["classes later"].items()]
    return {"segmentation": lines, "differences": apart, "classes later": late, "responses": [*pairs, "", *means]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="210325")
    options = parser.parse_args()
    sets = {name: pictures_of(options.data, name, options.work) for name in ("pets", "voc_animals")}
    named = readings(options.work, options.session)
    results: dict[str, Any] = {"session": options.session, "pictures": {n: len(t) for n, (_, _, t) in sets.items()}}
    results["scores"] = {}
    for task, (which, truths) in tasks({name: truths for name, (_, _, truths) in sets.items()}).items():
        kept = options.work / "segments" / f"{options.session}-{task.replace(' ', '-')}.npz"  # a study may be ended
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            found = scored(sets[which][1], truths, named)
            draft = kept.with_suffix(".part.npz")
            np.savez_compressed(draft, **{"|".join(key): table for key, table in found.items()})
            draft.replace(kept)
            print(task, flush=True)
        with np.load(kept) as stored:
            found = {(key.split("|")[0], key.split("|")[1]): stored[key] for key in stored.files}
        results["scores"][task] = with_intervals(found, Drawn(len(truths)))
    results["classes later"] = later(
        *(results["scores"][f"voc_animals, {what}"] for what in ("figure and ground", "classes"))
    )
    for models in results["scores"].values():
        for one in models.values():
            del one["best layer"]
    alignments = learned(options.work, options.session, 0.0)
    results["figure minus ground"] = figure_ground(alignments, sets["pets"][1], sets["pets"][2])
    OUT.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
    put_tables(OUT.with_suffix(".md"), tables(results))
    draw(results, OUT.with_suffix(".png"))


if __name__ == "__main__":
    main()
