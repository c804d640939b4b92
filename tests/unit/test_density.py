"""Density clusters: the twin, scikit-learn, planted concepts, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from reference.density import hdbscan
from vitreous.errors import SettingsError
from vitreous.kernels import density, density_pairs, density_span
from vitreous.kernels.density import Clusters, contribution_clusters, density_clusters
from vitreous.kernels.density_reduce import contributions, reduced_cloud, reduced_contributions
from vitreous.kernels.density_rule import Rule


def _blobs(rng, sizes, spreads, dim, apart=6.0):
    centres = rng.normal(size=(len(sizes), dim))
    centres *= apart / np.linalg.norm(centres, axis=1, keepdims=True)
    return np.concatenate([c + s * rng.normal(size=(n, dim)) for c, n, s in zip(centres, sizes, spreads, strict=True)])


def _different_densities():
    return _blobs(np.random.default_rng(0), (40, 40, 40), (0.1, 0.4, 1.0), 3, apart=8)


def _nested():
    rng = np.random.default_rng(2)
    inner = _blobs(rng, (30, 30), (0.1, 0.1), 2, apart=0.8)
    return np.concatenate([inner, rng.normal(size=(40, 2)), [8, 0] + 0.3 * rng.normal(size=(40, 2))])


def _noise():
    rng = np.random.default_rng(3)
    return np.concatenate([_blobs(rng, (35, 35), (0.3, 0.3), 4), rng.uniform(-8, 8, (50, 4))])


def _duplicates():
    rng = np.random.default_rng(4)
    points = _blobs(rng, (30, 30), (0.4, 0.4), 3)
    return np.concatenate([points, np.repeat(points[:2], 12, 0), rng.uniform(-8, 8, (10, 3))])


def _one_cluster():
    return np.random.default_rng(5).normal(size=(80, 3))


def _all_noise():
    return 3.0 ** np.arange(40)[:, None]  # no two points share a scale


def _grid():
    x, y = np.meshgrid(np.arange(6.0), np.arange(6.0))
    square = np.stack([x.ravel(), y.ravel()], 1)
    return np.concatenate([square, square + np.array([20, 0]), square * 2 + np.array([0, 30]), [[10, 2], [10, 40]]])


HARD = (_different_densities, _nested, _noise, _duplicates, _one_cluster, _all_noise, _grid)


@pytest.mark.parametrize("min_samples", (None, 1, 2, 4, 20))
@pytest.mark.parametrize("selection", ("leaf", "eom"))
@pytest.mark.parametrize("make", HARD, ids=lambda make: make.__name__)
def test_the_full_route_is_the_definition(make, selection, min_samples):
    points = make()
    found = density_clusters(points, min_cluster_size=9, min_samples=min_samples, selection=selection, method="full")
    twin = hdbscan(points, 9, min_samples, selection)
    np.testing.assert_array_equal(found.labels, twin.labels)
    np.testing.assert_allclose(found.probabilities, twin.probabilities, atol=2e-7)
    assert found.probabilities.dtype == np.float32


def test_the_hard_inputs_are_what_their_names_say():
    counts = {make.__name__: hdbscan(make(), 9).labels.max() + 1 for make in HARD}
    assert counts["_one_cluster"] == counts["_all_noise"] == 0
    assert counts["_different_densities"] == counts["_grid"] == 3 and counts["_noise"] == 2
    assert hdbscan(_nested(), 9).labels.max() > hdbscan(_nested(), 9, selection="eom").labels.max()
    twin = hdbscan(_duplicates(), 9)
    assert (twin.probabilities[-34:-10] == 1).all()  # copies of a point leave last


@pytest.mark.parametrize("selection", ("leaf", "eom"))
@pytest.mark.parametrize("min_samples", (None, 1, 5))
@pytest.mark.parametrize("seed", range(3))
def test_the_full_route_is_scikit_learn_but_for_points_that_leave_with_a_split(seed, min_samples, selection):
    rng = np.random.default_rng(seed)
    spreads = rng.uniform(0.3, 0.8, 5)
    points = np.concatenate([_blobs(rng, (60,) * 5, spreads, 5), rng.uniform(-6, 6, (80, 5))])
    rule = {"min_cluster_size": 12, "min_samples": min_samples, "selection": selection}
    exact = density_clusters(points, **rule, method="exact")
    full = density_clusters(points, **rule, method="full")
    bridges = hdbscan(points, 12, min_samples, selection).bridges
    assert exact.count == full.count >= 3 and bridges.sum() <= 8
    np.testing.assert_array_equal(exact.labels[~bridges], full.labels[~bridges])
    both = (exact.labels >= 0) & (full.labels >= 0)
    np.testing.assert_allclose(exact.probabilities[both], full.probabilities[both], rtol=1e-5)


def test_half_precision_and_float32_give_the_same_clusters():
    points = _noise()
    wanted = density_clusters(points, min_cluster_size=9, method="full").labels
    for kind in (np.float32, np.float16):
        found = density_clusters(points.astype(kind), min_cluster_size=9, method="full")
        assert adjusted_rand_score(found.labels, wanted) > 0.95


def test_many_peaks_go_through_rounds_of_boruvka(monkeypatch):
    points = np.random.default_rng(0).normal(size=(300, 3))
    wanted = hdbscan(points, 8, 2).labels
    monkeypatch.setattr(density_span, "FEW", 4)
    np.testing.assert_array_equal(
        density_clusters(points, min_cluster_size=8, min_samples=2, method="full").labels, wanted
    )


def test_tiles_smaller_than_the_points_change_nothing(monkeypatch):
    points = _noise()
    wanted = hdbscan(points, 9, 4).labels
    monkeypatch.setattr(density_pairs, "ROWS", 7)
    monkeypatch.setattr(density_pairs, "COLUMNS", 37)
    np.testing.assert_array_equal(
        density_clusters(points, min_cluster_size=9, min_samples=4, method="full").labels, wanted
    )


def test_neighbours_are_those_of_a_full_sort():
    rng = np.random.default_rng(0)
    points = rng.normal(size=(700, 5))
    cloud = density_pairs.Cloud(points, (points**2).sum(1) / 2)
    near = density_pairs.nearest(cloud, cloud, 40, own=True)
    distances = ((points[:, None] - points) ** 2).sum(-1)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(np.sort(near.ids, 1), np.sort(np.argsort(distances, 1)[:, :40], 1))
    np.testing.assert_allclose(near.radius, np.sort(distances, 1)[:, 39], rtol=1e-9)


def planted(instances, inputs, seed, noise=0.3, concepts=5):
    """Inputs after a nonlinearity: a concept's pattern, shared patterns at random, and rows that follow none."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=inputs)
    patterns = rng.normal(1.5, 0.5, (concepts + 8, inputs)) * (rng.random((concepts + 8, inputs)) < 0.15)
    truth = np.where(rng.random(instances) < noise, -1, rng.integers(concepts, size=instances))
    drive = 0.5 * rng.normal(size=(instances, inputs)) - 0.5
    drive += (rng.random((instances, 8)) < 0.1) * rng.uniform(0.3, 0.6, (instances, 8)) @ patterns[concepts:]
    known = truth >= 0
    drive[known] += rng.uniform(0.8, 1.6, (known.sum(), 1)) * patterns[truth[known]]
    drive[~known] += 0.3 * rng.normal(size=((~known).sum(), inputs))
    return np.maximum(drive, -0.1).astype(np.float32), weight.astype(np.float32), truth


