"""Coordinates, colours, nested groups, concepts and transitions of nodes."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.lenses.align_colors import farthest_points, nearest


@pytest.fixture(scope="module")
def cut():
    """Five planted groups of nodes and their cut."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((5, 24))
    which = generator.integers(0, 5, 700)
    rows = centres[which] + 0.3 * generator.standard_normal((700, 24))
    return vt.ncut(rows.astype(np.float32), 6), which


@pytest.mark.parametrize("dims", [2, 3])
def test_nodes_of_a_group_lie_together(cut, dims):
    spectral, which = cut
    placed = vt.spectral_tsne(spectral, dims, n_sample=300, seed=1)
    assert placed.shape == (700, dims) and placed.dtype == np.float32
    centres = np.stack([placed[which == g].mean(0) for g in range(5)])
    found = np.linalg.norm(placed[:, None] - centres[None], axis=2).argmin(1)
    assert (found == which).mean() > 0.98
    assert placed.tobytes() == vt.spectral_tsne(spectral, dims, n_sample=300, seed=1).tobytes()


def test_a_node_outside_the_sample_lies_where_its_nearest_sampled_one_does(cut):
    spectral, _ = cut
    placed = vt.spectral_tsne(spectral, 2, n_sample=100, seed=2)
    assert len(np.unique(placed, axis=0)) <= 100
    rows = spectral.eigenvectors / np.linalg.norm(spectral.eigenvectors, axis=1, keepdims=True)
    chosen = np.sort(np.random.default_rng(2).choice(700, 100, replace=False))
    for n in (3, 77, 640):
        if n not in chosen:
            near = min(chosen, key=lambda c: np.linalg.norm(rows[n] - rows[c]))
            np.testing.assert_array_equal(placed[n], placed[near])


def test_colours_fill_the_cube_and_do_not_depend_on_the_order_of_nodes():
    placed = np.random.default_rng(0).normal(3, [1, 10, 100], (500, 3))
    shades = vt.colors(placed)
    assert shades.dtype == np.uint8 and (shades.min(0) == 0).all() and (shades.max(0) == 255).all()
    turned = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(vt.colors(placed[turned]), shades[turned])
    assert vt.colors(np.ones((4, 3))).shape == (4, 3)  # all in one place
    for broken in (lambda: vt.colors(np.full((5, 3), np.nan)), lambda: vt.concepts(np.full((5, 3), np.nan), 2)):
        with pytest.raises(vt.SettingsError, match="coordinates are finite numbers"):
            broken()
    with pytest.raises(vt.SettingsError, match="three dimensions"):
        vt.colors(placed[:, :2])


def test_groups_are_nested_and_the_planted_ones_are_among_them(cut):
    spectral, which = cut
    groups = vt.group_nodes(spectral, n_sample=400)
    five = groups(5)
    table = np.zeros((5, 5))
    np.add.at(table, (five, which), 1)
    assert table.max(1).sum() / 700 > 0.98
    for k in (2, 3, 8):
        fewer, more = groups(k), groups(k + 1)
        assert len(np.unique(fewer)) == k
        assert all(len(np.unique(fewer[more == g])) == 1 for g in range(k + 1))
    with pytest.raises(vt.SettingsError, match="no such number of groups"):
        groups(401)
    for wrong in (0, 1.5, "3"):
        with pytest.raises(vt.SettingsError, match="k is a whole number"):
            groups(wrong)


def test_concepts_are_spheres_around_centres_that_lie_far_apart():
    corners = np.array([[0, 0], [10, 0], [0, 10], [10, 10]], np.float32)
    which = np.random.default_rng(0).integers(0, 4, 200)
    placed = corners[which] + np.random.default_rng(1).normal(0, 0.2, (200, 2))
    activations = np.eye(4)[which] * [1, 2, 3, 4]
    found = vt.concepts(placed, 4, activations=activations)
    assert sorted(which[found.centres]) == [0, 1, 2, 3]
    for centre, members, mean, std in zip(found.centres, found.members, found.mean, found.std, strict=True):
        np.testing.assert_array_equal(members, which == which[centre])
        assert mean[which[centre]] == which[centre] + 1 and mean.sum() == which[centre] + 1 and not std.any()
    assert vt.concepts(placed, 1).members.all()
    with pytest.raises(vt.SettingsError, match="two centres lie in one place"):
        vt.concepts(np.zeros((5, 2)), 3)
    with pytest.raises(vt.SettingsError, match="other nodes"):
        vt.concepts(placed, 2, activations=activations[:7])
    with pytest.raises(vt.SettingsError, match="count is a whole number\n  given:    '3'"):
        vt.concepts(placed, "3")
    with pytest.raises(vt.SettingsError, match="radius is a number\n  given:    '1'"):
        vt.concepts(placed, 3, radius="1")


def test_farthest_points_are_the_farthest():
    placed = np.random.default_rng(0).random((60, 3))
    chosen = farthest_points(placed, 6, seed=4)
    for n in range(1, 6):
        away = np.linalg.norm(placed[:, None] - placed[chosen[:n]][None], axis=2).min(1)
        assert away[chosen[n]] == away.max()


def test_transitions_are_shares_of_patches():
    before = np.array([[1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0], [0] * 6], bool)
    after = np.array([[1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 1, 1]], bool)
    np.testing.assert_array_equal(vt.transitions(before, after), [[0.25, 0.5], [0, 1], [np.nan, np.nan]])
    kept = np.array([1, 1, 0, 0, 0, 0], bool)
    np.testing.assert_array_equal(vt.transitions(before, after, kept)[0], [0.5, 0.5])
    for wrong in ({"layer_b": after[:, :5]}, {"mask": kept[:3]}):
        with pytest.raises(vt.SettingsError):
            vt.transitions(**({"layer_a": before, "layer_b": after} | wrong))


def test_trajectories_follow_a_patch_through_the_layers(tmp_path):
    images = vt.scenes(4, size=64, seed=1)
    store = vt.record(vt.load("bundled:scenes-text"), images, ["blocks.*.attn.out"], out=tmp_path)
    spectral = vt.ncut({"text": store}, 5, progress=False)
    placed = np.arange(len(spectral))[:, None]
    paths = vt.trajectories(spectral, placed, "text")
    assert paths.shape == (8, 4, 64, 1)
    assert (np.diff(paths[:, 2, 7, 0]) == 4 * 64).all()
    with pytest.raises(vt.SettingsError, match="no such model"):
        vt.trajectories(spectral, placed, "mae")


def test_bad_input_is_refused(cut):
    spectral, _ = cut
    with pytest.raises(vt.SettingsError, match="two or three dimensions"):
        vt.spectral_tsne(spectral, 4)
    with pytest.raises(vt.SettingsError, match="n_sample is a whole number\n  given:    '40'"):
        vt.spectral_tsne(spectral, 2, n_sample="40")
    with pytest.raises(vt.SettingsError, match="perplexity is a number\n  given:    0"):
        vt.spectral_tsne(spectral, 2, perplexity=0)
    with pytest.raises(vt.SettingsError, match="too few nodes"):
        vt.spectral_tsne(spectral.eigenvectors[:3], 2)
    with pytest.raises(vt.SettingsError, match="finite numbers"):
        vt.group_nodes(np.full((9, 2), np.nan))
    assert nearest(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32)).tolist() == [0, 1, 2]
