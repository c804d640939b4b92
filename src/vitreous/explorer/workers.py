"""One thread a model, through which everything that touches the model goes: what is urgent first, each thing once."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from vitreous.explorer.cache import Cache

if TYPE_CHECKING:
    from vitreous.models.subject import Subject

PATIENCE = 20  # seconds that a thread is given to end
NOW, SOON, LATER = 0, 1, 2  # somebody waits; somebody will probably ask; part of long work

Work = Callable[["Subject"], tuple[Any, int]]  # -> a result and its size in bytes


class Flight:
    """Work that is on its way, for one or several who asked for the same."""

    def __init__(self, key: Hashable, work: Work) -> None:
        self.key, self.work = key, work
        self.future: Future[Any] = Future()
        self.waiting = 0
        self.ahead = True  # nobody has asked for it yet
        self.started = False


class Worker:
    """Loads a model when it is first needed. What fails is said to whoever asked, and tried again when asked again."""

    def __init__(self, load: Callable[[], Subject], cache: Cache) -> None:
        self._load, self._cache = load, cache
        self._queue: queue.PriorityQueue[tuple[int, int, Flight | None]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._flights: dict[Hashable, Flight] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._subject: Subject | None = None

    @property
    def loaded(self) -> bool:
        return self._subject is not None

    @property
    def busy(self) -> bool:
        """Whether anything is computed or waits to be."""
        return bool(self._flights)

    def ask(self, key: Hashable, work: Work, urgency: int = NOW) -> Flight:
        """Has the work done once, however many ask; the flight holds the result, now or later.

        Whoever asks NOW or LATER waits for it, and `leave`s when it waits no longer.
        """
        with self._lock:
            flight = self._flights.get(key)
            if flight is None:
                flight = Flight(key, work)
                if (kept := self._cache.get(key)) is not None:
                    flight.future.set_result(kept)
                    return flight
                self._flights[key] = flight
            flight.waiting += urgency != SOON
            flight.ahead &= urgency == SOON
            self._queue.put((urgency, next(self._order), flight))  # again if it was there: the more urgent one counts
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="vitreous model")
                self._thread.start()
            return flight

    def leave(self, flight: Flight) -> None:
        """Nobody computes for somebody who has gone, unless another waits for the same or it has begun."""
        with self._lock:
            flight.waiting -= 1
            if flight.waiting < 1 and not flight.started and self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
                flight.future.cancel()

    def forget_ahead(self) -> None:
        """Drops what nobody has asked for yet and has not begun: the interest has moved on."""
        with self._lock:
            for flight in [flight for flight in self._flights.values() if flight.ahead and not flight.started]:
                del self._flights[flight.key]
                flight.future.cancel()

    def close(self) -> None:
        """Ends the thread, and waits for what it is doing: ending a process in the middle of a product goes wrong."""
        with self._lock:
            for flight in self._flights.values():
                flight.future.cancel()
            self._flights.clear()
            self._queue.put((-1, next(self._order), None))
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def _run(self) -> None:
        while True:
            _, _, flight = self._queue.get()
            if flight is None:
                return
            with self._lock:
                if flight.started or self._flights.get(flight.key) is not flight:
                    continue
                flight.started = flight.future.set_running_or_notify_cancel()
            if flight.started:
                self._fly(flight)

    def _fly(self, flight: Flight) -> None:
        try:
            if self._subject is None:
                self._subject = self._load()
            value, size = flight.work(self._subject)
        except BaseException as error:  # noqa: BLE001 - whoever asked is told
            self._landed(flight)
            flight.future.set_exception(error)
        else:
            self._cache.put(flight.key, value, size)
            self._landed(flight)
            flight.future.set_result(value)

    def _landed(self, flight: Flight) -> None:
        with self._lock:
            self._flights.pop(flight.key, None)
