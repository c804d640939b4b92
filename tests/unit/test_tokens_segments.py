"""Segments against eq. 6 and 7 written out, planted attention whose maps are known, and scenes with known truth."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import nn

import vitreous as vt
from vitreous.errors import SettingsError
from vitreous.lenses import tokens_segments
from vitreous.models.timm_vit import TIMM_VIT

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from tokens import slow_segments


@pytest.fixture(scope="module")
def scenery():
    images = vt.scenes(8, size=64, seed=5)
    return images, vt.token_maps(vt.load("bundled:scenes-text", device="cpu"), images, progress=False)


def test_settings_stand_in_the_order_of_the_paper(scenery):
    """k, threshold, linkage, scale: by place as well as by name."""
    _, maps = scenery
    by_place, by_name = (
        vt.segment(maps, None, 0.3, "average", "lift"),
        vt.segment(maps, threshold=0.3, linkage="average", scale="lift"),
    )
    assert by_place.settings == by_name.settings
    np.testing.assert_array_equal(by_place.clusters, by_name.clusters)


def same_partition(a, b):
    return len(set(zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))) == len(np.unique(a)) == len(np.unique(b))


@pytest.mark.parametrize("linkage", ["ward", "average", "complete"])
@pytest.mark.parametrize("k", [2, 6])
def test_segments_agree_with_the_equations(scenery, linkage, k):
    _, maps = scenery
    found = vt.segment(maps, k, linkage=linkage)
    for i in range(2):
        clusters, labels = slow_segments(maps.maps[i, 1:], k, linkage)
        assert same_partition(found.clusters[i], clusters)
        names = {int(mine): int(theirs) for mine, theirs in zip(found.clusters[i], clusters, strict=True)}
        np.testing.assert_array_equal(np.vectorize(names.get)(found.grid[i]), labels)


def test_the_tree_is_cut_again_without_new_maps(scenery, monkeypatch):
    _, maps = scenery
    found = vt.segment(maps)
    assert found.settings["threshold"] == 0.4 and found.counts.min() >= 2
    monkeypatch.setattr("vitreous.lenses.tokens_segments._tree", None)  # nobody may need it again
    finer = found.at(threshold=0.1)
    assert (finer.counts >= found.counts).all() and finer.counts.sum() > found.counts.sum()
    five = found.at(k=5)
    assert (five.counts == 5).all() and five.settings["k"] == 5 and five.settings["threshold"] is None
    for coarse, fine in zip(found.clusters, finer.clusters, strict=True):  # cuts of one tree are nested
        assert len(set(zip(coarse.tolist(), fine.tolist(), strict=True))) == fine.max() + 1
    assert (found.at(k=1).clusters == 0).all() and (found.at(threshold=1.0).counts == 1).all()
    assert (found.at(k=64).counts == 64).all()


def test_the_height_of_a_tree_whose_merges_do_not_rise_is_its_largest():
    """Three points as far from each other: the middle of two is nearer to the third than they were."""
    tree = tokens_segments._tree(np.eye(3), "centroid")
    assert tree[-1, 2] < tree[0, 2]
    assert tokens_segments._cut((tree,), None, 1.0, 3).tolist() == [[0, 0, 0]]


def test_fewer_pictures(scenery):
    found = vt.segment(scenery[1], 4)
    some = found[2:4]
    assert len(some) == 2 and some.maps.ids == scenery[1].ids[2:4]
    np.testing.assert_array_equal(some.grid, found.grid[2:4])
    np.testing.assert_array_equal(found[-1].labels()[0], found.labels()[-1])


def test_clusters_are_numbered_in_the_order_of_first_tokens(scenery):
    for clusters in vt.segment(scenery[1], 7).clusters:
        assert [int(c) for c in dict.fromkeys(clusters.tolist())] == list(range(7))


def test_labels_lie_on_original_pixels(scenery):
    images, _ = scenery
    subject = vt.load("bundled:scenes-text", device="cpu")
    wide = [np.asarray(images[0].image.resize((120, 90)))]
    found = vt.segment(vt.token_maps(subject, wide, progress=False), 4)
    (labels,) = found.labels()
    assert labels.shape == (90, 120) and labels.dtype == np.int32 and set(np.unique(labels)) <= {0, 1, 2, 3}
    (nearest,) = found.labels("nearest")
    rows, columns = ((np.arange(8) + 0.5) * side / 8 for side in (90, 120))
    np.testing.assert_array_equal(nearest[rows.astype(int)][:, columns.astype(int)], found.grid[0])


def test_pixels_that_the_crop_cut_away_have_no_segment(tiny):
    subject = vt.wrap(tiny.module, preprocess=vt.Preprocess(size=(32, 32), resize=32))
    picture = np.random.default_rng(0).integers(0, 256, (32, 64, 3), np.uint8)
    (labels,) = vt.segment(vt.token_maps(subject, [picture], progress=False), 3).labels()
    assert (labels[:, :16] == -1).all() and (labels[:, 48:] == -1).all() and (labels[:, 17:47] >= 0).all()


def test_the_mean_gives_small_clusters_the_same_voice(scenery):
    _, maps = scenery
    sums, means = (vt.segment(maps, 6, weigh=weigh) for weigh in ("sum", "mean"))
    np.testing.assert_array_equal(sums.clusters, means.clusters)
    sizes = np.bincount(sums.clusters[0])
    np.testing.assert_allclose(means.summed[0] * sizes[:, None, None], sums.summed[0], rtol=1e-5, atol=1e-6)
    smallest = sizes.argmin()
    assert (means.grid[0] == smallest).sum() >= (sums.grid[0] == smallest).sum()


def mean_iou(labels, truth):
    a, b = np.unique(labels), np.unique(truth)
    iou = [[((labels == i) & (truth == j)).sum() / ((labels == i) | (truth == j)).sum() for j in b] for i in a]
    rows, columns = linear_sum_assignment(-np.array(iou))
    return np.array(iou)[rows, columns].sum() / len(b)


def test_lift_takes_away_what_counts_for_all_tokens(scenery):
    """A left part of few tokens, one of whose patches counts most for every token, if less for those of the right."""
    _, maps = scenery
    rows, columns = maps.grid
    first = len(maps.prefix)
    left = (np.arange(rows * columns) % columns) < 3
    whole = np.zeros_like(maps.scores[:1])
    whole[0, first:, first:] = np.where(left[:, None] == left, 1.0, 0.2)
    whole[0, first:, first] = np.where(left, 6.0, 2.0)
    planted = replace(maps[0], scores=whole, settings={**maps.settings, "own": "keep"})
    plain, lifted = (vt.segment(planted, k=2, scale=scale).grid[0] for scale in ("minmax", "lift"))
    truth = left.reshape(rows, columns)
    assert same_partition(lifted, truth)
    assert plain[0, 0] == plain[-1, -1] != plain[1, 0]  # those of the right are more, and swallow it
    flat = replace(planted, scores=np.zeros_like(whole))
    assert np.isfinite(vt.segment(flat, k=1, scale="lift").summed[0]).all()


def test_segments_of_scenes_are_objects(scenery):
    """A model that was told about shapes by captions alone; the same clusters on shuffled tokens are chance."""
    images, maps = scenery
    found = vt.segment(maps, 5)
    rng = np.random.default_rng(0)
    square = np.ones((8, 8), int)
    true = [picture.instances for picture in images]
    score = np.mean([mean_iou(labels, t) for labels, t in zip(found.labels(), true, strict=True)])
    chance = [np.kron(rng.permutation(c).reshape(8, 8), square) for c in found.clusters]
    assert score > 2 * np.mean([mean_iou(labels, t) for labels, t in zip(chance, true, strict=True)])
    assert score > 0.28


def test_a_token_stands_for_the_object_it_lies_on(scenery):
    images, maps = scenery
    inside, outside = [], []
    for k, picture in enumerate(images):
        cells = picture.instances.reshape(8, 8, 8, 8).transpose(0, 2, 1, 3).reshape(64, 64)
        owner = np.array([np.bincount(cell).argmax() for cell in cells])
        for patch in np.flatnonzero(owner > 0):
            row = np.delete(maps.maps[k, patch + 1].ravel(), patch)
            same = np.delete(owner == owner[patch], patch)
            if same.any():
                inside.append(row[same].mean())
                outside.append(row[~same].mean())
    assert len(inside) > 50 and np.mean(inside) > 2 * np.mean(outside)


# -- eq. 12


def test_object_masks():
    maps = np.array([[[0.0, 1.0], [2.0, 10.0]], [[5.0, 5.0], [5.0, np.nan]]])
    np.testing.assert_array_equal(vt.object_mask(maps)[0], [[False, False], [True, True]])
    np.testing.assert_array_equal(vt.object_mask(maps, 0.1)[0], [[False, True], [True, True]])
    np.testing.assert_array_equal(vt.object_mask(maps, 2, scale=False)[0], [[False, False], [True, True]])
    assert not vt.object_mask(maps)[1].any()  # flat, and what is not seen is no object
    with pytest.raises(SettingsError, match=r"maps are numbers"):
        vt.object_mask(np.ones(3))


# -- planted: attention whose maps are known


CHANNELS, CONTENT = 12, 8


def planted(groups: tuple[np.ndarray, np.ndarray], gains: tuple[float, float]) -> vt.Subject:
    """Two blocks without norms. Tokens attend evenly to those of their group, which the position codes tell, in block b
    by groups[b], and add gains[b] times their mean content, which is the patch's brightness.
    """
    from timm.models.vision_transformer import VisionTransformer

    module = VisionTransformer(
        img_size=16, patch_size=4, embed_dim=CHANNELS, depth=2, num_heads=1, mlp_ratio=1, class_token=False,
        global_pool="avg", num_classes=0, norm_layer=nn.Identity,
    )  # fmt: skip
    with torch.no_grad():
        for value in module.parameters():
            value.zero_()
        module.patch_embed.proj.weight[CONTENT] = 1 / 48
        for block, group, gain, first in zip(module.blocks, groups, gains, (0, 4), strict=True):
            module.pos_embed[0, torch.arange(16), first + torch.from_numpy(group)] = 1
            for part in (0, CHANNELS):  # queries and keys read the code of this block's groups
                block.attn.qkv.weight[part + torch.arange(4), first + torch.arange(4)] = 15.0
            block.attn.qkv.weight[2 * CHANNELS, CONTENT] = gain
            block.attn.proj.weight[CONTENT, 0] = 1
    return vt.wrap(module.eval(), family=replace(TIMM_VIT, width="attn.proj.bias"))


def test_planted_attention_gives_the_known_maps():
    halves = np.repeat([0, 1], 8)
    columns = np.tile([0, 1, 2, 3], 4)
    gains = (0.5, 2.0)
    subject = planted((columns, halves), gains)
    bright = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)) + 0.5
    found = vt.token_maps(subject, bright, own="keep", progress=False)
    assert not found.notes
    content = bright[0].reshape(3, 4, 4, 4, 4).mean((0, 2, 4)).numpy().ravel()
    first, second = ((group[:, None] == group) / (group[:, None] == group).sum(1) for group in (columns, halves))
    middle = content + gains[0] * first @ content
    for i in range(16):
        # f is the content of token i at the end: middle + gain A middle, where middle is content + gain A content
        towards = np.eye(16)[i] + gains[1] * second[i]
        C2 = np.eye(16)
        C2[i] += gains[1] * middle * second[i]
        C1 = np.eye(16) + gains[0] * towards[:, None] * content * first
        np.testing.assert_allclose(found.scores[0, i], (C2 @ C1)[i], rtol=2e-5, atol=1e-6)
    segments = vt.segment(vt.token_maps(subject, bright, block=0, progress=False), 4)
    np.testing.assert_array_equal(segments.grid[0], columns.reshape(4, 4))


def test_negative_influence_does_not_count():
    group = np.repeat([0, 1, 2, 3], 4)
    subject = planted((group, group), (-1.0, 0.0))
    found = vt.token_maps(subject, torch.ones(1, 3, 16, 16), own="keep", progress=False)
    np.testing.assert_allclose(found.scores[0], np.eye(16), atol=1e-6)


# -- what is refused


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"k": 65}, "more clusters than tokens, or none\n  given:    65\n  accepted: 1 to 64"),
        ({"k": 2.5}, "k is a whole number\n  given:    2.5\n  accepted: 1 to 64"),
        ({"k": 0}, "more clusters than tokens, or none"),
        ({"threshold": 1.5}, "threshold is a share of the tree's height\n  given:    1.5\n  accepted: 0 to 1"),
        ({"threshold": "x"}, "threshold is a share of the tree's height\n  given:    'x'"),
        ({"k": 3, "threshold": "ward"}, "threshold is a share of the tree's height\n  given:    'ward'"),
        ({"linkage": "wards"}, "unknown linkage\n  given:    'wards'\n.*\n  nearest:  ward"),
        ({"scale": "rank"}, "unknown scale"),
        ({"weigh": "max"}, "unknown weigh"),
    ],
)
def test_settings_are_refused_by_name(scenery, settings, says):
    with pytest.raises(SettingsError, match=says):
        vt.segment(scenery[1], **settings)


def test_other_refusals(scenery):
    _, maps = scenery
    with pytest.raises(SettingsError, match="at least two patch tokens"):
        vt.segment(maps.of([0, 5]))
    with pytest.raises(SettingsError, match="either k or a threshold"):
        vt.segment(maps, 3).at()
    with pytest.raises(SettingsError, match="unknown mode"):
        vt.segment(maps, 3).labels("cubist")
    with pytest.raises(SettingsError, match=r"token maps are segmented\n.*ndarray.*\n  remedy:   vt.token_maps"):
        vt.segment(maps.maps)
    for tau in (2, -0.1, float("nan"), "x"):
        with pytest.raises(SettingsError, match="tau is a share of a map's range"):
            vt.object_mask(maps.maps, tau)
    assert vt.object_mask(3 * np.ones((2, 2)), 2, scale=False).all()
