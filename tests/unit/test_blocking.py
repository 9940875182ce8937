"""Executors with a thread of their own, and resets from other threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import TopologyBuilder
from squall.engine.core.closing import close_tasks
from squall.engine.core.executor import TaskCrashed
from squall.scheduler.worker.task_watch import LONGEST_GAP_SECS, ExecutorWatch
from tests.parcels import parcel_of
from tests.unit.lab import batch_of
from tests.unit.rig import DEADLINE_SECS, Does, DoesBasic, Feeder, Rig, acks, chain

Rigs = list[Rig]


@pytest.fixture
def rigs() -> Iterator[Rigs]:
    """Append a rig to have its threads ended."""
    made: Rigs = []
    before = set(threading.enumerate())
    yield made
    for rig in made:
        close_tasks(rig.core)
    assert set(threading.enumerate()) <= before


def threaded(rigs: Rigs, builder: TopologyBuilder, **settings: Any) -> Rig:
    rig = Rig(builder, threads=True, **settings)
    rigs.append(rig)
    return rig


class Gate:
    """A bolt waits here until the test opens."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self._open.wait(DEADLINE_SECS)

    def await_reached(self) -> None:
        assert self.reached.wait(DEADLINE_SECS)

    def open(self) -> None:
        self._open.set()


def test_it_runs_on_a_thread_of_its_own_and_the_rest_does_not(rigs: Rigs) -> None:
    names: dict[str, set[str]] = {"bolt-1": set(), "bolt-2": set()}

    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        names[bolt.context.component_id].add(threading.current_thread().name)
        if bolt.outputs:
            collector.emit(tup.values)

    spout = Feeder()
    rig = threaded(rigs, chain(spout, DoesBasic(execute, ("value",), blocking=True), DoesBasic(execute)))
    for number in range(50):
        spout.feed(number, id=number)
    rig.settle_until(lambda: len(spout.acked) == 50)
    task = rig.plan.tasks_of("bolt-1")[0]
    assert names == {"bolt-1": {f"bolt-1[{task}]"}, "bolt-2": {threading.current_thread().name}}
    assert (rig.pending, rig.tracked) == (0, 0)
    assert rig.core.quiet
    assert rig.core.backlog == 0


def test_while_it_waits_the_others_work(rigs: Rigs) -> None:
    gate = Gate()

    def waits(bolt: Does, tup: Tuple) -> None:
        gate.wait()
        bolt.collector.ack(tup)

    spout, other = Feeder(), Does(acks)
    builder = chain(spout, Does(waits, blocking=True))
    builder.set_bolt("other", other).shuffle_grouping("spout")
    rig = threaded(rigs, builder)
    spout.feed(1, id=1)
    rig.settle()
    gate.await_reached()
    rig.settle()
    assert other.seen == [(1,)]
    assert not rig.core.quiet
    assert spout.acked == []
    gate.open()
    rig.settle_until(lambda: spout.acked == [1])
    assert rig.core.quiet


def test_done_is_called_when_the_batch_is_done(rigs: Rigs) -> None:
    spout, gate = Feeder(), Gate()
    builder = chain(spout, Does(lambda bolt, tup: gate.wait(), blocking=True))
    rig = threaded(rigs, builder)
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
def test_whatever_it_raises_reaches_the_loop(rigs: Rigs, error: BaseException) -> None:
    def raises(bolt: Does, tup: Tuple) -> None:
        raise error

    spout = Feeder()
    rig = threaded(rigs, chain(spout, Does(raises, blocking=True)))
    spout.feed(1, id=1)
    with pytest.raises(TaskCrashed, match=rf"^bolt-1\[2\] raised {type(error).__name__}.* in execute"):
        rig.settle_until(lambda: False)
    if isinstance(error, Exception):
        rig.core.tracking.settle()
        assert spout.reasons == [(1, "exception")]


