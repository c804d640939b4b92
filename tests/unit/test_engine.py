"""Engines give the same results in the same order, survive the death of workers, and refuse by name."""

from __future__ import annotations

import builtins
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import vitreous as vt
from vitreous.engine import Here, Workers, open_engine, say
from vitreous.in_order import HELD, InOrder

ENGINES = ["local", "local:2", "ray:2"]


@dataclass(frozen=True)
class Product:
    """A job whose last bits depend on the number of threads, with a mark on what it was that made it."""

    matrix: np.ndarray

    def __call__(self, seed: int) -> tuple[int, bytes, int]:
        other = np.random.default_rng(seed).standard_normal(self.matrix.shape).astype(np.float32)
        return seed, (self.matrix @ other).tobytes(), os.getpid()


@dataclass(frozen=True)
class DiesOnce:
    """Kills its process at one item, the first time that it comes."""

    folder: Path
    at: int
    always: bool = False

    def __call__(self, item: int) -> int:
        mark = self.folder / "struck"
        if item == self.at and (self.always or not mark.exists()):
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item * item


def refuses(item: int) -> int:
    if item == 2:
        raise vt.SettingsError("two is refused", given=item, remedy="another number")
    return item


def needs_ray(engine: str) -> None:
    if engine.startswith("ray"):
        ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test


@pytest.mark.parametrize("engine", ENGINES)
def test_results_are_the_same_bytes_in_the_order_of_the_items(engine):
    needs_ray(engine)
    job = Product(np.random.default_rng(0).standard_normal((300, 300)).astype(np.float32))
    found = list(open_engine(engine).map(job, range(7)))
    assert [seed for seed, _, _ in found] == list(range(7))
    assert [made for _, made, _ in found] == [job(seed)[1] for seed in range(7)]
    here = {pid for _, _, pid in found} == {os.getpid()}
    assert here == (engine == "local")


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_worker_that_is_killed_costs_nothing_but_time(engine, tmp_path, capfd):
    needs_ray(engine)
    assert list(open_engine(engine).map(DiesOnce(tmp_path, 3), range(8))) == [n * n for n in range(8)]
    assert (tmp_path / "struck").exists()
    if engine.startswith("local"):
        assert "a worker process died" in capfd.readouterr().err


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_workers_that_keep_dying_are_given_up(engine, tmp_path, monkeypatch):
    needs_ray(engine)
    monkeypatch.setattr("vitreous.engine.MOST_DEATHS", 1)
    with pytest.raises(vt.EngineError, match=r"workers keep dying(.|\n)*fewer workers"):
        list(open_engine(engine).map(DiesOnce(tmp_path, 1, always=True), range(3)))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_refused_on_purpose_comes_back_as_it_was(engine):
    needs_ray(engine)
    work = open_engine(engine).map(refuses, range(5))
    assert [next(work), next(work)] == [0, 1]
    with pytest.raises(vt.SettingsError, match=r"two is refused\n  given:    2\n  remedy:   another number"):
        next(work)


def seen_gpu(item: int) -> tuple[int, str]:
    time.sleep(0.2)  # so that both workers have something to do
    return item, os.environ.get("CUDA_VISIBLE_DEVICES", "")


