"""Executors with a thread of their own, and resets from other threads."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest

from squall import ExactSink
from squall.engine.api.collectors import BasicCollector
from squall.engine.api.tuple import Tuple
from squall.engine.core import blocking
from squall.engine.core.assemble import close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.scheduler.worker.self_watch import LONGEST_GAP_SECS, ExecutorWatch
from tests.parcels import parcel_of
from tests.unit.lab import batch_of
from tests.unit.rig import DEADLINE_SECS, Does, DoesBasic, Feeder, acks, chain
from tests.unit.threads import threaded


class Gate:
    """A bolt waits here until the test opens, each time."""

    def __init__(self) -> None:
        self._reached, self._open = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self) -> None:
        self._reached.release()
        assert self._open.acquire(timeout=DEADLINE_SECS)

    def await_reached(self) -> None:
        assert self._reached.acquire(timeout=DEADLINE_SECS)

    def open(self, times: int = 1) -> None:
        self._open.release(times)


def test_it_runs_on_a_thread_of_its_own_and_the_rest_does_not() -> None:
    names: dict[str, set[str]] = {"bolt-1": set(), "bolt-2": set(), "at hand": set()}

    class AtHand(list[int]):
        def __setitem__(self, at: Any, task: Any) -> None:
            names["at hand"].add(threading.current_thread().name)

    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        names[bolt.context.component_id].add(threading.current_thread().name)
        if bolt.outputs:
            collector.emit(tup.values)

    spout = Feeder()
    first = DoesBasic(execute, ("value",), blocking=True)
    first.cleanup = lambda: names["bolt-1"].add(threading.current_thread().name)  # type: ignore[method-assign]
    with threaded(chain(spout, first, DoesBasic(execute)), around={"at_hand": AtHand([0])}) as rig:
        for number in range(50):
            spout.feed(number, id=number)
        rig.settle_until(lambda: len(spout.acked) == 50)
        assert (rig.pending, rig.tracked, rig.core.backlog, rig.core.quiet) == (0, 0, 0, True)
    here = {threading.current_thread().name}
    assert names == {"bolt-1": {"bolt-1[2]"}, "bolt-2": here, "at hand": here}


def test_done_is_called_when_the_batch_is_done() -> None:
    spout, gate = Feeder(), Gate()
    builder = chain(spout, Does(lambda bolt, tup: gate.wait(), blocking=True))
    with threaded(builder) as rig:
        batch = batch_of([(1,)], [(0, 0, 1)], rig.plan.tasks_of("bolt-1")[0], rig.plan.tasks_of("spout")[0])
        done: list[str] = []
        rig.core.receive(parcel_of(batch), lambda: done.append(threading.current_thread().name))
        rig.settle()
        gate.await_reached()
        rig.settle()
        assert done == []
        gate.open()
        rig.settle_until(lambda: bool(done))
        assert done == [threading.current_thread().name]


@pytest.mark.parametrize("error", [ValueError("what"), SystemExit(0), KeyboardInterrupt()])
def test_whatever_it_raises_reaches_the_loop(error: BaseException) -> None:
    def raises(bolt: Does, tup: Tuple) -> None:
        raise error

    spout = Feeder()
    with threaded(chain(spout, Does(raises, blocking=True))) as rig:
        spout.feed(1, id=1)
        with pytest.raises(TaskCrashed, match=rf"^bolt-1\[2\] raised {type(error).__name__}.* in execute"):
            rig.settle_until(lambda: False)
        if isinstance(error, Exception):
            rig.core.tracking.settle()
            assert spout.reasons == [(1, "exception")]


def test_stopping_ends_the_thread_after_the_batch_it_is_at() -> None:
    gate, seen = Gate(), []

    def waits(bolt: Does, tup: Tuple) -> None:
        gate.wait()
        seen.append(tup[0])

    spout = Feeder()
    with threaded(chain(spout, Does(waits, blocking=True))) as rig:
        spout.feed("first", id=1)
        rig.settle()
        gate.await_reached()
        spout.feed("second", id=2)
        rig.settle()
        stopping = threading.Thread(target=rig.close)
        stopping.start()
        gate.open(2)
        stopping.join(DEADLINE_SECS)
        assert not stopping.is_alive()
        assert seen[:1] == ["first"]


class Gathering(ExactSink):
    commit_secs, commit_rows = 1.0, 1

    def refused(self, rows: Any) -> dict[int, str]:
        self.gate.wait()
        return {}

    def commit(self, *given: Any) -> None:
        self.calls.append("commit")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


def test_a_commit_that_takes_longer_than_stopping_waits_keeps_its_store_and_sink() -> None:
    spout, sink = Feeder(), Gathering()
    sink.gate, sink.calls = Gate(), []
    with mock.patch.object(blocking, "JOIN_SECS", 0.01), threaded(chain(spout, sink)) as rig:
        spout.feed("held", id=1)
        rig.settle()
        sink.gate.await_reached()
        close_tasks(rig.core)
        sink.gate.open()
    assert sink.calls == ["commit"]


def test_a_call_that_does_not_come_back_is_given_up_with_its_tuple_and_where_it_is() -> None:
    gate = Gate()

    def waits(bolt: Does, tup: Tuple) -> None:
        if tup[0] == "hangs":
            gate.wait()
        bolt.collector.ack(tup)

    spout = Feeder()
    with threaded(chain(spout, Does(waits, blocking=True)), execute_timeout_secs=5) as rig:
        (runner,) = rig.core.blocking
        assert runner.at_hand == 0
        assert runner.give_up(6, rig.core.outbox) is None
        for number, value in enumerate(("before", "hangs", "behind")):
            spout.feed(value, id=number)
        rig.settle()
        gate.await_reached()
        assert runner.at_hand == 2
        hung = runner.give_up(6, rig.core.outbox)
        gate.open()
        assert str(hung) == "bolt-1[2] hung in execute for 6 s, execute_timeout_secs is 5"
        assert hung is not None
        assert "in waits" in hung.traceback_text
        rig.core.tracking.settle()
        assert [(number, str(failure)) for number, failure in spout.failures] == [
            (1, "hung in bolt-1[2] on node-1:6700: in execute for 6 s, execute_timeout_secs is 5 (attempt 1)")
        ]


def test_what_a_waiting_bolt_has_done_is_acked_before_it_waits_for_the_rest() -> None:
    gate = Gate()

    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] == 1:
            gate.wait()

    spout = Feeder()
    with threaded(chain(spout, DoesBasic(execute, blocking=True))) as rig:
        for number in range(10):
            spout.feed(number, id=number)
        rig.settle_until(lambda: spout.acked == [0])
        gate.await_reached()
        assert not rig.core.quiet
        gate.open()
        rig.settle_until(lambda: spout.acked == list(range(10)))
        rig.settle_until(lambda: rig.core.quiet)


def test_a_bolt_that_resets_is_neither_late_nor_taken_for_hung() -> None:
    """A reset counts even where the loop comes to it after the time."""
    gate, spout, signs, timeout_secs = Gate(), Feeder(), 6, 30.0

    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        for _ in range(signs):
            gate.wait()
            collector.reset_timeout(tup)

    builder = chain(spout, DoesBasic(execute, ("value",), blocking=True), Does(acks))
    with threaded(builder, message_timeout_secs=timeout_secs, execute_timeout_secs=5) as rig:
        watch, now = ExecutorWatch(rig.core), 0.0
        spout.feed("slow", id=1)
        rig.settle()
        for sign in range(signs):
            gate.await_reached()
            if sign == 1:
                rig.advance(timeout_secs + 1)
                assert spout.failures == []
            for _ in range(4 * bool(sign)):
                watch.look(now)
                now += LONGEST_GAP_SECS
            gate.open()
        rig.settle_until(lambda: bool(spout.acked))
