"""What holds for every seed, number and size of a scene."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.scenery import Scene, render_scene, scenes
from vitreous.scenery.scene import ATTRIBUTES

seeds = st.integers(0, 2**64 - 1)
indices = st.integers(0, 2**63 - 1)
ranges = st.tuples(st.integers(1, 8), st.integers(1, 8)).map(lambda pair: (min(pair), max(pair)))


def _planned(scene: Scene) -> list[tuple]:
    return [(o.shape, o.colour, o.texture, o.size, o.rotation) for o in scene.objects]


@settings(max_examples=25, deadline=None)
@given(seeds, indices, st.integers(32, 80), ranges)
def test_a_scene_is_a_function_of_its_settings(seed: int, index: int, size: int, objects: tuple[int, int]) -> None:
    one, two = (render_scene(seed, index, size, objects) for _ in range(2))
    np.testing.assert_array_equal(one.image, two.image)
    np.testing.assert_array_equal(one.instances, two.instances)
    assert one.about() == two.about()


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(1, 6), st.integers(1, 6))
def test_a_longer_set_begins_with_the_shorter(seed: int, short: int, more: int) -> None:
    few, many = scenes(short, 32, seed), scenes(short + more, 32, seed)
    assert few.fingerprint == many[:short].fingerprint


@settings(max_examples=25, deadline=None)
@given(seeds, indices, st.integers(32, 80), ranges)
def test_masks_picture_and_attributes_have_the_same_extent(
    seed: int, index: int, size: int, objects: tuple[int, int]
) -> None:
    scene = render_scene(seed, index, size, objects)
    assert scene.image.shape == (size, size, 3) and scene.image.dtype == np.uint8
    assert scene.mask.shape == scene.instances.shape == (size, size)
    assert objects[0] <= len(scene.objects) <= objects[1]
    counts = np.bincount(scene.instances.ravel(), minlength=len(scene.objects) + 1)
    assert [thing.pixels for thing in scene.objects] == counts[1:].tolist()
    for attribute, names in ATTRIBUTES.items():
        assert scene.map(attribute).max() <= len(names)
        np.testing.assert_array_equal(scene.map(attribute) == 0, scene.instances == 0)


@settings(max_examples=15, deadline=None)
@given(seeds, indices, st.integers(32, 64), st.integers(65, 128))
def test_what_is_in_a_scene_does_not_depend_on_its_size(seed: int, index: int, small: int, large: int) -> None:
    one, two = render_scene(seed, index, small), render_scene(seed, index, large)
    assert _planned(one) == _planned(two)
    assert (one.background_colour, one.background_texture) == (two.background_colour, two.background_texture)
    for a, b in zip(one.objects, two.objects, strict=True):
        np.testing.assert_allclose(np.array(a.centre) / small, np.array(b.centre) / large, atol=1e-3)
        assert abs(a.visible - b.visible) < 0.15


@settings(max_examples=25, deadline=None)
@given(seeds, indices, indices)
def test_other_numbers_are_other_scenes(seed: int, first: int, second: int) -> None:
    same = np.array_equal(render_scene(seed, first, 32).image, render_scene(seed, second, 32).image)
    assert same == (first == second)