@pytest.mark.parametrize("seed", range(2))
def test_planted_concepts_are_found_after_the_projection_as_well_as_before(seed):
    q, weight, truth = planted(2000, 640, seed)
    points = contributions(q, weight)
    exact = density_clusters(points, min_cluster_size=40, method="exact")
    auto = density_clusters(points, min_cluster_size=40)
    assert exact.count == auto.count == 5 and auto.method == "pca 64"
    assert adjusted_rand_score(auto.labels, exact.labels) > 0.97
    assert adjusted_rand_score(auto.labels, truth) > max(0.9, adjusted_rand_score(exact.labels, truth) - 0.01)


def test_norms_that_are_dropped_pull_noise_into_the_clusters():
    q, weight, truth = planted(2000, 640, 0)
    points = contributions(q, weight)
    kept = reduced_cloud(points, 64, np.random.default_rng(0))
    np.testing.assert_allclose(kept.half, 0.5, rtol=1e-5)
    plain = density_clusters(kept.coordinates, min_cluster_size=40, method="full")
    auto = density_clusters(points, min_cluster_size=40)
    assert adjusted_rand_score(auto.labels, truth) > adjusted_rand_score(plain.labels, truth) + 0.02


def test_contributions_are_clustered_without_being_formed():
    q, weight, truth = planted(2000, 640, 1)
    formed = reduced_cloud(contributions(q, weight), 64, np.random.default_rng(3))
    never = reduced_contributions(q, weight, 64, np.random.default_rng(3))
    np.testing.assert_allclose(never.half, 0.5)
    some = slice(0, 2000, 50)
    np.testing.assert_allclose(
        never.coordinates[some] @ never.coordinates[some].T,
        formed.coordinates[some] @ formed.coordinates[some].T,
        atol=1e-5,
    )
    found = contribution_clusters(q.astype(np.float16), weight, min_cluster_size=40)
    assert found.count == 5 and adjusted_rand_score(found.labels, truth) > 0.9


@pytest.mark.parametrize("method", ("auto", "full", "exact"))
def test_instances_that_add_nothing_are_noise(method):
    q, weight, _ = planted(1500, 300, 0, noise=0.0, concepts=2)
    q[::5] = 0  # 300 equal points: a cluster, if they were let in
    found = contribution_clusters(q, weight, min_cluster_size=40, method=method)
    assert (found.labels[::5] == -1).all() and (found.probabilities[::5] == 0).all()
    assert found.count == 2 and found.labels[1] == 0


