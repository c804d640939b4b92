from __future__ import annotations

import sys
from math import inf
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from vitreous.errors import SettingsError
from vitreous.evidence import statistics

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import statistics as twin


def two_sets(seed: int, n: int, m: int, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=n), rng.normal(0.4, 1.3, size=m)
    return (np.round(a), np.round(b)) if ties else (a, b)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(("n", "m"), [(6, 9), (40, 25), (700, 900)])
def test_the_size_tests_agree_with_scipy_and_with_their_definitions(n, m, ties):
    a, b = two_sets(n, n, m, ties)
    gap, rank = statistics.kolmogorov_smirnov(a, b), statistics.mann_whitney(a, b)
    theirs, also = stats.ks_2samp(a, b), stats.mannwhitneyu(a, b)
    assert (gap.statistic, gap.p) == (theirs.statistic, theirs.pvalue)
    assert (rank.statistic, rank.p) == (also.statistic, also.pvalue)
    if n < 100:
        assert gap.statistic == pytest.approx(twin.largest_gap(a.tolist(), b.tolist()), abs=1e-12)
        assert rank.statistic == twin.wins(a.tolist(), b.tolist())


@pytest.mark.parametrize("n", [2, 9, 4000])
def test_paired_t_agrees_with_scipy_and_the_formula(n):
    a, b = two_sets(n, n, n, ties=False)
    found, theirs = statistics.paired_t(a, b), stats.ttest_rel(a, b)
    assert found.statistic == pytest.approx(theirs.statistic, rel=1e-10)
    assert found.statistic == pytest.approx(twin.t_statistic(a.tolist(), b.tolist()), rel=1e-10)
    assert found.p == pytest.approx(theirs.pvalue, rel=1e-8)


def test_a_common_offset_costs_no_digits():
    a, b = two_sets(0, 500, 500, ties=False)
    near = statistics.paired_t(a, b)
    far = statistics.paired_t(a + 1e8, b)
    assert far.statistic == pytest.approx(stats.ttest_rel(a + 1e8, b).statistic, rel=1e-6)
    assert statistics.paired_t(a + 2.0**20, b + 2.0**20).statistic == pytest.approx(near.statistic, rel=1e-6)


def test_t_from_sums_is_t():
    a, b = two_sets(1, 300, 300, ties=True)
    d = a - b
    assert statistics.t_of_differences(300, d.mean(), ((d - d.mean()) ** 2).sum()) == statistics.paired_t(a, b)


def test_differences_without_spread():
    same = np.arange(5.0)
    assert statistics.paired_t(same, same) == statistics.Test(0.0, 1.0)
    assert statistics.paired_t(same + 1, same) == statistics.Test(inf, 0.0)
    assert statistics.paired_t(same, same + 1) == statistics.Test(-inf, 0.0)
    assert statistics.permutation(same, same, repeats=100) == statistics.Test(0.0, 1.0)


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.8, 2.0])
@pytest.mark.parametrize("n", [5, 8, 11])
def test_permutation_agrees_with_all_exchanges(n, shift):
    rng = np.random.default_rng(n)
    a, b = np.round(rng.normal(shift, 1, n), 1), np.round(rng.normal(0, 1, n), 1)  # rounded: many sums tie
    found, exact = statistics.permutation(a, b, repeats=20_000, seed=3), twin.exchange_p(a.tolist(), b.tolist())
    assert found.statistic == pytest.approx((a - b).mean(), abs=1e-12)
    assert found.p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5 + 1e-4)
    assert statistics.permutation(b, a, repeats=20_000, seed=3).p == found.p, "two-sided"


def test_permutation_of_many_pairs_is_what_normal_theory_says():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.03, 1, 40_000), rng.normal(0, 1, 40_000)
    found = statistics.permutation(a, b, pairs=5000)
    z = found.statistic / ((a - b).std() / 5000**0.5)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.02)
    assert abs(found.statistic - 0.03) < 4 * 2**0.5 / 5000**0.5
    assert found == statistics.permutation(a, b, pairs=5000), "a seed, not chance"
    assert found.statistic != statistics.permutation(a, b, pairs=5000, seed=1).statistic, "other pairs are drawn"
    assert statistics.permutation(a + 1, b).p == 1 / 10_001, "never zero"


def test_under_no_difference_p_is_uniform():
    rng = np.random.default_rng(5)
    p = [statistics.permutation(*rng.normal(size=(2, 50)), repeats=400, seed=k).p for k in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_p_values_in_words():
    assert [statistics.p_text(p) for p in (0.0, 1e-301, 2.567e-22, 0.24781, 1.0)] == [
        "< 1e-300", "< 1e-300", "2.567e-22", "0.2478", "1.0000",
    ]  # fmt: skip
    assert statistics.p_text(1 / 10_001, 1e-4) == "< 1e-4"


@pytest.mark.parametrize("test", [statistics.paired_t, statistics.permutation])
def test_pairs_of_different_lengths_are_refused(test):
    with pytest.raises(SettingsError, match="lists of one length\n  given:    '3 and 4'"):
        test([1, 2, 3], [1, 2, 3, 4])


@pytest.mark.parametrize(
    "test",
    [statistics.paired_t, statistics.permutation, statistics.kolmogorov_smirnov, statistics.mann_whitney],
)
def test_what_cannot_be_tested_is_refused(test):
    with pytest.raises(SettingsError, match="b holds NaN or infinity"):
        test([1.0, 2.0], [1.0, np.nan])
    with pytest.raises(SettingsError, match="a is a list of numbers"):
        test(np.zeros((2, 2)), [1.0, 2.0])
    with pytest.raises(SettingsError, match="a is too short to test"):
        test([], [])
    with pytest.raises(SettingsError, match="b is a list of numbers"):
        test([1.0, 2.0], ["x", "y"])


def test_no_pairs_or_repeats_are_refused():
    with pytest.raises(SettingsError, match="pairs and repeats are at least 1"):
        statistics.permutation([1.0], [2.0], repeats=0)
