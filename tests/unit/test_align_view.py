"""Pictures of a cut."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous as vt
from vitreous.render import to_png
from vitreous.views.align import color_mosaic, likeness


@pytest.fixture(scope="module")
def cut():
    """Two models that see the left half of every picture as one thing and the right half as another."""
    images = vt.scenes(4, size=64, seed=0)
    halves = np.tile(np.repeat([[1.0, 0.0]], 4, 0).reshape(1, 8).repeat(8, 0).reshape(-1), (4, 1))
    things = np.stack([halves, 1 - halves], 2).astype(np.float32)
    rows = {m: {"blocks.0.attn.out": things, "blocks.1.attn.out": things} for m in ("one", "two")}
    rows["two"].pop("blocks.1.attn.out")
    return vt.ncut(rows, 2), images


def test_a_row_a_picture_and_model_and_a_column_a_layer(cut):
    spectral, images = cut
    shades = np.arange(len(spectral) * 3, dtype=np.uint8).reshape(-1, 3)
    panel = color_mosaic(spectral, shades, images, pictures=(0, 3))
    assert panel.columns == 3 and len(panel.tiles) == 2 * 2 * 3
    assert [tile.caption for tile in panel.tiles[:6]] == ["one", "0", "1", "two", "0", ""]
    part = spectral.of("one", "blocks.1.attn.out", shades)[3]
    np.testing.assert_array_equal(panel.tiles[8].image[::8, ::8].reshape(-1, 3), part)
    assert to_png(panel)[:4] == b"\x89PNG"
    with pytest.raises(vt.SettingsError, match="no such layers"):
        color_mosaic(spectral, shades, images, layers=["blocks.7.attn.out"])


def test_patches_of_the_same_thing_are_alike(cut):
    spectral, images = cut
    panel = likeness(spectral, images, ("two", "blocks.0.attn.out", 1, 0), pictures=(0, 2))
    assert [tile.caption for tile in panel.tiles] == ["picture 1", "picture 0", "picture 2"]
    assert len(panel.tiles[0].boxes) == 1 and not panel.tiles[1].boxes
    heat = panel.tiles[1].heat[::8, ::8].reshape(-1)
    same = np.asarray(spectral.of("two", "blocks.0.attn.out"))[0]
    first = np.linalg.norm(same - same[0], axis=1) < 1e-5
    assert heat[first].min() > heat[~first].max() + 0.5
    with pytest.raises(vt.SettingsError, match="no such patch"):
        likeness(spectral, images, ("two", "blocks.0.attn.out", 1, 64))
