"""What recording costs on top of the forward pass, and whether its memory grows with the number of pictures.

    python benchmarks/recording.py            real weights (dinov2s_saliency) on imagenet_sample at 224 pixels
    python benchmarks/recording.py --quick    a random tiny model on random pictures; runs anywhere in seconds

Plain and recorded loops alternate in one process, each over a set that was just opened, and every ratio is of two
neighbours. On a machine with other work on it the spread is wide; `--threads 1` gave steadier numbers there. The plain
loop is the same batches through the same model under `torch.inference_mode`, keeping nothing. Memory is measured in
fresh processes, as growth of the peak over what is resident once the model and the list of pictures are loaded; it
includes what the forward pass itself needs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import vitreous as vt
from turns import Case, Growth, Way
from vitreous.places import file_hash

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("VITREOUS_DATA", ROOT.parent / "shared" / "data"))
WEIGHTS, PICTURES = "weights/dinov2s_saliency_fp16.safetensors", "imagenet_sample/images.zip"
LIMIT = 1.15


def load_subject(quick: bool) -> vt.Subject:
    if not quick:
        return vt.load("timm:vit_small_patch14_dinov2", weights=DATA / WEIGHTS, device="cpu", dynamic_img_size=True)
    from timm.models.vision_transformer import VisionTransformer

    return vt.wrap(VisionTransformer(img_size=64, patch_size=8, embed_dim=192, depth=6, num_heads=3).eval())


def open_images(quick: bool, count: int) -> vt.ImageSet:
    if not quick:
        return vt.ImageSet.from_zip(DATA / PICTURES)[:count]
    return vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (count, 64, 64, 3), np.uint8))


def plain(subject: vt.Subject, images: vt.ImageSet, args: argparse.Namespace | Loop) -> None:
    for _, x in images.batches(subject.preprocess.at(args.size), args.batch_size):
        with torch.inference_mode():
            subject(torch.from_numpy(x).to(subject.device))


def recorded(subject: vt.Subject, images: vt.ImageSet, args: argparse.Namespace | Loop) -> int:
    """Bytes on disk of a recording that is thrown away again."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        store = vt.record(
            subject,
            images,
            args.site,
            Path(folder) / "store",
            dtype=args.dtype,
            batch_size=args.batch_size,
            size=args.size,
            shard_mb=args.shard_mb,
            progress=False,
        )
        return sum(shard.bytes for shard in store.manifest.shards)


def timed(work, *args) -> tuple[dict[str, float], object]:
    """Seconds on the clock, and of processor time in all threads."""
    clock, processor = time.perf_counter(), time.process_time()
    found = work(*args)
    return {"clock": time.perf_counter() - clock, "processor": time.process_time() - processor}, found


def compare(args: argparse.Namespace) -> dict:
    subject = load_subject(args.quick)
    plain(subject, open_images(args.quick, args.batch_size), args)  # warm
    loops = {"plain": plain, "recorded": recorded}
    rounds, written = [], 0
    for number in range(args.rounds):
        seconds = {}
        for loop in loops if number % 2 == 0 else reversed(loops):
            seconds[loop], made = timed(loops[loop], subject, open_images(args.quick, args.images), args)
            written = made or written
        rounds.append(seconds)
        clock = {loop: seconds[loop]["clock"] for loop in loops}
        print(f"  round {number + 1}: plain {clock['plain']:.2f} s, recorded {clock['recorded']:.2f} s", flush=True)
    return {
        "model": subject.name,
        "sites": list(subject.resolve(args.site)),
        "store_bytes": written,
        "rounds": rounds,
        "ratio": {kind: ratios(rounds, kind) for kind in ("clock", "processor")},
        "limit": LIMIT,
    }


def ratios(rounds: list[dict], kind: str) -> dict[str, float]:
    """Of neighbours, and of the fastest loops of either kind."""
    pairs = [seconds["recorded"][kind] / seconds["plain"][kind] for seconds in rounds]
    fastest = {loop: min(seconds[loop][kind] for seconds in rounds) for loop in ("plain", "recorded")}
    least = fastest["recorded"] / fastest["plain"]
    return {"median": statistics.median(pairs), "lowest": min(pairs), "highest": max(pairs), "least_disturbed": least}


def resident() -> int:
    """Bytes that are resident now."""
    if (status := Path("/proc/self/statm")).exists():
        return int(status.read_text().split()[1]) * resource.getpagesize()
    return peak()


def peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def memory_of_one(args: argparse.Namespace) -> None:
    """Run in a process of its own: prints how far the peak grew while recording."""
    subject, images = load_subject(args.quick), open_images(args.quick, args.images)
    plain(subject, images[: args.batch_size], args)
    _ = subject.fingerprint
    before = resident()
    recorded(subject, images, args)
    print(json.dumps(max(0, peak() - before)))


