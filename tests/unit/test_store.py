"""Stores are read lazily, whatever is damaged is named, and nothing leads out of the folder."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from vitreous.axes import Grid
from vitreous.errors import SiteError, StoreError
from vitreous.provenance import json_bytes
from vitreous.recording.writing import ShardWriter, write_manifest
from vitreous.store import Manifest, SiteInfo, Store, read_manifest
from vitreous.store import reader as reader_module
from vitreous.store.manifest import map_tensors, tensor_layout
from vitreous.store.reader import file_hash

PATTERN, HIDDEN = "blocks.1.attn.pattern", "blocks.2.resid.out"


def arrays(samples: int, kind: str = "<f2") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {PATTERN: (2, 5, 5), HIDDEN: (5, 3), "head": (4,)}
    return {site: rng.normal(size=(samples, *shape)).astype(kind) for site, shape in shapes.items()}


def make_store(folder: Path, samples: int = 10, dtype: str = "float16", values=None) -> Path:
    """A store written by hand: three samples a shard, the last one shorter."""
    folder.mkdir(parents=True)
    (folder / "shards").mkdir()
    about = json_bytes({"ids": [f"i{k}" for k in range(samples)], "classes": None, "labels": None, "lengths": None})
    (folder / "samples.json").write_bytes(about)
    infos = {
        PATTERN: SiteInfo((2, 5, 5), ("head", "query", "key"), 5, Grid(2, 2)),
        HIDDEN: SiteInfo((5, 3), ("token", "channel"), 5, Grid(2, 2)),
        "head": SiteInfo((4,), ("channel",)),
    }
    settings = {"sites": list(infos), "tokens": "all", "dtype": dtype, "seed": 0, "batch_size": 3, "shard_samples": 3}
    settings |= {"size": [8, 8], "preprocess": None, "compute": "float32", "device": "cpu"}
    manifest = Manifest(
        model={"name": "m", "fingerprint": "aa", "depth": 3},
        data={"name": "d", "fingerprint": "bb", "samples": samples},
        settings=settings,
        sites=infos,
        prefix=("class",),
        files={"samples.json": {"bytes": len(about), "sha256": file_hash(folder / "samples.json")}},
    )
    write_manifest(folder, manifest)
    values = arrays(samples) if values is None else values
    with ShardWriter(folder, manifest) as writer:
        for first in range(0, samples, 3):
            writer.put(first, {site: array[first : first + 3] for site, array in values.items()})
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def folder(made, tmp_path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "store"))


def edit(folder: Path, change) -> None:
    raw = json.loads((folder / "manifest.json").read_text())
    change(raw)
    (folder / "manifest.json").write_text(json.dumps(raw))


# -- reading


def test_sites_are_arrays(made):
    store, wanted = Store.open(made), arrays(10)
    assert store.sites == (PATTERN, HIDDEN, "head")
    for site, array in wanted.items():
        got = store[site]
        assert (got.shape, got.dtype, got.ndim, len(got)) == (array.shape, array.dtype, array.ndim, 10)
        assert (got.size, got.nbytes) == (array.size, array.nbytes)
        np.testing.assert_array_equal(np.asarray(got), array)
        np.testing.assert_array_equal(np.stack(list(got)), array)
        np.testing.assert_array_equal(np.concatenate(list(got.batches(4))), array)
        assert [len(batch) for batch in got.batches(4)] == [4, 4, 2]
    assert np.asarray(store["head"], np.float64).dtype == np.float64
    assert repr(store) == f"Store({str(made)!r}: m on d, 10 samples, 3 sites)"
    assert repr(store["head"]) == "SiteArray('head', shape=(10, 4), dtype=float16)"


def test_what_an_array_on_disk_cannot_do_is_refused(made):
    array = Store.open(made)["head"]
    with pytest.raises(ValueError, match="reading it is a copy"):
        np.asarray(array, copy=False)
    with pytest.raises(ValueError, match="at least one sample"):
        array.batches(0)
    with pytest.raises(IndexError, match="index 10 is out of bounds for axis 0 with size 10"):
        array[10]
    with pytest.raises(IndexError, match="only integers, slices"):
        array["a"]
    with pytest.raises(IndexError, match="only integers, slices"):
        array[True]


def test_bfloat16_is_widened_to_float32(tmp_path):
    import torch

    values = {site: torch.from_numpy(array.astype(np.float32)).bfloat16() for site, array in arrays(10).items()}
    bits = {site: value.view(torch.int16).numpy() for site, value in values.items()}
    store = Store.open(make_store(tmp_path / "s", dtype="bfloat16", values=bits))
    for site, value in values.items():
        assert store[site].dtype == np.float32
        np.testing.assert_array_equal(store[site][::-1], value.float().numpy()[::-1])
    assert isinstance(store["head"][0, 0], np.float32)


def test_only_the_shards_asked_for_are_touched(folder):
    for number in (0, 1, 3):
        (folder / f"shards/0000{number}.safetensors").unlink()
    store = Store.open(folder)
    np.testing.assert_array_equal(store[HIDDEN][[7, 6], 1], arrays(10)[HIDDEN][[7, 6], 1])
    np.testing.assert_array_equal(store[HIDDEN][8:5:-1], arrays(10)[HIDDEN][8:5:-1])
    with pytest.raises(StoreError, match=r"00001\.safetensors cannot be read"):
        store[HIDDEN][5]


def test_few_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(reader_module, "OPEN_SHARDS", 2)
    store = Store.open(make_store(tmp_path / "s"))
    np.testing.assert_array_equal(store["head"][:], arrays(10)["head"])
    assert store._shard.cache_info().currsize == 2


@pytest.mark.parametrize(
    ("asked", "found"),
    [("blocks.-1.resid.out", HIDDEN), ("blocks.*.resid.out", HIDDEN), ("blocks.-2.attn.pattern", PATTERN)],
)
def test_sites_are_found_by_negative_index_and_by_glob(made, asked, found):
    assert Store.open(made)[asked].site == found


def test_sites_that_are_not_there_or_not_alone_are_named(made):
    store = Store.open(made)
    with pytest.raises(SiteError, match=r"no site 'blocks.0.resid.out'") as error:
        store["blocks.0.resid.out"]
    assert HIDDEN in str(error.value)
    with pytest.raises(SiteError, match=r"'blocks\.\*\.\*' stands for 2 sites"):
        store["blocks.*.*"]
    with pytest.raises(SiteError, match="block 3 does not exist"):
        store["blocks.3.resid.out"]


def test_what_belongs_to_the_samples(made):
    store = Store.open(made)
    assert store.ids == tuple(f"i{k}" for k in range(10))
    assert store.labels is None and store.lengths is None and store.classes is None
    assert store.prefix == ("class",)
    assert store.grid() == store.grid(HIDDEN) == Grid(2, 2) and store.grid("head") is None
    assert store.tokens(HIDDEN).shape == (10, 5)


def test_stores_and_their_arrays_travel_to_other_processes(made):
    store = Store.open(made)
    store["head"][0]
    again = pickle.loads(pickle.dumps(store))
    array = pickle.loads(pickle.dumps(store["head"]))
    assert (again.path, again.manifest) == (store.path, store.manifest)
    np.testing.assert_array_equal(array[:], store["head"][:])


def test_the_safetensors_library_reads_our_shards(made):
    found = safetensors.numpy.load_file(made / "shards/00001.safetensors")
    for site, array in arrays(10).items():
        np.testing.assert_array_equal(found[site], array[3:6])


def test_we_read_what_the_safetensors_library_writes(tmp_path):
    values = {site: array[:3] for site, array in arrays(10).items()}
    safetensors.numpy.save_file(values, tmp_path / "x.safetensors", {"made": "elsewhere"})
    found = map_tensors(tmp_path / "x.safetensors", {s: a.shape for s, a in values.items()}, "float16")
    for site, array in values.items():
        np.testing.assert_array_equal(found[site], array)


# -- unfinished


def test_an_unfinished_store_opens_only_if_that_is_wanted(folder):
    edit(folder, lambda raw: (raw["shards"].pop(2), raw.update(complete=False)))
    with pytest.raises(StoreError, match="is not complete: 3 of 4 shards") as error:
        Store.open(folder)
    assert "6 of 10 samples" in str(error.value)
    assert "run the same record(...) again" in str(error.value) and "allow_partial=True" in str(error.value)
    store = Store.open(folder, allow_partial=True)
    assert len(store) == 6 and store[HIDDEN].shape == (6, 5, 3) and len(store.ids) == 6
    np.testing.assert_array_equal(store[HIDDEN][:], arrays(10)[HIDDEN][:6])
    assert store.tokens(HIDDEN).shape == (6, 5)
    assert "6 of 10 samples" in repr(store)
    assert len(pickle.loads(pickle.dumps(store))) == 6


def test_a_store_without_any_shard_is_an_empty_array(folder):
    edit(folder, lambda raw: (raw["shards"].clear(), raw.update(complete=False)))
    store = Store.open(folder, allow_partial=True)
    assert np.asarray(store[HIDDEN]).shape == (0, 5, 3)
    assert list(store["head"].batches(3)) == []


# -- verify


def test_a_whole_store_has_no_problems(made, capsys):
    assert Store.open(made).verify() == []
    assert Store.open(made).verify(progress=True) == []
    assert capsys.readouterr().out == "", "progress goes to the error stream"


def test_every_kind_of_damage_is_found(folder):
    shards = folder / "shards"
    (shards / "00000.safetensors").unlink()
    (shards / "00001.safetensors").write_bytes((shards / "00001.safetensors").read_bytes()[:-1])
    flipped = bytearray((shards / "00002.safetensors").read_bytes())
    flipped[-1] ^= 1
    (shards / "00002.safetensors").write_bytes(flipped)
    with (shards / "00003.safetensors").open("ab") as file:
        file.write(b"x")
    (shards / "00004.safetensors").write_bytes(b"from elsewhere")
    (folder / "samples.json").write_bytes((folder / "samples.json").read_bytes().replace(b"i7", b"i8"))
    found = {(problem.file, problem.kind) for problem in Store.open(folder).verify()}
    assert found == {
        ("shards/00000.safetensors", "missing"),
        ("shards/00001.safetensors", "truncated"),
        ("shards/00002.safetensors", "altered"),
        ("shards/00003.safetensors", "altered"),
        ("shards/00004.safetensors", "extra"),
        ("samples.json", "altered"),
    }
    assert str(Store.open(folder).verify()[0]) == "shards/00000.safetensors: missing (no such file)"


def test_every_single_altered_bit_is_found(folder):
    path = folder / "shards" / "00003.safetensors"
    whole = path.read_bytes()
    for at in np.random.default_rng(0).integers(0, len(whole) * 8, 20):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        assert [p.kind for p in Store.open(folder).verify()] == ["altered"], at


# -- damaged shards


def head(text: bytes, length: int | None = None) -> bytes:
    return (len(text) if length is None else length).to_bytes(8, "little") + text


SHARD = tensor_layout({PATTERN: (3, 2, 5, 5), HIDDEN: (3, 5, 3), "head": (3, 4)}, "float16")


def with_header(change) -> bytes:
    """A shard whose header was tampered with, as long as it was."""
    header = json.loads(SHARD[0][8:])
    change(header)
    text = json.dumps(header).encode()
    return head(text) + bytes(SHARD[2] - len(SHARD[0]))


BROKEN = {
    "empty": b"",
    "shorter than a head": b"123",
    "a head as long as the world": head(b"{}", 2**64 - 1),
    "a head longer than the file": head(b"{}", 1000),
    "a head of no length": head(b""),
    "no JSON": head(b"hello wo"),
    "no text": head(b"\xff\xfe\x00\x00"),
    "nested too deep": head(b"[" * 200_000),
    "a list": head(b"[1, 2]"),
    "no tensors": head(b"{}"),
    "one tensor missing": with_header(lambda h: h.pop("head")),
    "one tensor too many": with_header(lambda h: h.update(more=h["head"])),
    "another type": with_header(lambda h: h["head"].update(dtype="F32")),
    "another shape": with_header(lambda h: h["head"].update(shape=[4, 3])),
    "a shape that is none": with_header(lambda h: h["head"].update(shape="large")),
    "an entry that is none": with_header(lambda h: h.update(head=7)),
    "offsets outside": with_header(lambda h: h["head"].update(data_offsets=[10**9, 10**9 + 24])),
    "offsets before the beginning": with_header(lambda h: h["head"].update(data_offsets=[-24, 0])),
    "offsets backwards": with_header(lambda h: h["head"].update(data_offsets=[24, 0])),
    "offsets too wide": with_header(lambda h: h["head"].update(data_offsets=[0, 48])),
    "offsets that are none": with_header(lambda h: h["head"].update(data_offsets=["0", 24])),
    "no offsets": with_header(lambda h: h["head"].pop("data_offsets")),
}


@pytest.mark.parametrize("damage", BROKEN)
def test_a_damaged_shard_is_a_store_error(folder, damage):
    (folder / "shards" / "00001.safetensors").write_bytes(BROKEN[damage])
    store = Store.open(folder)
    with pytest.raises(StoreError, match=r"00001\.safetensors (is damaged|cannot be read)"):
        store["head"][4]
    np.testing.assert_array_equal(store["head"][:3], arrays(10)["head"][:3])


# -- damaged manifests


def set_at(*keys):
    """A change that puts the last of `keys` where the others lead to."""

    def change(raw):
        *path, name, value = keys
        for key in path:
            raw = raw[key]
        raw[name] = value

    return change


TWISTED = {
    "no format": (lambda raw: raw.pop("format"), "not a vitreous store"),
    "another format": (set_at("format", "zarr"), "not a vitreous store"),
    "a later version": (set_at("version", 2), "format version"),
    "a version that is none": (set_at("version", None), "format version"),
    "a missing field": (lambda raw: raw.pop("shards"), "fields of manifest.json"),
    "a field too many": (set_at("extra", 1), "fields of manifest.json"),
    "a model that is none": (set_at("model", "vit"), "damaged manifest: model"),
    "a depth of zero": (set_at("model", "depth", 0), "model.depth"),
    "samples as text": (set_at("data", "samples", "10"), "data.samples"),
    "no samples": (set_at("data", "samples", 0), "data.samples"),
    "yes as a number": (set_at("data", "samples", True), "data.samples"),
    "a fraction of samples": (set_at("data", "samples", 9.5), "data.samples"),
    "shards of no samples": (set_at("settings", "shard_samples", 0), "settings.shard_samples"),
    "an unknown type": (set_at("settings", "dtype", "int8"), "settings.dtype"),
    "tokens that are none": (set_at("settings", "tokens", "some"), "settings.tokens"),
    "tokens without their file": (set_at("settings", "tokens", 3), "damaged manifest: files"),
    "other sites": (set_at("settings", "sites", ["head"]), "damaged manifest: sites"),
    "a size of words": (set_at("settings", "size", ["a"]), r"settings.size\[0\]"),
    "negative lengths": (set_at("sites", "head", "shape", [-4]), "sites.head.shape"),
    "axes that do not fit": (set_at("sites", "head", "axes", []), "sites.head.shape"),
    "half a grid": (set_at("sites", HIDDEN, "grid", [2]), r"sites.blocks.2.resid.out.grid"),
    "an empty grid": (set_at("sites", HIDDEN, "grid", [0, 2]), r"sites.blocks.2.resid.out.grid"),
    "a larger shape": (set_at("sites", "head", "shape", [10**18]), r"shards\[0\]"),
    "a path out of the folder": (set_at("shards", 1, "file", "../../x"), r"shards\[1\].file"),
    "an absolute path": (set_at("shards", 1, "file", "/etc/passwd"), r"shards\[1\].file"),
    "another shard's file": (set_at("shards", 1, "file", "shards/00000.safetensors"), r"shards\[1\].file"),
    "a file out of the folder": (
        lambda raw: raw["files"].update({"../x": raw["files"]["samples.json"]}),
        r"files.\.\./x",
    ),
    "samples that overlap": (set_at("shards", 1, "first", 4), r"shards\[1\]"),
    "another last sample": (set_at("shards", 1, "last", 4), r"shards\[1\]"),
    "no hash": (set_at("shards", 1, "sha256", "abc"), r"shards\[1\]"),
    "another length": (set_at("shards", 1, "bytes", 3), r"shards\[1\]"),
    "a shard twice": (lambda raw: raw["shards"].insert(1, raw["shards"][1]), "damaged manifest: shards"),
    "shards out of order": (lambda raw: raw["shards"].reverse(), "damaged manifest: shards"),
    "a shard beyond the end": (set_at("shards", 3, "first", 3000), r"shards\[3\].file"),
    "complete without being so": (lambda raw: raw["shards"].pop(), "damaged manifest: complete"),
}


@pytest.mark.parametrize("twist", TWISTED)
def test_a_twisted_manifest_is_a_store_error_that_names_the_field(folder, twist):
    change, text = TWISTED[twist]
    edit(folder, change)
    with pytest.raises(StoreError, match=text):
        Store.open(folder, allow_partial=True)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 200_000, b"null", b'"x"', b"[]", b"9" * 5000])
def test_a_manifest_that_is_no_json_object_is_a_store_error(folder, content):
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(StoreError):
        Store.open(folder)


def test_every_truncated_manifest_is_a_store_error(folder):
    whole = (folder / "manifest.json").read_bytes()
    for length in range(0, len(whole) - 2, 37):
        (folder / "manifest.json").write_bytes(whole[:length])
        with pytest.raises(StoreError, match="damaged manifest"):
            Store.open(folder)


def test_no_store_at_all(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(StoreError, match=r"no store here: there is no manifest\.json"):
            Store.open(path)


def test_a_folder_in_place_of_the_manifest(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(StoreError, match="damaged manifest"):
        Store.open(tmp_path)


def test_reading_and_writing_a_manifest_gives_the_same_bytes(folder):
    before = (folder / "manifest.json").read_bytes()
    write_manifest(folder, read_manifest(folder))
    assert (folder / "manifest.json").read_bytes() == before


# -- links and side files


def test_a_link_out_of_the_folder_is_not_followed(folder, tmp_path):
    shard = folder / "shards" / "00001.safetensors"
    outside = tmp_path / "outside.safetensors"
    shard.rename(outside)
    shard.symlink_to(outside)
    with pytest.raises(StoreError, match="leads out of the store"):
        Store.open(folder)["head"][4]
    (problem,) = Store.open(folder).verify()
    assert problem.kind == "altered" and "a link out of the store" in problem.detail


def test_a_store_may_itself_be_linked_to(made, tmp_path):
    (tmp_path / "link").symlink_to(made, target_is_directory=True)
    np.testing.assert_array_equal(Store.open(tmp_path / "link")["head"][:], arrays(10)["head"])


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff", b"[" * 200_000])
def test_damaged_samples_are_a_store_error(folder, content):
    (folder / "samples.json").write_bytes(content)
    with pytest.raises(StoreError, match=r"samples\.json cannot be read"):
        _ = Store.open(folder).ids


TEN = [f"i{k}" for k in range(10)]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"ids": ["a"]}, "ids"),
        ({"ids": None}, "ids"),
        ({"ids": 3}, "ids"),
        ({"ids": list(range(10))}, "ids"),
        ({"labels": [0] * 9}, "labels"),
        ({"labels": TEN}, "labels"),
        ({"lengths": [1.5] * 10}, "lengths"),
        ({"classes": "ab"}, "classes"),
        ({"classes": [1]}, "classes"),
    ],
)
def test_samples_that_do_not_fit_are_a_store_error(folder, change, name):
    raw = {"ids": TEN, "classes": None, "labels": None, "lengths": None}
    (folder / "samples.json").write_bytes(json_bytes(raw))
    assert Store.open(folder).ids == tuple(TEN)
    (folder / "samples.json").write_bytes(json_bytes(raw | change))
    with pytest.raises(StoreError, match=rf"samples\.json does not fit the manifest: {name}"):
        _ = Store.open(folder).labels
