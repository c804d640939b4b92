"""Bootstrap intervals: they are seeded, they cover, and they draw whole samples."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.bootstrap import Estimate, bootstrap, draws, mean_interval


def test_an_interval_holds_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    found = [mean_interval(rng.exponential(2.0, 60), level=0.9, repeats=300, seed=k) for k in range(200)]
    covered = np.mean([e.low <= 2.0 <= e.high for e in found])
    assert 0.82 < covered < 0.96
    assert all(e.low < e.value < e.high for e in found)


def test_the_same_seed_gives_the_same_interval_and_another_one_does_not():
    values = np.random.default_rng(1).random(20)
    assert mean_interval(values, seed=3) == mean_interval(values, seed=3)
    assert mean_interval(values, seed=3) != mean_interval(values, seed=4)


def test_samples_without_a_number_are_left_out():
    with_holes = mean_interval(np.array([1.0, np.nan, 3.0]))
    assert with_holes == mean_interval(np.array([1.0, 3.0])) and with_holes.samples == 2


def test_any_statistic_takes_positions():
    values = np.random.default_rng(2).random(30)
    by_mean = bootstrap(lambda at: values[at].mean(), 30, repeats=500, seed=5)
    expected = mean_interval(values, repeats=500, seed=5)
    assert by_mean.value == pytest.approx(expected.value) and by_mean.low == pytest.approx(expected.low)
    assert str(Estimate(0.5, 0.4, 0.61, 3)) == "0.500 [0.400, 0.610]"


def test_a_centred_interval_lies_around_the_value():
    values = np.random.default_rng(3).normal(size=20)
    largest = lambda at: -float(len(np.unique(at)))  # noqa: E731  - draws hold fewer different samples
    plain, centred = (bootstrap(largest, 20, repeats=200, centred=flag) for flag in (False, True))
    assert plain.value == centred.value == -20 < plain.low
    assert centred.low < -20 < centred.high
    assert centred.high - centred.low == pytest.approx(plain.high - plain.low)
    mean = bootstrap(lambda at: values[at].mean(), 20, repeats=2000, centred=True)
    assert mean.low == pytest.approx(mean_interval(values).low, abs=0.02)


def test_blocks_do_not_change_what_is_drawn(monkeypatch):
    whole = np.concatenate(draws(7, 100, 0))
    monkeypatch.setattr("vitreous.evidence.bootstrap.BLOCK", 7 * 9)
    assert len(draws(7, 100, 0)) == 12
    np.testing.assert_array_equal(np.concatenate(draws(7, 100, 0)), whole)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(vt.SettingsError, match="no sample to draw from\n  given:    0"):
        mean_interval([])
    with pytest.raises(vt.SettingsError, match=r"finite and \(sample,\)\n  given:    \(1, 2\)"):
        mean_interval([[1.0, 2.0]])
    with pytest.raises(vt.SettingsError, match="at least one bootstrap sample"):
        mean_interval([1.0], repeats=0)
    with pytest.raises(vt.SettingsError, match="between 0 and 1\n  given:    1"):
        mean_interval([1.0], level=1)
