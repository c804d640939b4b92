"""ImageSet: order, selection, fingerprint, batches, travel to other processes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_files import pixels, png, some, write, write_zip
from PIL import Image

from vitreous.axes import Size
from vitreous.errors import ImageError, SettingsError
from vitreous.images import ImageSet
from vitreous.preprocess import Preprocess

SMALL = Preprocess(Size(8, 8), 8)

MANY = ImageSet.from_arrays(some(23, 2, 3), labels=np.arange(23) % 5, ids=[f"p{k}" for k in range(23)])


@settings(max_examples=200, deadline=None)
@given(st.slices(23))
def test_slices_select_like_a_list(key):
    chosen = MANY[key]
    assert list(chosen.ids) == list(MANY.ids)[key]
    assert chosen.labels.tolist() == MANY.labels[key].tolist()
    assert [pixels(p).tobytes() for p in chosen] == [pixels(p).tobytes() for p in MANY][key]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-23, 22), unique_by=lambda k: k % 23), st.data())
def test_positions_bools_and_ids_agree_and_selections_compose(positions, data):
    chosen = MANY[positions]
    assert chosen.ids == tuple(MANY.ids[k] for k in positions)
    assert chosen.ids == MANY[np.array(positions, int)].ids == MANY[list(chosen.ids)].ids == MANY[tuple(positions)].ids
    assert [p.label for p in chosen] == [MANY[k].label for k in positions]
    bools = np.zeros(23, bool)
    bools[positions] = True
    assert MANY[bools].ids == MANY[bools.tolist()].ids == MANY[np.sort(np.flatnonzero(bools))].ids
    again = data.draw(st.lists(st.integers(0, len(positions) - 1), unique=True)) if positions else []
    assert chosen[again].ids == tuple(chosen.ids[k] for k in again)
    assert chosen[again].fingerprint == MANY[[positions[k] for k in again]].fingerprint


@given(st.integers(-23, 22))
def test_one_position_is_a_picture(k):
    assert MANY[k].id == MANY.ids[k] == MANY[np.int32(k)].id == MANY[MANY.ids[k]].id


def test_what_cannot_be_selected():
    for k in (23, -24):
        with pytest.raises(IndexError, match="set of 23"):
            MANY[k]
    with pytest.raises(ImageError, match="no picture with this id") as caught:
        MANY["p99"]
    assert "nearest:  p9" in str(caught.value)
    for key, words in (
        ([0, 23], "positions outside"),
        ([True], "one for each of 23"),
        ([1.5], "not chosen by this"),
        (np.zeros((2, 2), int), "not chosen by this"),
        (3.0, "not chosen by this"),
        (True, "not chosen by this"),
        (None, "not chosen by this"),
        ([1, 1], "the same id"),
        (["p1", "zz"], "no picture with this id"),
    ):
        with pytest.raises(ImageError, match=words):
            MANY[key]


def test_the_empty_selection():
    empty = MANY[[]]
    assert (len(empty), list(empty), list(empty.batches(SMALL, 4))) == (0, [], [])
    assert empty.fingerprint != MANY.fingerprint


def test_the_fingerprint_sees_every_part_and_the_order():
    array, masks = some(4), np.zeros((4, 12, 16), int)
    base = {"labels": [0, 1, 2, 3], "masks": masks, "instances": masks, "boxes": [[[0, 0, 1, 1]]] * 4}
    other = array.copy()
    other[3, 11, 15, 2] ^= 1
    touched = masks.copy()
    touched[3, 11, 15] = 1
    prints = {
        ImageSet.from_arrays(images, **sides).fingerprint
        for images, sides in (
            (array, base),
            (other, base),
            (array, {**base, "labels": [0, 1, 3, 2]}),
            (array, {**base, "labels": None}),
            (array, {**base, "masks": touched}),
            (array, {**base, "instances": touched}),
            (array, {**base, "boxes": [[[0, 0, 1, 1.5]]] * 4}),
            (array, {**base, "ids": ["0", "1", "2", "3"]}),
            (array.reshape(4, 16, 12, 3), {"labels": [0, 1, 2, 3]}),
            (array, {"labels": [0, 1, 2, 3]}),
        )
    }
    assert len(prints) == 10
    images = ImageSet.from_arrays(array, **base)
    assert images[::-1].fingerprint not in prints
    assert (
        images[::-1][::-1].fingerprint == images.fingerprint == ImageSet.from_arrays(array.copy(), **base).fingerprint
    )


def test_the_fingerprint_is_the_same_in_another_process_and_on_another_day():
    code = (
        "import numpy as np; from vitreous.images import ImageSet;"
        "print(ImageSet.from_arrays(np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3), labels=[1, 0]).fingerprint)"
    )
    here = ImageSet.from_arrays(np.arange(96, dtype=np.uint8).reshape(2, 4, 4, 3), labels=[1, 0]).fingerprint
    there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert here == there == "ee9b5d5079105f2e36f91c5f6da31c20e55935f5dd099df3332e1fa863cdb391"


def test_the_fingerprint_does_not_depend_on_the_path_or_on_folder_against_zip(tmp_path):
    files = {f"{c}/{k}.png": png(x) for c in "ab" for k, x in enumerate(some(3))}
    one, two = write(tmp_path / "one", files), write(tmp_path / "deep" / "two", files)
    archive = write_zip(tmp_path / "three.zip", files)
    prints = {ImageSet.open(path).fingerprint for path in (one, two, archive)}
    assert len(prints) == 1
    (two / "b" / "1.png").write_bytes(png(some(1, seed=5)[0]))
    assert ImageSet.open(two).fingerprint not in prints


def test_the_fingerprint_is_computed_once_and_only_when_asked(tmp_path):
    images = ImageSet.open(write(tmp_path, {"a.png": png(some(1)[0])}))
    first = images.fingerprint
    (tmp_path / "a.png").unlink()
    assert images.fingerprint == first


def test_open_takes_whatever_holds_pictures(tmp_path):
    array = some(3)
    files = {f"{k}.png": png(x) for k, x in enumerate(array)}
    folder = write(tmp_path / "f", files)
    paths = [folder / "2.png", folder / "0.png"]
    sources = {
        "folder": (folder, [0, 1, 2]),
        "string": (str(folder), [0, 1, 2]),
        "zip": (write_zip(tmp_path / "f.zip", files), [0, 1, 2]),
        "file": (folder / "1.png", [1]),
        "files": (paths, [2, 0]),
        "strings": ([str(p) for p in paths], [2, 0]),
        "array": (array, [0, 1, 2]),
        "arrays": (list(array), [0, 1, 2]),
        "PIL": ([Image.fromarray(x) for x in array], [0, 1, 2]),
        "tuple": (tuple(Image.fromarray(x) for x in array), [0, 1, 2]),
    }
    for name, (source, expected) in sources.items():
        images = ImageSet.open(source)
        assert [pixels(p).tobytes() for p in images] == [array[k].tobytes() for k in expected], name
    images = ImageSet.open(folder)
    assert ImageSet.open(images) is images
    assert ImageSet.open(paths).ids == ("2.png", "0.png")
    assert ImageSet.open(array, labels=[0, 1, 2]).labels.tolist() == [0, 1, 2]


def test_open_names_what_it_cannot_use(tmp_path):
    with pytest.raises(ImageError, match="no known source of pictures") as caught:
        ImageSet.open(3)
    assert "'int'" in str(caught.value)
    with pytest.raises(ImageError, match="an empty list of picture files"):
        ImageSet.from_files([])
    with pytest.raises(ImageError, match="no such picture file"):
        ImageSet.open([tmp_path / "a.png"])
    write(tmp_path, {"a.png": png(some(1)[0])})
    with pytest.raises(ImageError, match="two pictures have the same id"):
        ImageSet.open([tmp_path / "a.png"] * 2)


def test_files_of_different_folders_keep_the_part_that_differs(tmp_path):
    write(tmp_path, {"x/in/a.png": png(some(1)[0]), "y/a.png": png(some(1)[0])})
    assert ImageSet.open([tmp_path / "x/in/a.png", tmp_path / "y/a.png"]).ids == ("x/in/a.png", "y/a.png")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 23), st.integers(1, 30), st.integers(0, 6))
def test_batch_k_always_holds_the_same_samples(count, size, start):
    images = MANY[:count]
    whole = [SMALL(picture.image) for picture in images]
    got = list(images.batches(SMALL, size, start))
    assert [list(positions) for positions, _ in got] == [
        list(range(k, min(k + size, count))) for k in range(start * size, count, size)
    ]
    for positions, x in got:
        assert x.dtype == np.float32
        assert x.flags.c_contiguous
        assert (x == np.stack([whole[k] for k in positions])).all()


def picture_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("vitreous-pictures")]


def test_closing_the_batches_ends_the_threads():
    batches = MANY.batches(SMALL, 2)
    assert not picture_threads(), "nothing starts before the first batch is asked for"
    next(batches)
    assert picture_threads()
    batches.close()
    assert not picture_threads()


def test_batches_are_decoded_ahead_but_not_all_of_them():
    seen: list[int] = []
    ready = threading.Event()

    def note(image):
        seen.append(1)
        if len(seen) >= 4:
            ready.set()
        return SMALL(image)

    batches = MANY.batches(note, 2)
    next(batches)
    assert ready.wait(10), "the next batch is not under way while the caller holds this one"
    batches.close()
    assert len(seen) <= 6


def test_errors_surface_at_their_batch_with_the_name_of_the_picture(tmp_path):
    files = {f"{k}.png": png(x) for k, x in enumerate(some(6))} | {"4.png": b"junk"}
    batches = ImageSet.open(write(tmp_path, files)).batches(SMALL, 2)
    assert next(batches)[0].tolist() == [0, 1]
    assert next(batches)[0].tolist() == [2, 3]
    with pytest.raises(ImageError, match="not a picture") as caught:
        next(batches)
    assert "4.png" in str(caught.value)
    assert caught.value.__notes__ == ["while preparing picture '4.png'"]
    assert not picture_threads()


def test_errors_of_the_preprocessing_surface_as_they_are():
    def fail(image):
        raise KeyError("mean")

    with pytest.raises(KeyError, match="mean") as caught:
        next(MANY.batches(fail, 2))
    assert caught.value.__notes__ == ["while preparing picture 'p0'"]


def test_preprocessing_that_keeps_sizes_is_refused():
    images = ImageSet.from_arrays([some(1)[0], some(1, 5, 5)[0]])
    with pytest.raises(ImageError, match="pictures of different sizes"):
        next(images.batches(lambda image: np.asarray(image, np.float32).transpose(2, 0, 1), 2))


@pytest.mark.parametrize(("size", "start"), [(0, 0), (-1, 0), (2, -1)])
def test_batch_numbers_are_checked_at_once(size, start):
    with pytest.raises(SettingsError, match="batch_size is at least 1"):
        MANY.batches(SMALL, size, start)


@pytest.mark.parametrize("kind", ["folder", "zip", "arrays", "PIL"])
def test_sets_travel_to_other_processes(tmp_path, kind, monkeypatch):
    array = some(5)
    files = {f"{c}/{k}.png": png(x) for c in "ab" for k, x in enumerate(array)}
    monkeypatch.chdir(tmp_path)
    if kind == "folder":
        images = ImageSet.open(write(Path("f"), files))
    elif kind == "zip":
        images = ImageSet.open(write_zip(Path("f.zip"), files))
    else:
        images = ImageSet.open(array if kind == "arrays" else [Image.fromarray(x) for x in array], labels=range(5))
    pixels(images[0])
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(images[1:4]))
    assert again.fingerprint == images[1:4].fingerprint
    assert (again.labels == images.labels[1:4]).all()
    assert [pixels(p).tobytes() for p in again] == [pixels(p).tobytes() for p in images[1:4]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_opens_the_zip_anew(tmp_path):
    images = ImageSet.open(write_zip(tmp_path / "f.zip", {f"{k}.png": png(x) for k, x in enumerate(some(5))}))
    before, handle = images.fingerprint, images.source.files._handle()
    child = os.fork()
    if child == 0:
        same = images[:].fingerprint == before
        os._exit(0 if same and images.source.files._handle() is not handle else 1)
    assert images[:].fingerprint == before
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_several_threads_read_one_zip(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    images = ImageSet.open(write_zip(tmp_path / "f.zip", {f"{k:02}.png": png(x) for k, x in enumerate(some(20))}))
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda k: pixels(images[k]).tobytes(), list(range(20)) * 5))
    assert got == [x.tobytes() for x in some(20)] * 5


@pytest.mark.data
def test_a_thousand_real_pictures(data_root):
    path = data_root / "imagenet_sample" / "images.zip"
    images = ImageSet.open(path)
    assert len(images) == 1000
    with zipfile.ZipFile(path) as archive:
        assert list(images.ids) == sorted(archive.namelist())
    assert (images.ids[0], images.ids[207]) == ("n01440764_tench.jpg", "n02099601_golden_retriever.jpg")
    assert len(images.readable()) == 1000
    count = 0
    for positions, x in images.batches(Preprocess(Size(224, 224), 224), 50):
        assert x.shape == (50, 3, 224, 224)
        assert np.isfinite(x).all()
        assert (x.std(axis=(1, 2, 3)) > 0.01).all()
        count += len(positions)
    assert count == 1000


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "prefix", "count"), [("dtd10", "", 220), ("voc_animals", "images/", 120), ("pets", "images/", 259)]
)
def test_other_real_zips(data_root, name, prefix, count):
    path = data_root / name / f"{name}.zip"
    images = ImageSet.from_zip(path, prefix=prefix).readable()
    assert (len(images), images.skipped) == (count, ())
    assert (images.classes is not None) == (name == "dtd10")
