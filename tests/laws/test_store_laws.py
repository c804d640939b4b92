"""Laws of stores: indexing means what it means in numpy, and no manifest brings a reader down."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vitreous.errors import StoreError
from vitreous.recording.passes import draw_tokens
from vitreous.recording.writing import ShardWriter, write_manifest
from vitreous.store import Manifest, SiteArray, SiteInfo, Store
from vitreous.store.manifest import map_tensors, tensor_layout


def cut(array: np.ndarray, rows: int, touched: set[int] | None = None) -> SiteArray:
    """An array in pieces, as a store has it; notes which pieces were asked for."""

    def piece(number: int) -> np.ndarray:
        if touched is not None:
            touched.add(number)
        found = array[number * rows : (number + 1) * rows]
        assert len(found), "a piece that does not exist"
        return found

    return SiteArray("x", array.shape, array.dtype.name, rows, piece)


def one_axis(length: int) -> st.SearchStrategy:
    """What may stand for one axis, now and then out of bounds."""
    whole = st.integers(-length - 1, length)
    lists = st.lists(st.integers(-length, length - 1), max_size=5) if length else st.just([])
    arrays = hnp.arrays(np.int64, hnp.array_shapes(min_dims=0, max_dims=2, max_side=3), elements=whole)
    masks = hnp.arrays(bool, length)
    return st.one_of(st.slices(length), whole, lists, arrays, masks, st.just(slice(None)))


@st.composite
def arrays_and_keys(draw):
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7))
    array = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    count = draw(st.integers(0, len(shape)))
    key = [draw(one_axis(length)) for length in shape[:count]]
    if draw(st.booleans()) and len(shape) > 1:
        key = [draw(hnp.arrays(bool, shape[:2])), *key[2:]]
    if draw(st.booleans()):
        at = draw(st.integers(0, len(key)))
        tail = len(key) - at
        key = [*key[:at], Ellipsis, *(draw(one_axis(n)) for n in shape[len(shape) - tail :] if tail)]
    for _ in range(draw(st.integers(0, 2))):
        key.insert(draw(st.integers(0, len(key))), None)
    return array, draw(st.integers(1, shape[0] + 1)), key[0] if len(key) == 1 and draw(st.booleans()) else tuple(key)


@given(arrays_and_keys())
@settings(max_examples=600, deadline=None)
def test_indexing_means_what_it_means_in_numpy(case):
    array, rows, key = case
    lazy = cut(array, rows)
    try:
        wanted = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            lazy[key]
        return
    try:
        got = lazy[key]
    except IndexError:  # what lies outside is refused here too where nothing is taken, which numpy lets pass
        assert np.size(wanted) == 0
        return
    assert np.shape(got) == np.shape(wanted)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, wanted)


@given(st.integers(1, 40), st.integers(1, 12), st.data())
@settings(max_examples=200, deadline=None)
def test_only_needed_pieces_are_touched(samples, rows, data):
    touched: set[int] = set()
    lazy = cut(np.zeros((samples, 2), np.float32), rows, touched)
    key = data.draw(one_axis(samples).filter(lambda k: not isinstance(k, int) or -samples <= k < samples))
    try:
        chosen = np.arange(samples)[key]
    except IndexError:
        return
    lazy[key, data.draw(st.sampled_from([0, slice(None), [1, 0]])) if np.ndim(chosen) == 0 else slice(None)]
    assert touched == {int(row) // rows for row in np.ravel(chosen)}


@given(hnp.arrays(np.uint16, (4, 3)), st.integers(1, 5))
def test_bfloat16_is_widened_bit_for_bit(bits, rows):
    import torch

    lazy = SiteArray("x", bits.shape, "bfloat16", rows, lambda k: bits[k * rows : (k + 1) * rows])
    wanted = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(lazy[:].view(np.uint32), wanted.view(np.uint32))


@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_what_a_writer_was_given_a_reader_gives_back(tmp_path_factory, samples, batch, batches_a_shard, seed):
    folder = tmp_path_factory.mktemp("store")
    (folder / "shards").mkdir()
    infos = {"blocks.0.mlp.out": SiteInfo((3, 2), ("token", "channel"), 3), "head": SiteInfo((5,), ("channel",))}
    manifest = make_manifest(infos, samples, batch, batches_a_shard)
    values = {
        site: np.random.default_rng(seed).normal(size=(samples, *i.shape)).astype("f2") for site, i in infos.items()
    }
    write_manifest(folder, manifest)
    with ShardWriter(folder, manifest) as writer:
        for first in range(0, samples, batch):
            writer.put(first, {site: value[first : first + batch] for site, value in values.items()})
    store = Store.open(folder)
    assert [p.file for p in store.verify()] == ["samples.json"], "the only file that was not written here"
    for site, value in values.items():
        np.testing.assert_array_equal(np.asarray(store[site]), value)


def make_manifest(infos: dict[str, SiteInfo], samples: int, batch: int, batches_a_shard: int) -> Manifest:
    recorded = {
        "sites": list(infos),
        "tokens": "all",
        "dtype": "float16",
        "seed": 0,
        "batch_size": batch,
        "shard_samples": batch * batches_a_shard,
        "size": None,
        "preprocess": None,
        "compute": "float32",
        "device": "cpu",
    }
    return Manifest(
        model={"name": "m", "fingerprint": "a", "depth": 1},
        data={"name": "d", "fingerprint": "b", "samples": samples},
        settings=recorded,
        sites=infos,
        prefix=(),
        files={"samples.json": {"bytes": 1, "sha256": "0" * 64}},
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small store and its manifest."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "shards").mkdir()
    infos = {"blocks.0.mlp.out": SiteInfo((3, 2), ("token", "channel"), 3)}
    manifest = make_manifest(infos, 5, 2, 1)
    with ShardWriter(folder, manifest) as writer:
        for first in (0, 2, 4):
            writer.put(first, {"blocks.0.mlp.out": np.ones((min(2, 5 - first), 3, 2), "f2")})
    return folder, json.loads((folder / "manifest.json").read_bytes())


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, found in inner:
        yield from places(found, (*path, key))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NASTY = st.sampled_from(["../../x", "/etc/passwd", "shards/../../x", "", "\x00", 2**63, -1, 0, 1e308, "shards"])


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_manifest_with_anything_in_any_place_is_refused_or_read(whole, data):
    folder, original = whole
    raw = copy.deepcopy(original)
    *path, name = data.draw(st.sampled_from([place for place in places(original) if place]))
    inner = raw
    for key in path:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[name] = data.draw(ANYTHING | NASTY)
    else:
        del inner[name]
    (folder / "manifest.json").write_text(json.dumps(raw))
    try:
        store = Store.open(folder, allow_partial=True)
        read = np.asarray(store[store.sites[0]]) if len(store) else np.ones(0)
    except StoreError:
        return
    assert (read == 1).all(), "what is read is what was written"


@given(st.binary(max_size=400), st.integers(0, 150))
@settings(max_examples=300, deadline=None)
def test_a_shard_with_any_bytes_in_it_is_refused_or_read(tmp_path_factory, noise, at):
    shapes = {"a": (2, 3), "b": (4,)}
    head, _, length = tensor_layout(shapes, "float16")
    content = bytearray(head + bytes(length - len(head)))
    content[at : at + len(noise)] = noise
    path = tmp_path_factory.mktemp("noise") / "x.safetensors"
    path.write_bytes(content)
    try:
        found = map_tensors(path, shapes, "float16")
    except StoreError:
        return
    assert {name: array.shape for name, array in found.items()} == shapes
    assert all(array.tobytes() in bytes(content) for array in found.values())


@given(st.integers(0, 2**31), st.lists(st.integers(1, 20), min_size=1, max_size=8), st.data())
@settings(max_examples=100, deadline=None)
def test_drawn_tokens_are_in_order_once_and_inside(seed, lengths, data):
    count = data.draw(st.integers(1, min(lengths)))
    drawn = draw_tokens(seed, 20, count, np.array(lengths))
    assert drawn.shape == (len(lengths), count)
    assert (np.diff(drawn, axis=1) > 0).all() and (drawn >= 0).all()
    assert (drawn < np.array(lengths)[:, None]).all()
    np.testing.assert_array_equal(drawn[:1], draw_tokens(seed, 20, count, np.array(lengths[:1])))
