"""Oracle segmentation: against the slow twin, planted classes, what it cannot know, bad input."""

from __future__ import annotations

import numpy as np
import pytest
from tests.reference.oracle import slow_oracle

import vitreous as vt
from vitreous.evidence.oracle import oracle_segmentation, patch_classes


def planted(pictures: int = 5, classes: int = 4, noise: float = 0.4, seed: int = 0, size=(9, 13), grid=(3, 4)):
    """Vectors around a direction a class, and class maps that do not fall on the grid of patches."""
    generator = np.random.default_rng(seed)
    truths = generator.integers(0, classes, (pictures, *size))
    truths[:, : size[0] // 2, : size[1] // 3] = 1
    truths[:, 0, -3:] = 255
    pixels = patch_classes(truths, grid)
    middle = generator.standard_normal((classes, 6))
    vectors = pixels @ middle / np.maximum(pixels.sum(2, keepdims=True), 1)
    vectors = vectors + noise * generator.standard_normal(vectors.shape)
    return vectors.reshape(pictures, *grid, 6), truths


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_five_steps(seed):
    vectors, truths = planted(3, noise=(0.1, 1.5)[seed % 2], seed=seed, grid=((3, 4), (1, 1), (9, 13))[seed % 3])
    found = oracle_segmentation(vectors, truths)
    np.testing.assert_allclose(found.thresholds, [k / 9 for k in range(10)])
    np.testing.assert_allclose(found.miou, slow_oracle(vectors, truths, found.thresholds), atol=1e-12)
    assert found.best == found.miou.max()
    assert found.estimate(repeats=20).value == pytest.approx(found.best)
    assert np.nanmean(found.iou) == pytest.approx(found.best)
    assert str(found).startswith(f"mIoU {found.best:.3f}")


def test_the_threshold_sends_what_is_like_no_class_to_the_background():
    truth = np.zeros((2, 8, 8), int)
    truth[:, 2:6, 2:6] = 1
    vectors = np.random.default_rng(0).standard_normal((2, 8, 8, 40)) * 2  # background is like nothing, not itself
    vectors[:, 2:6, 2:6] = 1
    found = oracle_segmentation(vectors, truth)
    assert found.best == 1 and 0 < found.threshold < 1
    np.testing.assert_array_equal(found.named, truth)
    assert found.majority == 1 and found.empty == pytest.approx(0.375)


def test_classes_that_no_picture_has_do_not_count_and_zero_vectors_do_no_harm():
    vectors, truths = planted(noise=0.01, classes=3, size=(6, 8), grid=(6, 8))
    few, many = (oracle_segmentation(vectors, truths, classes=n) for n in (3, 7))
    assert few.best == many.best and np.isnan(many.iou[3:]).all()
    vectors[0, 0, 0] = 0
    assert np.isfinite(oracle_segmentation(vectors, truths).miou).all()


def test_shuffled_patches_score_no_better_than_nothing():
    truth = np.zeros((20, 16, 16), int)
    truth[:, 4:12, 4:12] = 1
    vectors = np.where(truth[:, ::2, ::2, None] == 1, [1.0, 0.2], [0.1, 1.0])
    assert oracle_segmentation(vectors, truth).best == 1
    flat = np.random.default_rng(0).permutation(vectors.reshape(-1, 2)).reshape(vectors.shape)
    assert oracle_segmentation(flat, truth).best < 0.55


def test_bad_input_is_refused_with_what_to_do():
    vectors, truths = planted()
    for wrong, match in (
        ({"vectors": vectors[0]}, r"picture, row, column, vector"),
        ({"vectors": vectors * np.nan}, "finite"),
        ({"truths": truths[:2]}, "one class map for each picture"),
        ({"truths": truths[:, :2]}, "at least as fine"),
        ({"truths": truths.astype(float)}, "whole numbers"),
        ({"truths": np.full_like(truths, 255)}, "no pixel with a class"),
        ({"truths": truths - 1}, "numbered from 0"),
        ({"background": 9}, "no such background"),
        ({"classes": 2}, r"(?s)a class that does not exist.*ignore="),
        ({"thresholds": ()}, "at least one threshold"),
    ):
        with pytest.raises(vt.SettingsError, match=match):
            oracle_segmentation(**({"vectors": vectors, "truths": truths} | wrong))
