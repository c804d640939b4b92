"""Stores on object storage: the same bytes as in a folder, through errors, and read through a cache."""

from __future__ import annotations

import builtins
import hashlib
import json
import os
import pickle
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from object_server import Door, ObjectServer
from test_record_engines import SETTINGS, SITES, files, subject_and_images

import vitreous as vt
from vitreous import places
from vitreous.places import Bucket
from vitreous.recording import record

fsspec = pytest.importorskip("fsspec", reason="the extra 'cloud' is not installed")
pytest.importorskip("s3fs", reason="the extra 'cloud' is not installed")
pytest.importorskip("moto", reason="moto, the S3 server of these tests, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectServer]:
    found = ObjectServer()
    yield found
    found.close()


@pytest.fixture
def door(server, monkeypatch, tmp_path) -> Iterator[Door]:
    found = Door(server.port)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(places, "WAITS", (0.01, 0.01, 0.01))
    fsspec.filesystem("s3").clear_instance_cache()
    yield found
    found.close()


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("local") / "store"
    record(*subject_and_images(), SITES, folder, **SETTINGS)
    return folder


def there(url: str) -> dict[str, str]:
    """Hash of every object below an address, apart from the one that says when and where."""
    system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    below = [path for path in system.find(root) if path != root]  # as `Bucket.all_names`
    found = {path.removeprefix(root).lstrip("/"): system.cat_file(path) for path in below}
    return {name: hashlib.sha256(data).hexdigest() for name, data in sorted(found.items()) if name != "run.json"}


@pytest.mark.parametrize("engine", ["local", "local:2"])
def test_a_store_on_s3_has_the_bytes_of_one_in_a_folder(engine, door, local):
    url = f"s3://bucket/same-{engine.replace(':', '-')}"
    store = record(*subject_and_images(), SITES, url, engine=engine, **SETTINGS)
    assert there(url) == files(local)
    assert json.loads(Bucket(url).read("run.json"))["status"] == "done"
    assert not list((Bucket(url).cache / "write" / "shards").iterdir()), "what was sent is not kept twice"
    other = vt.Store.open(local)
    for site in SITES:
        np.testing.assert_array_equal(store[site][:], other[site][:])
    assert (store.ids, store.tokens(SITES[0]).tolist()) == (other.ids, other.tokens(SITES[0]).tolist())
    assert store.verify() == [] and repr(store).startswith(f"Store('{url}'")


def test_memory_is_a_place_too(local, monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    record(*subject_and_images(), SITES, "memory://some/store", **SETTINGS)
    assert there("memory://some/store") == files(local)


def test_reading_goes_through_a_cache_that_cannot_be_out_of_date(door, local, monkeypatch):
    url = "s3://bucket/cached"
    store = record(*subject_and_images(), SITES, url, **SETTINGS)
    before = door.count
    first = store[SITES[0]][:4]
    assert door.count > before
    before = door.count
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(store))[SITES[0]][:4], first)
    assert door.count - before <= 2, "the manifest again, no shard"
    kept = sorted((Bucket(url).cache / "read").iterdir())
    shutil.rmtree(Bucket(url).cache / "read")
    np.testing.assert_array_equal(vt.Store.open(url)[SITES[0]][:4], first)
    assert {path.name for path in (Bucket(url).cache / "read").iterdir()} <= {path.name for path in kept}


