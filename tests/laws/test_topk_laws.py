"""However the rows are cut into updates and shuffled, the top k are those of one full stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reference.topk import top_rows
from vitreous.kernels import topk

# few different values, so that ties are the rule; both infinities among them
levels = st.sampled_from([-np.inf, -2.0, -1.0, 0.0, 0.5, 3.0, np.inf])


@st.composite
def streams(draw):
    rows, units = draw(st.integers(0, 40)), draw(st.integers(1, 4))
    values = draw(hnp.arrays(np.float64, (rows, units), elements=levels | st.floats(-10, 10)))
    ids = np.array(draw(st.permutations(range(rows))), np.int64)
    groups = draw(hnp.arrays(np.int64, rows, elements=st.integers(0, 5)))
    cuts = sorted(draw(st.lists(st.integers(0, rows), max_size=5)))
    return values, ids, groups, cuts


def _stream(values, ids, groups, cuts, k, per_group):
    top = topk.TopK(values.shape[1], k, per_group)
    for rows in np.split(np.arange(len(values)), cuts):
        top.update(values[rows], ids[rows], None if per_group is None else groups[rows])
    return top.result()


@settings(max_examples=150, deadline=None)
@given(streams(), st.integers(1, 9), st.none() | st.integers(1, 3))
def test_any_chunking_gives_the_full_stable_sort(stream, k, per_group):
    values, ids, groups, cuts = stream
    top = _stream(values, ids, groups, cuts, k, per_group)
    best, names = top_rows(values, ids, k, groups, per_group)
    np.testing.assert_array_equal(top.ids, names)
    np.testing.assert_array_equal(top.values, best)


@settings(max_examples=40, deadline=None)
@given(streams(), st.integers(1, 5))
def test_half_precision_gives_the_rows_of_its_own_values(stream, k):
    values, ids, groups, cuts = stream
    half = values.astype(np.float16)
    top = _stream(half, ids, groups, cuts, k, None)
    np.testing.assert_array_equal(top.ids, top_rows(half.astype(np.float64), ids, k)[1])
