"""The laws on trained weights, and numbers that are known of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

import vitreous as vt

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

pytestmark = pytest.mark.data


@pytest.mark.parametrize("objective", ["text", "contrast", "mae"])
def test_tiny_imagenet_models_obey_the_laws(data_root, objective):
    from real_models import tin_vit

    assert all(law.holds for law in vt.check_laws(tin_vit(data_root, objective)))


def test_dinov2s_obeys_the_laws_and_reads_its_size(data_root):
    from real_models import dinov2s_saliency

    subject = dinov2s_saliency(data_root, device="cpu")
    assert all(law.holds for law in vt.check_laws(subject))
    assert subject.grid() == (16, 16)


def test_the_language_model_knows_its_stories(data_root):
    from real_models import perplexity, stories15m

    subject = stories15m(data_root)
    story = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    ids = subject.inputs(story)
    assert subject.tokenizer.decode(ids[0].tolist()) == f" {story}"
    assert perplexity(subject, story) < 3
    shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
    logits = subject(shuffled)
    assert torch.nn.functional.cross_entropy(logits[0, :-1], shuffled[0, 1:]) > 5
    assert all(law.holds for law in vt.check_laws(subject))
