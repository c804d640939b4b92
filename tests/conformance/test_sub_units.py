"""Every layer of every family that can be split: applied sub-units leave its bits alone, and add up to its units."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

import vitreous as vt
from vitreous.laws import example_input
from vitreous.subunits.layers import SPLITTABLE, find_layer

sys.path.insert(0, str(Path(__file__).parent))
from zoo import ZOO, build

FEW = {"units": [0, 3], "top_k": 80, "min_cluster_size": 8, "progress": False}
#: What a family has no linear layer of its own for, or uses without calling it.
WITHOUT = {"timm ConvNeXt": SPLITTABLE[:4], "HF ConvNeXt": SPLITTABLE[:4], "torchvision ViT": SPLITTABLE[:4]}


def bunches(inputs: int) -> np.ndarray:
    """Inputs (instance, input) in four bunches, so that units split."""
    rng = np.random.default_rng(0)
    centres = np.abs(rng.normal(size=(4, inputs))) * (rng.random((4, inputs)) < 0.4)
    return (centres[rng.integers(0, 4, 120)] + 0.1 * rng.random((120, inputs))).astype(np.float32)


def split(owner: vt.Subject | nn.Module, site: str) -> vt.Disentanglement:
    finding = vt.disentangle(owner, bunches(find_layer(owner, site).whole.shape[1]), site, **FEW)
    assert finding.expansion > 1
    return finding


def adds_up(finding: vt.Disentanglement, seen: torch.Tensor, given: torch.Tensor, axis: int) -> None:
    """Sub-units seen (sample, position, sub-unit) against what the layer gave."""
    rows = given.movedim(axis, -1).reshape(*seen.shape[:2], -1)
    for at, unit in enumerate(finding.units):
        parts = seen[..., finding.parents == at].sum(-1)
        torch.testing.assert_close(parts, rows[..., finding.first + unit], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("variant", ZOO)
@torch.no_grad()
def test_all_sites_of_a_block_keep_their_bits(variant):
    subject = vt.wrap(build(variant))
    x = example_input(subject)
    before = subject(x)
    for site in SPLITTABLE:
        name = f"blocks.-1.{site}"
        if site in WITHOUT.get(subject.family.name, ()):
            with pytest.raises(vt.SiteError):
                find_layer(subject, name)
            continue
        finding = split(subject, name)
        with finding.applied(subject) as applied, applied.look() as seen:
            with vt.capture(subject, applied.layer.path) as recorded:
                assert torch.equal(subject(x), before), site
        adds_up(finding, seen.values, recorded[applied.layer.path], applied.layer.channel_axis)
    assert subject.hooks == 0 and torch.equal(subject(x), before)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(12, 6), (5, 12)),
        (lambda: nn.Linear(12, 6, bias=False), (2, 7, 12)),
        (lambda: Conv1D(6, 12), (2, 7, 12)),
        (lambda: nn.Conv2d(12, 6, 1), (2, 12, 5, 4)),
        (lambda: nn.Conv2d(12, 6, 1, stride=2, bias=False), (2, 12, 5, 4)),
        (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), (2, 4, 9, 8)),
        (lambda: nn.Conv2d(4, 6, (3, 2), padding="same", dilation=2), (2, 4, 9, 8)),
        (lambda: nn.Conv2d(4, 6, 5, padding=(2, 0)), (2, 4, 9, 8)),
    ],
)
@torch.no_grad()
def test_all_kinds_of_layers_keep_their_bits(layer, shape):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, x = layer(), torch.randn(shape)
    before = module(x)
    finding = split(module, "")
    with finding.applied(module) as applied, applied.look() as seen:
        assert torch.equal(module(x), before)
    adds_up(finding, seen.values, before, applied.layer.channel_axis)
    assert not module._forward_hooks and torch.equal(module(x), before)
