"""AsyncBolt and AsyncSpout: many tuples at a time, and otherwise the life of any bolt and spout."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from squall import AsyncBolt, AsyncSpout, FailedTuple, TaskHook, TopologyBuilder, UsageError
from squall.chaos.tapping import Tapping
from squall.chaos.taps import tap
from squall.engine.core.executor import TaskCrashed, TaskHung
from squall.engine.errors import ComponentError, TopologyError
from squall.scheduler.worker.self_watch import ExecutorWatch
from squall.testing.simulated import SimulatedCluster
from tests.process.waiting import wait_for
from tests.unit.rig import Does, Feeder, Rig, acks, chain
from tests.unit.threads import threaded
from tests.unit.wired import wired


class Doors:
    """Where coroutines wait until the test lets them go on, by their tuple's first value."""

    def __init__(self) -> None:
        self.waiting: dict[Any, Callable[[str], None]] = {}

    async def wait(self, value: Any) -> str:
        loop, opened = asyncio.get_running_loop(), asyncio.Event()
        said: list[str] = []

        def let(how: str) -> None:
            said.append(how)
            loop.call_soon_threadsafe(opened.set)

        self.waiting[value] = let
        try:
            await opened.wait()
        finally:
            del self.waiting[value]
        return said[0]

    def let(self, value: Any, how: str = "ack") -> None:
        wait_for("it to wait", lambda: value in self.waiting)
        self.waiting[value](how)


class Collects(AsyncBolt):
    outputs = ("value",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        self.context, self.collector = context, collector


class Waits(Collects):
    max_in_flight = 3

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.said: list[str] = []

    async def setup(self) -> None:
        self.said.append(f"setup in {threading.current_thread().name}")

    async def teardown(self) -> None:
        self.said.append("teardown")

    async def execute(self, tup: Any) -> None:
        how = await self.doors.wait(tup[0])
        if how == "fail":
            self.collector.fail(tup)
            return
        if how == "failed":
            raise FailedTuple("on purpose")
        self.collector.emit((tup[0],), anchors=tup)
        if how == "emit first":
            await self.doors.wait(("after", tup[0]))
        self.collector.ack(tup)


class Lab:
    """Waits between a spout and a sink."""

    def __init__(self) -> None:
        self.doors, self.sink, self.feeder = Doors(), Does(acks), Feeder()
        self.builder = chain(self.feeder, Waits(self.doors), self.sink)

    def feed(self, rig: Rig, *values: Any) -> None:
        for value in values:
            self.feeder.feed(value, id=value)
        rig.settle()


def fed(bolt: AsyncBolt, *more: Does) -> tuple[Feeder, TopologyBuilder]:
    """A bolt behind a spout with one tuple."""
    feeder = Feeder()
    feeder.feed(1, id=1)
    return feeder, chain(feeder, bolt, *more)


def test_as_many_are_in_flight_as_allowed_and_end_in_any_order() -> None:
    lab = Lab()
    with threaded(lab.builder) as rig:
        lab.feed(rig, 1, 2, 3, 4, 5)
        wait_for("three in flight", lambda: len(lab.doors.waiting) == 3)
        assert sorted(lab.doors.waiting) == [1, 2, 3]
        lab.doors.let(2)
        rig.settle_until(lambda: lab.feeder.acked == [2])
        wait_for("the next", lambda: sorted(lab.doors.waiting) == [1, 3, 4])
        for value in (4, 3, 5, 1):
            lab.doors.let(value)
            rig.settle_until(lambda value=value: lab.feeder.acked[-1] == value)  # type: ignore[misc]
        assert [row[0] for row in lab.sink.seen] == [2, 4, 3, 5, 1]
        assert rig.tracked == rig.pending == 0


@pytest.mark.parametrize("how", ["fail", "failed"])
def test_a_failure_is_of_its_tuple_alone_and_what_is_emitted_leaves_before_the_end(how: str) -> None:
    lab = Lab()
    with threaded(lab.builder) as rig:
        lab.feed(rig, 1, 2)
        lab.doors.let(1, how)
        rig.settle_until(lambda: lab.feeder.reasons == [(1, "failed")])
        lab.doors.let(2, "emit first")
        rig.settle_until(lambda: lab.sink.seen == [(2,)])
        assert rig.pending == 1
        lab.doors.let(("after", 2))
        rig.settle_until(lambda: lab.feeder.acked == [2])


class EndsItsLoop(AsyncBolt):
    """Ends what its executor needs, in a tuple, in the way that the test asks for."""

    def __init__(self, end: Callable[[], Any]) -> None:
        self.end = end

    async def execute(self, tup: Any) -> None:
        self.end()
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda: [task.cancel() for task in asyncio.all_tasks()], "CancelledError"),
        (lambda: asyncio.get_running_loop().call_soon(sys.exit, 3), "SystemExit: 3"),
    ],
)
def test_one_that_ends_its_event_loop_ends_the_worker(end: Callable[[], Any], error: str) -> None:
    _, builder = fed(EndsItsLoop(end))
    with (
        threaded(builder, on_error="fail") as rig,
        pytest.raises(TaskCrashed, match=rf"bolt-1\[2\] raised {error}.* in its event loop"),
    ):
        rig.settle_until(lambda: False)


