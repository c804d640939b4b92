"""Comprehensiveness: against the equations, and the sign that they have."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.evidence.comprehensiveness import comprehensiveness

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference.comprehensiveness import slow_comprehensiveness, slow_support

FAST = {"repeats": 20}
TABLE = np.random.default_rng(0).random((6, 6)).tolist()


def text(seed: int):
    rng = np.random.default_rng(seed)
    context, summary = rng.integers(0, 6, 15).tolist(), rng.integers(0, 6, 4).tolist()

    def log_probability(kept):
        return [slow_support(TABLE, [context[k] for k in part], summary) for part in kept]

    return context, summary, log_probability


def test_it_is_eq_17_with_the_sign_that_the_text_gives_it():
    rates, given = (0.1, 0.34, 0.6), []
    expected = []
    for seed in range(4):
        context, summary, log_probability = text(seed)
        scores = np.random.default_rng(seed + 9).random(15)
        given.append((scores, log_probability))
        expected.append([slow_comprehensiveness(TABLE, context, summary, scores, rate) for rate in rates])
    found = comprehensiveness(given, rates=rates)
    np.testing.assert_allclose(found.values, expected)
    np.testing.assert_allclose(found.as_printed, -np.array(expected))  # S is below 0
    assert found.random.shape == (4, 3, 5) and (found.support < 0).all() and len(found) == 4


def test_scores_that_know_the_words_beat_chance():
    """The summary repeats one word of the context: without it, it is less likely."""
    given = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        context = rng.integers(0, 5, 20)
        context[rng.choice(20, 4, replace=False)] = 5
        summary = [5, 5, 5]

        def log_probability(kept, context=context, summary=summary):
            return [slow_support(TABLE, context[part].tolist(), summary) for part in kept]

        given.append(((context == 5) + 0.1 * rng.random(20), log_probability))
    found = comprehensiveness(given, rates=(0.2,))
    assert found.curve(**FAST)[0].value > found.random_curve(**FAST)[0].value
    assert found.gap(**FAST)[0].low > 0


def test_fixed_positions_stay_and_the_others_go_in_their_order():
    asked = []

    def log_probability(kept):
        asked.extend(part.tolist() for part in kept)
        return [-1.0 - len(part) for part in kept]

    comprehensiveness([([9.0, 1, 3, 3, 2], log_probability)], rates=(0.25, 0.5), fixed=[0], draws=2)
    assert asked[0] == [0, 1, 2, 3, 4] and len(asked) == 1 + 2 * 3
    assert asked[1] == [0, 1, 3, 4] and asked[4] == [0, 1, 4]  # of equal scores the earlier one
    assert all(part[0] == 0 for part in asked)
    assert [len(part) for part in asked[1:]] == [4, 4, 4, 3, 3, 3]


def test_random_sets_are_seeded():
    _, _, log_probability = text(1)
    given = [(np.arange(15.0), log_probability)]
    first, again, other = (comprehensiveness(given, seed=s).random for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_what_cannot_be_measured_is_refused():
    _, _, log_probability = text(0)
    with pytest.raises(vt.SettingsError, match="above 0 and below 1"):
        comprehensiveness([(np.ones(15), log_probability)], rates=[1.0])
    with pytest.raises(vt.SettingsError, match=r"finite and \(token,\)"):
        comprehensiveness([([1.0, np.nan], log_probability)])
    with pytest.raises(vt.SettingsError, match="two words that may be taken out\n  given:    '2 tokens'"):
        comprehensiveness([([1.0, 2.0], log_probability)], fixed=[0])
    for wrong in (-1, 15):
        with pytest.raises(vt.SettingsError, match=f"is none of the context\n  given:    {wrong}\n  accepted: 0 to 14"):
            comprehensiveness([(np.ones(15), log_probability)], fixed=[wrong])
    with pytest.raises(vt.SettingsError, match=r"below 0\n  given:    0\.5"):
        comprehensiveness([(np.ones(15), lambda kept: [0.5] * len(kept))])
    with pytest.raises(vt.SettingsError, match="one finite log-probability for each question"):
        comprehensiveness([(np.ones(15), lambda _: [-1.0])])
    with pytest.raises(vt.SettingsError, match="no texts were given"):
        comprehensiveness([])
    with pytest.raises(vt.SettingsError, match="at least one random set"):
        comprehensiveness([(np.ones(15), log_probability)], draws=0)
