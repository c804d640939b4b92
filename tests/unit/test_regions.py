"""Covering and boundary F: against the definitions, and what the tolerance and several annotations do."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.regions import boundaries, covering, match_boundaries, over_scales, score_regions

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.regions import slow_boundary, slow_covering, slow_found

FAST = {"repeats": 20}


def halves(width: int = 40, height: int = 30, cut: int = 20) -> np.ndarray:
    """Two regions that meet between columns cut - 1 and cut."""
    return np.broadcast_to(np.arange(width) >= cut, (height, width)).astype(int)


def blobs(seed: int, shape=(9, 11), regions: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.random((regions, 2)) * shape
    points = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), -1)
    return ((points[:, :, None] - centres) ** 2).sum(-1).argmin(-1)


@pytest.mark.parametrize("seed", range(5))
def test_covering_and_matching_are_what_the_definitions_say(seed):
    ours, people = blobs(seed), [blobs(seed + 10), blobs(seed + 20, regions=3)]
    assert covering(ours, people) == pytest.approx(slow_covering(ours, people))
    for tolerance in (0.0, 0.08, 0.2):
        found = match_boundaries(ours, people, tolerance=tolerance)
        assert (found.found, found.theirs) == slow_found(ours, people, tolerance)
    assert sorted(map(tuple, np.argwhere(boundaries(ours)).tolist())) == slow_boundary(ours)


def test_one_of_several_annotations_is_enough_to_be_right_but_all_have_to_be_found():
    ours = halves(cut=10)
    found = match_boundaries(ours, [halves(cut=10), halves(cut=30)])
    assert (found.right, found.ours, found.found, found.theirs) == (30, 30, 30, 60)
    scores = score_regions([ours], [[halves(cut=10), halves(cut=30)]])
    assert scores.precision(**FAST).value == 1 and scores.recall(**FAST).value == 0.5
    assert scores.f(**FAST).value == pytest.approx(2 / 3) == scores.image_f[0]


def test_the_tolerance_is_a_share_of_the_diagonal():
    """A picture of 30 x 40 has a diagonal of 50: two pixels off are 0.04 of it."""
    ours, theirs = halves(cut=20), halves(cut=22)
    assert match_boundaries(ours, [theirs], tolerance=0.0399).found == 0
    assert match_boundaries(ours, [theirs], tolerance=0.0401).found == 30
    assert match_boundaries(ours, [theirs]).found == 0  # 0.0075 of it are less than half a pixel


def test_a_pixel_is_matched_once():
    """Two of our lines near one of theirs: only one of them can be right."""
    stripe = halves(cut=20) + halves(cut=21)
    found = match_boundaries(stripe, [halves(cut=20)], tolerance=0.1)
    assert (found.right, found.ours, found.found) == (30, 60, 30)


def test_covering_ignores_names_and_rewards_the_same_regions():
    theirs = blobs(1)
    assert covering(7 - 3 * theirs, [theirs]) == pytest.approx(1)
    assert covering(np.zeros_like(theirs), [theirs]) == pytest.approx((np.bincount(theirs.ravel()) ** 2).sum() / 99**2)


@pytest.mark.parametrize("names", [[0, 1, 2], [-7, 3, 5], [0, 1, 2**62], [-(2**63), 0, 2**63 - 1]])
def test_any_whole_numbers_name_regions(names):
    theirs = blobs(1, regions=3)
    found = match_boundaries(np.array(names)[theirs], [theirs, blobs(2)])
    assert found == match_boundaries(theirs, [theirs, blobs(2)])
    assert covering(np.array(names)[theirs], [theirs]) == pytest.approx(1)


def test_no_boundary_on_either_side_is_perfect_and_on_one_side_is_nothing():
    whole = np.zeros((5, 5), int)
    assert score_regions([whole], [[whole]]).image_f.tolist() == [1]
    assert score_regions([whole], [[halves(5, 5, 2)]]).image_f.tolist() == [0]
    assert score_regions([halves(5, 5, 2)], [[whole]]).image_f.tolist() == [0]


def test_pictures_are_added_up_or_averaged():
    scores = score_regions([halves(cut=20), halves(10, 10, 5)], [[halves(cut=20)], [halves(10, 10, 2)]])
    assert scores.mean_f(**FAST).value == 0.5
    assert scores.f(**FAST).value == pytest.approx(30 / 40)
    assert scores.mean_covering(**FAST).samples == len(scores) == 2
    assert scores.f(repeats=50, seed=1) == scores.f(repeats=50, seed=1)


def test_one_scale_for_all_or_the_best_of_each():
    found = over_scales(np.array([[0.1, 0.6, 0.2], [0.9, 0.5, 0.1]]), **FAST)
    assert found.best == 1
    assert found.ods.value == pytest.approx(0.55) and found.ois.value == pytest.approx(0.75)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(vt.SettingsError, match=r"as large as the label map\n  given:    \(5, 5\)"):
        covering(halves(), [halves(5, 5, 2)])
    with pytest.raises(vt.SettingsError, match="one annotation or more"):
        match_boundaries(halves(), [])
    with pytest.raises(vt.SettingsError, match="a tolerance is 0 or more\n  given:    -1"):
        match_boundaries(halves(), [halves()], tolerance=-1)
    with pytest.raises(vt.SettingsError, match="whole numbers"):
        boundaries(np.zeros((2, 2)))
    with pytest.raises(vt.SettingsError, match="no label maps"):
        score_regions([], [])
    with pytest.raises(vt.SettingsError, match=r"\(sample, scale\)"):
        over_scales(np.zeros(3))
