"""So many sub-units a unit as were asked for: planted clusters, gaps that only the instances fill, and the walk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import vitreous as vt
from vitreous.lenses.disentangle_expansion import NEAR, options_for, walk
from vitreous.lenses.disentangle_units import Options, UnitTop

SIZES = np.geomspace(120, 8, 16).round().astype(int)  # instances of planted concepts


@pytest.fixture(scope="module")
def concepts() -> tuple[nn.Linear, np.ndarray]:
    """48 units, more than are tried, that all answer to 16 concepts, some often and some seldom."""
    rng = np.random.default_rng(0)
    patterns = np.eye(48, dtype=np.float32).reshape(16, 3, 48).sum(1)
    shown = rng.permutation(np.repeat(np.arange(16), SIZES))
    q = patterns[shown] * rng.uniform(0.5, 1.5, (len(shown), 1)) + 0.03 * np.abs(rng.normal(size=(len(shown), 48)))
    layer = nn.Linear(48, 48, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(rng.uniform(0.8, 1.2, (48, 48))))
    return layer, q.astype(np.float32)


@pytest.mark.parametrize("target", [3, 6, 11])
def test_planted_clusters_are_counted_as_asked(concepts, target):
    layer, q = concepts
    found = vt.disentangle(layer, q, top_k=len(q), expansion=target, progress=False)
    assert abs(np.log(found.expansion / target)) < np.log(1.2)
    assert abs(np.log(found.settings["sampled_expansion"] / found.expansion)) < np.log(1.1)
    between = SIZES[target - 3], SIZES[target + 3]  # the largest concepts are found, the others too small
    assert between[1] <= found.settings["min_cluster_size"] <= between[0]


def test_without_a_number_of_instances_that_is_chosen_too(concepts):
    layer, q = concepts
    found = vt.disentangle(layer, q, expansion=8, progress=False, tokens_per_image="all")
    assert abs(np.log(found.expansion / 8)) < np.log(1.2)


# -- gaps, as real units with little data have them: 24 sub-units with clusters of three, 10.7 with four, 6.3 with five


class Gaps:
    """A stand-in for units whose number of clusters is known for every size and number of instances."""

    on_gpu = False

    def __init__(self) -> None:
        self.tried: list[tuple[int, int]] = []

    def top(self, units: Sequence[int], k: int) -> Iterator[UnitTop]:
        self.most = k
        return (UnitTop(unit, np.arange(k), np.arange(k)) for unit in units)

    def splits(self, tops, options: Options):
        self.tried.append((options.top_k, options.min_cluster_size))
        many = {2: 150.0, 3: 24.3, 4: 10.67, 5: 6.33, 6: 4.71, 7: 3.9, 8: 3.17}.get(options.min_cluster_size, 2.1)
        many *= (options.top_k / 1499) ** 0.6
        tops = list(tops)
        assert all(len(top.ids) == options.top_k for top in tops)
        drawn = np.random.default_rng(options.top_k).permutation(len(tops)) / len(tops)  # mean of the floors is `many`
        return [(top.at, SimpleNamespace(clusters=int(many + share))) for top, share in zip(tops, drawn, strict=True)]


def fitted(target: float, most: int | None, sizes: bool = True, size: int = 10) -> tuple[Options, float, Gaps]:
    route = Gaps()
    options = Options(1499, size, "leaf", None, "auto", 0)
    found = options_for(target, options, route, list(range(32)), sizes=sizes, instances=most, progress=False)
    return (*found, route)


@pytest.mark.parametrize("target", [4, 8, 16, 40, 100])
def test_the_number_of_instances_fills_the_gaps_between_sizes(target):
    options, reached, route = fitted(target, 9600)
    assert abs(np.log(reached / target)) < np.log(1.1)
    assert route.most == 4 * 1499 and 1499 / 4 <= options.top_k <= 4 * 1499
    assert len(route.tried) < 20 and len(set(route.tried)) == len(route.tried)


def test_fewer_instances_are_tried_before_more():
    options, _, route = fitted(16, 9600)
    assert options.min_cluster_size == 3 and options.top_k < 1499 and max(k for k, _ in route.tried) == 1499
    fewer = fitted(4, 9600)[0]
    assert fewer.top_k == 1499  # sizes alone are fine enough there


def test_a_number_of_instances_that_was_given_stays():
    """The nearest size is taken then, and what it reaches is said."""
    options, reached, route = fitted(16, None)
    assert {k for k, _ in route.tried} == {1499} and options.min_cluster_size in (3, 4)
    assert reached == pytest.approx({3: 24.3, 4: 10.67}[options.min_cluster_size], abs=0.05)


def test_a_size_that_was_given_stays():
    options, reached, route = fitted(8, 9600, sizes=False, size=4)
    assert {size for _, size in route.tried} == {4} and options.top_k < 1499
    assert abs(np.log(reached / 8)) < np.log(1.06)


def test_what_cannot_be_reached_ends_at_the_nearest():
    options, reached, _ = fitted(10_000, 9600)
    assert options.min_cluster_size == 2 and options.top_k == 4 * 1499 and reached == pytest.approx(345, rel=0.01)
    options, reached, route = fitted(1.01, 1600)
    assert reached < 1.5 and len(route.tried) <= 20


# -- the walk


@pytest.mark.parametrize("target", [1.3, 4, 77, 900])
@pytest.mark.parametrize(("slope", "start"), [(-2.0, 10), (-2.0, 3000), (0.6, 10), (0.6, 3000)])
def test_a_walk_comes_near(target, slope, start):
    """Also where the way is steeper or flatter than was thought."""
    for true in (0.7 * slope, slope, 1.5 * slope):
        known = walk(lambda n, true=true: true * np.log(n / 500) - np.log(target / 20), start, 2, 10**7, slope)
        answer = 500 * (target / 20) ** (1 / true)
        if not 4 < answer < 10**7:
            continue
        nearest = min(known, key=lambda n: abs(known[n]))
        step = abs(true) / answer  # numbers are whole
        assert abs(known[nearest]) < max(NEAR, step), (true, answer, known)


def test_a_walk_over_steps_and_in_disorder_ends():
    noisy = np.random.default_rng(0)
    for _ in range(200):
        known = walk(lambda _: float(noisy.normal()), 10, 2, 400, -2.0)
        assert 1 <= len(known) <= 10 and all(2 <= n <= 400 for n in known)
    steps = walk(lambda n: np.log((24 if n < 4 else 6) / 12), 10, 2, 400, -2.0)
    assert {3, 4} <= set(steps)
    assert list(walk(lambda _: 1.0, 7, 5, 3, -2.0)) == [5]  # nothing to choose from
