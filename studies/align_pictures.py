"""One colour for one concept in four networks, and how patches move through them (AlignedCut, Figures 4, 9 and 10).

    python studies/align_pictures.py DATA --work DIR [--session 210325] [--weight 0.0]

The patches of 60 `pets` and 60 `voc_animals` pictures at six layers of four networks, 184,320 nodes, are brought into
the aligned space and cut as one graph, 20 eigenvectors. Written, with numbers beside what the eye sees:

- `align_mosaic.png`: colours (3-D spectral t-SNE) by picture, network and layer.
- mixing: of a patch's nearest neighbours in other pictures, how many are of another network, of another layer, and on
  the same side of figure and ground; and whether its nearest in each other network are on its side (`align_measures`).
- `align_paths.png`: mean 2-D paths of figure and ground patches of each network, and how well the two sides can be told
  apart at each layer.
- `align_transitions.png`: of five groups of patches at one layer, which share goes to which of five at the next, for
  figure and for ground, where the two differ most (blank: too few); against masks of exchanged pictures.

Three alignments (seeds, each with other pictures held out), each cut with landmarks of its own; intervals are over
pictures, of the mean over seeds. Pictures are drawn from the first seed.
Reads the alignments of `align_brain.py`. Writes align_pictures.json and the tables of align_pictures.md.
"""

from __future__ import annotations

import argparse
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

import vitreous as vt
from align_inputs import LAYERS, NETWORKS, SEEDS, SITES, learned
from align_measures import CHANCE, FIGURE, GROUND, SIDE, Counted, joined, mixing, ranged, share, spoken
from structure_cifar_curves import fewer_colours
from tokens_inputs import put_tables

RESULTS = Path(__file__).parent / "results"
SHOWN = [3, 20, 40, 55, 63, 80, 100, 115]  # pets, then voc_animals
COUNT = 60  # pictures of each set
CONCEPTS, FEW, EXCHANGES = 5, 30, 5


def apart(vectors: np.ndarray, figures: np.ndarray) -> tuple[Counted, Counted]:
    """How often the nearer of two centres, figure and ground, is right, for ground and for figure; centres are made
    from every second picture and tried on the others; vectors (picture, patch, dim)."""
    unit = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    sides = [figures <= GROUND, figures >= FIGURE]
    centres = np.stack([unit[::2][side[::2]].mean(0) for side in sides])
    chosen = (unit[1::2] @ centres.T).argmax(2)
    ground, figure = (Counted(((chosen == k) & side[1::2]).sum(1), side[1::2].sum(1)) for k, side in enumerate(sides))
    return ground, figure


def balanced(parts: list[tuple[Counted, Counted]]) -> dict[str, Any]:
    """Balanced accuracy of the seeds' `apart`, with an interval over the pictures that made no centre."""

    def one(sides: tuple[Counted, Counted], rows: np.ndarray) -> float:
        return float(np.mean([side.hits[rows].sum() / max(1, side.trials[rows].sum()) for side in sides]))

    pictures = len(parts[0][0].hits)
    each = [one(sides, np.arange(pictures)) for sides in parts]
    return ranged(lambda rows: float(np.mean([one(sides, rows) for sides in parts])), pictures, each)


class Flow(NamedTuple):
    """Patches of each picture that go from one group to another: (mask, side, picture, group, group). The first mask is
    the true one, the others are those of exchanged pictures."""

    counts: np.ndarray

    def gap(self, mask: int, rows: np.ndarray) -> float:
        """Total variation (half the sum of absolute differences) of where a group's figure and ground patches go, mean
        over patches; groups with few patches on either side are left out."""
        figure, ground = self.counts[mask][:, rows].sum(1, dtype=np.float64)
        there = np.stack([figure.sum(1), ground.sum(1)])
        weight = np.where(there.min(0) >= FEW, there.sum(0), 0)
        if not weight.any():
            return float("nan")
        away = np.abs(figure / np.maximum(1, there[0])[:, None] - ground / np.maximum(1, there[1])[:, None]).sum(1) / 2
        return float(np.average(away, weights=weight))

    def above(self, rows: np.ndarray) -> float:
        """The gap less the mean gap of exchanged masks, which has the same bias of small numbers."""
        return self.gap(0, rows) - float(np.mean([self.gap(mask, rows) for mask in range(1, len(self.counts))]))

    def matrices(self) -> list[list[list[float]]]:
        """For figure and for ground: the share of each group that goes to each; -1 where there are too few."""
        found = []
        for side in self.counts[0].sum(1, dtype=np.float64):
            total = side.sum(1, keepdims=True)
            found.append(np.where(total >= FEW, side / np.maximum(1, total), -1).round(3).tolist())
        return found


