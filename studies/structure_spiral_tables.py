"""Tables and pictures of the spiral, from what studies/structure_spiral.py wrote.

    python studies/structure_spiral_tables.py DIR [--no-pictures]
    python studies/structure_spiral_tables.py DIR --again      # the same trained once more: a section of its own

Table 1's synthetic half with the paper's numbers beside ours, Table 7 (sizes of clusters), Table 8 (differences by
layer) and Figures 1 and 3 for the networks whose weights are there; DIR may hold what several runs wrote, put together.
Writes studies/results/structure_spiral.json, .md and PNGs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import vitreous as vt
from structure_spiral import features, point_sets
from vitreous.evidence.statistics import kolmogorov_smirnov, mann_whitney, p_text
from vitreous.render import to_png
from vitreous.training.recipes import RECIPES
from vitreous.training.spiral import SIDE
from vitreous.training.trainee import build
from vitreous.views.structure import unit_maps
from vitreous.views.structure_tables import difference_matrix, size_histogram

OUT = Path(__file__).parent / "results"
NAMES = {"vit": "ViT", "mean": "structure loss (mean)", "sum": "structure loss (sum)"}
PAPER = {
    "difference": {
        "vit": [166.97, 163.61, 161.64, 160.66, 159.54, 157.51, 156.02, 155.44, 153.43, 151.12, 150.80, 150.45, 150.19,
                148.95],
        "ours": [162.32, 161.83, 161.85, 161.89, 161.94, 162.17, 162.30, 162.42, 162.43, 162.58, 162.76, 163.59, 162.74,
                 162.85],
    },
    "count": {
        "vit": [585, 733, 762, 766, 766, 766, 767, 767, 766, 755, 753, 753, 752, 749],
        "ours": [377, 698, 704, 709, 722, 734, 740, 740, 748, 753, 763, 768, 539, 558],
    },
    "inefficient": {"vit": 8, "ours": 4},
    "largest": {"vit": 94, "ours": 179},
    "groups": {"vit": 8082, "ours": 6478},
}  # fmt: skip


def network(folder: Path, kind: str):
    """The trained network, from weights that were rounded to half precision; None if they did not come along."""
    import torch

    parts = [folder / f"{kind}.weights.{n}.npy" for n in range(2)]
    if not all(part.exists() for part in parts):
        return None
    model = build(RECIPES["spiral"], 2)
    flat = torch.from_numpy(np.concatenate([np.load(part) for part in parts]).astype(np.float32))
    state = model.state_dict()
    pieces = flat.split([t.numel() for t in state.values()])
    model.load_state_dict({name: piece.view_as(state[name]) for name, piece in zip(state, pieces, strict=True)})
    return model.eval()


def group_sizes(labels: np.ndarray, dead: np.ndarray) -> np.ndarray:
    """Sizes of clusters; a unit of none is a group of its own."""
    joined = np.bincount(labels[labels >= 0]) if (labels >= 0).any() else np.zeros(0, int)
    return np.concatenate([joined, np.ones(int(((labels < 0) & ~dead).sum()), int)])


def size_tests(stored, points: str, kinds: list[str]) -> dict[str, dict[str, object]]:
    """Table 7: is the distribution of sizes another one than the plain network's?"""
    sizes = {k: group_sizes(stored[f"{k}_{points}_labels"], stored[f"{k}_{points}_dead"]) for k in kinds}
    found = {}
    for kind in kinds:
        found[kind] = {"groups": len(sizes[kind]), "mean size": round(float(sizes[kind].mean()), 3)}
        if kind != "vit":
            for name, test in (("KS", kolmogorov_smirnov), ("Mann-Whitney U", mann_whitney)):
                result = test(sizes["vit"], sizes[kind])
                found[kind][name] = {"statistic": round(result.statistic, 4), "p": p_text(result.p)}
    return found


def layer_rows(runs: dict[str, dict], points: str) -> list[str]:
    kinds = list(runs)
    head = [f"{what} {NAMES[k]}" for what in ("difference", "count") for k in kinds]
    lines = ["| layer | " + " | ".join(head) + " | paper: difference ViT / theirs | paper: count ViT / theirs |"]
    lines += ["|" + " --- |" * (3 + len(head))]
    for layer in range(14):
        ours = [f"{runs[k][points]['differences'][layer]:.2f}" for k in kinds]
        ours += [str(runs[k][points]["counts"][layer]) for k in kinds]
        theirs = [f"{PAPER[w]['vit'][layer]} / {PAPER[w]['ours'][layer]}" for w in ("difference", "count")]
        lines.append(f"| {layer + 1} | " + " | ".join([*ours, *theirs]) + " |")
    return lines


