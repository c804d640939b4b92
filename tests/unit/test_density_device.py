"""Clusters on a torch device: the trees are minimal, the clusters those of the cores, and of exact HDBSCAN."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from sklearn.metrics import adjusted_rand_score
from test_density import HARD, planted

from reference.density import hdbscan, mutual_reachability
from vitreous.errors import SettingsError
from vitreous.kernels import density_device, density_device_span
from vitreous.kernels.density import contribution_clusters, density_clusters
from vitreous.kernels.density_device import Instances, contribution_clusters_on_device
from vitreous.kernels.density_device_span import DeviceCloud, largest, nearest, spanning_tree
from vitreous.kernels.density_reduce import contributions
from vitreous.kernels.density_rule import Rule


def cloud_of(points: np.ndarray) -> DeviceCloud:
    coordinates = torch.from_numpy(np.asarray(points, np.float32))
    return DeviceCloud(coordinates, coordinates.square().sum(1) / 2)


def on_device(q: np.ndarray, weight: np.ndarray, **rule) -> density_device.DeviceClusters:
    there = torch.from_numpy(q)
    instances = Instances(lambda at: there[at], *q.shape, torch.device("cpu"))
    return contribution_clusters_on_device(instances, torch.from_numpy(weight), **rule)


# -- spanning trees


def zero_rows() -> np.ndarray:
    points = np.random.default_rng(7).integers(-2, 3, (90, 3)).astype(float)
    points[::3] = 0
    return points


def line() -> np.ndarray:
    return np.arange(70.0)[:, None]  # every edge is as long as the next


TREES = (*HARD, zero_rows, line)


@pytest.mark.parametrize("min_samples", (1, 2, 5, 30))
@pytest.mark.parametrize("make", TREES, ids=lambda make: make.__name__)
def test_trees_weigh_what_scipys_weigh(make, min_samples, monkeypatch):
    """Also of copies, equal distances and points without any direction, and with a few rows at a time."""
    points = make()
    points = points / max(1, np.abs(points).max() / 64)  # what float32 holds of 3^39 tells no two points apart
    monkeypatch.setattr(density_device_span, "PAIRS", 1000)
    edges, squares, core = spanning_tree(cloud_of(points), min_samples)
    reach = mutual_reachability(points, min_samples)
    assert edges.shape == (len(points) - 1, 2)
    graph = np.zeros_like(reach)
    graph[edges[:, 0], edges[:, 1]] = 1
    assert connected_components(graph, directed=False)[0] == 1
    # scipy takes a zero for no edge
    expected = minimum_spanning_tree(reach + 1).data - 1
    tolerance = {"rtol": 1e-4, "atol": 2e-3 * np.abs(points).max()}
    np.testing.assert_allclose(np.sqrt(np.sort(squares)), np.sort(expected), **tolerance)
    np.testing.assert_allclose(reach[edges[:, 0], edges[:, 1]], np.sqrt(squares), **tolerance)
    np.testing.assert_allclose(core.sqrt().numpy(), reach.diagonal(), **tolerance)


def test_trees_of_whole_numbers_are_exact():
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = rng.integers(0, 6, (60, 2)).astype(float)
        _, squares, _ = spanning_tree(cloud_of(points), 3)
        reach = mutual_reachability(points, 3)
        expected = np.sort(minimum_spanning_tree(reach + 1).data - 1)
        np.testing.assert_allclose(np.sqrt(np.sort(squares)), expected, atol=1e-12)


@pytest.mark.parametrize("min_samples", (None, 1, 4))
@pytest.mark.parametrize("make", [make for make in HARD if make.__name__ != "_all_noise"], ids=lambda m: m.__name__)
def test_clusters_of_all_points_are_the_definition(make, min_samples):
    points = make().astype(np.float32)
    twin = hdbscan(points, 9, min_samples)
    flat, _ = density_device._flat(cloud_of(points), Rule(9, min_samples or 9, "leaf", len(points)))
    named, count = density_device._numbered(torch.from_numpy(flat.owner))
    if make.__name__ == "_duplicates":  # float32 does not find copies at distance 0 from each other
        assert adjusted_rand_score(named.numpy(), twin.labels) > 0.95
    else:
        np.testing.assert_array_equal(named.numpy(), twin.labels)
        np.testing.assert_allclose(flat.probabilities, twin.probabilities, atol=1e-3)
        assert count == twin.labels.max() + 1


def test_neighbours_are_those_of_a_full_sort(monkeypatch):
    points = np.random.default_rng(0).normal(size=(701, 5)).astype(np.float32)
    monkeypatch.setattr(density_device_span, "PAIRS", 97 * 704)
    monkeypatch.setattr(density_device_span, "GROUP", 4)
    near = nearest(cloud_of(points), cloud_of(points), 40, own=True)
    distances = ((points[:, None].astype(float) - points) ** 2).sum(-1)
    np.fill_diagonal(distances, np.inf)
    np.testing.assert_array_equal(np.sort(near.ids.numpy(), 1), np.sort(np.argsort(distances, 1)[:, :40], 1))
    np.testing.assert_allclose(near.radius.numpy(), np.sort(distances, 1)[:, 39], rtol=1e-4)


@pytest.mark.parametrize("k", (1, 3, 7, 40))
def test_the_largest_in_groups_are_the_largest(k):
    values = torch.from_numpy(np.random.default_rng(k).integers(0, 50, (9, 640)).astype(np.float32))
    found, columns = largest(values, k)
    assert (found.sort(1).values == values.topk(k).values.sort(1).values).all()
    assert (values.gather(1, columns) == found).all()
    assert all(len(set(row.tolist())) == k for row in columns)


# -- clusters of contributions


@pytest.mark.parametrize(
    ("instances", "inputs", "rule"),
    [
        (2000, 640, {"min_cluster_size": 40}),
        (2000, 640, {"min_cluster_size": 40, "selection": "eom", "min_samples": 5}),
        (6000, 400, {"min_cluster_size": 180, "sample": 1000}),
        (6000, 400, {"min_cluster_size": 180, "sample": 1000, "min_samples": 1}),
        (900, 300, {"min_cluster_size": 20}),
        (3000, 100, {"min_cluster_size": 100, "sample": 900}),
    ],
)
def test_the_device_and_the_cores_find_the_same(instances, inputs, rule, monkeypatch):
    q, weight, _ = planted(instances, inputs, 1)
    q[5:90:3] = 0
    cores = contribution_clusters(q, weight, **rule)
    monkeypatch.setattr(density_device, "CHUNK", 500 * inputs)
    monkeypatch.setattr(density_device, "PAIRS", 1 << 20)
    found = on_device(q, weight, **rule)
    assert found.method == cores.method and found.clusters == cores.count == 5
    np.testing.assert_array_equal(found.labels.numpy(), cores.labels)
    np.testing.assert_allclose(found.probabilities.numpy(), cores.probabilities, atol=1e-4)
    np.testing.assert_allclose(found.lengths.numpy(), np.linalg.norm(q * weight, axis=1), rtol=1e-5)
    assert (found.labels[5:90:3] == -1).all() and (found.probabilities[5:90:3] == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_device_agrees_with_exact_hdbscan(seed):
    q, weight, truth = planted(2000, 640, seed)
    exact = density_clusters(contributions(q, weight), min_cluster_size=40, method="exact")
    found = on_device(q, weight, min_cluster_size=40)
    assert found.clusters == exact.count == 5
    assert adjusted_rand_score(found.labels.numpy(), exact.labels) > 0.97
    sampled = on_device(q, weight, min_cluster_size=80, sample=500)
    assert sampled.method.startswith("pca 64, 750 of 2000")
    assert adjusted_rand_score(sampled.labels.numpy(), truth) > adjusted_rand_score(exact.labels, truth) - 0.05


def test_the_same_seed_gives_the_same_bytes():
    q, weight, _ = planted(3000, 300, 0)
    first, again, other = (on_device(q, weight, min_cluster_size=150, sample=600, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.labels, again.labels) and torch.equal(first.probabilities, again.probabilities)
    assert not torch.equal(first.probabilities, other.probabilities)


def test_copies_of_instances_are_in_one_cluster():
    """Ties everywhere: each of 60 instances is there 50 times over."""
    q, weight, _ = planted(60, 300, 0, noise=0, concepts=3)
    q = np.tile(q, (50, 1))
    found = on_device(q, weight, min_cluster_size=60, sample=800)
    labels = found.labels.numpy().reshape(50, 60)
    assert found.clusters > 1 and (labels >= 0).mean() > 0.4
    for copies in labels.T:
        assert len(set(copies[copies >= 0].tolist())) <= 1
    cores = contribution_clusters(q, weight, min_cluster_size=60, sample=800)
    assert adjusted_rand_score(cores.labels, labels.ravel()) > 0.95


def test_nothing_to_cluster_is_noise():
    q, weight, _ = planted(300, 200, 0)
    for wrong in (on_device(q, 0 * weight, min_cluster_size=10), on_device(q, weight, min_cluster_size=151)):
        assert wrong.clusters == 0 and (wrong.labels == -1).all() and (wrong.probabilities == 0).all()
    assert on_device(np.zeros((0, 200), np.float32), weight, min_cluster_size=10).clusters == 0


def test_what_cannot_be_clustered_is_refused_by_name():
    q, weight, _ = planted(1500, 300, 0)
    for wrong, words in (
        ({"selection": "leafs"}, "nearest:  leaf"),
        ({"min_samples": 1501}, "1 to 1500"),
        ({"min_cluster_size": 1}, "min_cluster_size is a whole number"),
    ):
        with pytest.raises(SettingsError, match=words):
            on_device(q, weight, **({"min_cluster_size": 10} | wrong))
    with pytest.raises(SettingsError, match=r"float32 \(input,\)"):
        on_device(q, weight[1:], min_cluster_size=10)
    q[1200, 3] = np.inf
    with pytest.raises(SettingsError, match="row 1200"):
        on_device(q, weight, min_cluster_size=10)
    q[300:] = 0  # nothing added: these do not count
    with pytest.raises(SettingsError, match="1 to 300"):
        on_device(q, weight, min_cluster_size=10, min_samples=301)
