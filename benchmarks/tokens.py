"""Token maps of one picture, all tokens after the last block, against one autograd call a token, in one run.

    python benchmarks/tokens.py                        DeiT-tiny and ViT-B/32 at 224 pixels, two threads
    python benchmarks/tokens.py --threads 1            steadier on a machine with other work on it
    python benchmarks/tokens.py --device cuda          ViT-B/16, one picture and batches of them
    python benchmarks/tokens.py --memory               only the memory, in processes of their own
    python benchmarks/tokens.py --use                  what a user waits for: one token, one picture, its segments
    python benchmarks/tokens.py --quick                everything with a small random model; runs anywhere in seconds

Peers: `torch.autograd.grad` for each token in turn, and for many at once (`is_grads_batched`), both on the graph of one
forward pass with opened attention, and both with the row of eq. 5 taken as a chain of vectors, which is cheaper than
the paper's products of matrices. Peers and ours take turns; ratios are of neighbours.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

import vitreous as vt
from turns import Case, Way, forget_peak, in_turn, kilobytes, seconds, spread
from vitreous.kernels.token_backward import cheaper_formed

CPU = {"deit_tiny_patch16_224": (1.5, 2.5), "vit_base_patch32_224": (2.0, 3.5)}  # ratios wanted: float32, bfloat16
GPU = {"vit_base_patch16_224": 100.0}
EXTRA_MB = 50  # allowed above the peak of one call a token


def load(name: str, device: str) -> tuple[vt.Subject, Tensor]:
    """The architecture with random weights of a size that makes every part matter, and a random picture."""
    generator = torch.Generator().manual_seed(0)
    if name == "quick":
        from timm.models.vision_transformer import VisionTransformer

        module = VisionTransformer(img_size=64, patch_size=8, embed_dim=96, depth=4, num_heads=3, num_classes=0)
        subject = vt.wrap(module.eval().to(device), name="quick")
    else:
        subject = vt.load(f"timm:{name}", weights="random", device=device, num_classes=0)
    for value in subject.module.parameters():
        if value.ndim > 1:
            value.data = (torch.randn(value.shape, generator=generator) * value[0].numel() ** -0.5).to(device)
    assert subject.preprocess is not None
    return subject, torch.randn(1, 3, *subject.preprocess.size, generator=generator).to(device)


# -- three ways


def graph(subject: vt.Subject, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    site = f"blocks.{subject.depth - 1}.resid.out"
    with torch.enable_grad(), vt.open_attention(subject) as attention, vt.capture(subject, site, stop=True) as rec:
        subject(x)
        return rec[site], [attention[b] for b in range(subject.depth)]


def one_a_token(subject: vt.Subject, x: Tensor, tokens: int | None = None) -> Tensor:
    z, patterns = graph(subject, x)
    rows = []
    for i in range(tokens or z.shape[1]):
        gradients = torch.autograd.grad(z[0, i].sum(), patterns, retain_graph=True)
        v = torch.eye(z.shape[1], device=x.device)[i]
        for g, A in zip(reversed(gradients), reversed(patterns), strict=True):
            v = v + v @ (g[0].relu() * A[0].detach()).mean(0)
        rows.append(v)
    return torch.stack(rows)


def many_at_once(subject: vt.Subject, x: Tensor, share: int) -> Tensor:
    z, patterns = graph(subject, x)
    length, rows = z.shape[1], []
    for first in range(0, length, share):
        at = torch.arange(first, min(first + share, length), device=x.device)
        seeds = z.new_zeros(len(at), *z.shape)
        seeds[torch.arange(len(at)), 0, at] = 1
        gradients = torch.autograd.grad(z, patterns, seeds, retain_graph=True, is_grads_batched=True)
        v = torch.eye(length, device=x.device)[at]
        for g, A in zip(reversed(gradients), reversed(patterns), strict=True):
            v = v + torch.einsum("iq,iqk->ik", v, (g[:, 0].relu() * A[0].detach()).mean(1))
        rows.append(v)
    return torch.cat(rows)


def ours(subject: vt.Subject, x: Tensor, dtype: str) -> Tensor:
    return torch.from_numpy(vt.token_maps(subject, x, dtype=dtype, progress=False).scores)[0]


# -- measured


def operations(subject: vt.Subject, seeds: int, length: int) -> dict[str, float]:
    """Billions of operations: of a forward pass, of one backward pass a token, and of ours."""
    d, layers, heads = subject.width, subject.depth, subject.heads or 1
    modules = dict(subject.module.named_modules())
    hidden = modules[subject.blocks[0].second_linear].in_features
    mlp, scores = 4 * d * hidden, 2 * length * d  # a token: of the MLP; of one product with A
    formed, direct = cheaper_formed(seeds, d, hidden, 1), (heads - 1) * length < d
    past = length * (2 * d * d * hidden + 2 * seeds * d * d) if formed else length * seeds * mlp
    to_v = 2 * d * d + scores
    to_q_and_k = 2 * heads * scores if direct else 4 * d * d + 2 * scores
    middle = seeds * length * (2 * d * d + scores + to_v + to_q_and_k)
    first = past + seeds * length * (2 * d * d + scores)
    last = seeds * (mlp + 4 * d * d + 3 * scores) + 4 * seeds * length * heads * d
    return {
        "forward": length * layers * (8 * d * d + 2 * scores + mlp) / 1e9,
        "one_a_token": seeds * length * layers * (8 * d * d + 4 * scores + mlp) / 1e9,
        "ours": ((layers - 2) * (past + middle) + first + last) / 1e9,
        "formed": formed,
        "direct": direct,
    }


def errors(found: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest entry that is not a token's own."""
    own = torch.eye(len(expected), dtype=torch.bool)
    off = (found - expected.cpu()).abs().masked_fill(own[:, : found.shape[1]], 0)
    return float(off.max() / expected.cpu().masked_fill(own, 0).max())