def flows(vectors: np.ndarray, figures: np.ndarray, seed: int) -> list[Flow]:
    """Vectors (layer, picture, patch, dim) of one network: what becomes of groups of one layer at the next.

    Groups stand for the paper's circles in a plane, which left most patches out here.
    """
    generator = np.random.default_rng(seed)
    masks = [figures, *(figures[generator.permutation(len(figures))] for _ in range(EXCHANGES))]
    labels = [
        vt.group_nodes(part.reshape(-1, part.shape[-1]), n_sample=1000, seed=seed)(CONCEPTS).reshape(figures.shape)
        for part in vectors
    ]
    found = []
    for a, b in pairwise(labels):
        cell = np.arange(len(figures))[:, None] * CONCEPTS**2 + a * CONCEPTS + b
        counts = [
            [np.bincount(cell[side], minlength=len(figures) * CONCEPTS**2) for side in (m >= FIGURE, m <= GROUND)]
            for m in masks
        ]
        found.append(Flow(np.array(counts, np.int32).reshape(len(masks), 2, len(figures), CONCEPTS, CONCEPTS)))
    return found


def moves(seeds: list[list[Flow]]) -> dict[str, Any]:
    """Every step of one network, and how far the step that is widest in half of the pictures is above exchanged masks
    and above the network's other steps in the other half: chosen and measured on different pictures."""
    pictures = seeds[0][0].counts.shape[2]
    everything, even, odd = np.arange(pictures), np.arange(0, pictures, 2), np.arange(1, pictures, 2)
    steps = list(zip(*seeds, strict=True))  # (step, seed)

    def mean(step: Any, rows: np.ndarray) -> float:
        return float(np.mean([flow.above(rows) for flow in step]))

    def seen(step: Any, mask: int) -> float:
        return float(np.mean([flow.gap(mask, everything) for flow in step]))

    rows: list[dict[str, Any]] = []
    for n, step in enumerate(steps):
        figure, ground = step[0].matrices()
        row = {"from": LAYERS[n], "to": LAYERS[n + 1], "true": seen(step, 0)}
        row["exchanged"] = float(np.mean([seen(step, mask) for mask in range(1, EXCHANGES + 1)]))
        row["above"] = ranged(
            lambda some, step=step: mean(step, some), pictures, [flow.above(everything) for flow in step]
        )
        rows.append(row | {"figure": figure, "ground": ground})
    widest = max(range(len(steps)), key=lambda n: mean(steps[n], even))

    def others(some: np.ndarray) -> float:
        return float(np.mean([mean(step, odd[some]) for n, step in enumerate(steps) if n != widest]))

    def chosen(some: np.ndarray) -> float:
        return mean(steps[widest], odd[some])

    half = len(odd)
    each = [flow.above(odd) for flow in steps[widest]]
    apart_by = [
        flow.above(odd) - float(np.mean([step[k].above(odd) for n, step in enumerate(steps) if n != widest]))
        for k, flow in enumerate(steps[widest])
    ]
    return {
        "steps": rows,
        "widest": widest,
        "widest above exchanged": ranged(chosen, half, each),
        "widest above other steps": ranged(lambda some: chosen(some) - others(some), half, apart_by),
    }


# -- pictures


def save(figure: Any, name: str, dpi: int = 90) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight")
    (RESULTS / name).write_bytes(fewer_colours(buffer.getvalue()))


