"""The paper's graph: 1,000 pictures x 197 tokens x 12 layers x 3 models, 7,092,000 nodes of 768 channels, from disk.

    python benchmarks/ncut.py --graph 1000 --work DIR [--device cuda] [--routes low_rank paper] [--sample 50000]

Features have the shape of ViT-B's and are recorded into stores like any other (10.9 GB in float16): weights are random,
attention is replaced by maps of low rank and MLPs are narrow, so that the stores are there in minutes and not in an
hour. What is timed begins with stores on disk and ends with eigenvectors in memory. Memory is the process's own, and
beside it the peak with the pages of the stores' files, which the system may take back at any time.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models.vision_transformer import Attention
from torch import Tensor, nn

import vitreous as vt

MODELS, EIGENVECTORS, RANK = 3, 20, 24
MODEL = "vit_base_patch16_224"


class Mix(Attention):
    """x -> tanh(x A) B with few columns of the attention's own maps: tokens are not mixed."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return torch.tanh(x @ self.qkv.weight[:RANK].t()) @ self.proj.weight[:, :RANK].t()


def stores(pictures: int, work: Path, device: str) -> dict[str, vt.Store]:
    """Recorded where they are not there yet."""
    images = vt.scenes(pictures, size=64, seed=5)
    found = {}
    for number in range(MODELS):
        torch.manual_seed(number)
        module = timm.create_model(MODEL, num_classes=0, mlp_ratio=RANK / 768).eval()
        for block in module.blocks:
            block.attn = Mix(768, num_heads=12)
            nn.init.normal_(block.attn.qkv.weight, std=0.05)
            nn.init.normal_(block.attn.proj.weight, std=0.2)
        one = vt.wrap(module.to(device), name=f"mix-{number}")
        found[one.name] = vt.record(one, images, "blocks.*.attn.out", out=work / one.name)
    return found


class Memory(threading.Thread):
    """Peaks of this process in bytes, looked at every 20 ms: its own memory, and with pages of files."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.own = self.whole = 0
        self._over = threading.Event()

    @staticmethod
    def now() -> dict[str, int]:
        lines = Path("/proc/self/status").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if "Rss" in line or "RSS" in line}

    def run(self) -> None:
        while not self._over.wait(0.02):
            held = self.now()
            self.own, self.whole = max(self.own, held["RssAnon"]), max(self.whole, held["VmRSS"])

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def graph(pictures: int, work: Path, device: str, routes: list[str], sample: int) -> dict[str, Any]:
    opened = stores(pictures, work, device)
    result: dict[str, Any] = {"device": torch.cuda.get_device_name() if device == "cuda" else device}
    for route in routes:
        more = {"n_sample": sample} if route == "paper" else {}
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with Memory() as memory:
            start = time.perf_counter()
            found = vt.ncut(opened, EIGENVECTORS, method=route, tokens="all", device=device, **more)
            seconds = time.perf_counter() - start
        result["nodes"] = len(found)
        result[route] = {
            "seconds": round(seconds, 1),
            "own memory, GiB": round(memory.own / 2**30, 2),
            "with the stores' pages, GiB": round(memory.whole / 2**30, 2),
            "eigenvalues": [round(float(v), 5) for v in found.eigenvalues],
            **{key: found.settings[key] for key in ("n_sample", "k")},
        }
        if device == "cuda":
            result[route]["GPU memory, GiB"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        print(route, result[route], flush=True)
        del found  # or the next route's memory would count it
    return result