def test_setup_comes_first_and_teardown_last_on_the_thread_of_the_loop() -> None:
    lab = Lab()
    with threaded(lab.builder) as rig:
        lab.feed(rig, 1)
        lab.doors.let(1)
        rig.settle_until(lambda: lab.feeder.acked == [1])
        lab.feed(rig, 2)
        wait_for("the second", lambda: 2 in lab.doors.waiting)
        assert rig.close() == []
        assert rig.user("bolt-1").said == ["setup in bolt-1[2]", "teardown"]
        assert lab.doors.waiting == {}, "what was in flight was cancelled"
        assert lab.feeder.acked == [1]


@pytest.mark.parametrize("method", ["setup", "teardown"])
def test_an_error_in_setup_ends_the_worker_and_one_in_teardown_is_told(method: str) -> None:
    async def raises(self: Any) -> None:
        raise OSError("no server")

    bad: Any = type("Bad", (Waits,), {method: raises})
    with threaded(chain(Feeder(), bad(Doors()))) as rig:
        if method == "setup":
            with pytest.raises(TaskCrashed, match=r"bolt-1\[2\] raised OSError: no server in setup"):
                rig.settle_until(lambda: False)
        else:
            [crash] = rig.close()
            assert str(crash).startswith("bolt-1[2] raised OSError: no server in teardown (")


def test_one_that_takes_too_long_is_cancelled_and_failed() -> None:
    lab = Lab()
    with threaded(lab.builder, execute_timeout_secs=0.05) as rig:
        lab.feed(rig, 1, 2)
        rig.settle_until(lambda: len(lab.feeder.reasons) == 2)
        assert sorted(lab.feeder.reasons) == [(1, "hung"), (2, "hung")]
        assert lab.doors.waiting == {}


class Stays(AsyncBolt):
    """Goes on when it is cancelled, or keeps the whole loop from going on."""

    def __init__(self, blocks: bool) -> None:
        self.blocks, self.entered, self.may_end = blocks, threading.Event(), threading.Event()

    async def execute(self, tup: Any) -> None:
        self.entered.set()
        while not self.may_end.is_set():
            if self.blocks:
                self.may_end.wait(30)
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def let_go(self) -> None:
        self.may_end.set()


def test_one_that_swallows_its_cancellation_ends_the_worker() -> None:
    feeder, builder = fed(Stays(False))
    with threaded(builder, execute_timeout_secs=0.05, on_error="fail") as rig:
        with pytest.raises(TaskHung, match=r"bolt-1\[2\] hung in execute for .* s, execute_timeout_secs is 0.05"):
            rig.settle_until(lambda: False)
        rig.settle()
        assert feeder.reasons == [(1, "hung")]


def test_a_coroutine_that_blocks_the_loop_is_given_up() -> None:
    feeder, builder = fed(bolt := Stays(True))
    with threaded(builder, execute_timeout_secs=0.1) as rig:
        rig.settle()
        assert bolt.entered.wait(30)
        watch = ExecutorWatch(rig.core)

        def look() -> None:
            for tenths in range(100):
                watch.look(tenths / 10)

        with pytest.raises(TaskHung, match=r"bolt-1\[2\] hung in execute for") as hung:
            look()
        assert "may_end.wait(30)" in hung.value.traceback_text
        rig.settle()
        assert feeder.reasons == [(1, "hung")]


def beside(reset: Callable[[], None]) -> asyncio.Task[None]:
    async def resets() -> None:
        reset()

    return asyncio.create_task(resets())


async def here(reset: Callable[[], None]) -> None:
    reset()


@pytest.mark.parametrize("by", [asyncio.to_thread, beside, here])
def test_a_reset_gives_it_its_time_anew(by: Callable[[Callable[[], None]], Any]) -> None:
    ends: list[Any] = []

    class Slow(Collects):
        async def execute(self, tup: Any) -> None:
            [(_, _, limit)] = executor.in_flight.values()
            ends.append(limit.when())
            await by(lambda: self.collector.reset_timeout(tup))
            await asyncio.sleep(0.01)
            ends.append(limit.when())
            self.collector.ack(tup)

    feeder, builder = fed(Slow())
    with threaded(builder, execute_timeout_secs=60) as rig:
        executor: Any = rig.core.blocking[0]
        rig.settle_until(lambda: feeder.acked == [1])
    before, after = ends
    assert after > before


