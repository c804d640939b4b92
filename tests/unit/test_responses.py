"""Variance explained and noise ceilings."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.responses import explained, noise_ceiling


def test_explained_variance():
    measured = np.random.default_rng(0).standard_normal((200, 3))
    predicted = np.stack([measured[:, 0], np.full(200, measured[:, 1].mean()), -measured[:, 2]], 1)
    r2 = explained(measured, predicted)
    assert r2[0] == 1 and r2[1] == pytest.approx(0, abs=1e-12) and r2[2] < -2
    assert np.isnan(explained(np.ones((5, 1)), np.ones((5, 1)))[0])
    with pytest.raises(vt.SettingsError, match="alike"):
        explained(measured, predicted[:5])


@pytest.mark.parametrize("noise", [0.5, 1.0, 2.0])
def test_the_ceiling_is_the_share_of_variance_that_repeats(noise):
    generator = np.random.default_rng(0)
    signal = generator.standard_normal((3000, 1, 2))
    repeats = signal + noise * generator.standard_normal((3000, 4, 2))
    expected = 1 / (1 + noise**2 / 4)  # of the mean of four
    np.testing.assert_allclose(noise_ceiling(repeats, splits=10).reliability, expected, atol=0.05)


def test_missing_repeats_are_left_out():
    generator = np.random.default_rng(1)
    repeats = generator.standard_normal((500, 1, 1)) + generator.standard_normal((500, 3, 1))
    repeats[:250, 2] = np.nan
    repeats[:20, 1:] = np.nan  # one repeat only
    found = noise_ceiling(repeats, splits=20).reliability
    assert 0.6 < found[0] < 0.8
    with pytest.raises(vt.SettingsError, match="two repeats"):
        noise_ceiling(repeats[:20])
    with pytest.raises(vt.SettingsError, match="image, repeat, response"):
        noise_ceiling(repeats[:, 0])
