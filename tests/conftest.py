"""Shared: where the real data lies, a tiny subject, and quiet libraries."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test may reach for a hub
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The real data; tests that need it skip where it is not."""
    root = Path(os.environ.get("VITREOUS_DATA", ROOT.parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no real data at {root}: set VITREOUS_DATA")
    return root


@pytest.fixture
def tiny():
    """A random ViT of three blocks with a class token and two registers, as a subject."""
    import torch
    from timm.models.vision_transformer import VisionTransformer

    import vitreous as vt

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=7, reg_tokens=2, init_values=0.5
        )
    return vt.wrap(module.eval())
