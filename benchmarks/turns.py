"""What the benchmarks share: cases of ours beside peers, measured in turn; memory, growth, the machine."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitreous.memory import give_back

Way = Callable[[], Any]
Taken = list[tuple[float, float]]  # on the clock, and of processor time in all threads


@dataclass(frozen=True)
class Case:
    """Ours beside peers on one input. `ways(size, device)` gives calls by name, ours first.

    No device means the cores of the machine with code made for them; "cpu" is a GPU's code there. `quality` says of
    each way's answer what it is worth, `work` what has to be done at least: operations ("flop") or bytes moved.
    """

    name: str
    said: Callable[[Any], str]
    ways: Callable[[Any, str | None], dict[str, Way]]
    size: Any
    small: Any
    on_gpu: Any = None  # size there; none: there is no code for it
    packages: Mapping[str, str] = field(default_factory=dict)  # what a peer is imported as, where it may be missing
    quality: Callable[[Any, dict[str, Any]], dict[str, str]] = lambda _, __: {}
    work: Callable[[Any], dict[str, float]] = lambda _: {}
    note: str = ""
    also_ours: tuple[str, ...] = ()

    def there(self, size: Any, device: str | None) -> dict[str, Way]:
        """Ways whose packages are installed."""
        return {name: way for name, way in self.ways(size, device).items() if name not in self.missing}

    @property
    def missing(self) -> dict[str, str]:
        return {peer: package for peer, package in self.packages.items() if not importlib.util.find_spec(package)}


@dataclass(frozen=True)
class Growth:
    """Seconds against a size; `at(size)` makes the call. `at_most` is the exponent that is promised."""

    name: str
    counted: str
    at: Callable[[int], Way]
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    at_most: float


# -- time


def wait(device: str | None) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Way, device: str | None = None) -> tuple[float, float]:
    """On the clock, and of processor time in all threads."""
    wait(device)
    clock, processor = time.perf_counter(), time.process_time()
    work()
    wait(device)
    return time.perf_counter() - clock, time.process_time() - processor


def in_turn(ways: Mapping[str, Way], rounds: int, device: str | None = None) -> dict[str, Taken]:
    """Every way once a round, forwards and backwards in turn: a neighbour on the machine disturbs all of them."""
    taken: dict[str, Taken] = {name: [] for name in ways}
    for number in range(rounds):
        for name in ways if number % 2 == 0 else reversed(ways):
            taken[name].append(seconds(ways[name], device))
    return taken


def spread(peer: Taken, ours: Taken) -> dict[str, float]:
    """How many times longer a peer takes: of neighbours."""
    clock, processor = ([a[k] / b[k] for a, b in zip(peer, ours, strict=True)] for k in range(2))
    found = {"median": statistics.median(clock), "low": min(clock), "high": max(clock)}
    return found | {"processor": statistics.median(processor)}


# -- memory, in a process of its own


def kilobytes(what: str) -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith(what))


def forget_peak() -> int:
    """Kilobytes that this process holds now, from where its peak is counted anew (Linux only)."""
    give_back()
    Path("/proc/self/clear_refs").write_text("5")
    return kilobytes("VmRSS")


def peak_mb(script: str, name: str, way: str, size: Any, threads: int) -> float:
    """How far the peak lies above what is held with the input ready; compiled before on a small one."""
    torch.set_num_threads(threads)
    case = next(case for case in importlib.import_module(script).CASES if case.name == name)
    case.ways(case.small, None)[way]()
    work = case.ways(size, None)[way]
    held = forget_peak()
    work()
    return (kilobytes("VmHWM") - held) / 1024


def memory(script: str, case: Case, ways: Iterable[str], size: Any) -> dict[str, float | None]:
    """Megabytes by way; none where the process died of it, or where there is no /proc to read."""
    found: dict[str, float | None] = {}
    for way in ways:
        found[way] = None
        if not Path("/proc/self/clear_refs").exists():
            continue
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            try:
                found[way] = pool.submit(peak_mb, script, case.name, way, size, torch.get_num_threads()).result()
            except BrokenProcessPool:
                print(f"    {way}: its process died while memory was measured", flush=True)
    return found


# -- growth


def grown(growth: Growth, small: bool, rounds: int) -> dict[str, Any]:
    """Median seconds at every size, exponents of lines through their logarithms, and that of the last step.

    Processor time is told beside the clock, which other processes disturb.
    """
    sizes, times = growth.small if small else growth.sizes, []
    processor: list[float] = []
    for size in sizes:
        work = growth.at(size)
        work()
        taken = [seconds(work) for _ in range(rounds)]
        times.append(statistics.median(clock for clock, _ in taken))
        processor.append(statistics.median(used for _, used in taken))
    logs = np.log(sizes), np.log(times)
    exponent = float(np.polyfit(*logs, 1)[0])
    last = float((logs[1][-1] - logs[1][-2]) / (logs[0][-1] - logs[0][-2]))
    found = {"counted": growth.counted, "sizes": list(sizes), "seconds": times}
    found |= {"processor_exponent": float(np.polyfit(logs[0], np.log(processor), 1)[0])}
    return found | {"exponent": exponent, "last_step": last, "at_most": growth.at_most}


# -- the machine


def rates(device: str | None, small: bool) -> dict[str, float]:
    """Operations and bytes a second that this machine was seen to reach: products, and a copy (read and written)."""
    on = torch.device(device or "cpu")
    side = 512 if small else 8192 if on.type == "cuda" else 3072
    found = {}
    for kind in (torch.float32, torch.bfloat16):
        a, b, c = (torch.randn(side, side, device=on).to(kind) for _ in range(3))
        work = lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)  # noqa: E731
        work()
        found[f"{str(kind).removeprefix('torch.')}_flop"] = (
            2 * side**3 / min(seconds(work, on.type)[0] for _ in range(5))
        )
    count = 1 << (20 if small else 30 if on.type == "cuda" else 27)
    source, target = torch.zeros(count, dtype=torch.uint8, device=on), torch.ones(count, dtype=torch.uint8, device=on)
    target.copy_(source)
    found["bytes"] = 2 * count / min(seconds(lambda: target.copy_(source), on.type)[0] for _ in range(7))
    return found


def machine(device: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"cores": os.cpu_count(), "threads": torch.get_num_threads(), "load": os.getloadavg()[0]}
    told["processor"] = platform.processor() or platform.machine()
    if (about := Path("/proc/cpuinfo")).exists():
        names = [
            line.split(":", 1)[1].strip() for line in about.read_text().splitlines() if line.startswith("model name")
        ]
        told["processor"] = names[0] if names else told["processor"]
    if device == "cuda":
        told["gpu"] = torch.cuda.get_device_name()
    return told | {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
