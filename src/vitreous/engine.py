"""Where independent pieces of work run: this process, worker processes beside it, a Ray cluster, or `torchrun`.

A job is something that can be called with an item and can be pickled. It is sent to every worker once, the items one
by one, and results come back in the order of the items, whoever made them. Workers compute with as many threads as
this process does, because the number of threads can change the last bits of a product: the same bytes come out on
every engine. Who gets what, and what happens when a machine is lost, is left to `concurrent.futures` and to Ray.
"""

from __future__ import annotations

import atexit
import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from vitreous import progress
from vitreous.errors import EngineError, SettingsError, VitreousError
from vitreous.in_order import InOrder, unpack

Item = TypeVar("Item")
Done = TypeVar("Done")

KINDS = ("local", "ray", "torchrun")
ACCEPTED = '"local", "local:4" (worker processes), "ray", "ray:4", "torchrun"'
MOST_DEATHS = 3  # workers that die one after the other, with nothing done in between
Threads = dict[str, int]


@runtime_checkable
class Engine(Protocol):
    """`lead` is whether this process writes down what was found; of several under `torchrun` one does."""

    @property
    def workers(self) -> int: ...

    @property
    def lead(self) -> bool: ...

    def map(self, job: Callable[[Item], Done], items: Iterable[Item], *, gpu: bool = False) -> Iterator[Done]:
        """Results in the order of the items, which are taken as they are needed. With `gpu` a worker has its own."""
        ...

    def agree(self, make: Callable[[], Done]) -> Done:
        """What the leading process makes, for all of them."""
        ...


def open_engine(engine: str | Engine) -> Engine:
    """The engine that a text stands for; one that is open already is given back.

    >>> open_engine("local:4")     # four worker processes
    >>> open_engine("ray")         # the cluster at RAY_ADDRESS, or one that is started here
    """
    if not isinstance(engine, str):
        if not isinstance(engine, Engine):
            raise SettingsError("unknown engine", given=repr(engine), accepted=ACCEPTED)
        return engine
    kind, colon, number = engine.partition(":")
    if kind not in KINDS or (colon and (not number.isdigit() or int(number) < 1 or kind == "torchrun")):
        raise SettingsError("unknown engine", given=engine, accepted=ACCEPTED)
    if kind == "ray":
        return Cluster(int(number) if colon else None)
    if kind == "torchrun":
        return open_ranks()
    return Workers(int(number)) if colon and int(number) > 1 else Here()


def run(job: Callable[[Item], Done], item: Item) -> tuple[bool, Any]:
    """What a job gives, or the error that it raised on purpose: those come back as they were."""
    try:
        return True, job(item)
    except VitreousError as error:
        return False, error


# -- this process


@dataclass(frozen=True)
class Here:
    """One item after the other in this process, whose kernels use all cores by themselves."""

    workers: int = 1
    lead: bool = True

    def map(self, job: Callable[[Item], Done], items: Iterable[Item], *, gpu: bool = False) -> Iterator[Done]:
        del gpu  # the job lies where it lies
        return map(job, items)

    def agree(self, make: Callable[[], Done]) -> Done:
        return make()


# -- processes on this machine


@dataclass(frozen=True)
class Workers:
    """So many processes on this machine. Where one dies, a new pool takes up what was not done."""

    workers: int
    lead: bool = True

    def agree(self, make: Callable[[], Done]) -> Done:
        return make()

    def map(self, job: Callable[[Item], Done], items: Iterable[Item], *, gpu: bool = False) -> Iterator[Done]:
        packed, order, deaths = packed_job(job), InOrder(items, self.workers), 0
        while True:
            try:
                with _pool(self.workers, packed, gpu) as pool:
                    answers = {pool.submit(_run, item): number for number, item in order.away.items()}
                    while True:
                        answers |= {pool.submit(_run, item): number for number, item in order.out()}
                        if not answers:
                            return
                        for answer in wait(answers, return_when=FIRST_COMPLETED).done:
                            found, deaths = answer.result(), 0
                            yield from order.back(answers.pop(answer), found)
            except BrokenProcessPool as error:
                deaths += 1
                if deaths > MOST_DEATHS:
                    raise _keep_dying(deaths) from error
                say(f"a worker process died: {len(order.away)} pieces of work are begun anew")


