"""What the steering study measures with: hits, what is drawn in, what is kept, and prices that are made equal."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from steering_measures import CONCEPTS, Moved, at_change, mean_of, moved, two_halves


def certain(*classes: int) -> torch.Tensor:
    return torch.eye(5)[list(classes)] * 0.9 + 0.02


def test_what_has_moved_is_counted_on_both_sides():
    truth = np.array([0, 1, 1, 2, 3, 4])
    before, after = certain(0, 1, 1, 2, 0, 4), certain(0, 2, 2, 2, 1, 3)
    found = moved(before, after, (0, 1), truth)
    assert found.hit == pytest.approx(1 / 3)  # of three pictures one is still called 0 or 1
    assert found.drawn == pytest.approx(1 / 3)  # of the others one is called 1
    assert found.kept == pytest.approx(1 / 3)  # only the picture of class 2 is called what it was
    assert found.odds < 0 and moved(before, before, (0, 1), truth).odds == 0


def test_methods_are_compared_at_one_price():
    start, rows = [Moved(0.8, 0, 1, 0)], [[Moved(0.6, 0, 0.9, -1)], [Moved(0.2, 0, 0.7, -2)]]
    assert at_change(rows, start, "hit", 0.05) == pytest.approx(0.7)
    assert at_change(rows, start, "hit", 0.2) == pytest.approx(0.4)
    assert mean_of([Moved(0, 0, 1, 0), Moved(1, 0.5, 0, -2)]) == Moved(0.5, 0.25, 0.5, -1)


def test_no_picture_is_in_both_halves_and_no_class_in_two_concepts():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(200), 10))
    learn, held = two_halves(labels)
    assert not set(learn) & set(held) and len(learn) == len(held) == 1000
    assert (np.bincount(labels[learn]) == 5).all()
    classes = [c for concept in CONCEPTS.values() for c in concept]
    assert len(classes) == len(set(classes)) and max(classes) < 200
