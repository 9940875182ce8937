"""The account of a spout: each attempt is in one column, whenever its worker dies."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import astuple
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall import ComponentError, Config, FailedTuple, Failure, ReplayingSpout
from squall.cli.output import exit_code
from squall.cli.report_text import account_text, untracked_lines, wait_lines
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import readings_of
from squall.engine.report.metrics import ACCOUNT_COLUMNS, account_of, unanswered
from squall.engine.report.run_report import build_report
from squall.testing.simulated import SimulatedCluster
from tests.unit.rig import Feeder, Rig, chain, copy_component, refuses

RECORDS = 12
POISON = 7


class Killed(BaseException):
    """SIGKILL, as far as a test in one process can have it: nothing runs after it."""


class World:
    """What outlives a worker: the account's words, what the source made durable, the ledger, the deaths to come."""

    def __init__(self, kills: list[int]) -> None:
        self.words = [0] * len(ACCOUNT_COLUMNS)
        self.done: set[int] = set()
        self.told: Counter[str] = Counter()
        self._left = kills
        """Instants between this death and the next."""
        self.killed = False

    def instant(self) -> None:
        """Something has just happened, or is about to: the worker may be killed now. Once it is, it does nothing that
        anybody could see, whoever catches what is raised."""
        if self._left and not self.killed:
            self._left[0] -= 1
            if self._left[0] < 0:
                self._left.pop(0)
                self.killed = True
        if self.killed:
            raise Killed

    def tell(self, event: str) -> None:
        self.instant()
        self.told[event] += 1
        self.instant()

    def read(self) -> dict[str, int]:
        """The account's columns by name."""
        return {**dict(zip(ACCOUNT_COLUMNS, self.words, strict=True)), "waiting": 0}


class Words(list[int]):
    """Shared memory that may be the last that the worker writes."""

    def __init__(self, world: World) -> None:
        super().__init__(world.words)
        self._world = world

    def __setitem__(self, index: Any, value: Any) -> None:
        self._world.instant()
        super().__setitem__(index, value)
        self._world.words[index] = value
        self._world.instant()


class Source(ReplayingSpout):
    """Reads what is not durably done yet."""

    outputs = ("number",)
    first_delay_secs = 0.5

    def __init__(self, world: World) -> None:
        self.world = world

    def read(self) -> Any:
        for number in range(RECORDS):
            if number not in self.world.done:
                yield number, (number,)

    def ack(self, message_id: Any) -> None:
        self.world.tell("acked")
        self.world.done.add(message_id)
        self.world.instant()
        super().ack(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.world.tell("failed")
        super().on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.world.instant()
        self.world.done.add(message_id)
        ReplayingSpout.ack(self, message_id)


class Life(Rig):
    """One incarnation of the worker that has spout, bolt and acker. The bolt refuses one number always, some at
    first."""

    def __init__(self, world: World) -> None:
        seen: Counter[int] = Counter()

        def execute(number: int) -> None:
            world.tell("executed")
            seen[number] += 1
            if number == POISON or (number % 3 == 1 and seen[number] == 1):
                raise FailedTuple("not now")

        around = {"dead_letter": lambda *letter: world.tell("letters"), "account": lambda task: Words(world)}
        settings = {"seed": 1, "max_spout_pending": 5, "max_attempts": 3}
        super().__init__(chain(Source(world), refuses(execute)), around=around, **settings)
        self.world = world
        self.spout = self.spout_task

    def check(self) -> None:
        """The law, and what the engine and the outside know."""
        (spout,) = [reading for reading in readings_of(self.core) if reading.kind == "spout"]
        account, user = account_of(spout.counters), self.spout.user
        assert account.emitted == sum(dataclasses.astuple(account)[1:])
        assert account.pending == len(self.spout.pending)
        assert account.waiting == user.waiting_count
        attempts = self.spout.pending.attempts
        assert attempts.failed_here <= {key for key, tries in attempts.tries.items() if not tries.dead}
        told = self.world.told
        assert account.acked >= told["acked"]
        assert account.failed + account.waiting >= told["failed"]
        assert account.dead_letters <= told["letters"]
        assert account.emitted >= told["executed"]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 80), max_size=8))
