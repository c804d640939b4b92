"""The small ablation: what its runs share, and what its tables say of numbers that are known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vitreous as vt

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

import structure_ablation
from structure_ablation import KINDS, Shifted, pointing, recipe_of, train_one
from structure_ablation_tables import CLAIMS, ROWS, interval, pointed, seed_noise, verdict, write_tables
from structure_cifar import CLASSES
from structure_cifar_maps import SEEN, Shown
from vitreous.evidence.pointing import point_game
from vitreous.training.trainee import build


@pytest.fixture
def batches(monkeypatch):
    monkeypatch.setattr("structure_ablation._tensors", planted)
    return Shifted(Path("nowhere"), 256, 120)


def planted(_data, split, count):
    g = torch.Generator().manual_seed(len(split))
    return torch.randint(256, (count, 3, 32, 32), generator=g, dtype=torch.uint8), torch.arange(count) % 10


@pytest.fixture
def animals():
    x, labels = planted(None, "test", 12)
    masks = np.zeros((12, 32, 32), bool)
    masks[:, 8:24, :16] = True
    pictures = vt.ImageSet.from_arrays(x.numpy().transpose(0, 2, 3, 1), labels=labels.numpy(), classes=CLASSES)
    return {name: Shown(pictures, masks) for name in ("pets", "voc_animals")}


def test_every_kind_has_a_row_and_every_claim_its_kinds():
    assert set(ROWS) == set(KINDS)
    assert {kind for better, worse, *_ in CLAIMS for kind in (better, worse)} <= set(KINDS)


def test_kinds_of_one_seed_differ_in_the_loss_alone():
    plain = recipe_of("vit", 3)
    for kind, changes in KINDS.items():
        recipe = recipe_of(kind, 3)
        assert recipe.structure == (changes or {})
        assert recipe.with_(structure={}).settings == plain.settings and recipe.seed == plain.seed == 3


def test_pictures_are_moved_and_mirrored_the_same_way_every_time(batches):
    first, again, later = ([x for x, _ in batches.epoch(0, epoch)] for epoch in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], later[0])
    assert first[0].shape == (128, 3, 32, 32) and first[0].min() >= -1 and first[0].max() <= 1


def test_a_run_has_a_log_and_what_is_inside(batches, animals):
    run = train_one("one_batch", 0, batches, 1, animals)
    assert run["pointing"]["before training"] != run["pointing"]["after training"]
    assert 0 <= pointed(run, "Point Game") <= 1 and 0 < pointed(run, "Energy PG") < 1
    assert len(run["log"]) == 2 and run["log"][-1]["terms"] > 0
    assert run["inside"]["mean group"] >= 1 and 0 < run["inside"]["moved, relative"]


def test_looking_where_maps_point_changes_no_training(batches, animals):
    """The same weights with and without a look before and after: networks are compared by seed."""
    looked, not_looked = train_one("sum", 3, batches, 1, animals), train_one("sum", 3, batches, 1)
    assert looked["log"] == not_looked["log"] and "pointing" not in not_looked


def test_a_run_is_done_once_and_again_only_for_its_maps(monkeypatch, tmp_path):
    asked = []

    def trained(kind, seed, _batches, _epochs, animals):
        asked.append((kind, seed, animals is not None))
        return {"log": [{}], "cpu seconds": 1} | ({} if animals is None else {"pointing": {}})

    for name in ("Shifted", "pets", "voc_animals"):
        monkeypatch.setattr(structure_ablation, name, lambda *_: None)
    monkeypatch.setattr(structure_ablation, "train_one", trained)
    monkeypatch.setattr(structure_ablation, "write_tables", lambda result: ", ".join(result["runs"]))
    command = ["", "data", "--kinds", "vit", "raw", "--out", str(tmp_path / "found.json"), "--seeds"]
    for more in (["0", "--no-maps"], ["0", "1", "--no-maps"], ["0"]):
        monkeypatch.setattr(sys, "argv", command + more)
        structure_ablation.main()
    bare, with_maps = [("vit", 0, False), ("raw", 0, False)], [("vit", 0, True), ("raw", 0, True)]
    assert asked == [*bare, ("vit", 1, False), ("raw", 1, False), *with_maps]
    assert (tmp_path / "found.md").read_text() == "vit 0, raw 0, vit 1, raw 1"


def test_pointing_is_the_point_game_of_the_maps(animals):
    model = build(recipe_of("vit", 0), len(CLASSES))
    found = pointing(model, animals)["pets"]["true"]["Grad-CAM"]
    assert model.training
    some, subject = animals["pets"], vt.wrap(model.eval(), preprocess=SEEN)
    maps = vt.gradcam(subject, some.images, some.labels, plus_plus=False, progress=False).at()
    assert found[0] == point_game(maps, some.masks).mean()


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        ([1.0, 1.1, 0.9], "as the paper says"),
        ([-1.0, -1.1], "**the other way round**"),
        ([1.0, -0.2, 0.5], "not shown: seeds differ by more"),
        ([0.1, 2.0], "not shown: seeds differ by more"),
        ([3.0], "one seed: not shown"),
    ],
)
def test_a_verdict_needs_an_interval_that_leaves_out_nothing(gap, said):
    assert verdict(np.array(gap)) == said


def test_the_interval_is_students():
    assert interval(np.array([1.0, 2.0, 3.0])) == "+2.00 [-0.48, +4.48]"  # 4.303 standard errors
    assert interval(np.array([1.0])) == "+1.00"


def test_tables_say_what_the_numbers_say():
    inside = {"mean group": 1.5, "units in clusters": 10, "inefficient": 0, "largest": 4, "moved, relative": 0.1}

    def run(accuracy):
        entry = {"accuracy": accuracy, "clusters": 1, "members": 2, "terms": 3, "kept": 3}
        scores = {"predicted": {"Grad-CAM++": [accuracy / 100, 0.2], "Grad-CAM": [0.3, 0.4]}}
        found = {"pets": scores, "voc_animals": scores}
        points = {"before training": found, "after training": found}
        return {"log": [entry | {"structure": 0.2, "main": 2.0}] * 4, "inside": inside, "pointing": points}

    runs = {f"{kind} {seed}": run(40 + seed) for kind in KINDS for seed in (0, 1)}
    runs |= {f"raw {seed}": run(30 + seed) for seed in (0, 1)}
    settings = {"network": {"depth": 4, "embed_dim": 64, "patch_size": 8}, "train": 256, "test": 64, "batch": 128}
    text = write_tables({"settings": settings | {"epochs": 3, "warmup": 1, "torch": "x"}, "runs": runs})
    assert (
        "| raw activations do harm | Table 13 | +5.12 | +10.00 [+10.00, +10.00] | +10.00, +10.00 | as the paper says |"
        in text
    )
    assert "| grouped ranks beat ranks | Table 13 | +0.09 | +0.00 [+0.00, +0.00] | +0.00, +0.00 | not shown" in text
    assert "| raw | 30.50 | 30.00, 31.00 | -10.00 [-10.00, -10.00] | 30.50 | 87.31 |" in text
    assert "| raw | 2 | 0.305, -0.100 [-0.100, -0.100] | 0.200, +0.000 [+0.000, +0.000] |" in text
    assert "| raw | 1 | 2 | 3 | 3 | 1.000 |" in text
    assert "with `mean`, `sum`, `rank`, `raw`" in text and "all units are one cluster" in text  # all logs are alike
    assert "Not run yet" not in text and "larger by a tenth" not in text
    del runs["sum 1"], runs["rank 0"], runs["rank 1"]
    runs["sum 0"]["inside"] = inside | {"mean group": 2.0}
    text = write_tables({"settings": settings | {"epochs": 3, "warmup": 1, "torch": "x"}, "runs": runs})
    assert "Not run yet: rank without groups." in text and "only 1 of the seeds" in text
    assert "larger by a tenth or more with `sum`, for every seed" in text
    assert seed_noise({"a": {0: run(1), 1: run(3)}}) == pytest.approx(2**0.5)
