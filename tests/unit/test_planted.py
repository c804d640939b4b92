"""What is true of each patch, read from exact instance maps."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.axes import Grid
from vitreous.errors import SettingsError
from vitreous.evidence.planted import KINDS, Concepts, patch_owners, same_names, scene_concepts

GROUND = {"colour": "red", "texture": "woven"}
LEAF = {"shape": "leaf", "colour": "blue", "texture": "striped"}
STAR = {"shape": "star", "colour": "blue", "texture": "plain"}


def test_the_owner_of_a_patch_has_most_of_it():
    instances = np.array([[0, 0, 1, 1], [0, 1, 1, 1]])
    owner, share = patch_owners(instances, Grid(1, 2))
    assert owner.tolist() == [0, 1]
    assert share.tolist() == [0.75, 1.0]


def test_of_equal_owners_the_nearer_counts():
    assert patch_owners(np.array([[2, 1], [1, 2]]), Grid(1, 1))[0].tolist() == [2]


def test_a_picture_that_the_grid_does_not_divide_is_cut_as_evenly_as_it_goes():
    owner, share = patch_owners(np.zeros((7, 5), int), Grid(3, 2))
    assert owner.tolist() == [0] * 6
    assert share.tolist() == [1.0] * 6


def test_concepts_of_a_scene():
    instances = np.repeat(np.array([[0, 0, 1, 2], [0, 0, 1, 1]]), 2, axis=0)
    found = scene_concepts([instances], [{"background": GROUND, "objects": [LEAF, STAR]}], Grid(1, 2))
    true = [{n for n, yes in zip(found.names, patch, strict=True) if yes} for patch in found.present[0]]
    assert true[0] == {"backgrounds of any kind"}
    edge = "edges between two things"
    assert true[1] == {"leaves", "blue objects", "striped objects", "objects of any kind", edge}
    assert "stars" not in found.names  # it owns no patch
    assert [KINDS.index(kind) for kind in found.kinds] == sorted(KINDS.index(kind) for kind in found.kinds)


def test_truths_on_several_grids_get_the_same_names():
    instances = np.repeat(np.array([[0, 0, 1, 2], [0, 0, 1, 1]]), 2, axis=0)
    scene = {"background": GROUND, "objects": [LEAF, STAR]}
    fine, coarse = (scene_concepts([instances], [scene], grid) for grid in (Grid(4, 4), Grid(1, 2)))
    assert "stars" in fine.names and "stars" not in coarse.names
    assert "edges between two things" in coarse.names and "edges between two things" not in fine.names
    a, b = same_names([fine, coarse])
    assert a.names == b.names and a.kinds == b.kinds and len(a.names) == len(a.kinds)
    assert set(a.names) == {*fine.names, *coarse.names} and len(set(a.names)) == len(a.names)
    for full, own in ((a, fine), (b, coarse)):
        for at, name in enumerate(full.names):
            seen = own.present[..., own.names.index(name)] if name in own.names else np.zeros((), bool)
            assert (full.present[..., at] == seen).all()


def test_real_scenes_agree_with_their_own_maps():
    images = vt.scenes(6, size=64, seed=3)
    pictures = list(images)
    found = scene_concepts([p.instances for p in pictures], [p.about for p in pictures], Grid(64, 64))
    blue = found.present[..., found.names.index("blue objects")]
    for picture, here in zip(pictures, blue, strict=True):
        things = picture.about["objects"]
        wanted = np.isin(picture.instances, [1 + i for i, o in enumerate(things) if o["colour"] == "blue"])
        np.testing.assert_array_equal(here.reshape(64, 64), wanted)


def test_what_is_refused():
    with pytest.raises(SettingsError, match="one map and one description"):
        scene_concepts([np.zeros((4, 4), int)], [], Grid(1, 1))
    with pytest.raises(SettingsError, match="one name and one kind each"):
        Concepts(("a",), ("shape",), np.zeros((2, 3, 2), bool))