def change(values: list[float]) -> str:
    return f"{values[0]:.1f} to {values[-1]:.1f}"


def beside(runs: dict[str, dict], tests: dict[str, dict]) -> list[str]:
    """The paper's claims beside what was found, in sentences."""
    grid = {k: runs[k]["grid"] for k in runs}
    wide = {k: tests["grid"][k]["mean size"] for k in runs}
    steps = {k: min(runs[k]["times"]["alone ms a step"]) for k in runs}
    lines = []
    for k in list(runs)[1:]:
        more = "larger" if wide[k] > wide["vit"] else "not larger"
        fewer = "fewer" if grid[k]["inefficient"] < grid["vit"]["inefficient"] else "not fewer"
        spread = {n: max(grid[n]["differences"]) - min(grid[n]["differences"]) for n in (k, "vit")}
        flat = "change less" if spread[k] < spread["vit"] else "do not change less"
        lines += [
            f"- {NAMES[k]}: groups of alike units are {more} (mean {wide[k]} against {wide['vit']}; the paper: 1.66 "
            f"against 1.33), inefficient clusters {fewer} ({grid[k]['inefficient']} against "
            f"{grid['vit']['inefficient']}; the paper: 4 against 8), differences {flat} from the first layer to the "
            f"last ({change(grid[k]['differences'])} against {change(grid['vit']['differences'])}; the paper: 162.3 to "
            f"162.9 against 167.0 to 149.0). A step of this program takes {steps[k] - steps['vit']:.2f} ms "
            f"({steps[k] / steps['vit'] - 1:.1%}) more than {steps['vit']:.2f}.",
        ]
    return lines


def said(runs: dict[str, dict], tests: dict[str, dict]) -> list[str]:
    return [
        "## What holds (grid of 2,500 points)",
        "",
        *beside(runs, tests),
        "- The plain network does another thing here than in the paper: theirs grows more alike with depth, ours less, "
        "so the loss flattens the other way round.",
        "- Accuracy cannot tell the networks apart: all are at the ceiling within 20 epochs.",
        "- In half precision with float16, as the paper trains, a forward pass with the loss overflowed at epoch 915; "
        f"these runs are in {runs['vit'].get('amp', 'float16')}. Attention over three tokens is written out, which "
        "makes all steps shorter than those of `vitreous train spiral`: the recipe's own step of 4.70 ms takes "
        "0.46 ms, 9.8 %, more with the loss (`benchmarks/results/structure_loss.json`). ViT was timed here in a call "
        "of its own, so only the times of the runs below, taken side by side, compare.",
        "- The 3,600 epochs were not reached in either run: the number was chosen to fit into ten "
        "minutes (515 and 424 s), and no weights were kept to go on from. "
        "With `--whole` a run goes on where a call ends.",
        "",
    ]


def once_more(runs: dict[str, dict], tests: dict[str, dict]) -> list[str]:
    first = next(iter(runs.values()))
    return [
        f"## Once more: {first['epochs']:,} epochs",
        "",
        f"Trained again with the same seed and more epochs, side by side on one {first['device']} (kernels on a GPU do "
        "not add up in a fixed order, so these are other networks); steps were timed while the other process waited. "
        "Accuracy: " + ", ".join(f"{NAMES[k]} {run['log'][-1]['accuracy']:.2f} %" for k, run in runs.items()) + ".",
        "",
        *beside(runs, tests),
        "",
    ]