def compare(name: str, device: str, rounds: int, share: int) -> dict:
    subject, x = load(name, device)
    expected = one_a_token(subject, x)
    exact = {dtype: errors(ours(subject, x, dtype), expected) for dtype in ("float32", "bfloat16")}
    ways: dict[str, Callable[[], object]] = {
        "one_a_token": lambda: one_a_token(subject, x),
        "is_grads_batched": lambda: many_at_once(subject, x, share),
        "float32": lambda: ours(subject, x, "float32"),
        "bfloat16": lambda: ours(subject, x, "bfloat16"),
    }
    if device == "cuda":
        ways["forward"] = torch.inference_mode()(lambda: subject(x))
    for work in ways.values():
        seconds(work, device)
    taken = in_turn(ways, rounds, device)
    ratios = {way: spread(taken["one_a_token"], taken[way]) for way in ways if way != "one_a_token"}
    found: dict = {
        "seconds": {way: statistics.median(clock for clock, _ in t) for way, t in taken.items()},
        "ratio": ratios,
    }
    found |= {"error": exact}
    found["gflop"] = operations(subject, *expected.shape)
    show(name, found)
    return found


def show(name: str, found: dict) -> None:
    work = found["gflop"]
    print(f"{name}: one call a token {found['seconds']['one_a_token']:.3f} s")
    print(
        f"  {work['ours']:.0f} GFLOP, {work['one_a_token']:.0f} by one pass a token, {work['forward']:.1f} forward;"
        f" MLPs as one matrix a token: {work['formed']}, scores direct to the stream: {work['direct']}"
    )
    for way, ratio in found["ratio"].items():
        times = f"{found['seconds'][way]:.3f} s, {ratio['median']:.2f} x ({ratio['low']:.2f} to {ratio['high']:.2f})"
        error = f", error {found['error'][way]:.1e}" if way in found["error"] else ""
        print(f"  {way}: {times}, processor time {ratio['processor']:.2f} x{error}", flush=True)


def batches(name: str, device: str, sizes: tuple[int, ...]) -> dict:
    """Pictures a second, and how many forward passes a picture costs (the paper's Table 6: 1,217)."""
    subject, x = load(name, device)
    found = {}
    for size in sizes:
        many = x.repeat(size, 1, 1, 1)
        with torch.inference_mode():
            forward = fastest(partial(subject, many), 5, device)
        for dtype in ("float32", "bfloat16"):
            settings = {"dtype": dtype, "batch_size": size, "progress": False}
            taken = fastest(partial(vt.token_maps, subject, many, **settings), 3, device)
            found[f"{size} {dtype}"] = {"s": taken, "a_second": size / taken, "forward_passes": taken / forward}
            print(f"  {size} pictures, {dtype}: {size / taken:.1f} a second, {taken / forward:.0f} forward passes each")
    return found


def fastest(work: Callable[[], object], times: int, device: str) -> float:
    work()
    return min(seconds(work, device)[0] for _ in range(times))


# -- in use


