"""Killed at any moment and run again, a recording ends with the same bytes as one that was left alone.

Run as a script this file is a nursery: it loads the libraries once and then makes a child, by fork, for every line it
reads. A child records and may be killed from outside at a random moment, or kills itself right before its n-th write,
sync, rename or removal.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

SITES = ("blocks.0.resid.out", "blocks.1.attn.pattern")
SAMPLES, BATCH, SHARDS = 10, 2, 3
CALLS = ("write", "fsync", "replace", "unlink")


@cache
def subject_and_images():
    """The same in every process."""
    import timm
    import torch

    from vitreous.images import ImageSet
    from vitreous.subjects import wrap

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, num_classes=3
        )
    images = ImageSet.from_arrays(np.random.default_rng(0).integers(0, 256, (SAMPLES, 32, 32, 3), np.uint8))
    return wrap(module, name="tiny"), images


def record_here(folder: Path) -> None:
    from vitreous.recording import record

    subject, images = subject_and_images()
    record(subject, images, SITES, folder, tokens=7, batch_size=BATCH, shard_mb=0.006, progress=False)


def files(folder: Path) -> dict[str, str]:
    """Hash of every file, hidden ones and drafts too, apart from the one that says when and where."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "run.json"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("undisturbed") / "store"
    record_here(folder)
    found = files(folder)
    shards = {f"shards/{k:05d}.safetensors" for k in range(SHARDS)}
    assert set(found) == shards | {"manifest.json", "samples.json", "tokens.safetensors"}
    return found


# -- every single call, cut short by an exception


class Crash(BaseException):
    """Not an Exception, so that nothing that tidies up after errors takes it for one."""


