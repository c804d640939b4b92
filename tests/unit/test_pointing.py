"""Point Game and Energy PG: the formulas, and what they leave open."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.pointing import compare_pointing, energy_point_game, point_game

MAP = np.array([[[0.0, 1.0], [3.0, 0.0]]])


def test_the_largest_value_on_the_object_is_a_hit():
    assert point_game(MAP, np.array([[[0, 0], [1, 0]]])).tolist() == [1]
    assert point_game(MAP, np.array([[[1, 1], [0, 1]]])).tolist() == [0]


def test_energy_is_the_share_on_the_object():
    assert energy_point_game(MAP, np.array([[[0, 1], [0, 0]]]))[0] == pytest.approx(0.25)
    assert energy_point_game(MAP, np.ones((1, 2, 2)))[0] == pytest.approx(1)


def test_of_equal_values_the_first_counts_row_by_row():
    flat = np.ones((1, 2, 3))
    first = np.zeros((1, 2, 3), bool)
    first[0, 0, 0] = True
    assert point_game(flat, first).tolist() == [1]
    assert point_game(flat, ~first).tolist() == [0]
    tie = np.array([[[0, 0, 5], [5, 5, 0]]])
    assert point_game(tie, np.array([[[0, 0, 1], [0, 0, 0]]])).tolist() == [1]


def test_empty_masks_and_empty_maps_give_nothing():
    none = np.zeros((1, 2, 2))
    assert point_game(MAP, none).tolist() == [0] and energy_point_game(MAP, none).tolist() == [0]
    assert energy_point_game(none, np.ones((1, 2, 2))).tolist() == [0]
    assert point_game(none, np.ones((1, 2, 2))).tolist() == [1]  # the corner lies on an object that is everywhere


def test_scale_does_not_matter_while_eps_is_small():
    rng = np.random.default_rng(0)
    cams, masks = rng.random((5, 4, 4)), rng.random((5, 4, 4)) < 0.5
    np.testing.assert_allclose(energy_point_game(1000 * cams, masks), energy_point_game(cams, masks), rtol=1e-6)
    np.testing.assert_array_equal(point_game(1000 * cams, masks), point_game(cams, masks))
    halved = energy_point_game(cams, masks, eps=cams[0].sum())[0]
    assert halved == pytest.approx(energy_point_game(cams, masks)[0] / 2, rel=1e-6)


@pytest.mark.parametrize("measure", [point_game, energy_point_game])
def test_what_has_no_score_is_refused(measure):
    ones = np.ones((1, 2, 2))
    with pytest.raises(vt.SettingsError, match="maps hold NaN or infinity\n  given:    'map 1'"):
        measure(np.array([MAP[0], [[0, 1], [np.nan, 0]]]), np.ones((2, 2, 2)))
    with pytest.raises(vt.SettingsError, match=r"as many and as large as the maps\n  given:    \(1, 2, 3\)"):
        measure(MAP, np.ones((1, 2, 3)))
    with pytest.raises(vt.SettingsError, match="masks hold 1 on the object"):
        measure(MAP, 0.5 * ones)
    with pytest.raises(vt.SettingsError, match="masks hold 1 on the object"):
        measure(MAP, 255 * ones)
    with pytest.raises(vt.SettingsError, match=r"numbers \(sample, row, column\)"):
        measure(MAP[0], ones[0])


def test_energy_refuses_negative_maps_and_no_eps():
    with pytest.raises(vt.SettingsError, match=r"without negative values\n  given:    -1.0"):
        energy_point_game(-MAP / 3, np.ones((1, 2, 2)))
    with pytest.raises(vt.SettingsError, match="eps is above 0"):
        energy_point_game(MAP, np.ones((1, 2, 2)), eps=0)


def test_two_models_are_compared_sample_by_sample():
    rng = np.random.default_rng(1)
    masks = rng.random((200, 6, 6)) < 0.3
    knows = rng.random((200, 6, 6)) + masks
    guesses = rng.random((200, 6, 6))
    found = compare_pointing(guesses, knows, masks, names=("ViT", "ours"))
    point, energy = found.rows
    assert point.mean[1] == 1 and point.mean[0] == pytest.approx(0.3, abs=0.1)
    assert energy.t < -20 and energy.p < 1e-30
    assert energy.deviation[0] == pytest.approx(energy_point_game(guesses, masks).std(ddof=1))
    lines = found.table().splitlines()
    assert lines[0].split() == ["metric", "ViT", "ours", "t", "p"]
    assert "1.000 ± 0.000" in lines[1] and lines[3].startswith("200 samples; the masks cover 0.3")
