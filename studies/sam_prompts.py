"""Which prompt should MobileSAM get when nobody clicks? Masks of pets against their trimaps, at 256 and at 32 pixels.

PYTHONPATH=src python studies/sam_prompts.py DATA --sam FOLDER [--first 0] [--count 60]

Every fourth picture is taken; the animal with its boundary is the truth. At 32 pixels picture and truth are averaged
down, to stand for CIFAR-10, which has no masks. Controls: the whole picture, and a disc in its middle that covers half.
Results are added to studies/results/sam_prompts.json, picture by picture, so that it can be run in parts.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from PIL import Image
from tqdm.auto import tqdm

import vitreous as vt
from vitreous.baselines.mobile_sam import PROMPTS, MobileSam

OUT = Path(__file__).parent / "results" / "sam_prompts.json"
BACKGROUND = 2


def pets(data: Path, first: int, count: int) -> list[tuple[str, Image.Image, np.ndarray]]:
    with ZipFile(data / "pets" / "pets.zip") as archive:
        names = sorted(n[7:-4] for n in archive.namelist() if n.startswith("images/"))[::4][first : first + count]
        read = [[archive.read(f"images/{n}.jpg"), archive.read(f"trimaps/{n}.png")] for n in names]
    opened = [[Image.open(io.BytesIO(raw)) for raw in pair] for pair in read]
    return [(n, p.convert("RGB"), np.asarray(t) != BACKGROUND) for n, (p, t) in zip(names, opened, strict=True)]


def iou(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / max((a | b).sum(), 1))


def disc(side: int) -> np.ndarray:
    y, x = (np.mgrid[:side, :side] + 0.5) / side - 0.5
    return x**2 + y**2 < 0.5 / np.pi


def measure(sam: MobileSam, picture: Image.Image, truth: np.ndarray, side: int) -> dict[str, float]:
    small = np.array(picture.resize((side, side), Image.Resampling.BOX))
    shrunk = Image.fromarray(np.uint8(255 * truth)).resize((side, side), Image.Resampling.BOX)
    wanted = np.asarray(shrunk) > 127
    seen = sam.look(small[None])
    masks = {prompt: sam.answer(seen, vt.Size(side, side), prompt)[0] for prompt in PROMPTS}
    masks |= {"whole picture": np.ones_like(wanted), "disc": disc(side)}
    return {prompt: round(iou(mask, wanted), 4) for prompt, mask in masks.items()}


def summary(found: dict[str, dict[str, dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    table: dict[str, dict[str, dict[str, float]]] = {}
    for side, by_picture in found.items():
        columns = {p: np.array([row[p] for row in by_picture.values()]) for p in next(iter(by_picture.values()))}
        table[side] = {
            p: {"mean_iou": round(float(v.mean()), 3), "median": round(float(np.median(v)), 3), "pictures": len(v)}
            for p, v in columns.items()
        }
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sam", type=Path, required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    args = parser.parse_args()
    sam = MobileSam(args.sam, device="cuda" if torch.cuda.is_available() else "cpu")
    found = json.loads(OUT.read_text())["iou"] if OUT.exists() else {"256": {}, "32": {}}
    for name, picture, truth in tqdm(pets(args.data, args.first, args.count)):
        for side in found:
            found[side][name] = measure(sam, picture, truth, int(side))
    OUT.write_text(json.dumps({"summary": summary(found), "iou": found}, indent=1) + "\n")
    print(json.dumps(summary(found), indent=1))


if __name__ == "__main__":
    main()
