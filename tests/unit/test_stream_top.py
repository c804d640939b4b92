"""The k largest rows for large k: the same as one full stable sort, however the rows are cut."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import vitreous as vt
from vitreous.kernels.stream_top import stream_top
from vitreous.kernels.stream_top_device import stream_top_on_device

sys.path.insert(0, str(Path(__file__).parents[1]))
from reference import disentangle as slow


@settings(max_examples=80, deadline=None)
@given(st.data(), st.integers(1, 60), st.integers(1, 3), st.integers(0, 10**6), st.booleans())
def test_it_is_the_sort_whatever_the_cuts(data, rows, units, seed, ties):
    k = data.draw(st.integers(1, rows))
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, (units, rows)) if ties else rng.normal(size=(units, rows))
    values = values.astype(np.float32)
    cuts = sorted(data.draw(st.lists(st.integers(0, rows), max_size=6)))
    pieces = np.split(values, cuts, axis=1)
    there, ids = stream_top_on_device(map(torch.from_numpy, pieces), k)
    found = stream_top(pieces, units, k)
    for unit in range(units):
        expected = slow.top_instances(values[unit], k)
        assert found.ids[unit].tolist() == ids[unit].tolist() == expected.tolist()
        assert found.values[unit].tolist() == there[unit].tolist() == values[unit][expected].tolist()


def test_infinities_are_values_and_nan_is_refused():
    values = np.array([[-np.inf, 1, np.inf, -np.inf]], np.float32)
    assert stream_top([values], 1, 4).ids.tolist() == [[2, 1, 0, 3]]
    assert stream_top_on_device([torch.from_numpy(values)], 4)[1].tolist() == [[2, 1, 0, 3]]
    pieces = [values, np.array([[0, np.nan]], np.float32)]
    with pytest.raises(vt.SettingsError, match="NaN in row 5, unit 0"):
        stream_top(pieces, 1, 2)
    with pytest.raises(vt.SettingsError, match="NaN in row 5, unit 0"):
        stream_top_on_device(map(torch.from_numpy, pieces), 2)
    with pytest.raises(vt.SettingsError, match="fewer rows than k"):
        stream_top([values], 1, 5)
    with pytest.raises(vt.SettingsError, match="fewer rows than k"):
        stream_top_on_device([torch.from_numpy(values)], 5)


def test_memory_does_not_grow_with_the_rows():
    units, k = 8, 500

    def pieces(rows: int) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(0)
        return (rng.random((units, 1000), dtype=np.float32) for _ in range(rows // 1000))

    def peak(rows: int) -> int:
        tracemalloc.start()
        try:
            stream_top(pieces(rows), units, k)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    stream_top(pieces(2000), units, k)  # what is loaded once
    held = units * 3 * k * (4 + 8)  # values and ids
    assert peak(400_000) < 1.1 * peak(4000) and peak(400_000) < 4 * held
