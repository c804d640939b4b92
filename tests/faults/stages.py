"""Stages of work that may be interrupted, each the same whenever and wherever it runs.

Run as a script this file is a nursery: it loads the libraries once and then makes a child, by fork, for every line it
reads. The child does one stage in one folder, and may be sent any signal meanwhile.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np


@cache
def subject_and_images():
    import timm
    import torch

    from vitreous.images import ImageSet
    from vitreous.subjects import wrap

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=3
        )
    pictures = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), np.uint8)
    return wrap(module, name="tiny"), ImageSet.from_arrays(pictures)


def recording(folder: Path, engine: str = "local") -> None:
    from vitreous.recording import record

    sites = ("blocks.0.resid.out", "blocks.1.mlp.hidden")
    settings = {"batch_size": 2, "shard_mb": 0.05, "dtype": "float32", "progress": False}
    record(*subject_and_images(), sites, folder, engine=engine, **settings)


def recording_by_workers(folder: Path) -> None:
    recording(folder, "local:2")


def disentangling(folder: Path) -> None:
    import vitreous as vt

    subject, images = subject_and_images()
    settings = {"tokens_per_image": "all", "top_k": 150, "min_cluster_size": 5, "clusterer": "exact", "progress": False}
    vt.disentangle(subject, images, "blocks.1.mlp.out", out=folder, **settings)


def aligning(folder: Path) -> None:
    import vitreous as vt

    rng = np.random.default_rng(0)
    arrays = {"one": {f"layer {k}": rng.standard_normal((60, 9, 12), np.float32) for k in range(2)}}
    responses = rng.standard_normal((60, 5)).astype(np.float32)
    vt.align(arrays, None, responses, width=16, nodes=20, epochs=25, out=folder, progress=False)


def reporting(folder: Path) -> None:
    import vitreous as vt

    rng = np.random.default_rng(0)
    features = np.repeat(rng.standard_normal((200, 2, 1, 12), np.float32), 2, axis=3)
    vt.structure_report({"one": vt.structure(features)}, folder, progress=False)


STAGES: dict[str, Callable[[Path], None]] = {
    f.__name__: f for f in (recording, recording_by_workers, disentangling, aligning, reporting)
}


def nursery() -> None:
    import timm  # noqa: F401 - loaded once for all children
    import torch
    import tqdm.auto  # noqa: F401

    import vitreous.lenses.align
    import vitreous.lenses.align_training
    import vitreous.lenses.disentangle
    import vitreous.lenses.disentangle_device
    import vitreous.lenses.structure
    import vitreous.pages
    import vitreous.recording  # noqa: F401

    torch.set_num_threads(1)
    subject_and_images()
    say = os.fdopen(os.dup(1), "w", buffering=1)
    say.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            try:
                STAGES[request["stage"]](Path(request["folder"]))
            except BaseException as error:  # noqa: BLE001 - the parent is told
                Path(request["said"]).write_text(f"{type(error).__name__}: {error}")
                os._exit(3)
            os._exit(0)
        say.write(f"{child}\n")
        sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        say.write(f"{os.waitstatus_to_exitcode(status)}\n")


if __name__ == "__main__":
    nursery()
