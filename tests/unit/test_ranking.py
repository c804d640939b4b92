"""Rankings from votes: the formula of the twin, planted orders, ties, disagreement, bootstrap."""

from __future__ import annotations

import json

import numpy as np
import pytest

import vitreous as vt
from reference.ranking import agreed_rates, win_rates
from vitreous.evidence.ranking import Schedule, consensus, rank, ranks_of, schedule

NAMES = ("backbone", "sparse", "split", "random")
LETTER = {1: "A", -1: "B", 0: None}


def shown_of(units: int = 40, pairs: int = 25, seed: int = 0, sets: int = 1, names=NAMES) -> Schedule:
    return schedule([{name: range(units) for name in names}] * sets, pairs=pairs, seed=seed)


def ranked(shown, votes, **settings):
    return rank(shown, votes, [f"judge {j}" for j in range(votes.shape[1])], kind="test", repeats=200, **settings)


def planted_votes(shown: Schedule, worth: np.ndarray, judges: int = 3, noise: float = 1.0, seed: int = 0) -> np.ndarray:
    """Judges who see the worth of a method with noise of their own."""
    rng = np.random.default_rng(seed)
    gap = worth[shown.methods[:, 0]] - worth[shown.methods[:, 1]]
    return np.sign(gap[:, None] + noise * rng.normal(size=(len(shown), judges))).astype(np.int8)


# -- what is shown


def test_every_two_methods_meet_in_both_orders():
    shown = shown_of(sets=3)
    assert len(shown) == 6 * 25 * 2 * 3  # as in B.1: method pairs, unit pairs, orders, data sets
    there, back = shown.methods[::2], shown.methods[1::2]
    np.testing.assert_array_equal(there, back[:, ::-1])
    np.testing.assert_array_equal(shown.units[::2], shown.units[1::2][:, ::-1])
    np.testing.assert_array_equal(shown.pair[::2], shown.pair[1::2])
    first = shown.units[(shown.dataset == 0) & (shown.methods == (0, 1)).all(1)]
    assert len(set(first[:, 0])) == len(set(first[:, 1])) == 25  # no unit twice
    assert (first[:, 0] != first[:, 1]).any()  # units of two methods have nothing to do with each other


def test_draws_do_not_depend_on_who_else_is_compared():
    def pairs_of(shown, a, b):
        both = {shown.names.index(a), shown.names.index(b)}
        chosen = [k for k in range(len(shown)) if set(shown.methods[k]) == both]
        order = [shown.names[m] for m in shown.methods[chosen[0]]]
        return {tuple(u) if order == [a, b] else tuple(u[::-1]) for u in shown.units[chosen[::2]].tolist()}

    few = shown_of(names=("split", "sparse"))
    assert pairs_of(few, "sparse", "split") == pairs_of(shown_of(), "sparse", "split")
    assert pairs_of(few, "sparse", "split") != pairs_of(shown_of(seed=1), "sparse", "split")


def test_few_units_come_again_but_never_against_the_same():
    shown = schedule({"a": [3, 5], "b": range(4)}, pairs=50)
    assert sorted(map(tuple, shown.units[::2].tolist())) == [(a, b) for a in (3, 5) for b in range(4)]


# -- who wins


@pytest.mark.parametrize("judges", [1, 2, 3])
def test_it_is_the_formula(judges):
    shown = shown_of(pairs=9)
    votes = np.random.default_rng(judges).integers(-1, 2, (len(shown), judges)).astype(np.int8)
    found = ranked(shown, votes)
    names = [(NAMES[a], NAMES[b]) for a, b in shown.methods]
    letters = [[LETTER[v] for v in row] for row in votes.tolist()]
    twin = win_rates(names, letters)
    np.testing.assert_allclose(found.rates, [twin[name] for name in NAMES])
    assert found.dropped == int((consensus(votes) == 0).sum()) > 0
    strict = ranked(shown, votes, swaps="agree")
    twin = agreed_rates(names, shown.pair.tolist(), letters)
    np.testing.assert_allclose(strict.rates, [twin[name] for name in NAMES])
    assert strict.wins.sum() + strict.dropped == len(shown) // 2


def test_a_known_order_is_recovered():
    worth = np.array([0.0, 0.8, 1.6, -0.8])
    shown = shown_of(units=200, pairs=100)
    found = ranked(shown, planted_votes(shown, worth))
    assert found.ranks.tolist() == [3, 2, 1, 4]
    assert (found.rank_intervals == found.ranks[:, None]).all()  # far enough apart to be sure
    assert found.rates.sum() == pytest.approx(2)  # someone wins each: half the number of methods
    assert ((found.intervals[:, 0] <= found.rates) & (found.rates <= found.intervals[:, 1])).all()
    assert found.judge_rates.shape == (3, 4)
    assert 0.5 < found.unanimous < 1
    lines = found.table().splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["split", "sparse", "backbone", "random"]
    assert "LLM" not in found.table()


