"""Spouts with a thread of their own: real threads, and waits that end when something happened."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any
from unittest.mock import Mock

import pytest

from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.plan import ExecutorPlan, Plan
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import is_drained
from squall.engine.core.surroundings import Parts
from squall.engine.tracking.open_messages import OpenMessages
from tests.process.waiting import wait_for
from tests.unit.rig import DEADLINE_SECS, Does, Feeder, Rig, acks, chain, keeps
from tests.unit.test_dealt_topologies import Count
from tests.unit.threads import threaded
from tests.unit.wired import wired

END = object()


class Calls(list[str]):
    """Notes the threads of all calls but `open`."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def append(self, call: str) -> None:
        if call != "open":
            self.threads.add(threading.get_ident())
        super().append(call)


class Waits(Feeder):
    """Waits in `next_tuple` for what the test puts: (values, id), or a function that it calls, or END."""

    blocking = True

    def __init__(self) -> None:
        super().__init__()
        self.queue: Any = Queue()
        self.calls: Any = Calls()
        self.asked = threading.Event()
        self.again: Callable[[Any], object] = lambda message_id: None

    def next_tuple(self) -> None:
        self.calls.append("next_tuple")
        self.asked.set()
        item = self.queue.get()
        if item is END:
            self.exhausted = True
        elif callable(item):
            item(self)
        elif item is not None:
            values, message_id = item
            self.collector.emit(values, message_id=message_id)

    def ack(self, message_id: Any) -> None:
        self.calls.append("ack")
        super().ack(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.calls.append("on_failure")
        super().on_failure(message_id, failure)
        self.again(message_id)

    def let_go(self) -> None:
        self.queue.put(None)


def until(rig: Rig, condition: Callable[[], bool]) -> None:
    """Turn the loop until `condition` holds. Not every step of a thread wakes the loop."""

    def holds() -> bool:
        rig.settle()
        return condition()

    wait_for("the condition", holds, DEADLINE_SECS)


def until_heard(rig: Rig, spout: Waits, condition: Callable[[], bool]) -> None:
    """The same of what it is told, which happens between two calls: each of them gets nothing to emit."""

    def holds() -> bool:
        spout.queue.put(None)
        return condition()

    until(rig, holds)


def emits_last(it: Waits) -> None:
    it.collector.emit((19,), message_id=19)
    it.exhausted = True


@pytest.mark.parametrize("last", [[((19,), 19), END], [emits_last]], ids=["then nothing", "with its last tuple"])
def test_while_it_waits_the_worker_goes_on_and_all_its_methods_are_called_by_one_thread(last: list[Any]) -> None:
    """It is not asked again when it is exhausted: it would wait for ever."""
    spout, sink = Waits(), Does(acks)
    with threaded(chain(spout, sink)) as rig:
        until(rig, spout.asked.is_set)
        rig.settle()  # the loop turns though the spout sits in next_tuple
        for item in [*(((number,), number) for number in range(19)), *last]:
            spout.queue.put(item)
        until(rig, lambda: is_drained(rig.core))
        assert sink.seen == [(number,) for number in range(20)]
        assert spout.acked == list(range(20))
        assert (rig.pending, rig.tracked) == (0, 0)
        rig.core.refresh_gauges()
        stats = rig.core.stats[rig.plan.tasks_of("spout")[0]]
        assert (stats.emitted, stats.acked, stats.pending, stats.exhausted) == (20, 20, 0, True)
        assert rig.close() == []
        assert (spout.calls[:2], spout.calls[-1]) == (["open", "activate"], "close")
        assert len(spout.calls.threads) == 1
        assert threading.get_ident() not in spout.calls.threads


@pytest.mark.parametrize("ends", [False, True], ids=["between two calls", "at the end"])
def test_an_answer_is_counted_at_once_and_told_when_next_tuple_comes_back(ends: bool) -> None:
    spout = Waits()
    with threaded(chain(spout, Does(acks))) as rig:

        def emits_and_waits(it: Waits) -> None:
            assert it.collector.emit((1,), message_id=1) == rig.plan.tasks_of("bolt-1")
            assert it.collector.pending_count == 1
            it.queue.get()

        spout.queue.put(emits_and_waits)
        until(rig, lambda: rig.core.stats[rig.plan.tasks_of("spout")[0]].acked == 1)
        assert (rig.pending, spout.acked) == (0, [])
        assert rig.core.quiet
        spout.queue.put(None)
        if ends:
            rig.close()
        else:
            until(rig, lambda: bool(spout.acked))
        assert spout.acked == [1]
        assert ("deactivate" in spout.calls, spout.calls[-1] == "close") == (ends, ends)


def test_what_is_answered_while_it_is_told_is_told_next_and_it_is_at_work_until_then() -> None:
    spout, told = Waits(), threading.Event()
    spout.ack = lambda message_id: told.wait(DEADLINE_SECS) and Waits.ack(spout, message_id)  # type: ignore[assignment,func-returns-value,method-assign]
    with threaded(chain(spout, Does(acks))) as rig:
        stats = rig.core.stats[rig.plan.tasks_of("spout")[0]]
        for number in range(2):
            spout.queue.put(((number,), number))
            until(rig, lambda: stats.acked > number)  # noqa: B023
        assert not rig.core.quiet
        told.set()
        spout.queue.put(None)
        until(rig, lambda: spout.acked == [0, 1])


def test_a_spout_that_is_closed_while_it_waits_is_told_nothing_more() -> None:
    spout = Waits()
    spout.close = spout.let_go  # type: ignore[method-assign]
    with threaded(chain(spout, Does(acks))) as rig:
        spout.queue.put(lambda it: (it.collector.emit((1,), message_id=1), it.queue.get()))
        until(rig, lambda: rig.core.stats[rig.plan.tasks_of("spout")[0]].acked == 1)
        rig.close()
    assert spout.acked == []


def test_a_spout_before_state_that_is_closed_while_it_waits_may_emit_once_more(tmp_path: Path) -> None:
    """Its thread is the only one at the records, which would crash the worker, or be closed."""
    waits, plan = Waits(), Plan([[ExecutorPlan("spout", 1, 1)]], ["here"])
    waits.record_identity = "name"
    spout: Any = wired(spout=(waits, 1), count=(Count(), 1, "global spout")).build()["spout"].component
    spout.open({}, TopologyContext("t", "spout", 1, 0, "here", 1, plan, str(tmp_path)), Mock())
    waits.queue.put(lambda it: (it.queue.get(), it.collector.emit((1,), message_id="a")))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(spout.next_tuple)
        assert waits.asked.wait(30)
        spout.close()
        waits.let_go()
        call.result()


def test_no_more_trees_are_open_than_allowed_however_many_one_call_emits() -> None:
    spout, sink = Waits(), Does(keeps)
    with threaded(chain(spout, sink), max_spout_pending=3, message_timeout_secs=600) as rig:
        spout.queue.put(lambda it: [it.collector.emit((number,), message_id=number) for number in range(8)])
        until(rig, lambda: len(sink.kept) == 3)
        for done in range(8):
            until(rig, lambda done=done: len(sink.kept) > done)  # type: ignore[misc]
            assert rig.pending <= 3
            rig.user("bolt-1").collector.ack(sink.kept[done])
        until_heard(rig, spout, lambda: len(spout.acked) == 8)


def test_congestion_keeps_it_waiting_inside_emit() -> None:
    spout, sink = Waits(), Does(acks)
    with threaded(chain(spout, sink)) as rig:
        until(rig, spout.asked.is_set)
        rig.congest(True)
        rig.settle()
        spout.queue.put(((1,), 1))
        until(rig, spout.queue.empty)
        rig.settle()
        assert (sink.seen, rig.pending) == ([], 0)
        rig.congest(False)
        until(rig, lambda: sink.seen == [(1,)])


def test_deactivated_it_comes_to_rest_in_next_tuple_and_what_it_emits_waits_for_activation() -> None:
    spout, sink = Waits(), Does(acks)
    with threaded(chain(spout, sink)) as rig:
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


def test_what_it_emits_again_when_told_of_a_failure_goes_out_though_it_may_not_be_asked() -> None:
    spout, sink = Waits(), Does(keeps)
    with threaded(chain(spout, sink), message_timeout_secs=10) as rig:
        user = rig.user("spout")
        user.again = lambda message_id: user.collector.emit(("again",), message_id=message_id)
        spout.queue.put(((1,), "one"))
        until(rig, lambda: len(sink.kept) == 1)
        rig.core.set_active(False)
        spout.queue.put(None)
        until(rig, lambda: "deactivate" in spout.calls)
        rig.advance(10)
        until(rig, lambda: len(sink.kept) == 2)
        assert spout.reasons == [("one", "timeout")]
        assert rig.pending == 1


@pytest.mark.parametrize("error", [ValueError("what"), SystemExit(3)])
@pytest.mark.parametrize("method", ["next_tuple", "ack", "activate"])
def test_whatever_it_raises_reaches_the_loop(error: BaseException, method: str) -> None:
    spout = Waits()

    def raises(*arguments: Any) -> None:
        raise error

    setattr(spout, method, raises)
    with threaded(chain(spout, Does(acks))) as rig:
        spout.queue.put(((1,), 1))
        for _ in range(100):
            spout.queue.put(None)
        with pytest.raises(TaskCrashed, match=rf"^spout\[3\] raised {type(error).__name__}.* in {method} \("):
            until(rig, lambda: False)


def test_an_emit_that_waits_when_the_worker_ends_unwinds() -> None:
    spout = Waits()
    with threaded(chain(spout, Does(acks))) as rig:
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
        assert rig.close() == []
        assert unwound.wait(30)
        assert (spout.calls[-1], len(spout.calls.threads)) == ("close", 1)


def test_without_ackers_it_is_acked_as_it_emits() -> None:
    spout, sink = Waits(), Does(acks)
    with threaded(chain(spout, sink), ackers=0) as rig:
        spout.queue.put(((1,), 1))
        until(rig, lambda: sink.seen == [(1,)])
        assert spout.acked == [1]


def test_what_is_held_back_goes_out_by_the_loop() -> None:
    spout, sink = Waits(), Does(acks)
    with threaded(chain(spout, sink)) as rig:
        task = rig.spout_task
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


def test_only_the_loop_enters_trees_though_untracked_emits_come_between() -> None:
    """The first are as many as make a block."""
    spout, sink, rows = Waits(), Does(acks), [*zip(range(4), range(4), strict=True), (4, None), (5, 5), (6, None)]
    parts = Parts(pending=type("Notes", (NotesThreads,), {"threads": (threads := set[int]())}))
    with threaded(chain(spout, sink), around={"parts": parts}) as rig:
        mixed = threading.Event()

        def mixes(it: Waits) -> None:
            for value, message_id in rows:
                it.collector.emit((value,), message_id=message_id)
            assert it.collector.pending_count == 5
            mixed.set()

        until(rig, spout.asked.is_set)
        spout.queue.put(mixes)
        assert mixed.wait(DEADLINE_SECS)  # the loop rests, and takes nothing between the emits
        until_heard(rig, spout, lambda: set(spout.acked) == {0, 1, 2, 3, 5} and len(sink.seen) == 7)
        assert sink.seen == [(value,) for value, _ in rows]
        assert threads == {threading.get_ident()}
