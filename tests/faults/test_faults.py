"""Whatever happens to a run, called again it ends as one that was left alone. `make faults` tries other moments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bench import Nursery, files, workers_of
from stages import STAGES

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="fork after loading the libraries is only safe on Linux"
)
SLOW = {"recording_by_workers": [pytest.mark.slow]}  # its processes take seconds to begin
ALL = [pytest.param(stage, marks=SLOW.get(stage, [])) for stage in STAGES]
SEED = int(os.environ.get("VITREOUS_FAULT_SEED", "0"))  # of the moments


@pytest.fixture(scope="module")
def nursery(tmp_path_factory) -> Iterator[Nursery]:
    found = Nursery(tmp_path_factory.mktemp("said") / "error.txt")
    yield found
    found.close()


@pytest.fixture(scope="module")
def alone(nursery, tmp_path_factory) -> dict[str, tuple[dict[str, str], float, int]]:
    """Of every stage the files that it leaves when nothing disturbs it, how long it takes, and their bytes."""
    found = {}
    for stage in STAGES:
        place = tmp_path_factory.mktemp(stage)
        folder = place / "run"
        seconds = min(nursery.run(stage, place / "first"), nursery.run(stage, folder))  # the first one also compiles
        found[stage] = files(folder), seconds, sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert found["recording"][0] == found["recording_by_workers"][0]
    return found


def strike(nursery, alone, folder: Path, stage: str, rng: np.random.Generator, times: int) -> int:
    """SIGTERM and SIGKILL at random moments, and then to the end; how many came in time."""
    expected, seconds, _ = alone[stage]
    struck = 0
    for _ in range(times):
        kind = signal.SIGKILL if rng.random() < 0.5 else signal.SIGTERM
        struck += nursery.struck(stage, folder, kind, float(rng.uniform(0, seconds)))
    nursery.run(stage, folder)
    assert files(folder) == expected, stage
    return struck


@pytest.mark.parametrize("stage", ALL)
def test_signals_at_random_moments(stage, nursery, alone, tmp_path):
    rng = np.random.default_rng(SEED)
    struck = sum(strike(nursery, alone, tmp_path / str(k), stage, rng, 2) for k in range(2))
    for k in range(2, 8):  # what is over soon is easily missed on a busy machine
        struck += strike(nursery, alone, tmp_path / str(k), stage, rng, 2) if not struck else 0
    assert struck, "no signal came in time"


# -- workers


def kill_a_worker(nursery, folder: Path, rng: np.random.Generator) -> bool:
    """One of the worker processes dies when some shards are there; whether it came in time. The run itself goes on."""
    child = nursery.start("recording_by_workers", folder)
    wanted, seen, killed = int(rng.integers(4)), False, False
    while not killed and Path(f"/proc/{child}/cmdline").read_bytes():  # empty when it has ended
        found = workers_of(child)
        seen = seen or bool(found)
        if found and len(list(folder.glob("shards/*.safetensors"))) >= wanted:
            os.kill(found[int(rng.integers(len(found)))], signal.SIGKILL)
            killed = True
        time.sleep(0.002)
    assert nursery.end() == 0 and seen
    return killed


def test_a_worker_dies_and_the_run_goes_on(nursery, alone, tmp_path):
    assert kill_a_worker(nursery, tmp_path / "run", np.random.default_rng(SEED))
    assert files(tmp_path / "run") == alone["recording_by_workers"][0]


def test_workers_do_not_outlive_the_run(nursery, alone, tmp_path):
    _, seconds, _ = alone["recording_by_workers"]
    child = nursery.start("recording_by_workers", tmp_path / "run")
    until = time.monotonic() + 3 * seconds
    while not (found := workers_of(child)) and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    nursery.end()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in found) and time.monotonic() < until:
        time.sleep(0.05)
    assert found and not any(Path(f"/proc/{pid}").exists() for pid in found)


# -- disks


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A disk of its own, to be made larger later."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk can be mounted by the administrator alone")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def resized(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(disk)], check=True)


def room(alone, stage: str) -> float:
    """Kilobytes that a stage leaves at its end."""
    return alone[stage][2] / 1000


def fill(nursery, alone, disk: Path, stage: str, rng: np.random.Generator) -> int:
    """The disk is too small, then larger and again too small, then large enough; how often it was too small."""
    expected = alone[stage][0]
    full = 0
    for share in sorted(rng.uniform(0.1, 1, 3)):
        resized(disk, max(8, int(share * room(alone, stage))))
        nursery.start(stage, disk / "run")
        ended = nursery.end()
        assert ended in (0, 3), ended
        full += ended == 3
    resized(disk, 64_000)
    nursery.run(stage, disk / "run")
    assert files(disk / "run") == expected
    return full


@pytest.mark.parametrize("stage", ALL)
def test_a_disk_that_fills_up(stage, nursery, alone, small_disk):
    assert fill(nursery, alone, small_disk, stage, np.random.default_rng(SEED)), "the disk never was too small"


# -- files that lose their end


def cut_short(nursery, alone, folder: Path, stage: str, pattern: str, rng: np.random.Generator) -> int:
    """Killed when some of it is done, files of what was done are cut; how many."""
    expected, seconds, _ = alone[stage]
    cut = 0
    for _ in range(5):
        nursery.struck(stage, folder, signal.SIGKILL, float(rng.uniform(0, 0.3) * seconds), seen=pattern)
        for path in sorted(folder.glob(pattern)):
            if (size := path.stat().st_size) and rng.random() < 0.5:
                os.truncate(path, int(rng.integers(size)))
                cut += 1
    nursery.run(stage, folder)
    assert files(folder) == expected
    return cut


CUT = [
    ("recording", "shards/*.safetensors"),
    ("disentangling", "work/unit-*.safetensors"),
    ("disentangling", "work/*.f32"),
    ("aligning", "checkpoint.pt"),
    ("reporting", "*.*"),
]


@pytest.mark.parametrize(("stage", "pattern"), CUT)
def test_files_that_are_cut_short_are_made_anew(stage, pattern, nursery, alone, tmp_path):
    rng = np.random.default_rng(SEED)
    tries = (cut_short(nursery, alone, tmp_path / str(k), stage, pattern, rng) for k in range(6))
    assert any(tries), "nothing was cut"
