"""What the alignment studies look at: four networks, pictures with neurons' responses, recordings and maps on disk.

Networks: tin-vit-text, tin-vit-contrast, tin-vit-mae (64 pixels) and dinov2s_saliency (112 pixels), all with 8 x 8
patches of the whole picture; six layers of each, attention outputs without the residual. Recordings and alignments are
kept in a folder, so that a study can be ended at any time and go on.
"""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import vitreous as vt
from tokens_inputs import backbone, collection, control

LAYERS = (1, 3, 5, 7, 9, 11)
SITES = [f"blocks.{n}.attn.out" for n in LAYERS]
NETWORKS = {"text": "tin-vit-text", "contrast": "tin-vit-contrast", "mae": "tin-vit-mae", "dino": "dinov2s_saliency"}
SEEDS = (0, 1, 2)
SETTINGS: dict[str, Any] = {"width": 128, "epochs": 60, "patience": 10, "progress": False}


def session(data: Path, name: str) -> tuple[vt.ImageSet, vt.Responses]:
    """Pictures and spike counts of macaque V4: 201025 (1,200, 89 neurons), 210325 (640, 50 neurons, repeats)."""
    stored = np.load(data / "brain_v4" / f"v4_{name}.npz")
    raw, offsets = stored["jpeg"].tobytes(), stored["offsets"]
    pixels = np.stack([np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")) for a, b in pairwise(offsets)])
    repeats = None
    if "repeats" in stored:
        repeats = np.where(stored["repeats"] == 255, np.nan, stored["repeats"].astype(np.float64))
    return vt.ImageSet.from_arrays(pixels, name=f"v4-{name}"), vt.Responses(stored["responses"], repeats=repeats)


def network(data: Path, name: str, shuffled: bool = False) -> vt.Subject:
    subject = backbone(data, NETWORKS[name])
    if name == "dino":
        assert subject.preprocess is not None
        subject = vt.wrap(subject.module, name=subject.name, preprocess=subject.preprocess.at(112))
    return control(subject) if shuffled else subject


def recorded(data: Path, images: vt.ImageSet, folder: Path, *, shuffled: bool = False) -> dict[str, vt.Store]:
    """Attention outputs of every network at `SITES`, from disk where they are there."""
    return {
        name: vt.record(network(data, name, shuffled), images, SITES, out=folder / name, progress=False)
        for name in NETWORKS
    }


def aligned(folder: Path, sources: Any, responses: vt.Responses, **settings: Any) -> vt.ChannelAlign:
    """The alignment of this folder, learned if it is not there yet."""
    if (folder / "alignment.json").exists():
        return vt.ChannelAlign.load(folder)
    return vt.align(sources, None, responses, out=folder, **{**SETTINGS, **settings})


def learned(work: Path, session: str, weight: float) -> list[vt.ChannelAlign]:
    """The alignments that `align_brain.py` left in its folder, one a seed."""
    return [vt.ChannelAlign.load(work / session / f"lambda-{weight}" / str(seed)) for seed in SEEDS]


def random_map(seed: int, model: str, site: str, channels: int) -> np.ndarray:
    """(channel, width): a map that was not learned, of the size of those that were."""
    slot = list(NETWORKS).index(model) * len(SITES) + SITES.index(site)
    return np.random.default_rng([seed, slot]).standard_normal((channels, SETTINGS["width"]))


def pixel_patches(images: vt.ImageSet) -> dict[str, dict[str, np.ndarray]]:
    """A model that sees colours: patches of 8 pixels of the picture at 64."""
    small = np.stack([np.asarray(p.image.resize((64, 64), Image.Resampling.BICUBIC)) for p in images])
    grid = small.reshape(len(small), 8, 8, 8, 8, 3).transpose(0, 1, 3, 2, 4, 5).reshape(len(small), 64, -1)
    return {"pixels": {"patches": (grid / 255 - 0.5).astype(np.float32)}}


def pictures_of(
    data: Path, name: str, work: Path, count: int = 120
) -> tuple[vt.ImageSet, dict[str, vt.Store], list[np.ndarray]]:
    """`count` pictures of `pets` or `voc_animals` at 112 x 112, the networks' stores, and class maps."""
    shown = collection(data, name, count).pictures
    pixels = np.stack([np.asarray(p.image.resize((112, 112), Image.Resampling.BICUBIC)) for p in shown])
    images = vt.ImageSet.from_arrays(pixels, name=name)
    truths = [p.truth for p in shown if p.truth is not None]
    assert len(truths) == len(shown)
    return images, recorded(data, images, work / name), truths
