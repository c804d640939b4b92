"""Deletion curves are the numbers of quantus: pixel by pixel (PixelFlipping) and patch by patch (RegionPerturbation).

quantus integrates its curves with a function that numpy no longer has, so areas are not asked of it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from vitreous.evidence.perturbation import deletion

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]
PLAIN = {"abs": False, "normalise": False, "disable_warnings": True, "display_progressbar": False}


def network(colours: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(colours, 6, 3), nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)).eval()


def inputs(colours: int):
    rng = np.random.default_rng(1)
    x, maps = rng.normal(size=(5, colours, 8, 8)).astype(np.float32), rng.random((5, 4, 4))
    return x, maps, rng.integers(0, 4, 5)


def probability(module: nn.Module, classes: np.ndarray):
    @torch.no_grad()
    def score(x, which):
        return module(torch.from_numpy(x)).softmax(-1).numpy()[np.arange(len(x)), classes[which]]

    return score


def test_pixel_by_pixel_they_are_those_of_pixel_flipping():
    quantus = pytest.importorskip("quantus")
    module, (x, _, y) = network(1), inputs(1)
    maps = np.random.default_rng(2).random((5, 8, 8))
    module(torch.from_numpy(x))
    metric = quantus.PixelFlipping(**PLAIN, features_in_step=4, perturb_baseline=0.25)
    theirs = np.array(metric(model=module, x_batch=x, y_batch=y, a_batch=maps[:, None], device="cpu"))
    ours = deletion(probability(module, y), x, maps, steps=16, fill=0.25, progress=False)
    np.testing.assert_allclose(ours.values[:, 1:], theirs, atol=1e-5)
    assert theirs.std() > 0.02


def test_patch_by_patch_they_are_those_of_region_perturbation():
    quantus = pytest.importorskip("quantus")
    module, (x, maps, y) = network(3), inputs(3)
    module(torch.from_numpy(x))
    fine = maps.repeat(2, 1).repeat(2, 2)
    metric = quantus.RegionPerturbation(
        **PLAIN, patch_size=2, order="morf", regions_evaluation=16, perturb_baseline=0.0
    )
    theirs = np.array(metric(model=module, x_batch=x, y_batch=y, a_batch=fine[:, None], device="cpu"))
    ours = deletion(probability(module, y), x, maps, progress=False)
    np.testing.assert_allclose(ours.values[:, :1] - ours.values[:, 1:], theirs, atol=1e-5)
    assert theirs.std() > 0.02
