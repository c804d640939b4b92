"""Initial Token IoU: against eq. 12 and 15, and what they leave open."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.itiou import TAUS, image_itiou, itiou, token_classes

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.itiou import slow_itiou, slow_token_classes

FAST = {"repeats": 20}


def picture(seed: int, grid=(3, 2), shape=(7, 6)):
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(shape) < 0.3, 255, rng.integers(0, 3, shape))
    return np.round(rng.random((grid[0] * grid[1], *shape)), 2), truth


@pytest.mark.parametrize("seed", range(5))
def test_it_is_what_the_equations_say(seed):
    maps, truth = picture(seed)
    classes = token_classes(truth, (3, 2))
    assert classes.tolist() == slow_token_classes(truth, (3, 2))
    taus = (0.5, 0.0, 0.2, 0.93, 0.2)  # in any order, one twice
    scores, _, count = image_itiou(maps, truth, classes, thresholds=taus)
    np.testing.assert_allclose(scores, [slow_itiou(maps, truth, classes.tolist(), tau) for tau in taus])
    assert count == (classes >= 0).sum()


def test_a_value_at_the_threshold_is_inside():
    truth = np.array([[0, 0, 1, 1]])
    maps = np.array([[[0.2, 0.2, 0.1, 0.1]], [[0.0, 0.0, 0.3, 0.2]]])
    assert image_itiou(maps, truth, np.array([0, 1]))[0].tolist() == [1]


def test_classes_weigh_the_same_however_many_tokens_they_have():
    truth = np.array([[0, 0, 0, 1]])
    right, wrong = truth == 0, np.zeros((1, 4))
    maps = np.stack([right, right, right, wrong]).astype(float)
    scores, chance, _ = image_itiou(maps, truth, token_classes(truth, (1, 4)))
    assert scores.tolist() == [0.5] and chance == pytest.approx((0.75 + 0.25) / 2)
    only, chance, count = image_itiou(maps, truth, token_classes(truth, (1, 4)), leave_out=[0])
    assert only.tolist() == [0] and count == 1 and chance == 0.25


def test_at_threshold_zero_the_score_is_that_of_chance():
    maps, truth = picture(1)
    found = itiou([(maps, truth)], (3, 2))
    assert found.images[0, 0] == pytest.approx(found.chance[0]) and found.thresholds[0] == 0
    assert found.images.shape == (1, len(TAUS)) and found.tokens.tolist() == [(token_classes(truth, (3, 2)) >= 0).sum()]


def test_pixels_that_the_model_never_saw_do_not_count():
    truth = np.array([[0, 0, 1, 1]])
    seen = np.array([[[1.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0, 1.0]]])
    cut = seen.copy()
    cut[:, 0, 3] = np.nan
    classes = np.array([0, 1])
    assert image_itiou(cut, truth, classes)[0].tolist() == [1]
    assert image_itiou(cut, truth, classes)[1] == pytest.approx(0.5)


def test_a_patch_that_is_mostly_unlabelled_lies_on_nothing():
    truth = np.array([[0, 255, 255, 1, 1, 255]])
    assert token_classes(truth, (1, 2)).tolist() == [-1, 1]
    assert token_classes(truth, (1, 2), ignore=None).tolist() == [255, 1]
    assert token_classes(np.full((2, 2), 255), (1, 1)).tolist() == [-1]


def test_pictures_without_classes_are_left_out():
    maps, truth = picture(2)
    found = itiou([(maps, truth), (maps, np.full_like(truth, 255))], (3, 2), thresholds=[0.2, 0.4])
    assert np.isnan(found.images[1]).all() and found.at(0.2, **FAST).samples == 1
    assert found.best in (0.2, 0.4) and len(found.curve(**FAST)) == 2 == len(found)


def test_what_does_not_fit_is_refused():
    maps, truth = picture(0)
    classes = token_classes(truth, (3, 2))
    with pytest.raises(vt.SettingsError, match="one class a token"):
        image_itiou(maps[:5], truth, classes)
    with pytest.raises(vt.SettingsError, match="one class a token"):
        image_itiou(maps, truth[:3], classes)
    with pytest.raises(vt.SettingsError, match="thresholds are a list of numbers"):
        image_itiou(maps, truth, classes, thresholds=[])
    with pytest.raises(vt.SettingsError, match=r"one pixel or more\n  given:    \(9, 2\)"):
        token_classes(truth, (9, 2))
    with pytest.raises(vt.SettingsError, match="whole numbers"):
        token_classes(truth * 0.5, (3, 2))
    with pytest.raises(vt.SettingsError, match=r"no score at this threshold\n  given:    0\.21"):
        itiou([(maps, truth)], (3, 2)).at(0.21)
    with pytest.raises(vt.SettingsError, match="no picture has a patch on a class"):
        itiou([(maps, np.full_like(truth, 255))], (3, 2)).best  # noqa: B018
    with pytest.raises(vt.SettingsError, match="no maps were given"):
        itiou([], (3, 2))