def draw_mosaic(
    spectral: vt.Spectral, shades: np.ndarray, pixels: np.ndarray, pictures: list[int], name: str = "align_mosaic.png"
) -> None:
    """Two pictures side by side, a row a network."""
    cell, gap = 52, 4
    width = (1 + len(LAYERS)) * (cell + gap)
    blocks = []
    for place in pictures:
        block = Image.new("RGB", (width + gap, len(NETWORKS) * (cell + gap) + gap), "white")
        for row, model in enumerate(NETWORKS):
            tiles = [pixels[place]] + [spectral.of(model, site, shades)[place].reshape(SIDE, SIDE, 3) for site in SITES]
            for column, tile in enumerate(tiles):
                how = Image.Resampling.BICUBIC if column == 0 else Image.Resampling.NEAREST
                at = (gap + column * (cell + gap), gap + row * (cell + gap))
                block.paste(Image.fromarray(tile.astype(np.uint8)).resize((cell, cell), how), at)
        blocks.append(np.asarray(block))
    rows = [np.concatenate(blocks[n : n + 2], 1) for n in range(0, len(blocks), 2)]
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 10.5), layout="constrained")
    for axes, row in zip(np.atleast_1d(figure.subplots(len(rows), 1)), rows, strict=True):
        axes.imshow(row)
        step = cell + gap
        names = ["", *(f"layer {n}" for n in LAYERS)] * 2
        axes.set_xticks([gap + cell / 2 + k * step + (gap if k > len(LAYERS) else 0) for k in range(len(names))], names)
        axes.set_yticks([gap + cell / 2 + k * step for k in range(len(NETWORKS))], list(NETWORKS))
        axes.tick_params(length=0, labelsize=8)
        axes.spines[:].set_visible(False)
    save(figure, name)