def memory(args: argparse.Namespace) -> dict[int, int]:
    """Growth of the peak for a quarter of the pictures and for all of them."""
    grown = {}
    for count in (args.images // 4, args.images):
        flags = [f"--images={count}", f"--batch-size={args.batch_size}", f"--shard-mb={args.shard_mb}"]
        flags += [f"--site={site}" for site in args.site] + [f"--dtype={args.dtype}", "--memory-of-one"]
        flags += (
            [f"--threads={args.threads}"] * bool(args.threads)
            + ["--quick"] * args.quick
            + ([f"--folder={args.folder}"] if args.folder else [])
        )
        out = subprocess.run([sys.executable, __file__, *flags], capture_output=True, text=True, check=True)
        grown[count] = int(json.loads(out.stdout.strip().splitlines()[-1]))
    return grown


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a random tiny model on random pictures")
    parser.add_argument("--images", type=int, help="pictures in a loop (default 96; quick 512)")
    parser.add_argument("--rounds", type=int, help="pairs of loops (default 9; quick 3)")
    parser.add_argument("--site", action="append", help="sites (default blocks.*.resid.out)")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--shard-mb", type=float, default=64)
    parser.add_argument("--threads", type=int, help="threads of the model (default: as torch chooses)")
    parser.add_argument("--folder", help="where the recordings are written (default: the system's temporary folder)")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    parser.add_argument("--memory-of-one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.images = args.images or (512 if args.quick else 96)
    args.rounds = args.rounds or (3 if args.quick else 9)
    args.size = 64 if args.quick else 224
    args.site = args.site or ["blocks.*.resid.out"]
    return args


def main() -> None:
    args = parse()
    if not args.quick and not (DATA / WEIGHTS).exists():
        raise SystemExit(f"no real data at {DATA}: set VITREOUS_DATA, or run with --quick")
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.memory_of_one:
        memory_of_one(args)
        return
    print(f"{', '.join(args.site)} of {args.images} pictures, batches of {args.batch_size}, {args.rounds} rounds")
    found = compare(args) | {"images": args.images, "memory_growth": memory(args)}
    found |= {"threads": torch.get_num_threads(), "torch": torch.__version__, "machine": platform.machine()}
    few, many = found["memory_growth"].items()
    held = "holds" if found["ratio"]["clock"]["median"] <= LIMIT else "DOES NOT HOLD"
    for kind, ratio in found["ratio"].items():
        spread = f"median {ratio['median']:.3f} ({ratio['lowest']:.3f} to {ratio['highest']:.3f})"
        print(f"recorded / plain, {kind}: {spread}, least disturbed {ratio['least_disturbed']:.3f}")
    print(
        f"the limit of {LIMIT} on the clock {held}; {found['store_bytes'] / 1e6:.0f} MB written\n"
        f"peak memory grows by {few[1] / 1e6:.0f} MB for {few[0]} pictures and by {many[1] / 1e6:.0f} MB for {many[0]}"
    )
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


# -- for run.py: random weights and pictures, which cost what real ones do


@dataclass(frozen=True)
class Loop:
    """Settings that the loops above read."""

    size: int
    batch_size: int = 32
    site: tuple[str, ...] = ("blocks.*.resid.out",)
    dtype: str = "float16"
    shard_mb: float = 64
    folder: None = None


def saved_with_numpy(subject: vt.Subject, images: vt.ImageSet, loop: Loop, safe: bool = False) -> None:
    """What people write by hand: a hook a block, and one file for every batch and block.

    `safe` ones survive a power cut and can be checked, as ours: each is synced to disk and hashed.
    """
    kept: dict[int, torch.Tensor] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as hooks:
        for number, block in enumerate(subject.module.blocks):
            hook = block.register_forward_hook(lambda _, __, y, number=number: kept.update({number: y}))
            hooks.callback(hook.remove)
        for part, (_, x) in enumerate(images.batches(subject.preprocess.at(loop.size), loop.batch_size)):
            with torch.inference_mode():
                subject(torch.from_numpy(x).to(subject.device))
            for number, y in kept.items():
                file = Path(folder) / f"{part}-{number}.npy"
                np.save(file, y.half().cpu().numpy())
                if safe:
                    with file.open("rb+") as written:
                        os.fsync(written.fileno())
                    file_hash(file)


def ways(count: int, device: str | None) -> dict[str, Way]:
    small = count < 32
    if small:
        subject, loop = load_subject(True), Loop(64, 8)
        images = open_images(True, count)
    else:
        subject, loop = vt.load("timm:vit_small_patch16_224", weights="random", device=device or "cpu"), Loop(224)
        images = vt.ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (count, 224, 224, 3), np.uint8))
    return {
        "vt.record": lambda: recorded(subject, images, loop),
        "forward pass, nothing kept": lambda: plain(subject, images, loop),
        "hooks and numpy.save": lambda: saved_with_numpy(subject, images, loop),
        "the same, each file synced and hashed": lambda: saved_with_numpy(subject, images, loop, safe=True),
    }


def quick_recording(count: int) -> Way:
    subject, images = load_subject(True), open_images(True, count)
    return lambda: recorded(subject, images, Loop(64))


def least(count: int) -> dict[str, float]:
    """Of the forward pass: ViT-S/16 has 197 tokens of 384 channels in 12 blocks."""
    tokens, d, blocks = 197, 384, 12
    return {"flop": float(count * blocks * tokens * (24 * d * d + 4 * tokens * d))}


CASES = [
    Case("recording", lambda n: f"all 12 residual streams of a ViT-S/16, {n} pictures of 224 pixels, float16", ways,
         64, 16, 512, work=least,
         note="ours also syncs, hashes, checks for non-finite numbers and can be gone on with after a kill"),
]  # fmt: skip
GROWTH = [Growth("recording", "images", quick_recording, (256, 512, 1024, 2048), (16, 32, 64), 1)]


if __name__ == "__main__":
    main()
