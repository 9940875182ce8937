"""The open messages of a spout: every tree is answered once, time-outs are precise, attempts are counted."""

from __future__ import annotations

from typing import Any

from squall import Failure
from squall.engine.api.failure import FAILED, TIMEOUT, WORKER_DIED
from squall.engine.clock import NS_PER_SEC, ManualClock
from squall.engine.report.metrics import SpoutStats, bucket_of
from squall.engine.tracking.attempts import Limits
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages
from tests.unit.rig import Feeder

TIMEOUT_SECS = 10
WHY = Failure(FAILED, "bolt", 3, "node-1:6700", "bad luck")


class Table(OpenMessages):
    """With everything it talks to."""

    def __init__(self, spout: Feeder | None = None) -> None:
        self.clock = ManualClock()
        self.spout = spout or Feeder()
        self.stats = SpoutStats()
        self.inits: list[tuple[int, int, int, int]] = []
        self.forgotten: list[int] = []
        super().__init__(
            7, self.spout, self.clock.now_ns, TIMEOUT_SECS * NS_PER_SEC, self.stats,
            lambda *init: self.inits.append(init), self.forgotten.append, lambda *letter: None, Fate(Limits()),
        )

    def emit(self, root: int, message_id: Any) -> None:
        self.add(root, message_id, (f"values of {message_id}",), root ^ 5, 0b10)


def test_the_acker_is_told_and_the_answer_comes_once() -> None:
    table = Table()
    table.emit(1, "a")
    assert table.inits == [(1, 1 ^ 5, 7, 0b10)]
    assert len(table) == 1
    table.clock.advance(0.25)
    table.acked(1)
    table.acked(1)
    table.failed(1, WHY)
    assert (table.spout.acked, table.spout.failures) == (["a"], [])
    assert len(table) == 0
    assert (table.stats.acked, table.stats.failed) == (1, 0)
    assert sum(table.stats.histogram) == 1


def test_a_tree_times_out_when_its_time_is_up_and_not_before() -> None:
    table = Table()
    table.emit(1, "a")
    table.clock.advance(3)
    table.emit(2, "b")
    table.clock.advance(TIMEOUT_SECS - 3 - 0.001)
    assert table.expire() == 0
    table.clock.advance(0.001)
    assert table.expire() == 1
    assert table.spout.reasons == [("a", TIMEOUT)]
    assert table.forgotten == [1]
    assert (table.stats.timed_out, table.stats.failed) == (1, 1)
    assert table.expire() == 0
    table.clock.advance(3)
    assert table.expire() == 1
    assert len(table) == 0


def test_a_reset_counts_from_now_and_keeps_the_latency() -> None:
    table = Table()
    table.emit(1, "a")
    table.emit(2, "b")
    table.clock.advance(9)
    table.reset(1)
    table.reset(99)
    table.clock.advance(1)
    assert table.expire() == 1
    assert table.spout.reasons == [("b", TIMEOUT)]
    table.clock.advance(8.9)
    assert table.expire() == 0
    table.acked(1)
    (bucket,) = [index for index, count in enumerate(table.stats.histogram) if count]
    assert bucket == bucket_of(18_900_000)


def test_a_spout_may_emit_again_while_it_is_told() -> None:
    class Again(Feeder):
        def on_failure(self, message_id: Any, failure: Failure) -> None:
            super().on_failure(message_id, failure)
            table.emit(100 + len(self.failures), message_id)

    spout = Again()
    table = Table(spout)
    for root in (1, 2, 3):
        table.emit(root, root)
    table.clock.advance(TIMEOUT_SECS)
    assert table.expire() == 3
    assert len(table) == 3
    assert table.expire() == 0
    table.acker_died(lambda root: root == 101)
    assert len(table) == 3
    failure = spout.failures[-1][1]
    assert (failure.reason, failure.attempt) == (WORKER_DIED, 2)
