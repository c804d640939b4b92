"""One colour for one concept in four networks, and how patches move through them (AlignedCut, Figures 4, 9 and 10).

    python studies/align_pictures.py DATA --work DIR [--session 201025] [--weight 0.0]

The patches of 120 `pets` and 120 `voc_animals` pictures at six layers of four networks, 368,640 nodes, are brought into
the aligned space and cut as one graph, 20 eigenvectors. Written, with numbers beside what the eye sees:

- `align_mosaic.png`: colours (3-D spectral t-SNE) by picture, network and layer.
- mixing: of a patch's nearest neighbours in other pictures, how many are of another network, of another layer, and on
  the same side of figure and ground; three quarters, five sixths and chance if these did not matter.
- `align_paths.png`: mean 2-D paths of figure and ground patches of each network, and how well the two sides can be told
  apart at each layer.
- `align_transitions.png`: of five groups of patches at one layer, which share goes to which of five at the next, for
  figure and for ground, where the two differ most (blank: too few); against masks of exchanged pictures.

Reads the alignments of `align_brain.py`. Writes align_pictures.json and the tables of align_pictures.md.
"""

from __future__ import annotations

import argparse
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import vitreous as vt
from align_inputs import LAYERS, NETWORKS, SITES, pictures_of
from structure_cifar_curves import fewer_colours
from tokens_inputs import IGNORE, put_tables

RESULTS = Path(__file__).parent / "results"
SHOWN = [3, 40, 90, 119, 130, 170, 200, 230]  # pets, then voc_animals
SIDE, PATCHES, CONCEPTS, FEW = 8, 64, 5, 30


def figure_share(truths: list[np.ndarray]) -> np.ndarray:
    """(picture, patch): share of a patch's known pixels that lie on an object; not a number where none is known."""
    found = np.full((len(truths), PATCHES), np.nan)
    for n, truth in enumerate(truths):
        rows, columns = (np.arange(size) * SIDE // size for size in truth.shape)
        patch = rows[:, None] * SIDE + columns
        known = truth != IGNORE
        total = np.bincount(patch[known], minlength=PATCHES)
        on = np.bincount(patch[known & (truth > 0)], minlength=PATCHES)
        found[n] = np.where(total > 0, on / np.maximum(total, 1), np.nan)
    return found


def joined(data: Path, work: Path) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray, np.ndarray]:
    """Features {network: {layer: (picture, patch, channel)}}, pixels, and figure shares (picture, patch)."""
    sets = [pictures_of(data, name, work) for name in ("pets", "voc_animals")]
    features = {
        m: {site: np.concatenate([np.asarray(s[1][m][site][:])[:, 1:] for s in sets]) for site in SITES}
        for m in NETWORKS
    }
    pixels = np.concatenate([np.stack([np.asarray(p.image) for p in images]) for images, _, _ in sets])
    return features, pixels, np.concatenate([figure_share(truths) for _, _, truths in sets])


def mixing(spectral: vt.Spectral, share: np.ndarray, nearest: int = 10, seed: int = 0) -> dict[str, float]:
    """What the `nearest` nodes of 2,000 random nodes are, among 40,000 random ones of other pictures."""
    generator = np.random.default_rng(seed)
    model, layer, picture, patch = np.unravel_index(
        np.arange(len(spectral)), (len(NETWORKS), len(LAYERS), len(share), PATCHES)
    )
    figure = share[picture, patch]
    rows = spectral.eigenvectors / np.linalg.norm(spectral.eigenvectors, axis=1, keepdims=True)
    sure = np.flatnonzero((figure <= 0.1) | (figure >= 0.9))
    asked, pool = generator.choice(sure, 2000, False), generator.choice(sure, 40_000, False)
    likeness = rows[asked] @ rows[pool].T
    likeness[picture[asked][:, None] == picture[pool]] = -2
    near = pool[np.argpartition(-likeness, nearest, 1)[:, :nearest]]
    side = figure > 0.5
    balance = side[pool].mean()
    return {
        "another network": float((model[near] != model[asked][:, None]).mean()),
        "another layer": float((layer[near] != layer[asked][:, None]).mean()),
        "same side of figure and ground": float((side[near] == side[asked][:, None]).mean()),
        "same side, chance": float(balance**2 + (1 - balance) ** 2),
    }


def apart(vectors: np.ndarray, share: np.ndarray) -> float:
    """Balanced accuracy of the nearer of two centres, figure and ground, made from every second picture, tried on the
    others; vectors (picture, patch, dim)."""
    unit = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    sides = [share <= 0.1, share >= 0.9]
    centres = np.stack([unit[::2][side[::2]].mean(0) for side in sides])
    chosen = (unit[1::2] @ centres.T).argmax(2)
    return float(np.mean([(chosen[side[1::2]] == k).mean() for k, side in enumerate(sides)]))


