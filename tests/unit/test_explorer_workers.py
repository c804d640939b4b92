"""One thread a model: each thing once, what is urgent first, nothing for those who have gone; a cache with a budget."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.errors import ModelError, SettingsError
from vitreous.explorer.cache import Cache
from vitreous.explorer.jobs import ACTIVE, KEPT, Jobs
from vitreous.explorer.workers import LATER, NOW, SOON, Worker


@pytest.fixture
def slow():
    """A worker whose first work waits until it is told to go on."""
    go = threading.Event()
    worker = Worker(lambda: "the model", Cache(1000))

    def hold(subject):
        go.wait(10)
        return "held", 1

    worker.ask("hold", hold)
    worker.go = go
    yield worker
    go.set()
    worker.close()


def noted(order, name):
    def work(subject):
        order.append(name)
        return name, 1

    return work


def test_the_model_is_loaded_once_and_only_when_asked():
    loads = []
    worker = Worker(lambda: loads.append(1) or "model", Cache(1000))
    assert not worker.loaded and not loads
    assert worker.ask("a", lambda subject: (subject, 1)).future.result(5) == "model"
    assert worker.ask("b", lambda subject: (subject, 1)).future.result(5) == "model"
    assert worker.loaded and len(loads) == 1


def test_several_who_ask_for_the_same_get_one_result(slow):
    order: list[str] = []
    flights = [slow.ask("same", noted(order, "x")) for _ in range(5)]
    slow.go.set()
    assert {flight.future.result(5) for flight in flights} == {"x"}
    assert slow.ask("same", noted(order, "x")).future.result(0) == "x"  # kept
    assert order == ["x"]


def test_what_is_urgent_comes_first(slow):
    order: list[str] = []
    asked = [slow.ask(name, noted(order, name), urgency) for name, urgency in (("l", LATER), ("s", SOON), ("n", NOW))]
    slow.go.set()
    [flight.future.result(5) for flight in asked]
    assert order == ["n", "s", "l"]


def test_what_was_for_later_is_done_now_if_somebody_asks(slow):
    order: list[str] = []
    first, second = (slow.ask(name, noted(order, name), LATER) for name in "ab")
    urgent = slow.ask("b", noted(order, "b"), NOW)
    slow.go.set()
    first.future.result(5)
    assert order == ["b", "a"] and urgent is second


def test_nothing_is_computed_for_those_who_have_gone(slow):
    order: list[str] = []
    alone = slow.ask("alone", noted(order, "alone"))
    shared = [slow.ask("shared", noted(order, "shared")) for _ in range(2)]
    slow.leave(alone)
    slow.leave(shared[0])
    slow.go.set()
    assert shared[1].future.result(5) == "shared"
    assert alone.future.cancelled() and order == ["shared"]
    assert slow.ask("alone", noted(order, "alone")).future.result(5) == "alone"  # whoever comes back is served


def test_long_work_is_not_stopped_by_somebody_who_asks_for_the_same_and_leaves(slow):
    order: list[str] = []
    job = Jobs().start([lambda: slow.ask("shared", noted(order, "shared"), LATER)])
    while "shared" not in slow._flights:
        time.sleep(0.001)
    slow.leave(slow.ask("shared", noted(order, "shared")))
    slow.go.set()
    assert ended(job) == "done" and order == ["shared"]


def test_the_interest_moves_on(slow):
    order: list[str] = []
    ahead = [slow.ask(name, noted(order, name), SOON) for name in "ab"]
    wanted = slow.ask("b", noted(order, "b"))
    slow.forget_ahead()
    slow.go.set()
    assert wanted.future.result(5) == "b" and ahead[0].future.cancelled() and order == ["b"]


def test_what_fails_is_said_and_tried_again():
    tries = []

    def load():
        tries.append(1)
        if len(tries) == 1:
            raise ModelError("the weights are gone")
        return "model"

    worker = Worker(load, Cache(1000))
    with pytest.raises(ModelError, match="gone"):
        worker.ask("a", lambda subject: (subject, 1)).future.result(5)
    assert worker.ask("a", lambda subject: (subject, 1)).future.result(5) == "model"
    with pytest.raises(ZeroDivisionError):
        worker.ask("b", lambda _: (1 / 0, 1)).future.result(5)
    assert worker.ask("c", lambda _: (3, 1)).future.result(5) == 3


def test_closing_ends_what_waits(slow):
    waiting = slow.ask("w", lambda _: (1, 1))
    slow.close()
    slow.go.set()
    with pytest.raises(CancelledError):
        waiting.future.result(5)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 30), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=40))
def test_a_cache_stays_within_its_budget_and_keeps_the_latest(budget, puts):
    cache = Cache(budget)
    latest: dict[int, tuple[int, int]] = {}
    for turn, (key, size) in enumerate(puts):
        cache.put(key, (key, turn), size)
        assert cache.size <= budget
        if size <= budget:
            assert cache.get(key) == (key, turn)
            latest[key] = (key, turn)
    for key in latest:
        assert cache.get(key) in (None, latest[key])
    assert cache.get("never") is None


def ended(job):
    end = time.monotonic() + 10
    while job.state in ("waiting", "running") and time.monotonic() < end:
        time.sleep(0.005)
    return job.state


def test_jobs_end_in_all_their_ways(slow):
    slow.go.set()
    jobs = Jobs()
    done = jobs.start([lambda k=k: slow.ask(k, lambda _: (1, 1), LATER) for k in range(3)])
    assert ended(done) == "done" and (done.done, done.total) == (3, 3)

    def refuse(subject):
        raise ModelError("no weights here", remedy="bring them")

    failed = jobs.start([lambda: slow.ask("f", refuse, LATER)] * 2)
    assert ended(failed) == "failed" and failed.error == "no weights here" and failed.done == 0
    assert jobs.find(done.id) is done
    with pytest.raises(SettingsError, match="no such job"):
        jobs.find("x")
    with pytest.raises(SettingsError, match="one map or more"):
        jobs.start([])


def test_jobs_are_stopped_and_there_are_not_too_many(slow):
    jobs = Jobs()
    running = [jobs.start([lambda: slow.ask("w", lambda _: (1, 1), LATER)] * 9) for _ in range(ACTIVE)]
    with pytest.raises(SettingsError, match="stop one"):
        jobs.start([lambda: slow.ask("w", lambda _: (1, 1), LATER)])
    for job in running:
        jobs.stop(job.id)
    slow.go.set()
    assert {ended(job) for job in running} == {"cancelled"}
    for _ in range(KEPT + 5):
        ended(jobs.start([lambda: slow.ask("w", lambda _: (1, 1), LATER)]))
    assert len(jobs._jobs) <= KEPT