class NotesThreads(TaskHook):
    def __init__(self) -> None:
        self.threads: set[str] = set()

    def emit(self, info: Any) -> None:
        self.threads.add(threading.current_thread().name)

    bolt_ack = emit


class InThreads(Collects):
    """Emits and acks in other threads; notes in which one that is done."""

    def prepare(self, *given: Any) -> None:
        super().prepare(*given)
        self.notes = NotesThreads()
        self.context.add_hook(self.notes)

    async def execute(self, tup: Any) -> None:
        await asyncio.to_thread(self.work, tup)

    def work(self, tup: Any) -> None:
        self.collector.emit((tup[0],), anchors=tup)
        with pytest.raises(ComponentError):
            self.collector.emit((1, 2), anchors=tup)
        self.collector.ack(tup)


def test_what_other_threads_emit_and_ack_is_done_by_the_event_loop() -> None:
    feeder, builder = fed(InThreads(), sink := Does(acks))
    for number in range(2, 50):
        feeder.feed(number, id=number)
    with threaded(builder) as rig:
        rig.settle_until(lambda: len(feeder.acked) == 49)
        assert rig.user("bolt-1").notes.threads == {"bolt-1[2]"}
        assert sorted(row[0] for row in sink.seen) == list(range(1, 50))


# One after the other, where there is no thread


class Numbers(AsyncSpout):
    outputs = ("n",)

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        self.collector, self.n = collector, 0

    async def next_tuple(self) -> None:
        await asyncio.sleep(0)
        if self.n < 5:
            self.collector.emit((self.n,), message_id=self.n)
            self.n += 1
        self.exhausted = self.n == 5


class Double(Collects):
    async def setup(self) -> None:
        self.loop = asyncio.get_running_loop()

    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.collector.emit((tup["n"] * 2,), anchors=tup)
        self.collector.ack(tup)


@pytest.mark.parametrize("taps", [False, True])
def test_without_threads_tuples_are_executed_one_by_one_also_in_a_chaos_run(taps: bool, tmp_path: Path) -> None:
    topology = wired(numbers=(Numbers(), 1), double=(Double(), 1, "shuffle numbers")).build()
    if taps:
        topology = tap(topology, Tapping(str(tmp_path), ("double",)))
    component = topology["double"].component
    assert isinstance(component, AsyncBolt)
    assert component.max_in_flight == Double.max_in_flight
    with SimulatedCluster(topology) as cluster:
        cluster.run_until(lambda: cluster.drained, 10, "it was drained")
        assert [row[0] for row in cluster.emitted["double"]] == [0, 2, 4, 6, 8]


def test_a_spout_that_waits_is_cancelled_at_its_end() -> None:
    entered = threading.Event()
    said: list[str] = []

    class Endless(AsyncSpout):
        async def next_tuple(self) -> None:
            entered.set()
            await asyncio.sleep(3600)

        async def teardown(self) -> None:
            await asyncio.sleep(0.05)
            said.append(threading.current_thread().name)

    spout = Endless()
    thread = threading.Thread(target=spout.next_tuple, name="its own")
    thread.start()
    assert entered.wait(30)
    spout.close()
    assert said == ["its own"], "the worker may end at once"
    thread.join(30)
    assert not thread.is_alive()


def test_where_a_loop_runs_already_all_its_calls_are_in_one_thread() -> None:
    seen = []

    async def notes(self: Any) -> None:
        seen.append(threading.get_ident())

    one: Any = type("One", (AsyncSpout,), dict.fromkeys(("setup", "next_tuple", "teardown"), notes))

    async def in_a_notebook() -> None:
        spout = one()
        spout.next_tuple()
        spout.close()

    asyncio.run(in_a_notebook())
    assert len(seen) == 3
    assert len(set(seen)) == 1


# Wrong use


@pytest.mark.parametrize(
    ("base", "method", "kind"), [(AsyncBolt, "execute", "a generator"), (AsyncSpout, "teardown", "a def")],
)
def test_a_plain_method_is_refused_where_it_is_defined(base: type, method: str, kind: str) -> None:
    async def yields(self: Any) -> AsyncIterator[int]:
        yield 1

    with pytest.raises(UsageError, match=rf"^Mine defines {method} as {kind}; allowed in an {base.__name__}: async"):
        type("Mine", (base,), {method: yields if kind == "a generator" else lambda self, *given: None})


def test_a_limit_that_cannot_be_is_refused() -> None:
    bolt = Waits(Doors())
    bolt.max_in_flight = 0
    with pytest.raises(TopologyError, match="component 'bolt-1' has max_in_flight 0; allowed: an integer from 1 up"):
        chain(Feeder(), bolt).build()