def test_every_attempt_is_in_one_column_whenever_its_worker_is_killed(kills: list[int]) -> None:
    world = World(list(kills))
    life: Life | None = None
    for _ in range(2_000):
        try:
            life = life or Life(world)
            life.step()
        except (Killed, TaskCrashed):
            assert world.killed
        if world.killed:
            life, world.killed = None, False
            continue
        assert life is not None
        life.clock.advance(0.2)
        life.check()
        if life.spout.finished and life.core.quiet and not life.spout.user.waiting_count:
            break
    else:
        raise AssertionError("it did not end")
    assert world.done == set(range(RECORDS))
    left = world.read()
    account = account_of(left)
    assert (account.pending, account.waiting) == (0, 0)
    assert account.emitted == account.acked + account.failed + account.dead_letters + account.abandoned
    assert account.acked >= RECORDS - 1
    # Nothing is left, and the account says so: a death between two writes may hide an attempt, and never makes one up.
    assert unanswered(left) == 0
    assert kills or left["tracked"] - left["replayed"] == RECORDS
    # Who is killed before it is durable that the letter is written writes it again.
    assert account.dead_letters == 1 or kills


# ---- what the columns mean ----


def odd(number: int) -> None:
    if number % 2:
        raise FailedTuple("odd")


def cluster(spout: Feeder, ids: bool = True) -> SimulatedCluster:
    """Of which the spout emits ten messages, and the bolt refuses the odd ones."""
    for number in range(10):
        spout.feed(number, id=number if ids else None)
    return SimulatedCluster(chain(spout, refuses(odd)).build(), Config(), record=False, copy=copy_component)


class Holds(Feeder):
    @property
    def waiting_count(self) -> int:
        return len(self.failures)


@pytest.mark.parametrize(("spout", "failed", "waiting", "account"), [
    (Feeder(), 5, 0, "5 failed, 0 dead letters, 0 waiting for a retry, 0 pending"),
    (Holds(), 0, 5, "0 failed, 0 dead letters, 5 waiting for a retry, 0 pending"),
])
def test_what_a_spout_lets_go_is_failed_and_what_it_holds_waits(
    spout: Feeder, failed: int, waiting: int, account: str
) -> None:
    with cluster(spout) as lab:
        lab.settle()
        report = lab.report()
    found = (report.emitted, report.acked, report.failed, report.waiting, report.unreplayed)
    assert found == (10, 5, failed, waiting, failed)
    assert account in account_text(report)
    told = "5 messages failed and were not emitted again" in list(untracked_lines(report))
    assert told is (exit_code(report) == 1) is bool(failed)


def test_an_emit_that_is_refused_is_no_attempt() -> None:
    with cluster(Feeder()) as lab:
        collector = lab.user("spout").collector
        for stream in ("default", "nowhere"):
            with pytest.raises(ComponentError):
                collector.emit((), message_id="x", stream=stream)
            with pytest.raises(ComponentError):
                collector.emit_direct(99, (1,), message_id="x", stream=stream)
        lab.settle()
        report = lab.report()
    assert (report.emitted, report.acked, report.failed, report.pending) == (10, 5, 5, 0)


def test_what_nobody_says_was_executed_is_unknown_or_unprocessed() -> None:
    with cluster(Feeder(), ids=False) as lab:
        for spout in lab.core(0).spouts:
            spout.run(10)
        lab.core(0).run_feeders()
        readings = readings_of(lab.core(0))
    waiting = build_report("t", readings, 1.0, [], True)
    assert astuple(waiting.untracked) == (10, 0, 0, 10, 0)
    lost = build_report("t", readings, 1.0, [], True, idle=True)
    assert astuple(lost.components["bolt-1"].untracked) == (10, 0, 0, 0, 10)
    assert exit_code(waiting) == exit_code(lost) == 4
    (line,) = [line for line in untracked_lines(lost) if "bolt" in line]
    assert line.startswith("untracked tuples for bolt-1: 10 sent, 0 delivered, 10 unknown")


def test_a_spout_says_what_it_waits_for() -> None:
    rig = Rig(chain(Feeder(), refuses(odd)))
    for seconds, active, congested in ((1, False, False), (2, True, True), (4, True, False), (1, True, False)):
        rig.core.set_active(active)
        rig.core.congested = congested
        rig.step()
        rig.clock.advance(seconds)
    rig.step()
    report = build_report("t", readings_of(rig.core), 8.0, [], True)
    assert report.components["spout"].waits == {
        "pending_limit": 0.0, "credit": 0.25, "retry": 0.0, "input": 0.625, "inactive": 0.125,
    }
    assert list(wait_lines(report)) == [
        "spout waited: 62% for its source, 25% for room downstream, 12% to be activated"
    ]