def moves(vectors: np.ndarray, share: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Vectors (layer, picture, patch, dim) of one network: what becomes of five groups of one layer at the next.

    Groups stand for the paper's circles in a plane, which left most patches out here. Difference is half the sum of
    absolute differences of the two rows of a group (total variation), mean over patches, groups with few patches on
    either side left out; the control exchanges the masks of pictures.
    """
    exchanged = share[np.random.default_rng(seed).permutation(len(share))]
    members = []
    for part in vectors:
        labels = vt.group_nodes(part.reshape(-1, part.shape[-1]), n_sample=1000, seed=seed)(CONCEPTS)
        members.append(labels == np.arange(CONCEPTS)[:, None])
    found = []
    for first, (a, b) in enumerate(pairwise(members)):
        gaps, rows = {}, {}
        for name, mask in (("true", share), ("exchanged", exchanged)):
            sides = [(mask >= 0.9).ravel(), (mask <= 0.1).ravel()]
            counts = np.stack([(a & side).sum(1) for side in sides])
            figure, ground = (np.nan_to_num(vt.transitions(a, b, mask=side)) for side in sides)
            weight = np.where(counts.min(0) >= FEW, counts.sum(0), 0)
            gaps[name] = float(np.average(np.abs(figure - ground).sum(1) / 2, weights=weight))
            rows[name] = [np.where(n[:, None] >= FEW, m, np.nan) for m, n in zip((figure, ground), counts, strict=True)]
        figure, ground = (np.where(np.isnan(m), -1, m).round(3).tolist() for m in rows["true"])
        found.append({"from": LAYERS[first], "to": LAYERS[first + 1], **gaps, "figure": figure, "ground": ground})
    return {"steps": found, "widest": max(range(len(found)), key=lambda n: found[n]["true"] - found[n]["exchanged"])}


# -- pictures


def save(figure: Any, name: str, dpi: int = 90) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, bbox_inches="tight")
    (RESULTS / name).write_bytes(fewer_colours(buffer.getvalue()))


def draw_mosaic(spectral: vt.Spectral, shades: np.ndarray, pixels: np.ndarray, pictures: list[int]) -> None:
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
    save(figure, "align_mosaic.png")


def draw_paths(paths: dict[str, np.ndarray], share: np.ndarray, told: dict[str, list[float]]) -> None:
    """(layer, picture, patch, 2) of every network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6.8), layout="constrained")
    grid = figure.subplots(2, len(NETWORKS))
    everything = np.concatenate([p.reshape(-1, 2) for p in paths.values()])
    low, high = np.quantile(everything, [0.005, 0.995], axis=0)
    some = np.random.default_rng(0).choice(share.size, 1500, replace=False)
    for (upper, lower), (model, placed) in zip(grid.T, paths.items(), strict=True):
        for depth, part in enumerate(placed):
            upper.scatter(*part.reshape(-1, 2)[some].T, s=1.5, color=str(0.2 + 0.12 * depth), linewidths=0)
        for side, colour, label in ((share >= 0.9, "C3", "figure"), (share <= 0.1, "C0", "ground")):
            middle = np.stack([np.median(part[side], 0) for part in placed])
            upper.plot(*middle.T, color=colour, marker="o", markersize=4, label=label)
            for number, at in zip(LAYERS, middle, strict=True):
                upper.annotate(str(number), at, fontsize=7, xytext=(3, 3), textcoords="offset points", color=colour)
        upper.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), xticks=[], yticks=[])
        upper.set_title(NETWORKS[model], fontsize=9)
        lower.plot(LAYERS, told[model], "k.-")
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
    names = list(next(iter(mixed.values())))
    lines = ["| graph | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    lines += [f"| {graph} | " + " | ".join(f"{row[n]:.3f}" for n in names) + " |" for graph, row in mixed.items()]
    steps = ["| network | layers | figure against ground | masks exchanged |", "| --- | --- | --- | --- |"]
    for model, moved in results["transitions"].items():
        steps += [
            f"| {model} | {s['from']} to {s['to']} | {s['true']:.3f} | {s['exchanged']:.3f} |" for s in moved["steps"]
        ]
    told = ["| network | " + " | ".join(f"layer {n}" for n in LAYERS) + " |", "| --- |" + " --- |" * len(LAYERS)]
    told += [f"| {m} | " + " | ".join(f"{v:.3f}" for v in row) + " |" for m, row in results["told apart"].items()]
    return {"mixing": lines, "told apart": told, "transitions": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--session", default="201025")
    parser.add_argument("--weight", type=float, default=0.0, help="λ_eigen of the pictures; all are measured")
    parser.add_argument("--pictures", nargs="*", default=["paths", "mosaic"], help="those that need t-SNE")
    options = parser.parse_args()
    features, pixels, share = joined(options.data, options.work)
    results: dict[str, Any] = {"session": options.session, "pictures with λ_eigen": options.weight, "mixing": {}}
    cuts = {}
    for weight in (1.0, 0.1, 0.0):
        alignment = vt.ChannelAlign.load(options.work / options.session / f"lambda-{weight}" / "0")
        cuts[weight] = vt.ncut(features, read=alignment.transform, progress=False)
        results["mixing"][f"after, λ_eigen {weight:g}"] = mixing(cuts[weight], share)
    spectral = cuts[options.weight]
    by_network = {m: np.stack([spectral.of(m, site) for site in SITES]) for m in NETWORKS}
    results["told apart"] = {m: [apart(part, share) for part in parts] for m, parts in by_network.items()}
    results["transitions"] = {m: moves(parts, share) for m, parts in by_network.items()}
    (RESULTS / "align_pictures.json").write_text(json.dumps(results, indent=1) + "\n")
    put_tables(RESULTS / "align_pictures.md", tables(results))
    draw_transitions(results["transitions"])
    if "paths" in options.pictures:
        plane = vt.spectral_tsne(spectral, dims=2, n_sample=2000)
        draw_paths({m: vt.trajectories(spectral, plane, m) for m in NETWORKS}, share, results["told apart"])
    if "mosaic" in options.pictures:
        shades = vt.colors(vt.spectral_tsne(spectral, dims=3, n_sample=2000))
        draw_mosaic(spectral, shades, pixels, SHOWN)


if __name__ == "__main__":
    main()