def test_gpus_are_requested_from_ray():
    """Ray believes in GPUs that it is told of: each worker is given one of its own, and there are no more workers."""
    needs_ray("ray")
    import ray

    ray.shutdown()
    ray.init("local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        found = list(open_engine("ray:4").map(seen_gpu, range(8), gpu=True))
    finally:
        ray.shutdown()
    assert [item for item, _ in found] == list(range(8))
    assert {gpu for _, gpu in found} == {"0", "1"}


def test_a_cluster_without_gpus_is_said_to_have_none():
    needs_ray("ray")
    import ray

    ray.shutdown()
    ray.init("local", num_cpus=1, num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        with pytest.raises(vt.EngineError, match=r"the Ray cluster has no GPU(.|\n)*device=\"cpu\""):
            list(open_engine("ray:1").map(seen_gpu, [0], gpu=True))
    finally:
        ray.shutdown()


def test_items_are_taken_as_they_are_needed():
    taken = []
    work = Workers(2).map(refuses, (taken.append(n) or n for n in [0, 1] * 50))
    assert next(work) == 0
    assert len(taken) <= 2 * HELD
    work.close()


@dataclass(frozen=True)
class FirstWaits:
    """The first item is not done before the sixth is: with two workers the other one has to do all between."""

    folder: Path

    def __call__(self, item: int) -> int:
        until = time.monotonic() + 60
        while item == 0 and not (self.folder / "5").exists() and time.monotonic() < until:
            time.sleep(0.01)
        found = item == 0 and (self.folder / "5").exists()
        (self.folder / str(item)).touch()
        return -1 if item == 0 and not found else item


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_a_slow_item_does_not_keep_the_other_workers_waiting(engine, tmp_path):
    needs_ray(engine)
    assert list(open_engine(engine).map(FirstWaits(tmp_path), range(40))) == list(range(40))


def test_what_waits_for_a_slow_item_is_bounded():
    order = InOrder(iter(range(1000)), 2)
    begun = [number for number, _ in order.out()]
    while len(begun) < 900 and (later := [number for number in order.away if number]):
        assert list(order.back(later[0], (True, later[0]))) == []
        begun += [number for number, _ in order.out()]
    assert begun == list(range(2 * HELD)) and list(order.away) == [0]
    assert list(order.back(0, (True, 0))) == begun
    assert [number for number, _ in order.out()] == [16, 17, 18, 19]


def speaks(item: int) -> int:
    say(f"item {item} was a tight fit")
    return item


@pytest.mark.parametrize("engine", ENGINES)
def test_what_workers_say_is_heard_here(engine, capfd):
    needs_ray(engine)
    assert list(open_engine(engine).map(speaks, range(3))) == [0, 1, 2]
    assert sorted(capfd.readouterr().err.splitlines()) == [f"item {n} was a tight fit" for n in range(3)]


JOINS = """
import time
import ray
from vitreous.engine import open_engine
from vitreous.errors import EngineError
until = time.monotonic() + 100
while True:
    try:
        assert open_engine("ray").workers == 3
        break
    except EngineError:  # it has not come up yet
        assert time.monotonic() < until
        time.sleep(0.5)
assert list(open_engine("ray").map(abs, range(7))) == list(range(7))
ray.shutdown()
assert list(open_engine("ray:2").map(abs, [-1])) == [1], "it was shut down"
"""


@pytest.mark.slow
def test_a_cluster_that_is_there_is_joined_and_left_running(tmp_path):
    """One in processes of its own, as `ray start --head` makes it, that asks for a token."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    env = {**os.environ, "RAY_ADDRESS": f"127.0.0.1:{port}", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "of-this-test"}
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as folder:  # sockets want a short path
        kept = ["--temp-dir", folder, "--include-dashboard", "false", "--num-cpus", "3", "--block"]
        head = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port", port, *kept]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(head, env=env, start_new_session=True, **quiet)
        try:
            done = subprocess.run([sys.executable, "-c", JOINS], env=env, capture_output=True, text=True)
        finally:
            process.terminate()
            process.wait(60)
    assert done.returncode == 0, done.stderr


def test_what_ray_start_has_left_behind_is_no_cluster(monkeypatch):
    """Ray remembers the address of the last cluster that was started on a machine, also when it is gone."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    ray.shutdown()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray._private.utils.read_ray_address", lambda *_: "127.0.0.1:1")
    assert list(open_engine("ray:2").map(abs, [-1])) == [1]
    ray.shutdown()


def test_a_cluster_that_is_not_there_is_named(monkeypatch):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "somewhere")
    with pytest.raises(vt.EngineError, match=r"no Ray cluster(.|\n)*somewhere"):
        list(open_engine("ray").map(abs, [1]))


def test_engines_that_are_not_there_are_refused(monkeypatch):
    for wrong in ("spark", "local:0", "ray:many", "torchrun:2", None, 2):
        with pytest.raises(vt.SettingsError, match=r"unknown engine\n.*\n.*ray"):
            open_engine(wrong)
    assert open_engine("local:1") == Here() == open_engine(Here())
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(vt.SettingsError, match="torchrun --nproc-per-node"):
        open_engine("torchrun")
    with pytest.raises(vt.EngineError, match="cannot be sent to worker processes"):
        list(Workers(2).map(lambda n: n, [1]))


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(vt.SettingsError, match=r"pip install 'vitreous\[ray\]'"):
        list(open_engine("ray").map(refuses, [1]))


RANKS = """
import sys
from vitreous.engine import open_engine
from vitreous.errors import SettingsError
engine = open_engine("torchrun")
seen = []
found = list(engine.map(lambda n: seen.append(n) or n * n, range(7)))
assert found == [n * n for n in range(7)], found
assert seen == list(range(engine.rank, 7, 2)), seen  # strided, ragged at the end, none twice
assert engine.agree(lambda: engine.rank) == 0
def refuses(n):
    if n == 3:
        raise SettingsError("three is refused")
    return n
try:
    list(engine.map(refuses, range(7)))
except SettingsError as error:
    assert str(error) == "three is refused"
    print("well", flush=True)
"""


def test_under_torchrun_items_go_round_by_rank(tmp_path):
    (tmp_path / "script.py").write_text(RANKS)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(tmp_path / "script.py")],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("well") == 2