@contextmanager
def _pool(workers: int, packed: bytes, gpu: bool) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes, since a fork of one that has threads can lock up."""
    from multiprocessing import get_context

    context = get_context("spawn")
    begin = (packed, threads_here(), context.Value("i", 0) if gpu else None)
    pool = ProcessPoolExecutor(workers, context, _begin, begin)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


_JOB: list[Callable[[Any], Any]] = []  # of a worker process, which has one


def _begin(packed: bytes, threads: Threads, number: Any) -> None:
    threading.Thread(target=_die_with_parent, daemon=True).start()
    if number is not None:  # before anything looks for a GPU
        with number.get_lock():
            os.environ["CUDA_VISIBLE_DEVICES"] = _visible()[number.value % len(_visible())]
            number.value += 1
    set_threads(threads)
    _JOB.append(pickle.loads(packed))


def _visible() -> list[str]:
    """GPUs by the names that the environment has for them."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(n) for n in range(torch.cuda.device_count())]


def _die_with_parent() -> None:
    """A worker whose parent was killed would wait for ever, or write where the next run writes."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run(item: Any) -> tuple[bool, Any]:
    return run(_JOB[0], item)


# -- Ray


@dataclass(frozen=True)
class Cluster:
    """Workers of a Ray cluster, `asked` of them or as many as it has cores, or GPUs for jobs that need one."""

    asked: int | None
    lead: bool = True

    @property
    def workers(self) -> int:
        return self._count(gpu=False)

    def agree(self, make: Callable[[], Done]) -> Done:
        return make()

    def _count(self, gpu: bool) -> int:
        there = int(open_ray(self.asked).cluster_resources().get("GPU" if gpu else "CPU", 0))
        if not there:
            raise EngineError(f"the Ray cluster has no {'GPU' if gpu else 'CPU'}", remedy='device="cpu", or add nodes')
        return min(self.asked or there, there)

    def map(self, job: Callable[[Item], Done], items: Iterable[Item], *, gpu: bool = False) -> Iterator[Done]:
        ray, count = open_ray(self.asked), self._count(gpu)
        from ray.util import ActorPool

        kept = {"max_restarts": -1, "max_task_retries": MOST_DEATHS, "num_cpus": int(not gpu), "num_gpus": int(gpu)}
        packed = ray.put(packed_job(job, ray.cloudpickle))
        actors = [ray.remote(**kept)(RayWorker).remote(packed, threads_here()) for _ in range(count)]
        pool, order = ActorPool(actors), InOrder(items, count)
        try:
            while True:
                for numbered in order.out():
                    pool.submit(_ask, numbered)
                if not order.away:
                    return
                number, answer, said = pool.get_next_unordered()
                for line in said:
                    say(line)
                yield from order.back(number, answer)
        except ray.exceptions.RayActorError as error:
            raise _keep_dying(MOST_DEATHS, str(error).strip().splitlines()[-1]) from error
        finally:
            for actor in actors:
                ray.kill(actor)


class RayWorker:
    """One worker of a cluster. Ray starts it anew, and asks again, when its process or its machine is lost."""

    def __init__(self, packed: bytes, threads: Threads) -> None:
        set_threads(threads)
        self.job = pickle.loads(packed)

    def run(self, number: int, item: Any) -> tuple[int, tuple[bool, Any], list[str]]:
        """The result under its number, and the lines that were said meanwhile: nobody looks at them here."""
        _SAID.clear()
        return number, run(self.job, item), list(_SAID)


def _ask(actor: Any, numbered: tuple[int, Any]) -> Any:
    return actor.run.remote(*numbered)


def open_ray(workers: int | None) -> Any:
    """Ray, connected: to the cluster at RAY_ADDRESS, or to one that begins and ends with this process."""
    try:
        import ray
    except ImportError as error:
        raise SettingsError(
            'engine="ray" needs Ray, which is not installed', remedy="pip install 'vitreous[ray]'"
        ) from error
    if not ray.is_initialized():
        settings: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if not os.environ.get("RAY_ADDRESS"):  # "local": not what `ray start` has left on this machine
            settings |= {"address": "local", "num_cpus": max(workers or 1, os.cpu_count() or 1)}
            settings |= {"include_dashboard": False}
        try:
            ray.init(**settings)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise EngineError(
                f"no Ray cluster: {error}",
                given=os.environ.get("RAY_ADDRESS"),
                remedy="a RAY_ADDRESS that answers (RAY_AUTH_MODE=token where it asks for one), or none",
            ) from error
    return ray


# -- torchrun


def open_ranks() -> Engine:
    """The processes that `torchrun` started; each calls the same functions with the same arguments."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise SettingsError(
            'engine="torchrun" is for processes that torchrun starts',
            remedy="torchrun --nproc-per-node 2 script.py, or another engine",
        )
    import torch.distributed as group

    if not group.is_initialized():
        group.init_process_group("gloo")
        atexit.register(group.destroy_process_group)
    own = None if group.get_backend() == "gloo" else group.new_group(backend="gloo")  # objects go by way of the host
    return Ranks(group.get_rank(), group.get_world_size(), own)


