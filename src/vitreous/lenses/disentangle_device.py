"""Units split on a torch device: rows lie there as long as they fit, and only what was found comes back.

Everything is plain torch. The host makes the tree of a sample and shares out weights; two units are in work at a time,
so that the device is busy meanwhile.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from vitreous.errors import SettingsError
from vitreous.kernels.density_device import DeviceClusters, Instances, contribution_clusters_on_device
from vitreous.kernels.split_weights import divide
from vitreous.kernels.stream_top_device import stream_top_on_device
from vitreous.lenses.disentangle_finding import Examples
from vitreous.lenses.disentangle_rows import Rows
from vitreous.lenses.disentangle_units import HELD, Options, UnitTop, divided
from vitreous.lenses.disentangle_work import UnitSplit, first_of_images
from vitreous.memory import fewer, is_out_of_memory
from vitreous.models.subject import Subject
from vitreous.progress import tqdm

LANES = {"cuda": 2}  # units in work at a time; one elsewhere
CHUNK = 1 << 26  # numbers of rows that are looked at together
ROWS_SHARE, TOP_SHARE = 2, 8  # one over these of a GPU's memory: for rows, for a running top-k
HALF_MOST = float(np.finfo(np.float16).max)

Item = TypeVar("Item")
Done = TypeVar("Done")


def chosen_device(owner: Subject | nn.Module, device: str | None) -> torch.device | None:
    """The device asked for; without one the model's GPU, or None: then the cores do it, with code made for them."""
    if device is None:
        where = owner.device if isinstance(owner, Subject) else next(owner.parameters()).device
        return where if where.type == "cuda" else None
    there = [f"cuda:{n}" for n in range(torch.cuda.device_count())]
    accepted = ["cpu", *(["cuda"] if there else []), *there]
    if device not in accepted:
        raise SettingsError("no such device to split units on", given=device, accepted=accepted)
    return torch.device(device)


# -- rows on the device


@dataclass(frozen=True, eq=False)
class DeviceRows:
    """`take(ids)` gives float32 (row, input) on the device, for ids int64 (row,) that lie there. `kind`: how rows are
    held, or None where they are read from where they were each time."""

    take: Callable[[Tensor], Tensor]
    count: int
    device: torch.device
    step: int
    kind: torch.dtype | None

    def batches(self) -> Iterator[Tensor]:
        """All rows in order, float32 (row, input)."""
        for first in range(0, self.count, self.step):
            yield self.take(torch.arange(first, min(first + self.step, self.count), device=self.device))


