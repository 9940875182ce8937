"""Spouts with a thread of their own: real threads, and waits that end when something happened."""

from __future__ import annotations

import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from queue import Queue
from typing import Any

import pytest

from squall.engine.api.async_component import AsyncSpout
from squall.engine.api.collectors import SpoutCollector
from squall.engine.api.component import Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.closing import close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.surroundings import Parts
from squall.engine.tracking.open_messages import OpenMessages
from tests.process.waiting import wait_for
from tests.unit.rig import DEADLINE_SECS, Does, Rig, acks, chain, keeps

END = object()


class Waits(Spout):
    """Waits in `next_tuple` for what the test puts: (values, id), or a function that it calls, or END."""

    outputs = ("value",)
    blocking = True

    def __init__(self) -> None:
        self.queue: Queue[Any] = Queue()
        self.asked = threading.Event()
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.acked: list[Any] = []
        self.failures: list[tuple[Any, Failure]] = []
        self.again: Callable[[Any], object] = lambda message_id: None

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.context = collector, context

    def _called(self, method: str) -> None:
        self.calls.append(method)
        self.threads.add(threading.get_ident())

    def next_tuple(self) -> None:
        self._called("next_tuple")
        self.asked.set()
        if self.exhausted:
            return
        item = self.queue.get()
        if item is END:
            self.exhausted = True
        elif callable(item):
            item(self)
        elif item is not None:
            values, message_id = item
            self.collector.emit(values, message_id=message_id)

    def ack(self, message_id: Any) -> None:
        self._called("ack")
        self.acked.append(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._called("on_failure")
        self.failures.append((message_id, failure))
        self.again(message_id)

    def activate(self) -> None:
        self._called("activate")

    def deactivate(self) -> None:
        self._called("deactivate")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def rigs() -> Iterator[list[Rig]]:
    made: list[Rig] = []
    before = set(threading.enumerate())
    yield made
    for rig in made:
        for _, _, user in rig.core.users():
            if isinstance(user, Waits):
                user.queue.put(None)
        close_tasks(rig.core)
    assert set(threading.enumerate()) <= before


def rig_of(rigs: list[Rig], builder: TopologyBuilder, **settings: Any) -> Rig:
    rig = Rig(builder, threads=True, **settings)
    rigs.append(rig)
    return rig


def until(rig: Rig, condition: Callable[[], bool]) -> None:
    """Turn the loop until `condition` holds. Not every step of a thread wakes the loop."""

    def holds() -> bool:
        rig.settle()
        return condition()

    wait_for("the condition", holds, DEADLINE_SECS)


def acked_in_the_midst_of_next_tuple(rigs: list[Rig]) -> tuple[Rig, Waits]:
    """A spout that emitted a tuple, which has been acked, and still waits in the same call."""
    spout = Waits()
    rig = rig_of(rigs, chain(spout, Does(acks)))

    def emits_and_waits(it: Waits) -> None:
        it.collector.emit((1,), message_id=1)
        it.queue.get()

    spout.queue.put(emits_and_waits)
    until(rig, lambda: rig.core.stats[rig.plan.tasks_of("spout")[0]].acked == 1)
    return rig, spout


def test_while_it_waits_the_worker_goes_on_and_all_its_methods_are_called_by_one_thread(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(acks)
    rig = rig_of(rigs, chain(spout, sink))
    until(rig, spout.asked.is_set)
    rig.settle()  # the loop turns though the spout sits in next_tuple
    for number in range(20):
        spout.queue.put(((number,), number))
    until(rig, lambda: len(sink.seen) == 20)
    spout.queue.put(END)
    until(rig, lambda: rig.core.quiet and all(task.finished for _, task in rig.core.spout_tasks.values()))
    assert sink.seen == [(number,) for number in range(20)]
    assert spout.acked == list(range(20))
    assert spout.calls[0] == "activate"
    assert len(spout.threads) == 1
    assert threading.get_ident() not in spout.threads
    assert (rig.pending, rig.tracked) == (0, 0)
    rig.core.refresh_gauges()
    stats = rig.core.stats[rig.plan.tasks_of("spout")[0]]
    assert (stats.emitted, stats.acked, stats.pending, stats.exhausted) == (20, 20, 0, True)


def test_what_it_emits_leaves_before_next_tuple_comes_back(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(keeps)
    rig = rig_of(rigs, chain(spout, sink))
    counts: list[int] = []

    def emits_and_waits(it: Waits) -> None:
        tasks = it.collector.emit(("first",), message_id=1)
        counts.append(it.collector.pending_count)
        assert tasks == rig.plan.tasks_of("bolt-1")
        it.queue.get()

    spout.queue.put(emits_and_waits)
    until(rig, lambda: sink.seen == [("first",)])
    assert rig.pending == 1
    assert counts == [1]


def test_an_answer_is_told_between_two_calls_and_counted_at_once(rigs: list[Rig]) -> None:
    rig, spout = acked_in_the_midst_of_next_tuple(rigs)
    assert (rig.pending, spout.acked) == (0, [])
    assert rig.core.quiet
    spout.queue.put(None)
    until(rig, lambda: spout.acked == [1])


def test_no_more_trees_are_open_than_allowed_however_many_one_call_emits(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(keeps)
    rig = rig_of(rigs, chain(spout, sink), max_spout_pending=3, message_timeout_secs=600)
    spout.queue.put(lambda it: [it.collector.emit((number,), message_id=number) for number in range(8)])
    until(rig, lambda: len(sink.kept) == 3)
    for done in range(8):
        until(rig, lambda done=done: len(sink.kept) > done)  # type: ignore[misc]
        assert rig.pending <= 3
        rig.user("bolt-1").collector.ack(sink.kept[done])
    spout.queue.put(None)
    until(rig, lambda: len(spout.acked) == 8)


def test_congestion_keeps_it_waiting_inside_emit(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(acks)
    rig = rig_of(rigs, chain(spout, sink))
    until(rig, spout.asked.is_set)
    rig.congest(True)
    rig.settle()
    spout.queue.put(((1,), 1))
    until(rig, spout.queue.empty)
    rig.settle()
    assert (sink.seen, rig.pending) == ([], 0)
    rig.congest(False)
    until(rig, lambda: sink.seen == [(1,)])


def test_deactivated_it_comes_to_rest_in_next_tuple_and_what_it_emits_waits_for_activation(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(acks)
    rig = rig_of(rigs, chain(spout, sink))
    until(rig, spout.asked.is_set)
    rig.core.set_active(False)
    rig.settle()
    assert rig.core.quiet
    spout.queue.put(((1,), 1))
    until(rig, spout.queue.empty)
    rig.settle()
    assert rig.core.quiet
    assert (sink.seen, rig.pending, "deactivate" in spout.calls) == ([], 0, False)
    rig.core.set_active(True)
    until(rig, lambda: sink.seen == [(1,)])
    spout.queue.put(None)
    until(rig, lambda: spout.acked == [1])
    assert [call for call in spout.calls if "activate" in call] == ["activate", "deactivate", "activate"]


def test_what_it_emits_again_when_told_of_a_failure_goes_out_though_it_may_not_be_asked(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(keeps)
    rig = rig_of(rigs, chain(spout, sink), message_timeout_secs=10)
    user = rig.user("spout")
    user.again = lambda message_id: user.collector.emit(("again",), message_id=message_id)
    spout.queue.put(((1,), "one"))
    until(rig, lambda: len(sink.kept) == 1)
    rig.core.set_active(False)
    spout.queue.put(None)
    until(rig, lambda: "deactivate" in spout.calls)
    rig.advance(10)
    until(rig, lambda: len(sink.kept) == 2)
    assert [failure.reason for _, failure in spout.failures] == ["timeout"]
    assert rig.pending == 1


@pytest.mark.parametrize("error", [ValueError("what"), SystemExit(3)])
@pytest.mark.parametrize("method", ["next_tuple", "ack", "activate"])
def test_whatever_it_raises_reaches_the_loop(rigs: list[Rig], error: BaseException, method: str) -> None:
    spout = Waits()

    def raises(*arguments: Any) -> None:
        raise error

    setattr(spout, method, raises)
    rig = rig_of(rigs, chain(spout, Does(acks)))
    spout.queue.put(((1,), 1))
    for _ in range(100):
        spout.queue.put(None)
    with pytest.raises(TaskCrashed, match=rf"^spout\[3\] raised {type(error).__name__}.* in {method} \("):
        until(rig, lambda: False)


def test_an_emit_that_waits_when_the_worker_ends_unwinds(rigs: list[Rig]) -> None:
    spout = Waits()
    rig = rig_of(rigs, chain(spout, Does(acks)))
    until(rig, spout.asked.is_set)
    rig.core.set_active(False)
    unwound = threading.Event()

    def emits(it: Waits) -> None:
        try:
            it.collector.emit((1,), message_id=1)
        finally:
            unwound.set()

    spout.queue.put(emits)
    until(rig, spout.queue.empty)
    assert close_tasks(rig.core) == []
    assert unwound.wait(30)
    assert spout.calls[-1] == "close"


class Keeps:
    """A component with an object that only the thread may use that made it."""

    db: sqlite3.Connection | None = None

    def use(self) -> None:
        self.db = self.db or sqlite3.connect(":memory:")

    def done(self) -> None:
        assert self.db is not None
        self.db.close()


class KeepingSpout(Keeps, Waits):
    def next_tuple(self) -> None:
        self.use()
        super().next_tuple()

    close = Keeps.done


class KeepingBolt(Keeps, Does):
    def execute(self, tup: Any) -> None:
        self.use()
        super().execute(tup)

    cleanup = Keeps.done


class KeepingAsyncSpout(Keeps, AsyncSpout):
    outputs = ("value",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector

    async def setup(self) -> None:
        self.use()

    async def next_tuple(self) -> None:
        if not self.exhausted:
            self.collector.emit((1,), message_id=1)
        self.exhausted = True

    async def teardown(self) -> None:
        self.done()


@pytest.mark.parametrize("made", [KeepingSpout, KeepingAsyncSpout])
def test_what_a_thread_has_made_it_closes(rigs: list[Rig], made: type[Spout]) -> None:
    spout, sink = made(), KeepingBolt(acks, blocking=True)
    if isinstance(spout, Waits):
        spout.queue.put(((1,), 1))
        spout.queue.put(END)
    rig = rig_of(rigs, chain(spout, sink))
    until(rig, lambda: sink.seen == [(1,)] and all(task.rests for _, task in rig.core.spout_tasks.values()))
    assert close_tasks(rig.core) == []


def test_answers_are_told_before_the_thread_ends(rigs: list[Rig]) -> None:
    rig, spout = acked_in_the_midst_of_next_tuple(rigs)
    spout.queue.put(None)
    close_tasks(rig.core)
    assert spout.acked == [1]
    assert [spout.calls[-1], "deactivate" in spout.calls] == ["close", True]


def test_without_ackers_it_is_acked_as_it_emits(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(acks)
    rig = rig_of(rigs, chain(spout, sink), ackers=0)
    spout.queue.put(((1,), 1))
    until(rig, lambda: sink.seen == [(1,)])
    assert spout.acked == [1]


def test_what_is_held_back_goes_out_by_the_loop(rigs: list[Rig]) -> None:
    spout, sink = Waits(), Does(acks)
    rig = rig_of(rigs, chain(spout, sink))
    (_, task), = rig.core.spout_tasks.values()
    task.pending.attempts.held_back.add("suspect")
    spout.queue.put((("x",), "suspect"))
    until(rig, lambda: sink.seen == [("x",)])
    until(rig, lambda: rig.pending == 0)


class NotesThreads(OpenMessages):
    """Notes the threads that enter trees."""

    threads: set[int]

    def add(self, *tree: Any) -> None:
        self.threads.add(threading.get_ident())
        super().add(*tree)

    def _add_block(self, *block: Any) -> None:
        self.threads.add(threading.get_ident())
        super()._add_block(*block)


def rig_that_notes_threads(rigs: list[Rig], spout: Spout, sink: Does, **settings: Any) -> tuple[Rig, set[int]]:
    seen: set[int] = set()
    noting = type("Notes", (NotesThreads,), {"threads": seen})
    return rig_of(rigs, chain(spout, sink), around={"parts": Parts(pending=noting)}, **settings), seen


@pytest.mark.parametrize("told", [False, True], ids=["in next_tuple", "told of an ack"])
def test_only_the_loop_enters_trees_though_untracked_emits_come_between(rigs: list[Rig], told: bool) -> None:
    spout, sink = Waits(), Does(acks)
    rig, threads = rig_that_notes_threads(rigs, spout, sink)
    mixing, loop_rests, mixed = threading.Event(), threading.Event(), threading.Event()

    def mixes(it: Waits) -> None:
        mixing.set()
        assert loop_rests.wait(DEADLINE_SECS)  # so that it takes nothing between the first two emits
        it.collector.emit(("tracked 1",), message_id=1)
        it.collector.emit(("untracked 1",))
        it.collector.emit(("tracked 2",), message_id=2)
        it.collector.emit(("untracked 2",))
        mixed.set()

    def waits_or_is_done() -> bool:
        (thread,) = user.threads
        frames = traceback.extract_stack(sys._current_frames()[thread])
        return mixed.is_set() or [frame.name for frame in frames[-2:]] == ["_emit_in_turn", "wait"]

    def ack(message_id: Any) -> None:
        spout.acked.append(message_id)
        if told and message_id == "first":
            mixes(user)

    user = rig.user("spout")
    user.ack = ack
    spout.queue.put((("first",), "first"))
    if not told:
        spout.queue.put(mixes)

    def once_more(condition: Callable[[], bool]) -> bool:
        spout.queue.put(None)  # it hears of acks between two calls
        return condition()

    until(rig, lambda: once_more(mixing.is_set))
    loop_rests.set()
    wait_for("the end of the emits, or the spout's wait for the loop", waits_or_is_done, DEADLINE_SECS)
    until(rig, lambda: once_more(lambda: set(spout.acked) == {"first", 1, 2} and len(sink.seen) == 5))
    assert threads == {threading.get_ident()}
    assert sink.seen == [("first",), ("tracked 1",), ("untracked 1",), ("tracked 2",), ("untracked 2",)]


def test_open_may_mix_tracked_and_untracked_emits(rigs: list[Rig]) -> None:
    class OpensWithTuples(Waits):
        def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
            super().open(conf, context, collector)
            for message_id in (1, None, 2, None):
                collector.emit((message_id,), message_id=message_id)

    spout, sink = OpensWithTuples(), Does(acks)
    rig, threads = rig_that_notes_threads(rigs, spout, sink)
    until(rig, lambda: len(sink.seen) == 4)
    spout.queue.put(None)
    until(rig, lambda: spout.acked == [1, 2])
    assert threads == {threading.get_ident()}


class Takes(Spout):
    """Takes from a queue that never has more than what the test puts, and notes what it is told."""

    outputs = ("value",)
    blocking = True

    def __init__(self, last_is_emitted: bool) -> None:
        self.last_is_emitted = last_is_emitted
        self.queue: Queue[Any] = Queue()
        self.acked: list[Any] = []
        self.failed: list[Any] = []
        for value in (1, 2, END):
            self.queue.put(value)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector

    def next_tuple(self) -> None:
        if self.failed:
            self.collector.emit((2,), message_id=self.failed.pop())
            return
        value = self.queue.get(timeout=DEADLINE_SECS)
        if value is not END:
            self.collector.emit((value,), message_id=value)
        self.exhausted = value is END or (self.last_is_emitted and value == 2)

    def ack(self, message_id: Any) -> None:
        self.acked.append(message_id)

    def fail(self, message_id: Any) -> None:
        self.failed.append(message_id)


@pytest.mark.parametrize("last_is_emitted", [False, True])
def test_one_that_is_exhausted_is_not_asked_for_more_and_hears_of_its_acks(
    rigs: list[Rig], last_is_emitted: bool
) -> None:
    spout = Takes(last_is_emitted)
    rig = rig_of(rigs, chain(spout, Does(acks)))
    until(rig, lambda: rig.core.quiet and all(task.finished for _, task in rig.core.spout_tasks.values()))
    assert spout.acked == [1, 2]