def test_stopping_ends_the_thread_after_the_batch_it_is_at(rigs: Rigs) -> None:
    gate, seen = Gate(), []

    def waits(bolt: Does, tup: Tuple) -> None:
        gate.wait()
        seen.append(tup[0])

    spout = Feeder()
    rig = threaded(rigs, chain(spout, Does(waits, blocking=True)))
    spout.feed("first", id=1)
    rig.settle()
    gate.await_reached()
    spout.feed("second", id=2)
    rig.settle()
    stopping = threading.Thread(target=close_tasks, args=(rig.core,))
    stopping.start()
    gate.open()
    stopping.join(DEADLINE_SECS)
    assert not stopping.is_alive()
    assert seen[:1] == ["first"]


def test_a_call_that_does_not_come_back_is_given_up_with_its_tuple_and_where_it_is(rigs: Rigs) -> None:
    gate = Gate()

    def waits(bolt: Does, tup: Tuple) -> None:
        if tup[0] == "hangs":
            gate.wait()
        bolt.collector.ack(tup)

    spout = Feeder()
    rig = threaded(rigs, chain(spout, Does(waits, blocking=True)), execute_timeout_secs=5)
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


def test_what_a_waiting_bolt_has_done_is_acked_before_it_waits_for_the_rest(rigs: Rigs) -> None:
    gate = Gate()

    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        if tup[0] == 1:
            gate.wait()

    spout = Feeder()
    rig = threaded(rigs, chain(spout, DoesBasic(execute, blocking=True)))
    for number in range(10):
        spout.feed(number, id=number)
    rig.settle_until(lambda: spout.acked == [0])
    gate.await_reached()
    assert not rig.core.quiet
    gate.open()
    rig.settle_until(lambda: spout.acked == list(range(10)))
    rig.settle_until(lambda: rig.core.quiet)


SIGNS = 6
TIMEOUT_SECS = 30.0


class Steps:
    """`execute` takes a step when the test says so, and says when it has taken it."""

    def __init__(self) -> None:
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self) -> None:
        assert self._go.acquire(timeout=DEADLINE_SECS)

    def taken(self) -> None:
        self._done.release()

    def let_go(self) -> None:
        self._go.release()

    def take(self) -> None:
        self.let_go()
        assert self._done.acquire(timeout=DEADLINE_SECS)


@pytest.fixture
def steps() -> Iterator[Steps]:
    made = Steps()
    yield made
    for _ in range(2 * SIGNS):
        made.let_go()


def slow_rig(steps: Steps, spout: Feeder) -> Rig:
    def execute(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
        for _ in range(SIGNS):
            steps.wait()
            collector.reset_timeout(tup)
            steps.taken()

    slow = DoesBasic(execute, ("value",), blocking=True)
    return Rig(
        chain(spout, slow, Does(acks)), threads=True, message_timeout_secs=TIMEOUT_SECS, execute_timeout_secs=5,
    )


def test_a_reset_counts_even_where_the_loop_comes_to_it_after_the_time(steps: Steps) -> None:
    spout = Feeder()
    rig = slow_rig(steps, spout)
    spout.feed("slow", id=1)
    rig.settle()
    steps.take()
    rig.advance(TIMEOUT_SECS + 1)
    assert spout.failures == []
    for _ in range(SIGNS - 1):
        steps.take()
    rig.settle_until(lambda: bool(spout.acked))
    close_tasks(rig.core)


def test_a_bolt_that_resets_is_not_taken_for_hung(steps: Steps) -> None:
    spout = Feeder()
    rig = slow_rig(steps, spout)
    watch = ExecutorWatch(rig.core)
    spout.feed("slow", id=1)
    rig.settle()
    steps.take()
    now = 0.0
    for _ in range(SIGNS - 1):
        for _ in range(4):
            watch.look(now)
            now += LONGEST_GAP_SECS
        steps.take()
    rig.settle_until(lambda: bool(spout.acked))
    close_tasks(rig.core)
