"""A small examination for tests: two random vision transformers on a few scenes, every part in a second or two."""

from __future__ import annotations

from unittest.mock import patch

import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous as vt
from vitreous.examination import parts
from vitreous.examination.plan import Towers

WORDS = ("red", "green", "<script>alert(1)</script>")


def small_vit(name="mine", seed=1, width=32):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = VisionTransformer(img_size=32, patch_size=8, embed_dim=width, depth=3, num_heads=2, num_classes=0)
    size = vt.Size(32, 32)
    return vt.wrap(module.eval(), name=name, preprocess=vt.Preprocess(size, size))


def small_towers():
    """Pictures by their mean colour, words by a colour each."""
    colours = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])

    def pictures(batch):
        import numpy as np

        return torch.stack([torch.tensor(np.asarray(p, np.float32).mean((0, 1)) - 100) for p in batch])

    return Towers("mean colours", pictures, lambda words: colours[[WORDS.index(w) for w in words]], WORDS)


def small_run(out, subjects=None, scenes=24, **settings):
    subjects = subjects or [small_vit("first", 1), small_vit("second", 2)]
    wanted = {"close": 8, "units": 4, "blocks": [1, 2], "eigenvectors": 4, "towers": small_towers(), "seed": 3}
    images = vt.scenes(scenes, size=32, seed=3)
    with patch.object(parts, "TSNE_SAMPLE", 64):  # a map of few nodes is made in a moment
        return vt.examine(subjects, images, out, **(wanted | {"progress": False} | settings))
