"""U. mIoU and U. accuracy: against twins that try every pairing, and the cases where the two matchings part."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.segments import (
    OverDataset,
    PerImage,
    join_segments,
    over_dataset,
    pair_segments,
    per_image,
    segment_means,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.segments import slow_over_dataset, slow_per_image, slow_segment_means

FAST = {"repeats": 20}


def pictures(seed: int, count: int = 3, segments: int = 4, classes: int = 3):
    rng = np.random.default_rng(seed)
    shapes = [(int(h), int(w)) for h, w in rng.integers(2, 6, (count, 2))]
    given = [rng.integers(-1, segments, shape) for shape in shapes]
    truth = [np.where(rng.random(shape) < 0.2, 255, rng.integers(0, classes, shape)) for shape in shapes]
    for one in truth:
        one[0, 0] = 1  # something is labelled
    return given, truth


def test_intervals_over_the_data_set_hold_their_value():
    """Clusters that say nothing: on draws, which lack pictures and classes, the best pairs always look better."""
    rng = np.random.default_rng(0)
    truth = [np.array([[0] * 6 + [1 + k // 2] * 6]) for k in range(12)]
    given = [rng.integers(0, 7, (1, 12)) for _ in truth]
    found = over_dataset(given, truth)
    for score in (found.miou, found.accuracy):
        one = score(repeats=300)
        assert 0 <= one.low < one.value < one.high <= 1
        middle = (one.low + one.high) / 2
        assert abs(one.value - middle) < 0.35 * (one.high - one.low)


@pytest.mark.parametrize("by", ["pixels", "iou"])
@pytest.mark.parametrize("seed", range(6))
def test_both_are_what_trying_every_pairing_gives(seed, by):
    given, truth = pictures(seed, segments=2 + seed % 3)
    found = per_image(given, truth, by=by)
    miou, accuracy = slow_per_image(given, truth, by=by)
    # of several best pairings one is as good as another by what was maximised, not by the other number
    if by == "iou":
        assert found.miou(**FAST).value == pytest.approx(miou)
    else:
        assert found.accuracy(**FAST).value == pytest.approx(accuracy)
    joint = over_dataset(given, truth, by=by)
    miou, accuracy = slow_over_dataset(given, truth, by=by)
    if by == "iou":
        assert joint.miou(**FAST).value == pytest.approx(miou)
    else:
        assert joint.accuracy(**FAST).value == pytest.approx(accuracy)


def test_a_pairing_without_ties_gives_both_numbers():
    truth = [np.array([[0, 0, 0, 1, 1], [0, 0, 0, 1, 2]])]
    given = [np.array([[7, 7, 7, 7, 3], [7, 7, 7, 3, 3]])]
    found = per_image(given, truth)
    assert (found.miou(**FAST).value, found.accuracy(**FAST).value) == pytest.approx(slow_per_image(given, truth))
    np.testing.assert_allclose(found.iou, [[6 / 7, 2 / 4, 0]])
    assert found.segments.tolist() == [2] and found.pixels.tolist() == [10]
    assert pair_segments(given[0], truth[0]) == {7: 0, 3: 1}


def test_what_is_right_in_every_picture_may_be_wrong_over_all_of_them():
    truth = [np.array([[0, 1]]), np.array([[0, 1]])]
    swapped = [np.array([[0, 1]]), np.array([[1, 0]])]
    each, all_together = per_image(swapped, truth), over_dataset(swapped, truth)
    assert each.miou(**FAST).value == 1 and each.matching == "per image"
    assert all_together.miou(**FAST).value == pytest.approx(1 / 3)
    assert all_together.accuracy(**FAST).value == 0.5 and all_together.matching == "over the data set"
    assert isinstance(each, PerImage) and isinstance(all_together, OverDataset)


def test_pooled_scores_add_pixels_up_before_the_mean():
    truth = [np.zeros((1, 10), int), np.array([[0, 1]])]
    given = [np.zeros((1, 10), int), np.array([[0, 0]])]
    found = per_image(given, truth)
    assert found.miou(**FAST).value == pytest.approx((1 + (0.5 + 0) / 2) / 2)
    assert found.pooled_miou(**FAST).value == pytest.approx((11 / 12 + 0) / 2)
    assert found.accuracy(**FAST).value == pytest.approx((1 + 0.5) / 2)
    assert found.pooled_accuracy(**FAST).value == pytest.approx(11 / 12)


def test_ignored_pixels_do_not_exist_and_unsegmented_ones_are_wrong():
    truth = np.array([[0, 0, 255, 255]])
    assert per_image([np.array([[5, 5, 5, 9]])], [truth]).miou(**FAST).value == 1
    found = per_image([np.array([[5, -1, -1, -1]])], [truth])
    assert found.miou(**FAST).value == 0.5 and found.unsegmented.tolist() == [1]
    assert over_dataset([np.array([[0, -3, 0, 0]])], [truth]).unsegmented.tolist() == [1]
    kept = per_image([np.array([[5, 5, 5, 9]])], [truth], ignore=None)
    assert kept.miou(**FAST).value == pytest.approx((2 / 3 + 1 / 2) / 2)
    several = per_image([np.array([[5, 5, 5, 9]])], [np.array([[0, 0, 11, 12]])], ignore=(11, 12))
    assert several.miou(**FAST).value == 1


def test_a_picture_without_labels_is_left_out_and_counted_so():
    found = per_image([np.zeros((2, 2), int)] * 2, [np.zeros((2, 2), int), np.full((2, 2), 255)])
    assert np.isnan(found.image_miou[1])
    assert found.miou(**FAST).value == 1 and found.miou(**FAST).samples == 1


def test_a_pair_that_shares_nothing_is_none():
    """Two segments, two classes, but one segment holds everything: the other must not lengthen a union."""
    truth = [np.array([[0, 0, 1]]), np.array([[0, 1, 1]])]
    given = [np.array([[4, 4, 4]]), np.array([[0, 1, 1]])]
    found = over_dataset(given, truth, count=6)
    assert found.pairs[0] == 4 and found.pairs[1] == 1
    lonely = over_dataset([np.array([[0, 0]])], [np.array([[0, 1]])], count=3)
    assert sorted(lonely.pairs.tolist()) == [-1, 0]


def test_intervals_are_over_pictures_and_pair_anew():
    given, truth = pictures(3, count=12)
    found = over_dataset(given, truth)
    first, again = (found.miou(repeats=200, seed=7) for _ in range(2))
    assert first == again and first.low < first.value < first.high and first.samples == 12
    np.testing.assert_allclose(np.nanmean(found.iou), first.value)
    same = [given[0]] * 5, [truth[0]] * 5
    assert (e := over_dataset(*same).miou(**FAST)).low == pytest.approx(e.high)


def test_classes_that_no_picture_has_do_not_count():
    found = over_dataset([np.array([[0, 1]])], [np.array([[0, 5]])], classes=21)
    assert found.iou.shape == (21,) and np.isnan(found.iou).sum() == 19
    assert found.miou(**FAST).value == 1


# -- joining


@pytest.mark.parametrize("shape", [(4, 6), (8, 6), (7, 5)])
def test_means_of_segments_are_those_of_their_patches(shape):
    rng = np.random.default_rng(0)
    segments, features = rng.integers(-1, 5, shape), rng.normal(size=(4, 3, 2))
    segments[segments == 2] = 3
    np.testing.assert_allclose(segment_means(segments, features), slow_segment_means(segments, features))
    assert np.isnan(segment_means(segments, features)[2]).all()


def test_joined_segments_mean_the_same_everywhere():
    rng = np.random.default_rng(1)
    kinds = np.eye(3) * 10
    segments, means, truths = [], [], []
    for _ in range(8):
        order = rng.permutation(3)
        labels = np.repeat(np.arange(3), 4).reshape(3, 4)
        segments.append(labels)
        means.append(kinds[order] * rng.uniform(0.5, 2) + rng.normal(0, 0.1, (3, 3)))
        truths.append(order[labels])
    assert over_dataset(segments, truths).accuracy(**FAST).value < 0.8
    joined = join_segments(segments, means, 3)
    assert over_dataset(joined, truths).miou(**FAST).value == 1
    for first, second in zip(joined, join_segments(segments, means, 3), strict=True):
        np.testing.assert_array_equal(first, second)


def test_joining_keeps_what_is_in_no_segment():
    (joined,) = join_segments([np.array([[-1, 0], [2, 2]])], [np.array([[1.0, 0], [np.nan, np.nan], [0, 1]])], 2)
    assert joined[0, 0] == -1 and joined[0, 1] != joined[1, 0] == joined[1, 1]


# -- refusals


def test_what_cannot_be_scored_is_refused_by_name():
    ones = np.ones((2, 2), int)
    with pytest.raises(vt.SettingsError, match=r"as large as its class map\n  given:    \(2, 3\)"):
        per_image([np.ones((2, 3), int)], [ones])
    with pytest.raises(vt.SettingsError, match="class that does not exist\n  given:    21"):
        per_image([ones], [21 * ones], classes=21)
    with pytest.raises(vt.SettingsError, match="numbered from 0\n  given:    -1"):
        per_image([ones], [-ones])
    with pytest.raises(vt.SettingsError, match="segments are whole numbers"):
        per_image([ones * 0.5], [ones])
    with pytest.raises(vt.SettingsError, match="by pixels or by IoU"):
        over_dataset([ones], [ones], by="area")
    with pytest.raises(vt.SettingsError, match="not below their count\n  given:    1"):
        over_dataset([ones], [ones], count=1)
    with pytest.raises(vt.SettingsError, match="no label maps"):
        per_image([], [])
    with pytest.raises(vt.SettingsError, match="not as many segments as clusters\n  given:    4"):
        join_segments([ones], [np.eye(2)], 4)
    with pytest.raises(vt.SettingsError, match="a segment has no mean\n  given:    1"):
        join_segments([ones], [np.ones((1, 2))], 1)
    with pytest.raises(vt.SettingsError, match="one set of means"):
        join_segments([ones], [], 1)
