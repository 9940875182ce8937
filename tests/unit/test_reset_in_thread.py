"""`reset_timeout` inside a blocking `execute` counts at once, not when the call comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from squall.engine.api.collectors import BasicCollector
from squall.engine.api.tuple import Tuple
from squall.engine.core.closing import close_tasks
from squall.scheduler.worker.task_watch import LONGEST_GAP_SECS, ExecutorWatch
from tests.unit.rig import DEADLINE_SECS, Does, DoesBasic, Feeder, Rig, acks, chain

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