def hold(rows: Rows, device: torch.device, progress: bool, room: int | None = None) -> DeviceRows:
    """Rows as float32 if that fits into `room` bytes, else in half precision, else left where they are.

    The room is a share of the memory that the device has, not of what is free: results do not depend on neighbours.
    """
    room = _memory(device) // ROWS_SHARE if room is None else room
    numbers = len(rows) * rows.inputs
    step = max(1, CHUNK // rows.inputs)
    kind = torch.float32 if 4 * numbers <= room else torch.float16 if 2 * numbers <= room else None

    def read(ids: Tensor) -> Tensor:
        return torch.from_numpy(rows.read(ids.cpu().numpy())).to(device)

    if kind is None:
        return DeviceRows(read, len(rows), device, step, None)
    held = torch.empty(len(rows), rows.inputs, dtype=kind, device=device)
    filled = 0
    with tqdm(total=len(rows), desc="rows to the device", disable=not progress, leave=False) as bar:
        for batch in rows.batches():
            part = torch.from_numpy(batch).to(device)
            if kind is torch.float16 and float(part.abs().max()) > HALF_MOST:
                return DeviceRows(read, len(rows), device, step, None)
            held[filled : filled + len(part)] = part
            filled += len(part)
            bar.update(len(part))
    return DeviceRows(lambda ids: held[ids].float(), len(rows), device, step, kind)


def _memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else sys.maxsize


# -- units


@dataclass(frozen=True, eq=False)
class OnDevice:
    """A `Route` of the clusterer "auto". Weight (unit, input) and bias (unit,) are those of the units asked for."""

    rows: Rows
    weight: np.ndarray
    bias: np.ndarray
    device: torch.device
    progress: bool

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    def __getstate__(self) -> dict[str, Any]:
        """A worker holds rows of its own, quietly, on the GPU that it sees, which is its first."""
        there = torch.device("cuda", 0) if self.on_gpu else self.device
        return {
            "rows": self.rows, "weight": self.weight, "bias": self.bias, "device": there, "progress": False
        }  # fmt: skip

    @cached_property
    def held(self) -> DeviceRows:
        return hold(self.rows, self.device, self.progress)

    @cached_property
    def most_of_an_image(self) -> int:
        return int(np.bincount(self.rows.images).max())

    def top(self, units: Sequence[int], k: int) -> Iterator[UnitTop]:
        """Eq. 1: as many units a pass over the rows as memory allows. To sort 3 k rows takes ten numbers for each.

        As on cores, units that are not asked for take part in the products of their neighbours.
        """
        room = _memory(self.device) // TOP_SHARE if self.device.type == "cuda" else HELD
        together, first = max(1, room // (120 * k)), 0
        while first < len(self.weight):
            part = slice(first, first + together)
            if wanted := [at for at in units if first <= at < part.stop]:
                if (found := self._top(part, k)) is None:
                    together = fewer(min(together, len(self.weight) - first), "units")
                    continue
                values, ids = found
                yield from (UnitTop(at, ids[at - first], values[at - first]) for at in wanted)
            first = part.stop

    def _top(self, part: slice, k: int) -> tuple[Tensor, Tensor] | None:
        """Values and rows (unit, k) of neighbouring units; None where there is no memory for so many."""
        held = self.held
        try:
            weight, bias = self._there(self.weight[part]), self._there(self.bias[part, None])
            return stream_top_on_device((torch.addmm(bias, weight, q.T) for q in held.batches()), k)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or len(self.weight[part]) == 1:
                raise
            return None

    def splits(self, tops: Iterable[UnitTop], options: Options, examples: int = 0) -> Iterator[tuple[int, UnitSplit]]:
        """In the order of `tops`, a few units at a time, each on a stream of its own."""
        lanes = LANES.get(self.device.type, 1)
        streams: SimpleQueue[torch.cuda.Stream | None] = SimpleQueue()
        for _ in range(lanes):
            streams.put(torch.cuda.Stream(self.device) if self.device.type == "cuda" else None)
        before = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        # torch sets its solvers up on first use, and not for two threads at a time
        torch.linalg.eigh(torch.linalg.qr(torch.eye(2, device=self.device)).Q)

        def work(top: UnitTop) -> tuple[int, UnitSplit]:
            stream = streams.get()
            try:
                with _on(stream, before):
                    return top.at, self._split(top, options, examples)
            finally:
                streams.put(stream)

        return in_order(work, tops, lanes)

    def _split(self, top: UnitTop, options: Options, examples: int) -> UnitSplit:
        weight, bias = self.weight[top.at], self.bias[top.at]
        top = UnitTop(top.at, *(torch.as_tensor(part, device=self.device) for part in (top.ids, top.values)))
        take = self.held.take
        q = Instances(lambda at: take(top.ids[at]), len(top.ids), len(weight), self.device)
        found = contribution_clusters_on_device(
            q,
            self._there(weight),
            min_cluster_size=options.min_cluster_size,
            min_samples=options.min_samples,
            selection=options.selection,
            seed=options.seed,
        )
        sums, sizes = cluster_sums_on_device(q, found)
        noise = float((found.labels < 0).double().mean())
        split = divided(found.clusters, noise, sums, sizes, weight, bias)
        return self._with_examples(split, q, top, examples) if examples else split

    def _with_examples(self, split: UnitSplit, q: Instances, top: UnitTop, keep: int) -> UnitSplit:
        """The strongest of these instances for the unit and for each sub-unit."""
        weights, biases = divide(self.weight[top.at], float(self.bias[top.at]), split.members)
        parts = top.values[None]
        if len(weights) > 1:
            across, add = self._there(weights.T), self._there(biases)
            parts = torch.cat([torch.addmm(add, rows, across) for _, rows in q.chunks()]).T
        # as many instances hold the strongest of `keep` images even if each image has its most
        enough = min(q.count, keep * self.most_of_an_image)

        def found(values: Tensor, at: Tensor) -> Examples:
            ids = top.ids[at].cpu().numpy()
            return first_of_images(values.cpu().numpy(), self.rows.images[ids], self.rows.tokens[ids], keep)

        first = torch.arange(enough, device=self.device)[None]
        values, order = parts.sort(dim=1, descending=True, stable=True)
        return split._replace(
            top=found(top.values[None, :enough], first), subunit_top=found(values[:, :enough], order[:, :enough])
        )

    def _there(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device)


def cluster_sums_on_device(q: Instances, found: DeviceClusters) -> tuple[np.ndarray, np.ndarray]:
    """`cluster_sums` of the instances' clusters; of all instances as one where there is no cluster."""
    labels, certain = found.labels, found.probabilities
    if not found.clusters:
        labels, certain = torch.zeros_like(labels), torch.ones_like(certain)
    share = certain / found.lengths.clamp_min(float(np.sqrt(np.finfo(np.float32).tiny)))
    names = torch.arange(max(found.clusters, 1), device=q.device)[:, None]
    sums = share.new_zeros(2 * len(names), q.inputs)
    sizes = torch.zeros(len(names), dtype=torch.int64, device=q.device)
    for piece, rows in q.chunks():
        inside = labels[piece] == names
        sums += torch.cat([inside * share[piece], inside.float()]) @ rows
        sizes += inside.sum(1)
    return sums.cpu().numpy(), sizes.cpu().numpy()


# -- a few at a time


def in_order(work: Callable[[Item], Done], items: Iterable[Item], lanes: int) -> Iterator[Done]:
    """work(item) on so many threads, results in the order of the items; one item waits for the next free thread."""
    with ThreadPoolExecutor(lanes) as pool:
        waiting: deque[Future[Done]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > lanes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def _on(stream: torch.cuda.Stream | None, before: torch.cuda.Stream | None) -> Iterator[None]:
    """Work inside goes to `stream`, after all that `before` was given so far; where there are none, as ever."""
    if stream is None or before is None:
        yield
        return
    stream.wait_stream(before)
    with torch.cuda.stream(stream):
        yield
