"""A recording is the same bytes whoever makes it: this process, workers, a Ray cluster, the processes of torchrun."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

import vitreous as vt
from vitreous.memory import Parts
from vitreous.recording import record
from vitreous.recording.writing import ShardWriter

SAMPLES = 23  # the last batch and the last shard are short
SETTINGS = {"tokens": 7, "batch_size": 2, "shard_mb": 0.006, "progress": False}
SITES = ("blocks.0.resid.out", "blocks.1.attn.pattern")


def subject_and_images():
    """The same in every process."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=3
        )
    pictures = np.random.default_rng(0).integers(0, 256, (SAMPLES, 32, 32, 3), np.uint8)
    return vt.wrap(module, name="tiny"), vt.ImageSet.from_arrays(pictures)


def files(folder: Path) -> dict[str, str]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("alone") / "store"
    record(*subject_and_images(), SITES, folder, **SETTINGS)
    return files(folder)


@pytest.mark.parametrize("engine", ["local:2", "ray:2"])
def test_workers_give_the_same_bytes(engine, undisturbed, tmp_path):
    if engine.startswith("ray"):
        pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    store = record(*subject_and_images(), SITES, tmp_path / "store", engine=engine, **SETTINGS)
    assert files(tmp_path / "store") == undisturbed
    assert len(store) == SAMPLES and len(store.manifest.shards) > 5
    assert json.loads((tmp_path / "store" / "run.json").read_text())["status"] == "done"


class Fatal(vt.ImageSet):
    """Pictures of which one kills the process that reads it, the first time."""

    def batches(self, *args, **kwargs):
        mark = Path(os.environ["VITREOUS_TEST_MARK"])
        for positions, x in super().batches(*args, **kwargs):
            if 12 in positions and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield positions, x


@pytest.mark.parametrize("engine", ["local:2", "ray:2"])
def test_a_worker_killed_in_the_middle_changes_nothing(engine, undisturbed, tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.setenv("VITREOUS_TEST_MARK", str(mark))
    if engine.startswith("ray"):
        ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        ray.shutdown()  # a cluster of its own, which knows the mark
    subject, images = subject_and_images()
    fatal = Fatal(**{name: images.__dict__[name] for name in images.__dataclass_fields__})
    record(subject, fatal, SITES, tmp_path / "store", engine=engine, **SETTINGS)
    assert mark.exists()
    assert files(tmp_path / "store") == undisturbed
    if engine.startswith("ray"):
        ray.shutdown()


def test_what_one_engine_began_another_ends(undisturbed, tmp_path, monkeypatch):
    original = ShardWriter._seal

    def seal(self, number, draft):
        if number >= 2:
            draft.close()
            raise RuntimeError("lights out")
        return original(self, number, draft)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="lights out"):
        patched.setattr(ShardWriter, "_seal", seal)
        record(*subject_and_images(), SITES, tmp_path / "store", **SETTINGS)
    record(*subject_and_images(), SITES, tmp_path / "store", engine="local:2", **SETTINGS)
    assert files(tmp_path / "store") == undisturbed


def test_what_workers_refuse_is_said_as_ever(tmp_path):
    subject, images = subject_and_images()
    with torch.no_grad():
        subject.module.blocks[0].mlp.fc2.weight.fill_(torch.inf)
    with pytest.raises(vt.StoreError, match=r"not finite at 'blocks.0.resid.out' for sample '000000"):
        record(subject, images, SITES, tmp_path / "store", engine="local:2", **SETTINGS)
    assert json.loads((tmp_path / "store" / "run.json").read_text())["status"] == "failed"


RANKS = """
import sys
sys.path.insert(0, {tests!r})
from test_record_engines import SETTINGS, SITES, record, subject_and_images
store = record(*subject_and_images(), SITES, {out!r}, engine="torchrun", **SETTINGS)
assert len(store) == {samples}
"""


def test_ranks_take_shards_in_turn_without_a_duplicate(undisturbed, tmp_path):
    """Three ranks and a number of shards that three does not divide."""
    out = tmp_path / "store"
    script = tmp_path / "script.py"
    script.write_text(RANKS.format(tests=str(Path(__file__).parent), out=str(out), samples=SAMPLES))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert files(out) == undisturbed


# -- memory


def test_a_pass_that_does_not_fit_is_done_in_parts(tmp_path, monkeypatch, capfd):
    subject, images = subject_and_images()
    settings = SETTINGS | {"batch_size": 8, "shard_mb": 1, "dtype": "float32"}
    whole = record(subject, images, SITES, tmp_path / "whole", **settings)
    forward = type(subject).__call__

    def small(self, x):
        if len(x) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, x)

    monkeypatch.setattr(type(subject), "__call__", small)
    parts = record(subject, images, SITES, tmp_path / "parts", **settings)
    said = capfd.readouterr().err
    assert "out of memory with 8 samples at a time: going on with 4" in said and said.count("going on with 2") == 1
    for site in SITES:
        np.testing.assert_allclose(parts[site][:], whole[site][:], rtol=1e-5, atol=1e-6)


class Tight(timm.models.vision_transformer.VisionTransformer):
    """A model of which three pictures fit at a time."""

    def forward(self, x):
        if len(x) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return super().forward(x)


@pytest.mark.parametrize("engine", ["local:2", "ray:2"])
def test_workers_say_that_it_does_not_fit_and_learn_it_once(engine, tmp_path, capfd):
    if engine.startswith("ray"):
        ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    subject, images = subject_and_images()
    settings = SETTINGS | {"batch_size": 5, "dtype": "float32"}
    whole = record(subject, images, SITES, tmp_path / "whole", **settings)
    subject.module.__class__ = Tight
    parts = record(subject, images, SITES, tmp_path / "parts", engine=engine, **settings)
    assert len(parts.manifest.shards) == 5
    assert 1 <= capfd.readouterr().err.count("out of memory with 5 samples at a time: going on with 3") <= 2
    for site in SITES:
        np.testing.assert_allclose(parts[site][:], whole[site][:], rtol=1e-5, atol=1e-6)


def test_parts_give_the_whole_in_order_and_other_errors_are_not_hidden():
    def cut(x):
        if len(x) > 3:
            raise MemoryError
        return {"x": x * 2}

    parts = Parts()
    assert torch.equal(parts(cut, torch.arange(11))["x"], torch.arange(11) * 2) and parts.most == 3

    def broken(x):
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Parts()(broken, torch.arange(4))

    def never(x):
        raise MemoryError

    with pytest.raises(MemoryError):
        Parts()(never, torch.arange(4))


TIGHT = """
import resource
from pathlib import Path
import torch
from vitreous.memory import Parts

def hungry(x):
    more = torch.ones(3, len(x), 250_000)  # 3 MB a sample, for a megabyte of result
    return {"x": more.sum(0) * x[:, None]}

pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 110_000_000, -1))
parts = Parts()
found = parts(hungry, torch.arange(64.0))
assert found["x"].shape == (64, 250_000) and found["x"][:, -1].tolist() == [3 * k for k in range(64)]
assert 1 <= parts.most < 16, parts.most
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit on memory is that of Linux")
def test_memory_that_really_runs_out_has_room_for_the_result_once(tmp_path):
    (tmp_path / "script.py").write_text(TIGHT)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "out of memory with 64 samples at a time: going on with 32" in done.stderr
