"""Pictures like Figure 3 of the disentanglement paper: a unit, and the sub-units that it splits into, for K = 1 to 7.

    python studies/disentangle_pictures.py dino|tin --units 64 --pictures 900 [--tokens 4 --more 2000]

Splits some units of the last MLP, drawn by lot, into about four each. Of each K two units are shown, so that nobody has
to trust a choice: the best and the median one, by the mean MS-Score of the sub-units in the layer's own space (--by
score), or by how far that is above the unit's own (--by gain: those that were split to some use). On the left the 16
pictures where the unit is strongest (yellow frame), on the right the 4 of each sub-unit (pink frames), from held-out
pictures and some that it was split with; a box marks the patch. Below a sub-unit stand its MS-Score and how many
instances its cluster has; the JSON also has the share of its 4 pictures that are among the unit's 16.

With --more the units are split with pictures of other sets too: voc_animals, bsds500_test, dtd10, tiny_imagenet_val, as
many as that, evenly drawn. --tokens are taken of each picture: of many, some clusters are patches of one picture.

Writes disentangle_pictures_MODEL.png and .json under --out (studies/results).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from tqdm.auto import tqdm  # type: ignore[import-untyped]

import vitreous as vt
from backbone_inputs import photographs, tiny_imagenet
from disentangle_inputs import Case, dino_case, tin_case
from disentangle_tables import LAST, TOKENS
from vitreous.dictionary_comparison.activations import record_training
from vitreous.evidence.monosemanticity import Monosemanticity, monosemanticity
from vitreous.provenance import json_bytes
from vitreous.subunits.layers import find_layer

OUT = Path(__file__).parent / "results"
CASES = {"dino": dino_case, "tin": tin_case}
MOST = 7
CELL, GAP, TEXT, WIDE = 64, 10, 16, 166  # pixels
YELLOW, PINK = (240, 180, 0), (226, 80, 150)


def pictures_of(case: Case, count: int) -> vt.ImageSet:
    """Pictures of the case, those for evaluation first and then others that it was split with."""
    assert isinstance(case.train, vt.ImageSet) and isinstance(case.evaluate, vt.ImageSet)
    every = [picture.image for part in (case.evaluate, case.train) for picture in part[: max(1, count)]]
    return vt.ImageSet.from_arrays(every[:count], name="pictures")


def with_more(case: Case, data: Path, count: int) -> Case:
    """Split with other pictures too; those of the case are the first 1,259 of the photographs."""
    assert isinstance(case.train, vt.ImageSet)
    others = list(photographs(data, 1799))[1259:] + tiny_imagenet(data, 2000)[0]
    drawn = [others[k] for k in np.linspace(0, len(others) - 1, min(count, len(others))).astype(int)]
    train = vt.ImageSet.from_arrays([picture.image for picture in case.train] + drawn, name=f"{case.train.name} + more")
    return replace(case, train=train, said=f"{case.said}; split with {len(drawn):,} pictures of other sets too")


def looked(case: Case, images: vt.ImageSet, finding: vt.Disentanglement) -> tuple[Monosemanticity, Monosemanticity]:
    """Units and sub-units over all pictures: where they are strongest, and their MS-Scores."""
    layer = find_layer(case.subject, LAST)
    rows = []
    with torch.inference_mode(), vt.capture(case.subject, f"{layer.path}:in", stop=True) as seen:
        for _, x in tqdm(images.batches(case.subject.preprocess, 32), "pictures", -(-len(images) // 32)):
            case.subject(torch.from_numpy(x))
            rows.append(seen[f"{layer.path}:in"].half().numpy())
    q = np.concatenate(rows)[:, 1:]  # patches only: a class token has no place in the picture
    y = np.concatenate([part.astype(np.float32) @ finding.weight.T + finding.bias for part in np.array_split(q, 20)])
    units = monosemanticity(y, top=16, progress=False)
    parts = monosemanticity(y, lambda part: finding.subunit_activations(part.astype(np.float32)), sources=q, top=16)
    return units, parts


def chosen(finding: vt.Disentanglement, units: Monosemanticity, parts: Monosemanticity, k: int, by: str) -> list[int]:
    """Positions of two units with k sub-units (1: whole), the best and the median: by their sub-units' mean score, or
    by how far that is above their own; units that stayed whole are always taken by score."""
    there = np.flatnonzero(np.maximum(finding.counts, 1) == k)
    if not len(there):
        return []
    mean = np.array([np.nanmean(parts.scores[finding.parents == unit]) for unit in there])
    if by == "gain" and k > 1:
        mean = mean - units.scores[there]
    order = there[np.argsort(-mean, kind="stable")]
    return list(dict.fromkeys([int(order[0]), int(order[len(order) // 2])]))


def tile(case: Case, images: vt.ImageSet, image: int, token: int) -> Image.Image:
    """The picture as the model sees it, the patch marked."""
    grid, steps = case.subject.grid(), case.subject.preprocess
    assert grid is not None and steps is not None
    raw = np.asarray(steps(images[image].image)).transpose(1, 2, 0) * steps.std + steps.mean
    small = Image.fromarray((raw.clip(0, 1) * 255).astype(np.uint8)).resize((CELL, CELL), Image.Resampling.LANCZOS)
    row, column = divmod(token, grid.columns)
    h, w = CELL / grid.rows, CELL / grid.columns
    box = (column * w, row * h, (column + 1) * w - 1, (row + 1) * h - 1)
    ImageDraw.Draw(small).rectangle(box, outline="white")
    return small


def block(
    case: Case, images: vt.ImageSet, places: list[tuple[int, int]], side: int, colour: tuple, text: str
) -> Image.Image:
    canvas = Image.new("RGB", (max(side * CELL + 6, WIDE), side * CELL + 6 + TEXT), "white")
    draw = ImageDraw.Draw(canvas)
    draw.rectangle((0, 0, side * CELL + 5, side * CELL + 5), outline=colour, width=3)
    for n, (image, token) in enumerate(places[: side * side]):
        canvas.paste(tile(case, images, image, token), (3 + n % side * CELL, 3 + n // side * CELL))
    draw.text((2, side * CELL + 7), text, fill="black", font=ImageFont.load_default(11))
    return canvas


def line(case: Case, images: vt.ImageSet, finding: Any, at: int, units: Any, parts: Any) -> tuple[Image.Image, Any]:
    """One unit and its sub-units side by side, and the numbers below them."""
    own = list(zip(units.images[at].tolist(), units.tokens[at].tolist(), strict=True))
    subs = np.flatnonzero(finding.parents == at)
    made = [block(case, images, own, 4, YELLOW, f"unit {finding.units[at]}, MS {units.scores[at]:.2f}")]
    said: dict[str, Any] = {"unit": int(finding.units[at]), "k": len(subs), "ms": round(float(units.scores[at]), 3)}
    said["subunits"] = []
    for s in subs:
        places = list(zip(parts.images[s].tolist(), parts.tokens[s].tolist(), strict=True))[:4]
        shared = float(np.isin([image for image, _ in places], units.images[at]).mean())
        size = f", {finding.sizes[s]} instances" if finding.sizes[s] else ""
        made.append(block(case, images, places, 2, PINK, f"MS {parts.scores[s]:.2f}{size}"))
        said["subunits"].append({"ms": round(float(parts.scores[s]), 3), "among the unit's 16": shared})
    width = made[0].width + GAP + sum(part.width + GAP for part in made[1:])
    canvas = Image.new("RGB", (width, made[0].height), "white")
    canvas.paste(made[0], (0, 0))
    x = made[0].width + GAP
    for part in made[1:]:
        canvas.paste(part, (x, 0))
        x += part.width + GAP
    return canvas, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=CASES)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--work", type=Path, default=Path("runs/disentangle"))
    parser.add_argument("--units", type=int, default=96, help="that are split")
    parser.add_argument("--pictures", type=int, default=1200, help="that are looked at")
    parser.add_argument("--more", type=int, default=0, help="pictures of other sets to split with (dino alone)")
    parser.add_argument("--tokens", type=int, help="of a picture; 8 for tin and 16 for dino unless given")
    parser.add_argument("--by", choices=("score", "gain"), default="score", help="which units are shown")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    torch.set_num_threads(1)
    case = CASES[given.model](given.data)
    if given.more and given.model != "dino":
        parser.error("--more is for dino: the other model has seen these pictures")
    if given.more:
        case = with_more(case, given.data, given.more)
    layer = find_layer(case.subject, LAST)
    drawn = np.sort(np.random.default_rng(0).permutation(layer.count)[: given.units])
    many = given.tokens or TOKENS[case.name]
    name = f"{given.model}-{len(case.train)}-{many}"
    training = record_training(case.subject, layer, case.train, many, 0, given.work / f"tokens-{name}", True)
    asked = {"tokens_per_image": many, "expansion": 4, "out": given.work / f"pictures-{name}-{given.units}"}
    finding = vt.disentangle(case.subject, training.source, LAST, units=drawn.tolist(), **asked)
    images = pictures_of(case, given.pictures)
    units, parts = looked(case, images, finding)
    lines, said = [], []
    for k in range(1, MOST + 1):
        for at in chosen(finding, units, parts, k, given.by):
            drawn, numbers = line(case, images, finding, at, units, parts)
            lines.append(drawn)
            said.append(numbers)
    sheet = Image.new("RGB", (max(one.width for one in lines), sum(one.height + GAP for one in lines)), "white")
    y = 0
    for one in lines:
        sheet.paste(one, (0, y))
        y += one.height + GAP
    sheet.quantize(256).save(given.out / f"disentangle_pictures_{given.model}.png", optimize=True)
    counts = np.bincount(np.maximum(finding.counts, 1)).tolist()
    scores = {"units": round(units.mean, 4), "subunits": round(parts.mean, 4)}
    asked = {name: finding.settings[name] for name in ("top_k", "min_cluster_size", "instances")}
    asked |= {"tokens": many, "pictures looked at": len(images), "shown by": given.by}
    about = {
        "data": case.said,
        "settings": asked,
        "units with k subunits": counts,
        "mean MS-Score": scores,
        "shown": said,
    }
    (given.out / f"disentangle_pictures_{given.model}.json").write_bytes(json_bytes(about))


if __name__ == "__main__":
    main()
