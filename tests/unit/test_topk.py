"""The streaming top-k: hard inputs by hand, errors by their text."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reference.topk import top_rows
from vitreous.errors import SettingsError
from vitreous.kernels import topk
from vitreous.kernels.topk import TopK


def _fed(values, k, *, cut=(), **kwargs):
    top = TopK(values.shape[1], k, kwargs.pop("per_group", None))
    groups = kwargs.pop("groups", None)
    for rows in np.split(np.arange(len(values)), list(cut)):
        top.update(values[rows], rows, None if groups is None else groups[rows])
    return top.result()


def test_a_unit_that_is_never_positive_gets_its_real_largest_rows():
    values = np.array([[-5.0], [-1.0], [-3.0]])
    top = _fed(values, 2)
    assert top.ids.tolist() == [[1, 2]]
    assert top.values.tolist() == [[-1.0, -3.0]]


def test_equal_values_are_ordered_by_smallest_id_in_whatever_order_they_come():
    top = TopK(1, 2)
    top.update(np.zeros((2, 1)), np.array([9, 4]))
    top.update(np.zeros((2, 1)), np.array([7, 2]))
    assert top.result().ids.tolist() == [[2, 4]]


def test_fewer_rows_than_places_are_flagged():
    top = _fed(np.array([[1.0], [2.0]]), 4)
    assert top.ids.tolist() == [[1, 0, -1, -1]]
    assert top.values[0, 2:].tolist() == [-np.inf, -np.inf]
    assert top.found.tolist() == [2]


def test_a_row_of_minus_infinity_is_a_row_and_an_empty_place_is_not():
    top = _fed(np.array([[-np.inf], [-np.inf]]), 3, cut=(1,))
    assert top.ids.tolist() == [[0, 1, -1]]


def test_at_most_so_many_rows_of_one_group():
    values = np.array([[9.0], [8.0], [7.0], [1.0]])
    pictures = np.array([0, 0, 0, 1])
    assert _fed(values, 2, groups=pictures, per_group=1).ids.tolist() == [[0, 3]]
    assert _fed(values, 3, groups=pictures, per_group=2, cut=(1, 2)).ids.tolist() == [[0, 1, 3]]


def test_a_better_row_of_a_group_takes_the_place_of_the_worse_one():
    values = np.array([[1.0], [5.0], [2.0]])
    top = _fed(values, 2, groups=np.array([3, 4, 3]), per_group=1, cut=(1, 2))
    assert top.ids.tolist() == [[1, 2]]


def test_values_that_rise_with_every_row_are_the_worst_case_and_still_right():
    values = np.arange(5000.0)[:, None] + np.arange(3)
    np.testing.assert_array_equal(_fed(values, 4, cut=(7, 1000)).ids, np.tile([4999, 4998, 4997, 4996], (3, 1)))


def test_many_rows_cross_the_borders_of_pieces(monkeypatch):
    monkeypatch.setattr(topk, "PIECE", 64)
    rng = np.random.default_rng(1)
    values = np.round(rng.standard_normal((700, 5)), 1)
    best, ids = top_rows(values, np.arange(700), 6)
    top = _fed(values, 6, cut=(13, 500))
    np.testing.assert_array_equal(top.ids, ids)
    np.testing.assert_array_equal(top.values, best)


def test_float64_is_not_rounded():
    values = np.array([[1.0], [1.0 + 1e-12]])
    assert _fed(values, 1).ids.tolist() == [[1]]
    top = TopK(1, 1)
    top.update(np.array([[1.0]], np.float32))
    top.update(values[1:])
    assert top.result().ids.tolist() == [[1]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_are_taken_too(dtype):
    values = torch.tensor([[1.0, 4.0], [3.0, 2.0]], dtype=dtype, requires_grad=True)
    top = TopK(2, 1)
    top.update(values, torch.tensor([10, 11]))
    assert top.result().ids.tolist() == [[11], [10]]


def test_ids_count_on_from_the_last_update():
    top = TopK(1, 2)
    top.update(np.array([[1.0], [2.0]], np.float16))
    top.update(np.empty((0, 1)))
    top.update(np.array([[3.0]]))
    top.update(np.array([[9.0]]), 100)
    assert top.result().ids.tolist() == [[100, 2]]


@pytest.mark.parametrize("k", [1, 3])
def test_nan_is_refused_by_row_and_unit(k):
    values = np.zeros((5, 2), np.float32)
    values[3, 1] = np.nan
    with pytest.raises(SettingsError, match=r"NaN in row 13, unit 1"):
        TopK(2, k).update(values, 10)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: TopK(0, 1), "units, k and per_group are at least 1"),
        (lambda: TopK(2, 1).update(np.zeros((3, 4))), r"\(any, 2\) for this one"),
        (lambda: TopK(2, 1).update(np.zeros((3, 2)), np.zeros(3)), "ids are whole numbers, one a row"),
        (lambda: TopK(2, 1).update(np.zeros((3, 2)), -1), "ids count from 0"),
        (lambda: TopK(2, 1, per_group=1).update(np.zeros((3, 2))), "groups and per_group go together"),
        (lambda: TopK(2, 1).update(np.zeros((3, 2)), groups=np.arange(3)), "groups and per_group go together"),
    ],
)
def test_what_is_refused(call, text):
    with pytest.raises(SettingsError, match=text):
        call()
