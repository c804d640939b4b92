"""Chefer's class maps: against eq. 1 to 3 with whole matrices, whatever the head reads."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

import vitreous as vt
from vitreous.baselines.chefer import chefer

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.rollout import slow_relevance

QUIET = {"progress": False}


def noise(count: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def pooled() -> vt.Subject:
    """Averages its patches; has a register and no class token."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=5, reg_tokens=1,
            class_token=False, global_pool="avg",
        )  # fmt: skip
    return vt.wrap(module.eval())


@pytest.mark.parametrize("score", ["logit", "probability"])
def test_a_class_token_is_read_by_its_row(tiny, score):
    x = noise()
    found = chefer(tiny, x, targets=[0, 3, 6], score=score, batch_size=2, **QUIET)
    assert found.maps.shape == (3, 4, 4) and found.targets.tolist() == [0, 3, 6]
    for k, target in enumerate(found.targets):
        expected = slow_relevance(tiny, x[k : k + 1], int(target), score == "probability")[0, 3:]
        np.testing.assert_allclose(found.maps[k].ravel(), expected, rtol=1e-4, atol=1e-8)
    assert found.maps.std() > 0


def test_averaged_patches_are_read_by_all_their_rows(pooled):
    x = noise(2)
    found = chefer(pooled, x, targets=4, **QUIET)
    for k in range(2):
        expected = slow_relevance(pooled, x[k : k + 1], 4)[1:, 1:].mean(0)
        np.testing.assert_allclose(found.maps[k].ravel(), expected, rtol=1e-4, atol=1e-8)


def test_the_predicted_class_is_explained_unless_told_otherwise(tiny):
    x = noise(4)
    found = chefer(tiny, x, **QUIET)
    np.testing.assert_array_equal(found.targets, tiny(x).argmax(-1).numpy())
    np.testing.assert_array_equal(found.targets, found.predicted)
    other = chefer(tiny, x, targets=(found.predicted + 1) % 7, **QUIET)
    assert not np.allclose(other.maps, found.maps) and other.predicted.tolist() == found.predicted.tolist()


def test_batches_do_not_matter_and_nothing_stays_behind(tiny):
    x = noise(5)
    whole, single = (chefer(tiny, x, targets=2, batch_size=n, **QUIET) for n in (5, 1))
    np.testing.assert_allclose(whole.maps, single.maps, rtol=1e-4, atol=1e-8)
    assert not tiny.hooks and all(p.grad is None for p in tiny.module.parameters())
    assert whole.at().shape == (5, 32, 32) and whole.at().max() <= 1


def test_what_has_no_class_or_no_attention_is_refused(tiny):
    import timm

    with pytest.raises(vt.SettingsError, match="unknown score\n  given:    'odds'"):
        chefer(tiny, noise(1), score="odds")
    with pytest.raises(vt.SettingsError, match="no such class\n  given:    7"):
        chefer(tiny, noise(1), targets=7, **QUIET)
    module = timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    with pytest.raises(vt.ModelError, match="has no attention"):
        chefer(vt.wrap(module.eval()), noise(1))
    bare = VisionTransformer(img_size=32, patch_size=8, embed_dim=32, depth=1, num_heads=4, num_classes=0)
    with pytest.raises(vt.ModelError, match="no classifier on top"):
        chefer(vt.wrap(bare.eval()), noise(1))
    with torch.no_grad():
        tiny.module.head.weight.zero_()
    with pytest.raises(vt.ModelError, match="depends on a token after its last block"):
        chefer(tiny, noise(1), **QUIET)
