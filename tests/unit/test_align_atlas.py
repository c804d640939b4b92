"""An atlas: where nodes are, what is like them, how they move; saved, mapped and refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import vitreous as vt
from vitreous.lenses.align_atlas import layer_transitions, model_mixing, slot_share

PICTURES, SIDE = 8, 4


@pytest.fixture(scope="module")
def found():
    """Two models, three layers each, and four things, one in each corner of every picture. In the last layer of both
    the upper things become one."""
    generator = np.random.default_rng(0)
    things = generator.standard_normal((4, 12))
    which = np.kron(np.array([[0, 1], [2, 3]]), np.ones((SIDE // 2, SIDE // 2), int)).ravel()
    models: dict[str, dict[str, np.ndarray]] = {"one": {}, "two": {}}
    for layers in models.values():
        for n in range(3):
            now = np.where(which < 2, 0, which) if n == 2 else which
            rows = things[now][None] + 0.1 * generator.standard_normal((PICTURES, SIDE**2, 12))
            layers[f"blocks.{n}.attn.out"] = rows.astype(np.float32)
    spectral = vt.ncut(models, 4, progress=False)
    return vt.atlas(spectral, ids=[f"p{k}" for k in range(PICTURES)], n_sample=250), which


def test_nodes_have_places_and_places_have_nodes(found):
    atlas, _ = found
    assert len(atlas) == 2 * 3 * PICTURES * SIDE**2 and atlas.models == ("one", "two")
    for node in (0, 17, 200, len(atlas) - 1):
        place = atlas.place(node)
        assert atlas.node(place) == node
    assert atlas.place(PICTURES * SIDE**2 + 17) == ("one", "blocks.1.attn.out", 1, 1)
    every = atlas.places()
    assert every.shape == (len(atlas), 3) and atlas.slots[every[-1, 0]] == ("two", "blocks.2.attn.out")
    assert every[:, 1].max() == PICTURES - 1 and every[:, 2].max() == SIDE**2 - 1


def test_what_is_like_a_patch_is_the_same_thing_in_other_pictures_and_both_models(found):
    atlas, which = found
    near = atlas.nearest(atlas.node(("one", "blocks.0.attn.out", 2, 0)), 10)
    assert len(near) == 10 and len({(p.model, p.picture) for p, _ in near}) == 10
    held = {p.layer: np.where(which < 2, 0, which) if "2" in p.layer else which for p, _ in near}
    assert all(held[p.layer][p.patch] == 0 and p.picture != 2 for p, _ in near)
    assert {p.model for p, _ in near} == {"one", "two"}
    values = [value for _, value in near]
    assert values == sorted(values, reverse=True) and values[0] <= 1.001
    assert all(p.model == "two" for p, _ in atlas.nearest(5, 4, model="two"))
    assert len(atlas.nearest(5, 1000)) == 2 * (PICTURES - 1)  # as many as there are
    heat = atlas.likeness(0, "two", "blocks.1.attn.out")
    assert heat.shape == (PICTURES, SIDE**2) and heat[:, which == 0].min() > heat[:, which == 3].max()


def test_a_patch_is_followed_through_the_layers(found):
    atlas, _ = found
    path = atlas.path("two", 3, 7)
    assert path.shape == (3, 2)
    np.testing.assert_array_equal(path[1], atlas.plane[atlas.node(("two", "blocks.1.attn.out", 3, 7))])
    np.testing.assert_array_equal(vt.trajectories(atlas.spectral, atlas.plane, "two")[:, 3, 7], path)
    assert atlas.path("one", 0, 0, dims=3).shape == (3, 3)
    with pytest.raises(vt.SettingsError, match="no such model"):
        atlas.path("three", 0, 0)


def test_models_that_see_the_same_are_mixed(found):
    atlas, _ = found
    shares = model_mixing(atlas)
    assert set(shares) == {"one", "two"} and all(0.2 < share < 0.8 for share in shares.values())


def test_transitions_between_layers_count_patches_of_a_mask(found):
    atlas, which = found
    upper = np.repeat((which < 2)[None], PICTURES, 0)
    layers = ("blocks.1.attn.out", "blocks.2.attn.out")
    moved = layer_transitions(atlas, "one", layers, count=3, radius=1e9, masks={"upper": upper, "lower": ~upper})
    for matrix in moved.matrices.values():
        np.testing.assert_array_equal(matrix, np.ones((3, 3)))  # circles that hold everything
    small = layer_transitions(atlas, "one", layers, count=4)
    assert list(small.matrices) == ["all patches"] and small.radius > 0
    assert np.nanmax(small.matrices["all patches"]) <= 1
    with pytest.raises(vt.SettingsError, match="is \\(picture, patch\\)"):
        layer_transitions(atlas, "one", layers, masks={"upper": upper[:2]})


def test_a_saved_atlas_is_mapped_not_read_and_is_the_same(found, tmp_path):
    atlas, _ = found
    atlas.save(tmp_path)
    again = vt.Atlas.load(tmp_path)
    assert isinstance(again.plane, np.memmap) and isinstance(again.spectral.eigenvectors, np.memmap)
    for name in ("plane", "space", "shades"):
        np.testing.assert_array_equal(again.__dict__[name], atlas.__dict__[name])
    assert again.ids == atlas.ids and again.slots == atlas.slots
    assert again.nearest(3, 5) == atlas.nearest(3, 5)
    np.testing.assert_array_equal(again.groups(5), atlas.groups(5))
    assert again.spectral.grid("one", "blocks.0.attn.out") == (SIDE, SIDE)
    np.save(tmp_path / "plane.npy", atlas.plane[:5])
    with pytest.raises(vt.SettingsError, match="do not belong together"):
        vt.Atlas.load(tmp_path)
    (tmp_path / "shades.npy").unlink()
    with pytest.raises(vt.SettingsError, match="cannot be read"):
        vt.Atlas.load(tmp_path)


def test_bad_input_is_refused(found):
    atlas, _ = found
    for wrong in (("one", "blocks.0.attn.out", PICTURES, 0), ("one", "blocks.0.attn.out", 0, SIDE**2)):
        with pytest.raises(vt.SettingsError, match="no such patch"):
            atlas.node(wrong)
    with pytest.raises(vt.SettingsError, match="no such layer"):
        atlas.node(("one", "blocks.9.attn.out", 0, 0))
    with pytest.raises(vt.SettingsError, match="no such node"):
        atlas.place(len(atlas))
    with pytest.raises(vt.SettingsError, match="one id for each picture"):
        vt.atlas(atlas.spectral, ids=["a"])


def test_how_much_layers_matter_is_a_share(found):
    atlas, _ = found
    share = slot_share(atlas)
    assert 0 <= share < 0.5  # two models and two layers see the same
    flat = np.asarray(atlas.places()[:, 0], np.float32)
    apart = replace(atlas, space=np.stack([flat] * 3, 1))
    assert slot_share(apart) == pytest.approx(1)
    assert slot_share(replace(atlas, space=np.ones((len(atlas), 3), np.float32))) == 0
