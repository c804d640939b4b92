"""The CIFAR-10 study: what is cut off goes on, and ends with the same network."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))

import structure_cifar
import vitreous as vt
from structure_cifar import CLASSES, LAST_SECONDS, train_one, unfinished

EPOCHS = 3  # one of warm-up and two more


@pytest.fixture
def options(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(256, 32, 32, 3), dtype=np.uint8)
    some = vt.ImageSet.from_arrays(images, labels=np.arange(256) % 10, classes=CLASSES)
    monkeypatch.setattr(structure_cifar, "pictures", lambda *_: some)
    monkeypatch.setattr(structure_cifar.Prepared, "test", lambda _: [])
    monkeypatch.setattr("vitreous.training.trainee.Trainee.accuracy", lambda *_: 0.0)

    def make(name, **changed):
        """A folder for results, and a new one of prepared epochs, as every call has it."""
        out, shared = tmp_path / name, tmp_path / f"{name}-{time.monotonic_ns()}"
        out.mkdir(exist_ok=True)
        shared.mkdir()
        for epoch in range(EPOCHS):
            np.save(
                shared / f"{epoch}.npy", np.random.default_rng(epoch).integers(256, size=(256, 3, 32, 32), dtype="u1")
            )
            (shared / f"{epoch}.ready").touch()
        settings = {"data": None, "out": out, "shared": shared, "seconds": 1e9, "epochs": EPOCHS - 1, "timed": 1}
        settings |= {"kinds": ["ours"], "small": True, "whole": True, "began": time.time()}
        return argparse.Namespace(**settings | changed)

    return make


def test_a_run_in_pieces_ends_with_the_same_network(options):
    at_once = options("at once")
    train_one("ours", at_once)
    done = []
    for _ in range(EPOCHS):
        pieces = options("pieces", seconds=LAST_SECONDS)  # an epoch a call
        train_one("ours", pieces)
        done.append(unfinished(pieces).get("ours"))
    assert done == [1, 2, None]
    logs = [json.loads((some.out / "ours.json").read_text())["log"] for some in (at_once, pieces)]
    assert [entry["epoch"] for entry in logs[1]] == [0, 1, 2]
    assert [e["loss"] for e in logs[0]] == pytest.approx([e["loss"] for e in logs[1]], abs=1e-4)
    one, other = (np.load(some.out / "ours.weights.0.npy") for some in (at_once, pieces))
    np.testing.assert_allclose(one, other, atol=3e-4)


def test_one_that_is_ahead_keeps_nobody_waiting(options):
    """Epochs that a network has read in an earlier call are given free when the other has read them."""
    ahead = options("two", kinds=["vit", "ours"], seconds=LAST_SECONDS)
    (ahead.shared / "0.vit.read").touch()
    for word in ("ready", "turn0vit", "turn0ours", "turn1vit", "turn1ours", "together"):
        (ahead.shared / f"vit.{word}").write_text("1.0")
    train_one("ours", ahead)
    assert unfinished(ahead) == {"ours": 1} and (ahead.shared / "0.done").exists()
    again = options("two", kinds=["vit", "ours"])
    train_one("ours", again)
    assert (again.shared / "0.ours.read").exists() and not (again.shared / "1.done").exists()


def test_the_command_line_reaches_what_prepares(tmp_path, monkeypatch):
    made = create_autospec(structure_cifar.prepare_all)
    monkeypatch.setattr(structure_cifar, "prepare_all", made)
    folders = [word for name in ("data", "out", "shared") for word in (f"--{name}", str(tmp_path))]
    monkeypatch.setattr(sys, "argv", ["structure_cifar.py", "prepare", *folders])
    structure_cifar.main()
    made.assert_called_once_with(tmp_path, tmp_path, False, 12, 0)
