"""k-means of patch features: planted regions come back, per picture and over all of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.baselines.kmeans_features import kmeans_segments, patch_features
from vitreous.evidence.segments import over_dataset, per_image

FAST = {"repeats": 20}


def planted(count: int = 4, seed: int = 0):
    """Features whose direction is one of three kinds, with lengths that say nothing."""
    rng = np.random.default_rng(seed)
    truth = np.stack([rng.permutation(3)[np.repeat([0, 1, 2], 8).reshape(4, 6)] for _ in range(count)])
    kinds = rng.normal(size=(3, 16))
    features = (kinds[truth] + rng.normal(0, 0.1, (*truth.shape, 16))) * rng.uniform(0.1, 9, (*truth.shape, 1))
    return features, truth


def test_planted_regions_come_back():
    features, truth = planted()
    each = kmeans_segments(features, 3)
    assert per_image(each.labels, truth).miou(**FAST).value == 1 and not each.joint
    joint = kmeans_segments(features, 3, joint=True)
    assert over_dataset(joint.labels, truth).miou(**FAST).value == 1 and joint.joint


def test_the_same_seed_gives_the_same_and_labels_can_be_made_larger():
    features = planted()[0]
    first, again = (kmeans_segments(features, 3, seed=2) for _ in range(2))
    np.testing.assert_array_equal(first.scores, again.scores)
    large = first.at((40, 60))
    assert large.shape == (4, 40, 60)
    np.testing.assert_array_equal(large[:, 5::10, 5::10], first.labels)


def test_features_are_those_of_the_patches(tiny):
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = patch_features(tiny, x, "blocks.1.resid.out", batch_size=2, progress=False)
    with vt.capture(tiny, "blocks.1.resid.out") as rec, torch.no_grad():
        tiny(x)
    expected = rec["blocks.1.resid.out"][:, 3:].reshape(3, 4, 4, 32).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not tiny.hooks


def test_what_are_no_features_of_patches_is_refused(tiny):
    x = torch.zeros(1, 3, 32, 32)
    with pytest.raises(vt.SettingsError, match=r"'blocks.0.attn.pattern' has no features.*\n.*\(1, 4, 19, 19\)"):
        patch_features(tiny, x, "blocks.0.attn.pattern", progress=False)
    with pytest.raises(vt.SettingsError, match="batch_size is a whole number"):
        patch_features(tiny, x, batch_size=0, progress=False)


def test_what_cannot_be_clustered_is_refused():
    for k in (2.5, "2", True):
        with pytest.raises(vt.SettingsError, match="k is a whole number"):
            kmeans_segments(planted()[0], k)
    with pytest.raises(vt.SettingsError, match="not as many patches as clusters\n  given:    25\n  accepted: 1 to 24"):
        kmeans_segments(planted()[0], 25)
    with pytest.raises(vt.SettingsError, match=r"\(sample, row, column, channel\)"):
        kmeans_segments(planted()[0][0], 2)
