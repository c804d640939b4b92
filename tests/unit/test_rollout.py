"""Attention rollout and raw attention: against whole matrices, and what they know of the model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.rollout import attention_rollout, over_heads, raw_attention, rollout_rows

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.rollout import patterns_of, slow_rollout

QUIET = {"progress": False}


def noise(count: int = 3, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("block", [0, 1, -1])
def test_rollout_is_the_product_of_whole_matrices(tiny, block):
    x = noise()
    found = attention_rollout(tiny, x, block, batch_size=2, **QUIET)
    assert found.maps.shape == (3, 19, 4, 4) and found.block == range(3)[block]
    for k in range(3):
        expected = slow_rollout(patterns_of(tiny, x[k : k + 1])[: found.block + 1])
        np.testing.assert_allclose(found.scores[k], expected, atol=1e-6)
    np.testing.assert_allclose(found.scores.sum(-1), 1, atol=1e-5)


def test_raw_attention_is_the_mean_over_heads_of_one_block(tiny):
    x = noise(2)
    found = raw_attention(tiny, x, 1, **QUIET)
    for k in range(2):
        np.testing.assert_allclose(found.scores[k], patterns_of(tiny, x[k : k + 1])[1].mean(0), atol=1e-6)


def test_without_attention_a_token_is_itself():
    A = torch.rand(2, 4, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    rows = rollout_rows([over_heads(A)] * 3, attention=0.0)
    np.testing.assert_array_equal(rows, torch.eye(5).expand(2, 5, 5))
    alone = rollout_rows([over_heads(A)], attention=1.0)
    np.testing.assert_allclose(alone, A.mean(1))


def test_heads_can_be_joined_otherwise_and_still_add_up(tiny):
    x = noise(1)
    A = patterns_of(tiny, x)[-1]
    for heads in ("max", "min"):
        joined = getattr(A, heads)(0)
        found = raw_attention(tiny, x, heads=heads, **QUIET).scores[0]
        np.testing.assert_allclose(found, joined / joined.sum(-1, keepdims=True), atol=1e-5)
    assert not np.allclose(
        attention_rollout(tiny, x, heads="max", **QUIET).scores, attention_rollout(tiny, x, **QUIET).scores
    )


def test_maps_can_do_what_those_of_the_lens_can(tiny):
    """Own entries are replaced, pictures are carried back to their own pixels, prefix tokens have maps."""
    picture = vt.scenes(1, size=48, seed=1)
    found = attention_rollout(tiny, picture, **QUIET)
    assert found.prefix == ("class", "register.0", "register.1")
    own = found.maps[0, found.tokens.index(found.token_at(1, 2))]
    assert own[1, 2] == np.delete(own.ravel(), 6).max()
    kept = attention_rollout(tiny, picture, own="keep", **QUIET).maps[0, found.tokens.index(found.token_at(1, 2))]
    assert kept[1, 2] > own[1, 2]
    assert found.upsample()[0].shape == (19, 48, 48)
    assert not tiny.hooks and found.settings["method"] == "attention rollout"


def test_what_has_no_attention_or_no_such_block_is_refused(tiny):
    with pytest.raises(vt.SettingsError, match="no such block\n  given:    3\n  accepted: -3 to 2"):
        attention_rollout(tiny, noise(1), 3)
    with pytest.raises(vt.SettingsError, match="share of attention is between 0 and 1"):
        attention_rollout(tiny, noise(1), attention=1.5)
    with pytest.raises(vt.SettingsError, match="share of attention is between 0 and 1"):
        attention_rollout(tiny, noise(1), attention="0.5")
    for make in (attention_rollout, raw_attention):
        with pytest.raises(vt.SettingsError, match="batch_size is a whole number\n  given:    0"):
            make(tiny, noise(1), batch_size=0)
    with pytest.raises(vt.SettingsError, match="unknown way to join heads\n  given:    'sum'"):
        raw_attention(tiny, noise(1), heads="sum")
    with pytest.raises(vt.SettingsError, match="unknown own"):
        raw_attention(tiny, noise(1), own="drop")
    import timm

    module = timm.create_model("convnext_atto", num_classes=3, depths=(1, 1, 1, 1), dims=(8, 8, 8, 8))
    with pytest.raises(vt.ModelError, match="has no attention to follow"):
        attention_rollout(vt.wrap(module.eval()), noise(1))
