"""Ticks come for ever: whoever looks at the board sees past those that lead to nothing, and no others."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall import Config, TopologyBuilder, Tuple
from squall.engine.core.transport import NoPeers, NoTransport
from squall.engine.core.turn import Turn
from squall.ipc.board import READY, Board, SlotCell
from squall.ipc.rundir import RunDir
from squall.scheduler.common.messages import (
    Assignment,
    ComponentSummary,
    SlotRef,
    TopologyRecord,
    WorkerBoot,
)
from squall.scheduler.records.topology_view import TopologyView
from squall.scheduler.worker.worker_board import WorkerBoard
from tests.process.waiting import wait_for
from tests.unit.rig import DEADLINE_SECS, Does, Feeder, Rig, chain, keeps

TICK_SECS = 0.05


class LookedAt(Board):
    """Its worker goes on while somebody looks: before each word that tells whether it is at work."""

    go_on: Callable[[], object] | None = None

    def slot(self, index: int) -> SlotCell:
        self._look()
        return super().slot(index)

    def column(self, word: int) -> memoryview[int]:
        self._look()
        return super().column(word)

    def _look(self) -> None:
        if self.go_on is not None:
            self.go_on()


class Worker:
    """One worker with all that a board says of it, as `Worker.run` has it."""

    def __init__(self, tmp_path: Path, builder: TopologyBuilder, threads: bool = False) -> None:
        board = LookedAt.create(tmp_path / "board", 1, 10)
        assert isinstance(board, LookedAt)
        self.board = board
        self.board.set_slot(0, 1, READY, 100)
        given = {"said_quiet": self.board.said_quiet(0), "untracked": self.board.flow(0), "account": self.board.account}
        self.rig = rig = Rig(builder, threads, given, tick_tuple_freq_secs=TICK_SECS)
        self.turn = Turn(rig.core, NoTransport(), NoPeers(), rig.config, rig.clock.now_ns)
        components = [ComponentSummary(*row) for row in rig.topology.layout(1)]
        executors = list(rig.plan.executors[0])
        assignment = Assignment("t-1", 1, [SlotRef("n", 1)], [executors])
        record = TopologyRecord("t-1", "t", "ACTIVE", Config().to_dict(), components, "0" * 64, [], 0.0)
        plane: Any = SimpleNamespace(
            positions=lambda: (), lost=0, counts={"frames repeated": 0}, refused=0, confirm=lambda: None
        )
        boot = WorkerBoot("", "n", 1, 1, 0, record, assignment, "")
        self.shared = WorkerBoard(self.board, rig.core, plane, RunDir(str(tmp_path)), boot, rig.clock.now_ns)
        self.view = TopologyView(self.board, assignment, record)

    def run(self) -> bool:
        worked = self.turn.run()
        if self.turn.acted:
            self.shared.has_acted = True
        if self.turn.shows:
            self.shared.publish(self.turn.acted, self.turn.blocked)
        return worked

    def settle(self) -> None:
        """Run until there is nothing more to do, and that has been published."""
        for _ in range(10):
            self.rig.clock.advance(TICK_SECS / 10)
            self.run()

    def tick(self) -> None:
        """Run one turn with a tick."""
        self.rig.clock.advance(TICK_SECS)
        self.run()

    def says(self) -> tuple[bool, bool, bool]:
        """Whether it is drained, idle, at rest, if it takes a turn with a tick between any two looks."""
        self.board.go_on = self.tick
        try:
            return self.view.is_drained(), self.view.is_idle(), self.view.is_at_rest()
        finally:
            self.board.go_on = None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    workers: list[Worker] = []

    def start(spout: Feeder, *bolts: Does) -> Worker:
        workers.append(Worker(tmp_path, chain(spout, *bolts), any(bolt.blocking for bolt in bolts)))
        return workers[-1]

    yield start
    for worker in workers:
        worker.rig.close()
        worker.board.go_on = None
    # Cores hold views of the board, which keep its mapping.
    workers.clear()
    del worker
    gc.collect()


def done() -> Feeder:
    spout = Feeder()
    spout.exhausted = True
    return spout


def does_nothing(bolt: Does, tup: Tuple) -> None:
    """Ack what comes; ticks need none."""
    if not tup.is_tick:
        bolt.collector.ack(tup)


def emits_on_ticks(bolt: Does, tup: Tuple) -> None:
    bolt.collector.emit((1,))


def acks_on_ticks(bolt: Does, tup: Tuple) -> None:
    if tup.is_tick:
        for kept in bolt.kept:
            bolt.collector.ack(kept)
        bolt.kept.clear()
    else:
        bolt.kept.append(tup)


@pytest.mark.parametrize("blocking", [False, True])
def test_a_tick_between_any_two_looks_hides_no_end(start: Callable[..., Worker], blocking: bool) -> None:
    spout, bolt = done(), Does(does_nothing, blocking=blocking)
    worker = start(spout, bolt)
    spout.feed("x", id=1)
    worker.rig.settle_until(lambda: spout.acked == [1])
    worker.settle()
    assert worker.says() == (True, True, False)
    worker.rig.core.set_active(False)
    worker.settle()
    assert worker.says() == (True, True, True)
    wait_for("a tick", lambda: len(bolt.seen) > 1)


def test_what_a_tick_leads_to_is_work(start: Callable[..., Worker]) -> None:
    sink = Does(does_nothing)
    worker = start(done(), Does(emits_on_ticks, ("value",)), sink)
    worker.settle()
    before = len(sink.seen)
    assert [worker.says() for _ in range(5)] == [(False, False, False)] * 5
    assert len(sink.seen) > before


def test_what_a_tick_leads_to_on_a_thread_is_work(start: Callable[..., Worker]) -> None:
    reached, may_go_on, sink = threading.Event(), threading.Event(), Does(does_nothing)

    def waits(bolt: Does, tup: Tuple) -> None:
        reached.set()
        assert may_go_on.wait(DEADLINE_SECS)
        bolt.collector.emit((1,))

    worker = start(done(), Does(waits, ("value",), blocking=True), sink)
    worker.settle()
    worker.tick()
    assert reached.wait(DEADLINE_SECS)
    worker.settle()
    assert worker.view.is_drained()
    worker.rig.woken.clear()
    may_go_on.set()
    assert worker.rig.woken.wait(DEADLINE_SECS)
    assert not worker.rig.core.quiet
    worker.board.go_on = worker.run
    assert not worker.view.is_drained()
    assert sink.seen


@pytest.mark.parametrize("execute", [keeps, acks_on_ticks])
def test_while_a_message_is_pending_nothing_is_drained(
    start: Callable[..., Worker], execute: Callable[[Does, Tuple], None],
) -> None:
    spout, bolt = done(), Does(execute)
    worker = start(spout, bolt)
    spout.feed("x", id=1)
    worker.run()
    worker.run()
    assert not worker.view.is_drained()
    worker.settle()
    worker.settle()
    worker.settle()
    assert worker.says()[0] == (execute is acks_on_ticks) == (spout.acked == [1])