class Doom:
    """Lets calls of one kind fail from the n-th on: a process that is dead stays dead."""

    def __init__(self, monkeypatch, kind: str, at: int) -> None:
        self.at, self.count = at, 0
        if kind == "write":
            original = Path.open
            monkeypatch.setattr(Path, "open", lambda path, *a, **k: self._torn(original(path, *a, **k), *a))
        else:
            monkeypatch.setattr(os, kind, self._before(getattr(os, kind)))

    def strike(self) -> bool:
        self.count += 1
        return self.count >= self.at

    def _before(self, original):
        def call(*args, **kwargs):
            if self.strike():
                raise Crash
            return original(*args, **kwargs)

        return call

    def _torn(self, file, mode="r"):
        """A file whose n-th write stops half-way."""
        if mode != "wb":
            return file
        write = file.write

        class Torn:
            def __enter__(torn):
                return torn

            def __exit__(torn, *_):
                file.close()

            def write(torn, data):
                if self.strike():
                    write(memoryview(data)[: len(memoryview(data)) // 2])
                    raise Crash
                return write(data)

            seek, flush, fileno, close = file.seek, file.flush, file.fileno, file.close

        return Torn()


@pytest.mark.parametrize("kind", CALLS)
def test_cut_short_at_every_single_call(kind, undisturbed, tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        never = Doom(patched, kind, 10**9)
        record_here(tmp_path / "count")
    assert never.count >= 1
    for n in range(1, never.count + 1):
        folder = tmp_path / f"{kind}-{n}"
        with monkeypatch.context() as patched, pytest.raises(Crash):
            Doom(patched, kind, n)
            record_here(folder)
        record_here(folder)
        assert files(folder) == undisturbed, f"{kind} number {n}"


def test_cut_short_again_and_again(undisturbed, tmp_path, monkeypatch):
    """Every attempt gets as far as one or two shards, and the last one through."""
    deaths = 0
    while deaths < 9:
        try:
            with monkeypatch.context() as patched:
                Doom(patched, "replace", 6)
                record_here(tmp_path / "s")
        except Crash:
            deaths += 1
        else:
            break
    assert 1 <= deaths < 9
    assert files(tmp_path / "s") == undisturbed


# -- real kills


class Nursery:
    """A process with everything loaded that forks a recording for every request."""

    def __init__(self) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "the nursery died"
        return line

    def run(self, folder: Path, *, kind: str = "", at: int = 0, kill_after: float | None = None) -> str:
        """How a child ended: "0" if it got through, "-9" if it was killed."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "kind": kind, "at": at}) + "\n")
        self.process.stdin.flush()
        child = int(self._line())
        if kill_after is not None:
            time.sleep(kill_after)
            os.kill(child, signal.SIGKILL)  # not reaped before the nursery hears of it, so the number is still its own
        assert self.process.stdin is not None
        self.process.stdin.write("wait\n")
        self.process.stdin.flush()
        return self._line()

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(30)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    if not sys.platform.startswith("linux"):
        pytest.skip("fork after loading the libraries is only safe on Linux")
    found = Nursery()
    yield found
    found.close()


def killed_at_random(nursery: Nursery, folder: Path, rng: np.random.Generator, kills: int, length: float) -> int:
    """Kills at uniform moments of a recording, at most `kills` times, then lets it finish; how many were struck."""
    struck = 0
    for _ in range(kills):
        ended = nursery.run(folder, kill_after=float(rng.uniform(0, length)))
        struck += ended == "-9"
    assert nursery.run(folder) == "0"
    return struck


def undisturbed_length(nursery: Nursery, folder: Path) -> float:
    began = time.monotonic()
    assert nursery.run(folder) == "0"
    return time.monotonic() - began


def test_killed_at_random_moments(nursery, undisturbed, tmp_path):
    length = undisturbed_length(nursery, tmp_path / "whole")
    assert files(tmp_path / "whole") == undisturbed, "another process makes the same bytes"
    rng = np.random.default_rng(0)
    struck = [killed_at_random(nursery, tmp_path / f"{k}", rng, 4, length) for k in range(4)]
    assert sum(struck), "no kill came before the end"
    for k in range(4):
        assert files(tmp_path / f"{k}") == undisturbed, k


@pytest.mark.parametrize("kind", ["fsync", "replace"])
def test_killed_right_before_a_call(nursery, undisturbed, tmp_path, kind):
    """The real thing for a few of the moments that the exhaustive test tries with exceptions."""
    for n in (1, 2, 5, 8):
        folder = tmp_path / str(n)
        assert nursery.run(folder, kind=kind, at=n) == "-9"
        assert nursery.run(folder) == "0"
        assert files(folder) == undisturbed, n


@pytest.mark.slow
@pytest.mark.parametrize("kind", CALLS)
def test_killed_right_before_every_call(nursery, undisturbed, tmp_path, kind):
    n = 0
    while True:
        n += 1
        folder = tmp_path / str(n)
        if nursery.run(folder, kind=kind, at=n) == "0":
            break
        assert nursery.run(folder) == "0"
        assert files(folder) == undisturbed, f"{kind} number {n}"
    assert n > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_killed_at_many_random_moments(nursery, undisturbed, tmp_path, seed):
    length = undisturbed_length(nursery, tmp_path / "whole")
    rng = np.random.default_rng(seed + 1)
    struck = [killed_at_random(nursery, tmp_path / f"{k}", rng, 6, length) for k in range(12)]
    assert sum(struck), "no kill came before the end"
    for k in range(12):
        assert files(tmp_path / f"{k}") == undisturbed, k


# -- the nursery's own side


def suicidal(kind: str, at: int) -> None:
    """Patches this process to kill itself right before the n-th call; in a write, after half of it."""
    count = 0

    def strike() -> bool:
        nonlocal count
        count += 1
        return count == at

    if kind == "write":
        opened = Path.open

        def open_(path, mode="r", *args, **kwargs):
            file = opened(path, mode, *args, **kwargs)
            return Dying(file) if mode == "wb" else file

        class Dying:
            def __init__(self, file) -> None:
                self.file = file
                self.seek, self.flush, self.fileno, self.close = file.seek, file.flush, file.fileno, file.close

            def __enter__(self):
                return self

            def __exit__(self, *_) -> None:
                self.file.close()

            def write(self, data):
                if strike():
                    self.file.write(memoryview(data)[: len(memoryview(data)) // 2])
                    self.file.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
                return self.file.write(data)

        Path.open = open_
        return
    original = getattr(os, kind)

    def call(*args, **kwargs):
        if strike():
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    setattr(os, kind, call)


def nursery_main() -> None:
    import timm  # noqa: F401 - loaded once for all children
    import torch

    import vitreous.hooks
    import vitreous.images
    import vitreous.recording
    import vitreous.subjects  # noqa: F401

    torch.set_num_threads(1)
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            if request["kind"]:
                suicidal(request["kind"], request["at"])
            record_here(Path(request["folder"]))
            os._exit(0)
        print(child, flush=True)  # noqa: T201
        sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    nursery_main()