@dataclass(frozen=True)
class Ranks:
    """Process `rank` takes items rank, rank + workers, ...; the last turn may leave some without, and none twice."""

    rank: int
    workers: int
    group: Any

    @property
    def lead(self) -> bool:
        return self.rank == 0

    def map(self, job: Callable[[Item], Done], items: Iterable[Item], *, gpu: bool = False) -> Iterator[Done]:
        del gpu  # each process has put the model where it wants it
        source = iter(items)
        while turn := list(islice(source, self.workers)):
            mine = run(job, turn[self.rank]) if self.rank < len(turn) else (True, None)
            yield from [unpack(answer) for answer in self._gathered(mine)[: len(turn)]]

    def agree(self, make: Callable[[], Done]) -> Done:
        return unpack(self._gathered(run(lambda _: make(), None) if self.lead else (True, None))[0])

    def _gathered(self, mine: Any) -> list[Any]:
        import torch.distributed as group

        found: list[Any] = [None] * self.workers
        group.all_gather_object(found, mine, self.group)
        return found


def in_turn(engine: Engine, make: Callable[[], Done]) -> Done:
    """What each process makes for itself, under `torchrun` one after the other: what one writes the next one finds."""
    if not isinstance(engine, Ranks):
        return make()
    made: Any = None
    for rank in range(engine.workers):
        if rank == engine.rank:
            made = run(lambda _: make(), None)
        engine.agree(lambda: None)
    return unpack(made)


# -- what engines share


def packed_job(job: Callable[[Any], Any], way: Any = pickle) -> bytes:
    """The job as bytes; what cannot be sent to another process is named."""
    try:
        return way.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise EngineError(
            f"this cannot be sent to worker processes: {error}",
            given=type(job).__name__,
            remedy='engine="local", or a model and data without functions that are defined inside of others',
        ) from error


def threads_here() -> Threads:
    """How many threads products of matrices take in this process."""
    import torch
    from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

    blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {"torch": torch.get_num_threads(), "blas": max(blas, default=1)}


def set_threads(threads: Threads) -> None:
    import numpy as np
    import torch
    from threadpoolctl import threadpool_limits

    np.dot(np.ones(1), np.ones(1))  # its library is loaded
    torch.set_num_threads(threads["torch"])
    threadpool_limits(threads["blas"], "blas")


_SAID: list[str] = []  # few lines; a worker of Ray hands them on


def say(line: str) -> None:
    """One line on the error stream, where a person who waits looks, also if it is said far away."""
    progress.say(line)
    _SAID.append(line)


def _keep_dying(deaths: int, said: str | None = None) -> EngineError:
    return EngineError(
        f"workers keep dying: {deaths} times with nothing done in between",
        given=said,
        remedy="they may be out of memory: fewer workers, or a smaller batch_size; what is done is kept",
    )
