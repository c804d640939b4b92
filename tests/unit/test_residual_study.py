"""The small network of section D.4: its data, its picture's axes, and that its results say what was found."""

from __future__ import annotations

import json
import sys
from math import pi
from pathlib import Path

import numpy as np
import torch

import vitreous as vt

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from structure_residual_mlp import ResidualNetwork, activations, counted, facts, grid, spiral, write_table

STUDIES = Path(__file__).parents[2] / "studies"


def test_the_second_arm_is_the_first_a_quarter_turn_ahead():
    points, label = spiral(1000, torch.Generator().manual_seed(0))
    radius = points.norm(dim=1)
    turned = radius * 2 * pi + label * pi / 2
    wanted = torch.stack([radius * turned.sin(), radius * turned.cos()], 1)
    torch.testing.assert_close(points, wanted, atol=1e-5, rtol=0)
    assert label.float().mean() == 0.5
    assert 0.45 < radius.mean() < 0.55 and radius.max() <= 1


def test_the_grid_goes_row_by_row_from_the_lower_left():
    points = grid(3)
    assert points[0].tolist() == [-1, -1] and points[1].tolist() == [0, -1] and points[-1].tolist() == [1, 1]
    assert len(grid()) == 2500


def test_activations_are_the_stream_the_classes_are_read_from():
    torch.manual_seed(0)
    model = ResidualNetwork()
    found = activations(model)
    assert found.shape == (2500, 32, 1, 32)
    with torch.no_grad():
        torch.testing.assert_close(model.out(torch.from_numpy(found[:, -1, 0])), model(grid()))
        step = torch.tanh(model.layers[5](torch.from_numpy(found[:, 4, 0])))
        torch.testing.assert_close(torch.from_numpy(found[:, 5, 0] - found[:, 4, 0]), step, atol=1e-5, rtol=1e-4)
    np.testing.assert_array_equal(model.weights[4], model.layers[5].weight.detach())


def test_the_results_are_those_of_the_code():
    """Before training, which takes no time, what is written is what comes out."""
    written = json.loads((STUDIES / "results" / "structure_residual_mlp.json").read_text())
    torch.manual_seed(written["settings"]["seed"])
    before = facts(vt.structure(activations(ResidualNetwork()), progress=False))
    for key in ("units", "clusters", "inefficient clusters"):
        assert abs(before[key] - written["before training"][key]) <= 2  # sums differ in the last bit between machines
    assert (STUDIES / "results" / "structure_residual_mlp.md").read_text() == write_table(written)


def test_a_row_counts_what_the_facts_list():
    part = {"units in clusters": 5, "clusters": 2, "largest cluster": 3, "inefficient clusters": 1}
    found = {
        "accuracy": 0.5,
        "before training": part | {"units that come back": []},
        "after training": part | {"units that come back": [{"unit": 1}, {"unit": 2}]},
    }
    rows = [counted(seed, found) for seed in (0, 1)]
    assert rows[0]["after training"] == part | {"units that come back": 2}
    text = write_table({"seeds": rows})
    assert "before training 0.0 [0.0, 0.0]; after training 2.0 [2.0, 2.0]; after less before +2.0 [+2.0, +2.0]" in text
    assert "| 1 | 50.00 | 0 | 2 | 1 | 1 | 5 | 5 |" in text