def test_a_sample_and_the_rest_assigned_agree_with_all_points():
    q, weight, truth = planted(6000, 400, 2)
    whole = contribution_clusters(q, weight, min_cluster_size=180)
    found = contribution_clusters(q, weight, min_cluster_size=180, sample=1000)
    assert found.method == "pca 64, 1000 of 6000 points and the rest assigned" and whole.method == "pca 64"
    assert found.count == whole.count == 5
    assert adjusted_rand_score(found.labels, whole.labels) > 0.95
    assert adjusted_rand_score(found.labels, truth) > adjusted_rand_score(whole.labels, truth) - 0.02
    assert abs((found.labels == -1).mean() - (whole.labels == -1).mean()) < 0.02
    inside = found.labels >= 0
    assert (found.probabilities[inside] > 0).all() and (found.probabilities[~inside] == 0).all()
    assert np.corrcoef(found.probabilities[inside], whole.probabilities[inside])[0, 1] > 0.8


def test_a_point_that_joins_gets_what_it_would_have_got_inside():
    """Copies of the sample's own members join their members' clusters; far points stay outside."""
    rng = np.random.default_rng(0)
    points = np.concatenate([_blobs(rng, (200, 200), (0.3, 0.3), 4), rng.uniform(-9, 9, (60, 4))])
    cloud = density_pairs.Cloud(points, (points**2).sum(1) / 2)
    rule = Rule(20, 20, "leaf", 460)
    flat, core = density._flat(cloud, rule)
    moved = points + 1e-6
    moved[-1] = 100
    owner, probability = density._join(density_pairs.Cloud(moved, (moved**2).sum(1) / 2), cloud, flat, core, rule)
    assert owner[-1] == -1 and probability[-1] == 0
    inside = flat.probabilities > 0.5
    np.testing.assert_array_equal(owner[inside], flat.owner[inside])
    assert (owner[:-1][flat.owner[:-1] == -1] == -1).mean() > 0.8
    np.testing.assert_allclose(probability[inside], flat.probabilities[inside], atol=0.1)


def test_the_sample_is_as_large_as_small_clusters_need():
    points = np.random.default_rng(0).normal(size=(2000, 3)).astype(np.float32)
    found = density_clusters(points, min_cluster_size=100, sample=100)
    assert found.method == "full, 600 of 2000 points and the rest assigned"
    assert density_clusters(points, min_cluster_size=30, sample=100).method == "full"  # would need 2,000


def test_the_same_seed_gives_the_same_bytes():
    q, weight, _ = planted(3000, 300, 0)
    first, again, other = (
        contribution_clusters(q, weight, min_cluster_size=150, sample=600, seed=seed) for seed in (0, 0, 1)
    )
    assert first.labels.tobytes() == again.labels.tobytes()
    assert first.probabilities.tobytes() == again.probabilities.tobytes()
    assert first.probabilities.tobytes() != other.probabilities.tobytes()


@pytest.mark.parametrize("method", density.METHODS)
@pytest.mark.parametrize("count", (0, 1, 5, 19))
def test_too_few_points_for_two_clusters_are_noise(count, method):
    found = density_clusters(np.ones((count, 3), np.float32), min_cluster_size=10, method=method)
    assert isinstance(found, Clusters) and found.count == 0
    assert found.labels.tolist() == [-1] * count and found.probabilities.tolist() == [0] * count


def test_what_cannot_be_clustered_is_refused_by_name():
    points = np.random.default_rng(0).normal(size=(50, 3))
    for wrong, words in (
        ({"method": "kmeans"}, "auto, exact, full"),
        ({"selection": "leafs"}, "nearest:  leaf"),
        ({"min_samples": 51}, "1 to 50"),
        ({"min_samples": 0}, "min_samples is a whole number\n  given:    0\n  accepted: from 1 on"),
        ({"dims": 0}, "dims is a whole number"),
        ({"min_cluster_size": 2.5}, "min_cluster_size is a whole number\n  given:    2.5\n  accepted: from 2 on"),
    ):
        with pytest.raises(SettingsError, match=words):
            density_clusters(points, **({"min_cluster_size": 10} | wrong))
    with pytest.raises(SettingsError, match="min_cluster_size is a whole number"):
        density_clusters(points, min_cluster_size=1)
    with pytest.raises(SettingsError, match=r"floats \(point, dim\)"):
        density_clusters(np.arange(10), min_cluster_size=2)
    points[7, 1] = np.nan
    with pytest.raises(SettingsError, match="row 7"):
        density_clusters(points, min_cluster_size=10)
    with pytest.raises(SettingsError, match=r"q is \(instance, input\)"):
        contribution_clusters(points, np.ones(4), min_cluster_size=10)
    wide = np.ones((1500, 300), np.float32)
    wide[300:] = 0  # nothing added: these do not count
    with pytest.raises(SettingsError, match="1 to 300"):
        contribution_clusters(wide, np.ones(300), min_cluster_size=10, min_samples=301)
    wide[1200, 3] = np.inf
    with pytest.raises(SettingsError, match="row 1200"):
        contribution_clusters(wide, np.ones(300), min_cluster_size=10)