def test_errors_now_and_then_are_gone_through(door, local):
    """Every third request fails in one of three ways."""
    door.fails = lambda _, __, n: ("500", "cut", "half")[n // 3 % 3] if n % 3 == 0 else None
    url = "s3://bucket/shaky"
    store = record(*subject_and_images(), SITES, url, **SETTINGS)
    np.testing.assert_array_equal(store[SITES[1]][:], vt.Store.open(local)[SITES[1]][:])
    door.fails = lambda *_: None
    assert there(url) == files(local)


def test_a_store_that_goes_away_is_named_and_gone_on_with_when_it_is_back(door, local, monkeypatch):
    url = "s3://bucket/dropped"
    total, seed = len(list((local / "shards").iterdir())), int(os.environ.get("VITREOUS_FAULT_SEED", "0"))
    assert total > 2
    shards, kept = 0, int(np.random.default_rng(seed).integers(1, total))

    def gone(method: str, path: str, number: int) -> str | None:
        nonlocal shards
        shards += method in ("PUT", "POST") and "/shards/" in path
        return "cut" if shards > kept else None

    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    door.fails = gone
    with pytest.raises(vt.StoreError, match=r"s3://bucket/dropped cannot be reached(.|\n)*what is finished is kept"):
        record(*subject_and_images(), SITES, url, **SETTINGS)
    door.fails = lambda *_: None
    partial = vt.Store.open(url, allow_partial=True)
    assert 0 < len(partial) < 23
    seen = []
    original = vt.ImageSet.batches
    monkeypatch.setattr(
        vt.ImageSet, "batches", lambda self, *a, **k: (seen.append(p[0]) or (p, x) for p, x in original(self, *a, **k))
    )
    record(*subject_and_images(), SITES, url, **SETTINGS)
    assert min(seen) >= len(partial), "finished shards are not computed again"
    assert there(url) == files(local)


def test_objects_that_were_cut_short_or_altered_are_found(door, local):
    url = "s3://bucket/damaged"
    store = record(*subject_and_images(), SITES, url, **SETTINGS)
    system, root = fsspec.core.url_to_fs(url)
    shards = [shard.file for shard in store.manifest.shards]
    whole = system.cat_file(f"{root}/{shards[0]}")
    system.pipe_file(f"{root}/{shards[0]}", whole[:-10])
    system.pipe_file(f"{root}/{shards[1]}", b"x" + system.cat_file(f"{root}/{shards[1]}")[1:])
    system.rm_file(f"{root}/{shards[2]}")
    found = {problem.file: problem.kind for problem in vt.Store.open(url).verify()}
    assert found == {shards[0]: "truncated", shards[1]: "altered", shards[2]: "missing"}
    with pytest.raises(vt.StoreError, match=r"is damaged(.|\n)*sha256"):
        vt.Store.open(url)[SITES[0]][:2]
    system.rm_file(f"{root}/{shards[1]}")
    record(*subject_and_images(), SITES, url, **SETTINGS)
    assert there(url) == files(local) and vt.Store.open(url).verify() == []


# -- runs


def splitting(out) -> None:
    subject, images = subject_and_images()
    asked = {"tokens_per_image": "all", "units": range(6), "top_k": 100, "min_cluster_size": 5, "progress": False}
    vt.disentangle(subject, images, "blocks.1.mlp.out", out=out, **asked)


def aligning(out) -> None:
    rng = np.random.default_rng(0)
    arrays = {"one": {f"layer {k}": rng.standard_normal((40, 5, 6), np.float32) for k in range(2)}}
    responses = rng.standard_normal((40, 3)).astype(np.float32)
    vt.align(arrays, None, responses, width=8, nodes=10, epochs=4, out=out, progress=False)


def reporting(out) -> None:
    rng = np.random.default_rng(0)
    features = np.repeat(rng.standard_normal((200, 2, 1, 6), np.float32), 2, axis=3)
    vt.structure_report({"one": vt.structure(features)}, out, progress=False)


RUNS = [splitting, aligning, reporting]


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> dict[str, dict[str, str]]:
    found = {}
    for run in RUNS:
        run(tmp_path_factory.mktemp("alone") / run.__name__)
        run(folder := tmp_path_factory.mktemp("alone") / run.__name__)
        found[run.__name__] = files(folder)
    return found


def left(url: str) -> dict[str, str]:
    return {name: digest for name, digest in there(url).items() if name != ".writer"}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__)
def test_a_run_that_loses_its_storage_goes_on_when_it_is_back(run, door, alone, monkeypatch, tmp_path):
    """Undisturbed; with the storage gone at a random moment; and then on another machine.

    How many requests a run takes depends on what is there already and on the clock. If one is done before its moment,
    all begins anew with earlier ones; a moment before the first request always strikes.
    """
    before = door.count
    run("s3://bucket/whole/" + run.__name__)
    requests = door.count - before
    assert left("s3://bucket/whole/" + run.__name__) == alone[run.__name__]
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    rng = np.random.default_rng(int(os.environ.get("VITREOUS_FAULT_SEED", "0")))
    for attempt in range(20):
        url = f"s3://bucket/shaky/{run.__name__}/{attempt}"
        struck = []
        for machine in ("first", "second"):
            monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / f"{machine}-{attempt}"))
            struck.append(loses_storage(run, url, door, int(rng.integers(requests)) >> attempt))
        if all(struck):
            break
    assert all(struck)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "third"))
    run(url)
    assert left(url) == alone[run.__name__]


def loses_storage(run, url: str, door, kept: int) -> bool:
    """Whether the storage went away, after so many requests, before the run was done; if so, it has to say so."""
    last = door.count + kept
    door.fails = lambda _, __, n: "cut" if n > last else None
    try:
        run(url)
    except vt.StoreError as error:
        assert re.search(r"cannot be reached(.|\n)*what is finished is kept", str(error)), error
        return True
    finally:
        door.fails = lambda *_: None
    return False