def test_a_judge_that_always_says_a_decides_nothing():
    shown = shown_of()
    found = ranked(shown, np.ones((len(shown), 3), np.int8))
    np.testing.assert_allclose(found.rates, 0.5)
    assert found.ranks.tolist() == [1, 1, 1, 1]
    assert found.first.tolist() == [1, 1, 1] and found.consistent.tolist() == [0, 0, 0]
    strict = ranked(shown, np.ones((len(shown), 3), np.int8), swaps="agree")
    assert strict.dropped == len(shown) // 2 and np.isnan(strict.rates).all() and strict.ranks.tolist() == [-1] * 4
    assert "-" in strict.table() and strict.as_json()["rates"] == [None] * 4


def test_judges_that_disagree_tie_and_are_dropped():
    shown = shown_of()
    votes = np.stack([np.ones(len(shown)), -np.ones(len(shown))], 1).astype(np.int8)
    found = ranked(shown, votes)
    assert found.dropped == len(shown) and found.unanimous == 0
    outvoted = ranked(shown, np.concatenate([votes, votes[:, :1]], 1))
    assert outvoted.dropped == 0 and outvoted.first.tolist() == [1, 0, 1]


def test_missing_answers_leave_the_vote_to_the_others():
    votes = np.array([[1, 0, 0], [0, 0, 0], [1, -1, 0], [-1, -1, 1]], np.int8)
    assert consensus(votes).tolist() == [1, 0, 0, -1]


def test_equal_rates_share_a_rank():
    assert ranks_of(np.array([0.5, 0.7, 0.5, np.nan, 0.1])).tolist() == [2, 1, 2, -1, 4]


# -- intervals


def test_both_orders_of_a_pair_are_one_piece_of_evidence():
    """A judge that is the same in both orders doubles the presentations, not the evidence."""
    shown = schedule({"a": range(400), "b": range(400)}, pairs=400)
    one = np.sign(np.random.default_rng(0).normal(size=400)).astype(np.int8)
    votes = np.stack([one, -one], 1).reshape(-1, 1)
    width = {
        how: float(np.diff(rank(shown, votes, ["j"], kind="test", resample=how).intervals[0])[0])
        for how in ("pair", "presentation")
    }
    assert width["pair"] == pytest.approx(2 * 1.96 * 0.5 / 20, rel=0.15)  # binomial, 400 draws
    assert width["presentation"] == pytest.approx(width["pair"] / np.sqrt(2), rel=0.15)


def test_same_seed_same_numbers():
    shown = shown_of()
    votes = planted_votes(shown, np.array([0.0, 0.1, 0.2, 0.3]))
    same, again, other = (ranked(shown, votes, seed=s).as_json() for s in (3, 3, 4))
    assert same == again and same["intervals"] != other["intervals"]
    assert json.loads(json.dumps(same))["methods"] == list(NAMES)


# -- what is refused


def test_what_is_refused():
    shown = shown_of()
    votes = np.ones((len(shown), 1), np.int8)
    for wrong in (votes[1:], 2 * votes, votes[:, :0]):
        with pytest.raises(vt.SettingsError, match=r"votes are 1, -1 or 0, \(presentation, judge\)"):
            rank(shown, wrong, ["j"] * wrong.shape[1], kind="test")
    with pytest.raises(vt.SettingsError, match=r"two orders\n  given:    'both'\n  accepted: separate, agree"):
        ranked(shown, votes, swaps="both")
    with pytest.raises(vt.SettingsError, match="accepted: pair, presentation"):
        ranked(shown, votes, resample="unit")
    with pytest.raises(vt.SettingsError, match="at least one bootstrap sample"):
        rank(shown, votes, ["j"], kind="test", repeats=0)
    with pytest.raises(vt.SettingsError, match="without a unit that can be shown\n  given:    'b'"):
        schedule({"a": [1], "b": []})
    with pytest.raises(vt.SettingsError, match="the same in every data set"):
        schedule([{"a": [1], "b": [1]}, {"a": [1], "c": [1]}])
    with pytest.raises(vt.SettingsError, match="two or more methods"):
        schedule({"a": [1]})
    with pytest.raises(vt.SettingsError, match="at least one pair"):
        schedule({"a": [1], "b": [1]}, pairs=0)
