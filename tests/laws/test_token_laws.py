"""What must hold for token maps and segments of any model and any maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.lenses.tokens_finding import TokenMaps


def made_up(seed: int, rows: int, columns: int, prefix: int) -> TokenMaps:
    """Token maps of no model: random scores, positive and with ties."""
    rng = np.random.default_rng(seed)
    count = prefix + rows * columns
    scores = rng.integers(0, 6, (2, count, count)).astype(np.float32) + rng.random((2, count, count), np.float32)
    names = tuple(f"register.{k}" for k in range(prefix))
    about = {"own": "keep", "target": "sum", "order": "rollout", "subject": "none", "dtype": "float32"}
    grid, size = vt.Grid(rows, columns), vt.Size(4 * rows, 4 * columns)
    return TokenMaps(scores, tuple(range(count)), 0, names, grid, size, None, ("a", "b"), about)


SHAPES = {
    "seed": st.integers(0, 999),
    "rows": st.integers(1, 5),
    "columns": st.integers(2, 5),
    "prefix": st.integers(0, 2),
}


@settings(max_examples=25, deadline=None)
@given(**SHAPES, k=st.integers(1, 4), linkage=st.sampled_from(["ward", "average", "single"]))
def test_cuts_of_a_tree_are_nested_and_labels_name_clusters(seed, rows, columns, prefix, k, linkage):
    maps = made_up(seed, rows, columns, prefix)
    k = min(k, rows * columns - 1)
    found = vt.segment(maps, k, linkage=linkage)
    finer = found.at(k=k + 1)
    for one, other in zip(found.clusters, finer.clusters, strict=True):
        assert one.shape == (rows * columns,) and 1 <= one.max() + 1 <= k
        assert len(set(zip(one.tolist(), other.tolist(), strict=True))) == other.max() + 1
    for labels, clusters in zip(found.labels(), found.clusters, strict=True):
        assert labels.shape == (4 * rows, 4 * columns) and set(np.unique(labels)) <= set(clusters.tolist())


@settings(max_examples=15, deadline=None)
@given(**SHAPES, factor=st.floats(0.1, 50), shift=st.floats(0, 20))
def test_scaled_maps_do_not_depend_on_a_maps_range(seed, rows, columns, prefix, factor, shift):
    maps = made_up(seed, rows, columns, prefix)
    stretched = TokenMaps(**{**maps.__dict__, "scores": (factor * maps.scores + shift).astype(np.float32)})
    np.testing.assert_allclose(stretched.scaled, maps.scaled, atol=1e-3)
    assert maps.scaled.min() == 0 and maps.scaled.max() == 1


@settings(max_examples=15, deadline=None)
@given(**SHAPES, tau=st.floats(0, 1))
def test_a_larger_threshold_gives_a_smaller_mask(seed, rows, columns, prefix, tau):
    heat = made_up(seed, rows, columns, prefix).upsample()[0]
    assert (vt.object_mask(heat, tau) <= vt.object_mask(heat, tau / 2)).all()
    assert vt.object_mask(heat, 0).all() and vt.object_mask(heat, tau).any(axis=(1, 2)).all()


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_a_model(tiny, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 3, 32, 32, generator=generator)
    w = torch.randn(32, generator=generator)
    found = vt.token_maps(tiny, x, target=w, own="keep", progress=False).scores[0]
    assert (found >= 0).all() and (np.diag(found) >= 1).all()  # skip connections keep a token what it is
    order = torch.randperm(19, generator=generator).tolist()
    shuffled = vt.token_maps(tiny, x, tokens=order, target=w, own="keep", progress=False).scores[0]
    np.testing.assert_allclose(shuffled, found[order], rtol=1e-5, atol=1e-7)
    one, three = (
        vt.token_maps(tiny, x, block=0, target=scale * w, own="keep", progress=False).scores[0] for scale in (1, 3)
    )
    np.testing.assert_allclose(three - np.eye(19), 3 * (one - np.eye(19)), rtol=1e-3, atol=1e-6)  # one block is linear