def test_a_store_that_goes_away_while_it_is_read(door, alone, monkeypatch, tmp_path):
    """Splitting and alignment read recordings that lie there."""
    subject, images = subject_and_images()
    settings = {**SETTINGS, "tokens": "all", "dtype": "float32"}
    store = record(subject, images, ["blocks.1.mlp.hidden", "blocks.1.attn.out"], "s3://bucket/read", **settings)
    responses = np.random.default_rng(0).standard_normal((23, 3)).astype(np.float32)
    asked = {"units": range(4), "tokens_per_image": "all", "top_k": 100, "min_cluster_size": 5, "progress": False}

    def work(out: Path) -> None:
        vt.disentangle(subject, store, "blocks.1.mlp.out", out=out / "split", **asked)
        vt.align({"tiny": store}, None, responses, width=8, nodes=10, epochs=2, out=out / "aligned", progress=False)

    work(tmp_path / "whole")
    monkeypatch.setattr("s3fs.core.S3FileSystem.retries", 1)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.filesystem("s3").clear_instance_cache()
    store = vt.Store.open("s3://bucket/read")
    shutil.rmtree(Bucket("s3://bucket/read").cache / "read")
    kept = door.count + int(os.environ.get("VITREOUS_FAULT_SEED", "2")) % len(store.manifest.shards)
    door.fails = lambda _, __, n: "cut" if n > kept else None
    with pytest.raises(vt.StoreError, match="cannot be reached"):
        work(tmp_path / "shaky")
    door.fails = lambda *_: None
    work(tmp_path / "shaky")
    assert files(tmp_path / "shaky") == files(tmp_path / "whole")


def test_a_run_that_was_killed_goes_on_on_another_machine(door, alone, monkeypatch, tmp_path):
    from vitreous import mirrors
    from vitreous.lenses.disentangle_work import Work

    url, written, original = "s3://bucket/moved", [], Work.write

    def write(self, unit, split):
        if len(written) == 4:
            raise SystemExit  # nothing tidies up after it
        written.append(unit)
        original(self, unit, split)
        until = time.monotonic() + 20
        while f"unit-{unit:06d}" not in str(there(url)) and time.monotonic() < until:
            time.sleep(0.02)

    with monkeypatch.context() as patched, pytest.raises(SystemExit):
        patched.setattr(mirrors, "EVERY", 0.05)
        patched.setattr(Work, "write", write)
        splitting(url)
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "elsewhere"))
    with monkeypatch.context() as patched:
        patched.setattr(Work, "write", lambda self, unit, split: (written.append(unit), original(self, unit, split)))
        splitting(url)
    assert sorted(written) == list(range(6)), "what was finished there is not done again here"
    assert left(url) == alone["splitting"]
    assert len(vt.Disentanglement.load(url).units) == 6


def test_what_was_taken_away_there_is_not_revived_from_here(door):
    url = "s3://bucket/deleted"
    aligning(url)
    system, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
    system.rm(root, recursive=True)
    with pytest.raises(vt.StoreError, match="nothing at this address"):
        vt.ChannelAlign.load(url)


def test_processes_of_torchrun_are_told_that_they_share_a_folder(door, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(vt.SettingsError, match="processes of torchrun write into one folder"):
        aligning("s3://bucket/ranks")


def test_what_is_refused(door, monkeypatch):
    with pytest.raises(vt.StoreError, match=r"no store here(.|\n)*s3://bucket/nothing"):
        vt.Store.open("s3://bucket/nothing")
    Bucket("s3://bucket/foreign").write("diary.txt", b"private")
    with pytest.raises(vt.StoreError, match="is not empty and not a store"):
        record(*subject_and_images(), SITES, "s3://bucket/foreign", **SETTINGS)
    record(*subject_and_images(), SITES, "s3://bucket/there", **SETTINGS)
    with pytest.raises(vt.StoreError, match="resume=False"):
        record(*subject_and_images(), SITES, "s3://bucket/there", resume=False, **SETTINGS)
    with pytest.raises(vt.SettingsError, match="no such kind of storage"):
        vt.Store.open("carrier-pigeon://bucket/store")
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "fsspec":
            raise ImportError("No module named 'fsspec'")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(vt.SettingsError, match=r"pip install 'vitreous\[cloud\]'"):
        vt.Store.open("s3://bucket/there")


def test_storage_that_may_not_be_used_is_named_at_once(monkeypatch, tmp_path):
    """Such as a bucket of somebody else; asking again would not help."""
    from fsspec.implementations.memory import MemoryFileSystem

    asked = []

    def forbidden(*_, **__):
        asked.append(1)
        raise PermissionError("Forbidden")

    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    monkeypatch.setattr(MemoryFileSystem, "cat_file", forbidden)
    with pytest.raises(vt.StoreError, match="memory://private may not be read or written: Forbidden"):
        vt.Store.open("memory://private")
    assert len(asked) == 1


def test_the_cache_lies_where_it_is_told_to(monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    assert Bucket("s3://a/b").cache == Bucket("s3://a/b/").cache
    assert Bucket("s3://a/b").cache.parent == tmp_path != Bucket("s3://a/c").cache
    monkeypatch.delenv("VITREOUS_CACHE")
    assert str(Bucket("s3://a/b").cache).startswith(str(Path.home()))