def draw_paths(paths: dict[str, np.ndarray], figures: np.ndarray, told: dict[str, list[Any]]) -> None:
    """(layer, picture, patch, 2) of every network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.8), layout="constrained")
    grid = figure.subplots(2, len(NETWORKS))
    everything = np.concatenate([p.reshape(-1, 2) for p in paths.values()])
    low, high = np.quantile(everything, [0.005, 0.995], axis=0)
    some = np.random.default_rng(0).choice(figures.size, 1500, replace=False)
    for (upper, lower), (model, placed) in zip(grid.T, paths.items(), strict=True):
        for depth, part in enumerate(placed):
            upper.scatter(*part.reshape(-1, 2)[some].T, s=1.5, color=str(0.2 + 0.12 * depth), linewidths=0)
        for side, colour, label in ((figures >= FIGURE, "C3", "figure"), (figures <= GROUND, "C0", "ground")):
            middle = np.stack([np.median(part[side], 0) for part in placed])
            upper.plot(*middle.T, color=colour, marker="o", markersize=4, label=label)
            for number, at in zip(LAYERS, middle, strict=True):
                upper.annotate(str(number), at, fontsize=7, xytext=(3, 3), textcoords="offset points", color=colour)
        upper.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        upper.set_title(NETWORKS[model], fontsize=9)
        values = {key: [layer[key] for layer in told[model]] for key in ("value", "low", "high")}
        lower.fill_between(LAYERS, values["low"], values["high"], color="0.85", linewidth=0)
        lower.plot(LAYERS, values["value"], "k.-")
        lower.axhline(0.5, color="0.7", linestyle="--")
        lower.set(ylim=(0.4, 1), xticks=LAYERS, xlabel="layer")
        lower.spines[["top", "right"]].set_visible(False)
    grid[0, 0].legend(frameon=False, fontsize=8)
    grid[1, 0].set_ylabel("figure or ground, told by the\nnearer centre (held-out pictures)", fontsize=8)
    save(figure, "align_paths.png")


def draw_transitions(found: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.2), layout="constrained")
    grid = figure.subplots(2, len(NETWORKS))
    for column, (model, moved) in enumerate(found.items()):
        step = moved["steps"][moved["widest"]]
        for axes, side in zip(grid[:, column], ("figure", "ground"), strict=True):
            matrix = np.ma.masked_less(step[side], 0)
            axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
            for (row, col), value in np.ma.ndenumerate(matrix):
                axes.text(
                    col, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color="w" if value > 0.6 else "k"
                )
            axes.set_xticks(range(CONCEPTS), [f"B{k}" for k in range(CONCEPTS)])
            axes.set_yticks(range(CONCEPTS), [f"A{k}" for k in range(CONCEPTS)])
            axes.set_title(f"{model}, {side}: layer {step['from']} to {step['to']}", fontsize=9)
    save(figure, "align_transitions.png")


def tables(results: dict[str, Any]) -> dict[str, list[str]]:
    mixed = results["mixing"]
    lines = ["| graph | " + " | ".join(CHANCE) + " |", "| --- |" + " --- |" * len(CHANCE)]
    lines += [f"| {graph} | " + " | ".join(spoken(row[n]) for n in CHANCE) + " |" for graph, row in mixed.items()]
    lines.append("| if it did not matter | " + " | ".join(f"{value:.3f}" for value in CHANCE.values()) + " |")
    steps = ["| network | layers | figure against ground | masks exchanged | more |", "| --- | --- | --- | --- | --- |"]
    widest = ["| network | widest step | above exchanged masks | above its other steps |", "| --- | --- | --- | --- |"]
    for model, moved in results["transitions"].items():
        for s in moved["steps"]:
            seen = f"{s['true']:.3f} | {s['exchanged']:.3f} | {spoken(s['above'])}"
            steps.append(f"| {model} | {s['from']} to {s['to']} | {seen} |")
        step = moved["steps"][moved["widest"]]
        gaps = " | ".join(spoken(moved[f"widest above {what}"]) for what in ("exchanged", "other steps"))
        widest.append(f"| {model} | {step['from']} to {step['to']} | {gaps} |")
    told = ["| network | " + " | ".join(f"layer {n}" for n in LAYERS) + " |", "| --- |" + " --- |" * len(LAYERS)]
    told += [f"| {m} | " + " | ".join(spoken(v, 2) for v in row) + " |" for m, row in results["told apart"].items()]
    return {"mixing": lines, "told apart": told, "transitions": steps, "widest steps": widest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="210325")
    parser.add_argument("--weight", type=float, default=0.0, help="λ_eigen of the pictures")
    parser.add_argument("--weights", nargs="+", type=float, default=[1.0, 0.1, 0.0], help="λ_eigen that are measured")
    known = ["paths", "mosaic"]
    parser.add_argument("--pictures", nargs="*", choices=known, default=known, help="those that need t-SNE")
    options = parser.parse_args()
    if options.weight not in options.weights:
        parser.error(f"--weight {options.weight} is not among --weights {options.weights}")
    features, pixels, figures = joined(options.data, options.work, COUNT)
    results: dict[str, Any] = {"session": options.session, "pictures with λ_eigen": options.weight, "mixing": {}}
    path = RESULTS / "align_pictures.json"
    told: dict[str, list[Any]] = {m: [] for m in NETWORKS}
    moved: dict[str, list[list[Flow]]] = {m: [] for m in NETWORKS}
    shown = None
    for weight in options.weights:
        counted = []
        for seed, alignment in zip(SEEDS, learned(options.work, options.session, weight), strict=True):
            spectral = vt.ncut(features, read=alignment.transform, seed=seed, progress=False)
            counted.append(mixing(spectral, figures, seed))
            if weight != options.weight:
                continue
            shown = spectral if shown is None else shown
            for m in NETWORKS:
                parts = np.stack([spectral.of(m, site) for site in SITES])
                told[m].append([apart(part, figures) for part in parts])
                moved[m].append(flows(parts, figures, seed))
        results["mixing"][f"after, λ_eigen {weight:g}"] = {n: share([c[n] for c in counted]) for n in CHANCE}
        print(weight, results["mixing"][f"after, λ_eigen {weight:g}"], flush=True)
    assert shown is not None
    results["told apart"] = {
        m: [balanced(list(layer)) for layer in zip(*runs, strict=True)] for m, runs in told.items()
    }
    results["transitions"] = {m: moves(runs) for m, runs in moved.items()}
    path.write_text(json.dumps(results, indent=1) + "\n")
    put_tables(RESULTS / "align_pictures.md", tables(results))
    draw_transitions(results["transitions"])
    if "paths" in options.pictures:
        plane = vt.spectral_tsne(shown, dims=2, n_sample=2000)
        draw_paths({m: vt.trajectories(shown, plane, m) for m in NETWORKS}, figures, results["told apart"])
    if "mosaic" in options.pictures:
        shades = vt.colors(vt.spectral_tsne(shown, dims=3, n_sample=2000))
        draw_mosaic(shown, shades, pixels, SHOWN)


if __name__ == "__main__":
    main()
