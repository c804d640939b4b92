"""What holds of every steering: factors multiply, sub-units add up, and a factor of one is no steering."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import vitreous as vt

UNITS, INPUTS = 5, 16
factors = st.floats(-20, 20, allow_nan=False, width=32)
some = st.sets(st.integers(0, 9), min_size=1, max_size=6).map(sorted)


@cache
def layer_and_finding() -> tuple[nn.Linear, vt.Disentanglement]:
    rng = np.random.default_rng(0)
    centres = np.abs(rng.normal(size=(4, INPUTS))) * (rng.random((4, INPUTS)) < 0.5)
    q = (centres[rng.integers(0, 4, 200)] + 0.1 * rng.random((200, INPUTS))).astype(np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.Linear(INPUTS, UNITS)
    finding = vt.disentangle(layer, q, top_k=150, min_cluster_size=10, progress=False)
    assert len(finding) >= 10
    return layer, finding


def inputs(seed: int) -> torch.Tensor:
    return torch.rand(2, 6, INPUTS, generator=torch.Generator().manual_seed(seed))


def near(a: torch.Tensor, b: torch.Tensor) -> None:
    scale = max(float(a.detach().abs().max()), float(b.detach().abs().max()), 1.0)
    torch.testing.assert_close(a / scale, b / scale, atol=2e-5, rtol=0)


@settings(max_examples=25, deadline=None)
@given(ids=some, patches=st.integers(1, 8), seed=st.integers(0, 9))
def test_a_factor_of_one_is_no_steering(ids, patches, seed):
    layer, finding = layer_and_finding()
    x = inputs(seed)
    before = layer(x)
    with vt.steer(layer, finding, amplify=ids, alpha=1, patches=patches):
        assert torch.equal(layer(x), before)


@settings(max_examples=25, deadline=None)
@given(ids=some, one=factors, two=factors, seed=st.integers(0, 9))
def test_factors_multiply(ids, one, two, seed):
    layer, finding = layer_and_finding()
    x = inputs(seed)
    with vt.steer(layer, finding, amplify=ids, alpha=one), vt.steer(layer, finding, amplify=ids, alpha=two):
        nested = layer(x)
    with vt.steer(layer, finding, amplify=ids, alpha=one * two):
        near(nested, layer(x))


@settings(max_examples=25, deadline=None)
@given(ids=some, factor=factors, patches=st.integers(1, 8), seed=st.integers(0, 9))
def test_subunits_add_up(ids, factor, patches, seed):
    layer, finding = layer_and_finding()
    x = inputs(seed)
    before = layer(x)
    alone = []
    for subunit in ids:
        with vt.steer(layer, finding, amplify=subunit, alpha=factor, patches=patches):
            alone.append(layer(x) - before)
    with vt.steer(layer, finding, amplify=ids, alpha=factor, patches=patches):
        near(layer(x) - before, sum(alone))


@settings(max_examples=25, deadline=None)
@given(unit=st.integers(0, UNITS - 1), factor=factors, seed=st.integers(0, 9))
def test_all_subunits_of_a_unit_are_the_unit(unit, factor, seed):
    layer, finding = layer_and_finding()
    x = inputs(seed)
    before = layer(x)
    with vt.steer(layer, finding, amplify=finding.subunits(unit), alpha=factor):
        after = layer(x)
    near(after[..., unit], factor * before[..., unit])
