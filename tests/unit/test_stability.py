"""Stability between runs, effective rank, coherence."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import vitreous as vt
from vitreous.evidence.stability import coherence, effective_rank, matched_similarity, stability
from vitreous.examination.proof import stability_evidence


def atoms(count: int, channels: int = 8, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, channels))


def test_a_shuffled_and_scaled_dictionary_is_the_same():
    a = atoms(30)
    order = np.random.default_rng(1).permutation(30)
    b = a[order] * np.linspace(0.1, 5, 30)[:, None]
    assert matched_similarity(a, b) == pytest.approx(1)
    assert matched_similarity(a, atoms(30, seed=2)) < 0.9


def test_the_match_is_the_best_of_all_permutations():
    a, b = atoms(5), atoms(5, seed=3)
    cosines = (a / np.linalg.norm(a, axis=1)[:, None]) @ (b / np.linalg.norm(b, axis=1)[:, None]).T
    best = max(np.mean([cosines[i, p[i]] for i in range(5)]) for p in permutations(range(5)))
    assert matched_similarity(a, b) == pytest.approx(best)


def test_blocks_of_different_length_pay_the_penalty():
    a = atoms(4)
    assert matched_similarity(a, a[:3]) == pytest.approx(1 - 1 / 4)
    assert matched_similarity(a[1:], a, unmatched="best") == pytest.approx(1 - 1 / 4)
    assert matched_similarity(a[1:], a) < 0.7  # as printed: the first three of both are not the same three
    assert matched_similarity(a[:0], a[:0]) == 1
    assert matched_similarity(a[:0], a) == -1


def test_blocks_are_matched_unit_by_unit():
    a, b = atoms(3), atoms(2, seed=1)
    same = stability([[a, b], [a[::-1].copy(), b[::-1].copy()]])
    assert same.pairs == pytest.approx((1,))
    swapped = stability([[a[:2], b], [b, a[:2]]])
    assert swapped.mean < 0.9
    assert stability([[a, b], [a[:2], b]]).mean == pytest.approx((1 - 1 / 3 + 1) / 2)


def test_three_runs_make_three_pairs():
    a, b = atoms(6), atoms(6, seed=1)
    found = stability([a, torch.tensor(a), b])
    assert found.pairs[0] == pytest.approx(1) and found.pairs[1] == pytest.approx(found.pairs[2])
    assert found.mean == pytest.approx(np.mean(found.pairs)) and found.std > 0


def test_dead_atoms_are_left_out():
    a = atoms(6)
    dead = np.insert(a, 3, 0, axis=0)
    assert matched_similarity(a, dead) == pytest.approx(1)
    assert effective_rank(dead) == pytest.approx(effective_rank(a))
    assert coherence(dead) == pytest.approx(coherence(a))


def test_effective_rank_counts_directions():
    assert effective_rank(np.eye(7)) == pytest.approx(7)
    assert effective_rank(np.ones((9, 4))) == pytest.approx(1)
    values = np.array([3.0, 1.0])
    p = values / 4
    assert effective_rank(np.diag(values)) == pytest.approx(np.exp(-(p * np.log(p)).sum()))


def test_coherence_is_the_largest_cosine():
    assert coherence(np.eye(5)) == 0
    assert coherence(np.array([[1.0, 0], [1, 1], [0, 1]])) == pytest.approx(np.sqrt(0.5))
    assert coherence(np.array([[1.0, 0], [-3, 0]])) == 1  # up to sign, whatever the length
    many = atoms(2500, 16)
    unit = many / np.linalg.norm(many, axis=1)[:, None]
    assert coherence(many) == pytest.approx(np.abs(np.triu(unit @ unit.T, 1)).max())


def test_bad_input_is_refused():
    a = atoms(3)
    with pytest.raises(vt.SettingsError, match="two or more"):
        stability([a])
    with pytest.raises(vt.SettingsError, match="the same units"):
        stability([[a, a], [a]])
    with pytest.raises(vt.SettingsError, match="the same channels"):
        matched_similarity(a, a[:, :4])
    with pytest.raises(vt.SettingsError, match="no such rule"):
        matched_similarity(a, a, unmatched="last")
    with pytest.raises(vt.SettingsError, match="finite and"):
        effective_rank(a * np.nan)
    with pytest.raises(vt.SettingsError, match="finite and"):
        effective_rank(a[0])
    with pytest.raises(vt.SettingsError, match="1 or more atoms"):
        effective_rank(0 * a)
    with pytest.raises(vt.SettingsError, match="2 or more atoms"):
        coherence(a[:1])


def split_units(rng, tokens):
    """Two units of two sub-units each, found on these tokens of the same pictures."""
    top = SimpleNamespace(images=np.zeros((2, 3), int), tokens=tokens)
    members = rng.random((4, 6))
    return SimpleNamespace(
        units=np.arange(2), top=top, representatives=members, subunits=lambda unit: [2 * unit, 2 * unit + 1]
    )


def test_the_same_patches_again_are_no_evidence():
    """Of few pictures all patches are taken both times: a cosine of 1 would say only that it can be repeated."""
    rng = np.random.default_rng(0)
    some, others = np.array([[0, 1, 2], [3, 4, 5]]), np.array([[0, 1, 7], [3, 4, 5]])
    one, again, elsewhere = (split_units(rng, tokens) for tokens in (some, some, others))
    assert stability_evidence(one, again) == {"stability": [None, None], "stability_control": [None, None]}
    assert None not in stability_evidence(one, elsewhere)["stability"]
