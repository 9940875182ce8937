"""The open messages of a spout: every tree is answered once, time-outs are precise, attempts are counted."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Config, Failure
from squall.engine.api.failure import FAILED, TIMEOUT, WORKER_DIED
from squall.engine.clock import NS_PER_SEC, ManualClock
from squall.engine.report.metrics import SpoutStats, bucket_of
from squall.engine.tracking.attempts import Limits, Remembered
from squall.engine.tracking.fate import Fate
from squall.engine.tracking.open_messages import OpenMessages
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Does, Feeder, acks, chain, copy_component

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
        self.buried: list[Any] = []
        super().__init__(
            7, self.spout, self.clock.now_ns, TIMEOUT_SECS * NS_PER_SEC, self.stats,
            lambda *init: self.inits.append(init), self.forgotten.append, lambda *letter: self.buried.append(letter[1]),
            Fate(Limits()),
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


# ---- a message that its spout gives up is a dead letter: counted, told, and written down once ----


class Picky(Feeder):
    """Emits even numbers, and gives up odd ones."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.numbers = iter(range(numbers))
        self.dead: list[tuple[int, Failure]] = []

    def next_tuple(self) -> None:
        number = next(self.numbers, None)
        if number is None:
            self.exhausted = True
        elif number % 2:
            self.collector.give_up((f"{number}",), number, f"{number} is odd")
        else:
            self.collector.emit((number,), message_id=number)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.dead.append((message_id, failure))


@pytest.mark.parametrize("settings", [{}, {"max_crashes": None}, {"ackers": 0}])
def test_it_is_in_the_ledger_and_the_account_and_the_others_flow(settings: dict[str, Any]) -> None:
    topology = chain(Picky(6), Does(acks)).build()
    with SimulatedCluster(topology, Config(**settings), record=False, copy=copy_component) as lab:
        lab.settle()
        spout: Picky = lab.user("spout")
        task = lab.plan.tasks_of("spout")[0]
        failures = {n: Failure("failed", "spout", task, error=f"{n} is odd") for n in (1, 3, 5)}
        assert [letter[2:] for letter in lab.dead_letters] == [(n, (f"{n}",), why) for n, why in failures.items()]
        assert spout.dead == [*failures.items()]
        assert spout.acked == [0, 2, 4]
        report = lab.report()
        # Without ackers, what is emitted is in no account.
        emitted = 3 if settings.get("ackers") == 0 else 6
        assert (report.emitted, report.dead_letters, report.failed, report.pending) == (emitted, 3, 0, 0)
        assert lab.drained


def test_one_that_is_in_the_ledger_already_is_not_written_there_again() -> None:
    first, second = Table(), Table()
    first.attempts.resume(Remembered())
    first.bury("m", ("1",), WHY)
    second.attempts.resume(Remembered(dict(first.attempts.tries)))
    # Its source gives it up once more, on purpose; or a message with other contents has its id.
    for values in (("1",), ("1",), ("2",)):
        second.bury("m", values, WHY)
    assert (first.buried, second.buried) == ([("1",)], [("1",), ("2",)])