def text(found: dict) -> str:
    runs, tests, layers = found["runs"], found["sizes"], found["layers"]
    kinds = list(runs)
    first = runs[kinds[0]]
    lines = [
        "# The spiral: a plain ViT against the structure loss",
        "",
        f"{first['epochs']:,} epochs after 5 of warm-up (the paper: 3,600), seed 42, one run each, {first['device']}, "
        f"torch {first['torch']}. Recipe `spiral`; made by `python studies/structure_spiral.py run` and "
        "`python studies/structure_spiral_tables.py`.",
        "Accuracy on the 4,096 test points: "
        + ", ".join(f"{NAMES[k]} {runs[k]['log'][-1]['accuracy']:.2f} %" for k in kinds)
        + ".",
        "",
        *said(runs, tests),
    ]
    if again := found.get("again"):
        lines += once_more(again["runs"], again["sizes"])
    for points, about in (("test", "4,096 test points"), ("grid", "the grid of 2,500 points")):
        lines += [f"## Table 1 on {about}", "", *layer_rows(runs, points), ""]
        lines += [
            "| | " + " | ".join(NAMES[k] for k in kinds) + " | paper: ViT | paper: theirs |",
            "|" + " --- |" * (3 + len(kinds)),
        ]
        for name, key in (("inefficient clusters", "inefficient"), ("largest cluster", "largest")):
            ours = [str(runs[k][points][key]) for k in kinds]
            lines.append(f"| {name} | " + " | ".join([*ours, str(PAPER[key]["vit"]), str(PAPER[key]["ours"])]) + " |")
        groups = [f"{tests[points][k]['groups']:,}" for k in kinds]
        lines.append("| groups of alike units | " + " | ".join([*groups, "8,082", "6,478"]) + " |")
        lines += ["", "Sizes against the plain network: "]
        for k in kinds[1:]:
            row = tests[points][k]
            lines.append(
                f"- {NAMES[k]}: KS {row['KS']['statistic']}, p {row['KS']['p']}; Mann-Whitney U "
                f"{row['Mann-Whitney U']['statistic']:.4g}, p {row['Mann-Whitney U']['p']}; mean size "
                f"{row['mean size']} against {tests[points]['vit']['mean size']}."
            )
        lines.append("")
    if layers:
        lines += ["## Table 8: differences by layer, tested", "", "```", layers, "```", ""]
    return "\n".join(lines)


def pictures(folder: Path, kinds: list[str]) -> str | None:
    """Figures 1 and 3 of the networks that are there; gives the table of differences if two are."""
    findings = {}
    for kind in kinds:
        if (model := network(folder, kind)) is None:
            continue
        grid = features(model, point_sets(RECIPES["spiral"].seed)["grid"], "cpu")
        findings[kind] = vt.structure(grid, keep_transformed=True, progress=False)
        maps = unit_maps(
            findings[kind], grid, grid=(SIDE, SIDE), blocks=range(7), title=f"Units by block: {NAMES[kind]}"
        )
        (OUT / f"structure_spiral_units_{kind}.png").write_bytes(to_png(maps, width=8, dpi=90))
        matrix = difference_matrix(findings[kind], grid, pixels=560, title=f"Differences of units: {NAMES[kind]}")
        (OUT / f"structure_spiral_matrix_{kind}.png").write_bytes(to_png(matrix, width=6, dpi=90))
    if findings:
        shown = size_histogram({NAMES[k]: f for k, f in findings.items()})
        (OUT / "structure_spiral_sizes.png").write_bytes(to_png(shown, width=8, dpi=90))
    if {"vit", "mean"} <= set(findings):
        compared = vt.compare(findings["vit"], findings["mean"], names=("ViT", "structure loss"), progress=False)
        return compared.table()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--no-pictures", action="store_true", help="keep those that are there, and Table 8")
    parser.add_argument("--again", action="store_true", help="DIR holds the same networks, trained once more")
    options = parser.parse_args()
    runs = json.loads((options.folder / "runs.json").read_text())
    stored = np.load(options.folder / "clusters.npz")
    tests = {points: size_tests(stored, points, list(runs)) for points in ("test", "grid")}
    for facts in runs.values():
        for points in ("test", "grid"):
            facts[points].pop("sizes")
    kept = OUT / "structure_spiral.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    if options.again:
        found["again"] = {"runs": runs, "sizes": tests}
    else:
        layers = found["layers"] if options.no_pictures else pictures(options.folder, list(runs))
        found |= {"runs": runs, "sizes": tests, "layers": layers}
    kept.write_text(json.dumps(found) + "\n")
    (OUT / "structure_spiral.md").write_text(text(found) + "\n")
    print((OUT / "structure_spiral.md").read_text())


if __name__ == "__main__":
    main()
