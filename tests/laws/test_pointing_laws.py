"""What holds of Point Game and Energy PG for every map and mask."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vitreous.evidence.pointing import energy_point_game, point_game

shapes = st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 5))
maps = st.floats(0, 1e3, width=32)


@st.composite
def pairs(draw):
    shape = draw(shapes)
    return draw(arrays(np.float32, shape, elements=maps)), draw(arrays(bool, shape))


@given(pairs())
def test_both_are_shares(pair):
    cams, masks = pair
    assert set(point_game(cams, masks)) <= {0.0, 1.0}
    energy = energy_point_game(cams, masks)
    assert (energy >= 0).all() and (energy <= 1).all()


@given(pairs())
def test_object_and_background_share_everything(pair):
    cams, masks = pair
    np.testing.assert_array_equal(point_game(cams, masks) + point_game(cams, ~masks), 1)
    total = cams.astype(np.float64).sum((1, 2))
    both = energy_point_game(cams, masks) + energy_point_game(cams, ~masks)
    np.testing.assert_allclose(both, total / (total + 1e-8), rtol=1e-9)


@given(pairs(), st.integers(0, 4))
def test_a_larger_mask_never_scores_less(pair, row):
    cams, masks = pair
    larger = masks.copy()
    larger[:, row % masks.shape[1]] = True
    assert (point_game(cams, larger) >= point_game(cams, masks)).all()
    assert (energy_point_game(cams, larger) >= energy_point_game(cams, masks)).all()


@given(pairs())
def test_the_point_is_where_a_plain_search_finds_it(pair):
    cams, masks = pair
    for cam, mask, hit in zip(cams, masks, point_game(cams, masks), strict=True):
        best, place = -1.0, (0, 0)
        for y in range(cam.shape[0]):
            for x in range(cam.shape[1]):
                if cam[y, x] > best:
                    best, place = cam[y, x], (y, x)
        assert hit == mask[place]