def in_use(quick: bool, device: str) -> dict:
    """Milliseconds from a picture to maps, and the share of clustering in segments: the bundled model and a ViT-S."""
    bundled = vt.load("bundled:scenes-text", device=device)
    names = {"bundled:scenes-text": (bundled, vt.scenes(1, size=64, seed=3)[0].image)}
    if not quick:
        small, _ = load("vit_small_patch16_224", device)
        names["vit_small_patch16_224"] = (small, vt.scenes(1, size=224, seed=3)[0].image)
    found: dict = {}
    for name, (subject, image) in names.items():
        found[name] = {}
        middle = subject.depth // 2
        asked: dict[str, dict] = {
            "one token, last block": {"tokens": [30]},
            "one token, middle block": {"tokens": [30], "block": middle},
            "all tokens, last block": {},
            "all tokens, middle block": {"block": middle},
        }
        for said, settings in asked.items():
            for dtype in ("float32", "bfloat16"):
                work = partial(vt.token_maps, subject, [image], dtype=dtype, progress=False, **settings)
                times = 5 if "one" in said or image.size[0] < 100 else 1
                found[name][f"{said}, {dtype}"] = 1e3 * fastest(work, times, device)
        found[name]["clustering"] = clustering(subject, image, device, found[name])
        for said, value in found[name].items():
            print(f"  {name}, {said}: {value if isinstance(value, dict) else round(value, 1)}", flush=True)
    return found


def clustering(subject: vt.Subject, image: object, device: str, taken: dict) -> dict[str, float]:
    """Milliseconds for the tree and for the labels; shares of the way from the picture to labels in its pixels."""
    maps = vt.token_maps(subject, [image], dtype="bfloat16", progress=False)
    cut = vt.segment(maps)
    tree, labels = 1e3 * fastest(lambda: vt.segment(maps), 5, device), 1e3 * fastest(cut.labels, 5, device)
    found = {"tree_ms": tree, "labels_ms": labels}
    for dtype in ("float32", "bfloat16"):
        found[f"share_{dtype}"] = tree / (taken[f"all tokens, last block, {dtype}"] + tree + labels)
    return found


# -- memory


def peak_mb(name: str, way: str) -> float:
    """How far this fresh process's peak lies above what it held after one plain forward pass (Linux only)."""
    torch.set_num_threads(1)
    subject, x = load(name, "cpu")
    with torch.inference_mode():
        subject(x)
    held = forget_peak()
    if way == "one_a_token":
        one_a_token(subject, x, 12)  # as much memory as for all tokens
    else:
        ours(subject, x, way)
    return (kilobytes("VmHWM") - held) / 1024


def memory(names: list[str]) -> dict:
    found: dict = {}
    for name in names:
        found[name] = {}
        for way in ("one_a_token", "float32", "bfloat16"):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                found[name][way] = pool.submit(peak_mb, name, way).result()
        extra = max(found[name][way] for way in ("float32", "bfloat16")) - found[name]["one_a_token"]
        kept = "holds" if extra <= EXTRA_MB else "DOES NOT HOLD"
        text = ", ".join(f"{way} {mb:.0f} MB" for way, mb in found[name].items())
        print(f"{name}: {text}; at most {EXTRA_MB} MB more {kept}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--use", action="store_true")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", action="append", help="names in timm; those of the goals by default")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    names = ["quick"] if args.quick else args.model or list(CPU if args.device == "cpu" else GPU)
    found: dict = {"machine": platform.machine(), "threads": args.threads, "torch": torch.__version__}
    if args.use or args.quick:
        found["in_use"] = in_use(args.quick, args.device)
    if not args.memory and not args.use:
        for name in names:
            found[name] = compare(name, args.device, args.rounds, 50 if "32" in name or args.device == "cuda" else 8)
            if args.device == "cuda" or args.quick:
                found[name]["batches"] = batches(name, args.device, (1, 8, 32))
    if args.device == "cpu" and not args.use:
        found["memory_mb"] = memory(names)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")


# -- for run.py


def ways(name: str, device: str | None) -> dict[str, Way]:
    subject, x = load(name, device or "cpu")
    return {
        "token_maps, float32": lambda: ours(subject, x, "float32"),
        "token_maps, bfloat16": lambda: ours(subject, x, "bfloat16"),
        "autograd, one call a token": lambda: one_a_token(subject, x),
        "autograd, is_grads_batched": lambda: many_at_once(subject, x, 50 if "32" in name or device == "cuda" else 8),
    }


def quality(_: str, found: dict[str, Tensor]) -> dict[str, str]:
    exact = found["autograd, one call a token"]
    return {name: f"relative error {errors(maps.cpu(), exact):.0e}" for name, maps in found.items()}


def least(name: str) -> dict[str, float]:
    subject, x = load(name, "cpu")
    length = graph(subject, x)[0].shape[1]
    return {"flop": 1e9 * operations(subject, length, length)["ours"]}


CASES = [
    Case(
        f"token maps, {said}",
        lambda n: f"all tokens of one picture, {n}",
        ways,
        size,
        "quick",
        gpu,
        quality=quality,
        work=least,
        also_ours=("token_maps, bfloat16",),
    )
    for said, size, gpu in (
        ("many tokens", "deit_tiny_patch16_224", "vit_base_patch16_224"),
        ("few tokens", "vit_base_patch32_224", None),
    )
]


if __name__ == "__main__":
    main()
