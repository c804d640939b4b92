"""The spiral study: what is cut off goes on, and ends with the same network."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

import structure_spiral
from structure_spiral import CHECKPOINT, gather, train_one, unfinished


@pytest.fixture
def options(tmp_path, monkeypatch):
    import torch

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", structure_spiral.short_attention)

    def make(name, **changed):
        out = tmp_path / name
        (out / "work").mkdir(parents=True, exist_ok=True)
        settings = {"out": out, "seconds": 1e9, "epochs": 3, "timed": 1, "kinds": ["mean"], "amp": "none"}
        return argparse.Namespace(**settings | {"small": True, "whole": True, "began": time.time()} | changed)

    return make


def weights(out):
    return np.concatenate([np.load(out / f"mean.weights.{n}.npy") for n in range(2)])


def test_a_run_in_pieces_ends_with_the_same_network(options):
    at_once = options("at once")
    train_one("mean", at_once)
    calls, pieces = 0, options("pieces", seconds=structure_spiral.LAST_SECONDS)  # an epoch a call
    while calls == 0 or unfinished(pieces):
        train_one("mean", pieces)
        calls += 1
        assert (pieces.out / f"mean{CHECKPOINT}").exists() == (calls < 4)
    assert calls == 4  # one epoch of warm-up and three more
    # sums over three tokens differ in the last bit from run to run; an epoch too many or too few moves a weight by 1e-2
    np.testing.assert_allclose(weights(at_once.out), weights(pieces.out), atol=3e-4)
    logs = [json.loads((some.out / "mean.json").read_text())["log"] for some in (at_once, pieces)]
    assert logs[0][-1]["epoch"] == logs[1][-1]["epoch"] == 3
    assert logs[0][-1]["loss"] == pytest.approx(logs[1][-1]["loss"], abs=1e-4)
    gather(pieces)
    runs = json.loads((pieces.out / "runs.json").read_text())
    assert runs["mean"]["epochs"] == 3 and "mean_grid_labels" in np.load(pieces.out / "clusters.npz")


def test_without_that_the_epochs_are_those_that_fit(options):
    short = options("short", whole=False, seconds=structure_spiral.LAST_SECONDS + 1e-3)
    train_one("mean", short)
    assert json.loads((short.out / "mean.json").read_text())["epochs"] == 1
    assert not unfinished(short)
