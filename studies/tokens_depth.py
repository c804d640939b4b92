"""Segments over blocks and over cuts of the tree: Figures 8, 9 and 15 and Table 7 of the tokens paper.

    python studies/tokens_depth.py --data ../shared/data --work FOLDER [--quick]

Maps of the lens (sum) after every second block come from one forward pass a picture. They are clustered with as many
segments as the picture has classes (Figures 8 and 9); after the last block the tree is also cut at ζ from 0.1 to 0.9 of
its height (Figure 15; Table 7 is ζ = 0.4), which does not have to be told how many classes there are. Segments are
paired with classes per picture, never over the data set. The same pictures and maps as in tokens_segments, kept in
FOLDER. Writes tokens_depth.json, .md and .png under --out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import vitreous as vt
from tokens_inputs import Collection, asked, backbone, collection, in_order, maps_of, parser_of, put_tables
from vitreous.evidence.bootstrap import Estimate
from vitreous.evidence.segments import PerImage, per_image
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.panels import Card, Curve, Line

MODELS, SETS, PICTURES = ("dinov2s_saliency", "tin-vit-text"), ("voc_animals", "camvid"), 12
BLOCKS = (0, 1, 3, 5, 7, 9, 11)
CUTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def measured(subject: vt.Subject, given: Collection, work: Path) -> dict[str, Any]:
    """{"block 3": scores, ..., "ζ 0.4": scores, ...}, each with the mean number of segments."""
    rows: dict[str, list[np.ndarray]] = {}
    for shown in given.pictures:
        found = maps_of(subject, shown, "sum", BLOCKS, work / "maps" / given.name)
        for block, maps in zip(BLOCKS, found, strict=True):
            rows.setdefault(f"block {block}", []).append(vt.segment(maps, shown.classes).labels()[0])
        tree = vt.segment(found[-1])
        for cut in CUTS:
            rows.setdefault(f"ζ {cut:g}", []).append(tree.at(threshold=cut).labels()[0])
    truths = [shown.truth for shown in given.pictures]
    return {name: scores(per_image(labels, truths, classes=len(given.classes))) for name, labels in rows.items()}


def scores(found: PerImage) -> dict[str, Any]:
    estimates = {"mIoU": found.miou(), "accuracy": found.accuracy()}
    return {name: number(one) for name, one in estimates.items()} | {"segments": float(found.segments.mean())}


def number(estimate: Estimate) -> list[float]:
    return [estimate.value, estimate.low, estimate.high]


def table(by_set: dict[str, Any]) -> list[str]:
    head = [f"{name}: {what}" for name in by_set for what in ("mIoU", "accuracy", "segments")]
    lines = [f"| maps | {' | '.join(head)} |", "|---|" + "---|" * len(head)]
    for key in next(iter(by_set.values())):
        cells: list[str] = []
        for found in by_set.values():
            cells += [span(found[key][what]) for what in ("mIoU", "accuracy")] + [f"{found[key]['segments']:.1f}"]
        lines.append(f"| {key} | {' | '.join(cells)} |")
    return lines


def span(value: list[float]) -> str:
    return f"{100 * value[0]:.1f} [{100 * value[1]:.1f}, {100 * value[2]:.1f}]"


def picture(result: dict[str, Any]) -> bytes:
    sides = (
        ("block", BLOCKS, "block {}", "as many segments as classes"),
        ("ζ", CUTS, "ζ {:g}", "last block, tree cut at ζ"),
    )
    figures = []
    for axis, values, key, said in sides:
        lines = []
        for model, by_set in result.items():
            for name, found in by_set.items():
                y, low, high = zip(*(found[key.format(v)]["mIoU"] for v in values), strict=True)
                lines.append(Line(f"{model}, {name}", y, len(lines), low=low, high=high))
        figures.append(Curve(f"U. mIoU per image, {said}", tuple(map(float, values)), tuple(lines), axis, "U. mIoU"))
    return to_png(Card("Segments over blocks and cuts", "Figures 8, 9 and 15.", panels=tuple(figures)), width=8, dpi=80)


def main() -> None:
    given = asked(parser_of(__doc__, models=MODELS, sets=SETS, pictures=PICTURES))
    models, sets, count = given.models, given.sets, given.pictures
    result: dict[str, Any] = {}
    for model in models:
        subject = backbone(given.data, model)
        result[model] = {name: measured(subject, collection(given.data, name, count), given.work) for name in sets}
        print(model, "done", flush=True)
    path = given.out / "tokens_depth.json"
    pictures = in_order(path, ("about", "pictures a set"), dict.fromkeys(result, count))
    result = in_order(path, ("scores",), result)
    about = {"pictures a set": pictures, "versions": versions()}
    path.write_bytes(json_bytes({"about": about, "scores": result}))
    put_tables(given.out / "tokens_depth.md", {model: table(by_set) for model, by_set in result.items()})
    (given.out / "tokens_depth.png").write_bytes(picture(result))


if __name__ == "__main__":
    main()
