"""The recipe `scenes` with and without the structure loss: both curves side by side.

    vitreous train scenes --out runs/with
    vitreous train scenes --out runs/without --no-structure
    PYTHONPATH=src python studies/structure_scenes.py runs/with runs/without

Writes studies/results/structure_scenes.json, .md and .png; of the first run alone if there is no second yet.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from structure_ablation_tables import table

OUT = Path(__file__).parent / "results" / "structure_scenes"
KEPT = ("epoch", "loss", "accuracy", "clusters", "members", "terms", "kept", "structure")


def curve(folder: Path) -> list[dict[str, Any]]:
    """One entry an epoch, of a run that may still go on."""
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: entry[name] for name in KEPT if name in entry} for entry in entries]


def facts(folder: Path) -> dict[str, Any]:
    run, recipe = (json.loads((folder / name).read_text()) for name in ("run.json", "recipe.json"))
    kept = {name: recipe[name] for name in ("model", "settings", "batch", "epochs", "warmup", "lr", "seed")}
    return {"status": run["status"], "recipe": kept, "curve": curve(folder)}


def write(found: dict[str, Any]) -> str:
    kinds = list(found)
    rows = []
    for entries in zip(*(found[kind]["curve"] for kind in kinds), strict=False):
        loss = entries[0]
        accuracies = [
            f"{entry[name]:.{digits}f}" for entry in entries for name, digits in (("loss", 3), ("accuracy", 2))
        ]
        rows.append(
            (
                loss["epoch"] + 1,
                *accuracies,
                *(f"{loss[name]:.0f}" for name in ("clusters", "members", "terms", "kept")),
                f"{loss['structure']:.4f}",
            )
        )
    heads = [f"{what}, {kind}" for kind in kinds for what in ("loss", "accuracy %")]
    last = {kind: found[kind]["curve"][-1]["accuracy"] for kind in kinds}
    said = ", ".join(f"{kind} the loss {value:.2f} %" for kind, value in last.items())
    missing = "" if len(kinds) == 2 else " **The run without the loss has not been done.**"
    return (
        "# The recipe `scenes`, whole\n\n"
        "`vitreous train scenes --out runs/with` and the same with `--no-structure`; written by "
        "`studies/structure_scenes.py`. 8,192 scenes of 64 pixels, the colour of the largest object (10 colours, "
        f"chance about 10 %), tested on 1,024 others; seed {found['with']['recipe']['seed']}, one run each. Both start "
        f"from the same weights and see the same pictures in the same order. At the end: {said}.{missing} Two quiet "
        "cores draw the pictures in 14 s and train for 2 min 41 s with the loss.\n\n"
        + table(("epoch", *heads, "clusters", "members", "terms", "kept", "structure loss"), rows)
        + "\n![curves](structure_scenes.png)\n"
    )


def draw(found: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    from vitreous.views.colours import SERIES

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for colour, kind in zip(SERIES, found, strict=False):
        points = found[kind]["curve"]
        axes.plot(
            [p["epoch"] + 1 for p in points], [p["accuracy"] for p in points], color=colour, label=f"{kind} the loss"
        )
    axes.set_xlabel("epoch (the first is warm-up)")
    axes.set_ylabel("test accuracy, %")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("with_", metavar="with", type=Path)
    parser.add_argument("without", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=OUT, help="results without their endings")
    args = parser.parse_args()
    found = {"with": facts(args.with_)} | ({} if args.without is None else {"without": facts(args.without)})
    args.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    args.out.with_suffix(".md").write_text(write(found))
    draw(found, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
