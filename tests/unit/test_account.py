"""The account of a spout: each attempt is in one column, whenever its worker dies."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from squall import ReplayingSpout
from squall.cli.shown.output import exit_code
from squall.cli.shown.report_text import account_text, untracked_lines, wait_lines
from squall.engine.api.component import BasicBolt, Bolt, Spout
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import TopologyBuilder
from squall.engine.clock import ManualClock
from squall.engine.core.assemble import Assembler
from squall.engine.core.executor import TaskCrashed
from squall.engine.core.local import LocalRunner, local_plan, readings_of
from squall.engine.core.surroundings import Surroundings
from squall.engine.core.transport import NoPeers, NoTransport
from squall.engine.core.turn import Turn
from squall.engine.core.worker_core import WorkerCore
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.report.account import ACCOUNT_COLUMNS, account_of, unanswered
from squall.engine.report.run_report import RunReport, build_report
from squall.engine.tracking.peers import Peers

RECORDS = 12
POISON = 7


class Killed(BaseException):
    """SIGKILL, as far as a test in one process can have it: nothing runs after it."""


class World:
    """What outlives a worker: the account's words, what the source made durable, the ledger, the deaths to come."""

    def __init__(self, kills: list[int]) -> None:
        self.words = [0] * len(ACCOUNT_COLUMNS)
        self.done: set[int] = set()
        self.told_acked = self.told_failed = self.letters = self.executed = 0
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
        self.world.instant()
        self.world.told_acked += 1
        self.world.instant()
        self.world.done.add(message_id)
        self.world.instant()
        super().ack(message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.world.instant()
        self.world.told_failed += 1
        self.world.instant()
        super().on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.world.instant()
        self.world.done.add(message_id)
        ReplayingSpout.ack(self, message_id)


class Picky(BasicBolt):
    """Refuses one number always, some at first."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[int, int] = {}

    def execute(self, tup: Tuple, collector: object) -> None:
        self.world.instant()
        self.world.executed += 1
        self.world.instant()
        number = tup[0]
        self.seen[number] = self.seen.get(number, 0) + 1
        if number == POISON or (number % 3 == 1 and self.seen[number] == 1):
            raise FailedTuple("not now")


class Life:
    """One incarnation of the worker that has spout, bolt and acker."""

    def __init__(self, world: World, clock: ManualClock) -> None:
        self.world, self.clock = world, clock
        builder = TopologyBuilder()
        builder.set_spout("source", Source(world))
        builder.set_bolt("bolt", Picky(world)).shuffle_grouping("source")
        topology = builder.build()
        config = Config(seed=1, max_spout_pending=5, max_attempts=3)
        plan = local_plan(topology, config.acker_count)
        peers = Peers(1, 0)
        peers.update(0, 1, True)

        def bury(component: str, task: int, message_id: Any, values: Any, failure: Failure) -> None:
            world.instant()
            world.letters += 1
            world.instant()

        around = Surroundings(
            topology_name="t", worker="n:1", attempt=1, now_ns=clock.now_ns, state_root=None,
            report_error=lambda *error: None, dead_letter=bury, deterministic=True, account=lambda task: Words(world),
        )
        self.core: WorkerCore = Assembler(topology, plan, config, 0, peers, around).build()
        self.core.set_active(True)
        self.turn = Turn(self.core, NoTransport(), NoPeers(), config, clock.now_ns)
        ((_, self.spout),) = self.core.spout_tasks.values()

    def check(self) -> None:
        """The law, and what the engine and the outside know."""
        (spout,) = [reading for reading in readings_of(self.core) if reading.kind == "spout"]
        account, user = account_of(spout.counters), self.spout.user
        assert account.emitted == sum(dataclasses.astuple(account)[1:])
        assert account.pending == len(self.spout.pending)
        assert account.waiting == user.waiting_count
        attempts = self.spout.pending.attempts
        assert attempts.failed_here <= {key for key, tries in attempts.tries.items() if not tries.dead}
        world = self.world
        assert account.acked >= world.told_acked
        assert account.failed + account.waiting >= world.told_failed
        assert account.dead_letters <= world.letters
        assert account.emitted >= world.executed


@settings(max_examples=100)
@given(st.lists(st.integers(0, 80), max_size=8))
def test_every_attempt_is_in_one_column_whenever_its_worker_is_killed(kills: list[int]) -> None:
    world, clock = World(list(kills)), ManualClock()
    life: Life | None = None
    for _ in range(2_000):
        try:
            life = life or Life(world, clock)
            life.turn.run()
        except (Killed, TaskCrashed):
            assert world.killed
        if world.killed:
            life, world.killed = None, False
            continue
        clock.advance(0.2)
        assert life is not None
        life.check()
        if life.spout.finished and life.core.quiet and not life.spout.user.waiting_count:
            break
    else:
        raise AssertionError("it did not end")
    assert world.done == set(range(RECORDS))
    account = account_of({**dict(zip(ACCOUNT_COLUMNS, world.words, strict=True)), "waiting": 0})
    assert (account.pending, account.waiting) == (0, 0)
    assert account.emitted == account.acked + account.failed + account.dead_letters + account.abandoned
    assert account.acked >= RECORDS - 1
    # Nothing is left, and the account says so: a death between two writes may hide an attempt, and never makes one up.
    left = dict(zip(ACCOUNT_COLUMNS, world.words, strict=True))
    assert unanswered(left) == 0
    assert kills or left["tracked"] - left["replayed"] == RECORDS
    # Who is killed before it is durable that the letter is written writes it again.
    assert account.dead_letters == 1 or kills


# ---- what the columns mean ----


class Once(Spout):
    """Emits so many messages and lets go of what fails."""

    outputs = ("number",)

    def __init__(self, count: int, ids: bool = True) -> None:
        self.count, self.ids = count, ids

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.collector, self.next = collector, 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.next += 1
            self.collector.emit((self.next,), message_id=self.next if self.ids else None)

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self.next >= self.count


class RefusesOdd(BasicBolt):
    def execute(self, tup: Tuple, collector: object) -> None:
        if tup[0] % 2:
            raise FailedTuple("odd")


class AcksTicksToo(Bolt):
    ticks = 0

    def prepare(self, conf: object, context: object, collector: Any) -> None:
        self.collector = collector

    def execute(self, tup: Tuple) -> None:
        self.ticks += tup.is_tick
        (self.collector.fail if tup.is_tick and self.ticks % 2 else self.collector.ack)(tup)


def run(spout: Spout, bolt: Any, **settings_: Any) -> RunReport:
    builder = TopologyBuilder()
    builder.set_spout("spout", spout)
    builder.set_bolt("bolt", bolt).shuffle_grouping("spout")
    with LocalRunner(builder.build(), Config(**settings_), copy=lambda spec: spec.component) as runner:
        return runner.run(timeout_secs=30)


def test_what_a_spout_lets_go_is_failed_and_said() -> None:
    report = run(Once(10), RefusesOdd())
    assert (report.emitted, report.acked, report.failed, report.unreplayed) == (10, 5, 5, 5)
    assert "5 messages failed and were not emitted again" in list(untracked_lines(report.to_dict()))
    assert exit_code(report) == 1


def test_what_a_spout_holds_for_a_retry_waits() -> None:
    class Holds(Once):
        held = 0

        def on_failure(self, message_id: Any, failure: Failure) -> None:
            self.held += 1

        @property
        def waiting_count(self) -> int:
            return self.held

    report = run(Holds(10), RefusesOdd())
    assert (report.emitted, report.acked, report.failed, report.waiting, report.unreplayed) == (10, 5, 0, 5, 0)
    assert "0 failed, 0 dead letters, 5 waiting for a retry, 0 pending" in account_text(report.to_dict())


def test_an_emit_that_is_refused_is_no_attempt() -> None:
    class Careless(Once):
        def next_tuple(self) -> None:
            super().next_tuple()
            emit, emit_direct = self.collector.emit, self.collector.emit_direct
            for wrong in (lambda: emit_direct(99, (1,), stream="x"), lambda: emit((), stream="y")):
                with contextlib.suppress(ComponentError):
                    wrong()

    report = run(Careless(2), RefusesOdd())
    assert (report.emitted, report.acked, report.failed, report.pending) == (2, 1, 1, 0)


def test_what_nobody_says_was_executed_is_unknown_or_unprocessed() -> None:
    with LocalRunner(_untracked_topology(), Config(), copy=lambda spec: spec.component) as runner:
        runner.core.set_active(True)
        for spout in runner.core.spouts:
            spout.run(10)
        runner.core.run_feeders()
        readings = readings_of(runner.core)
    waiting = build_report("t", readings, 1.0, [], True)
    assert waiting.untracked == (10, 0, 0, 10, 0)
    lost = build_report("t", readings, 1.0, [], True, idle=True)
    assert lost.components["bolt"].untracked == (10, 0, 0, 0, 10)
    assert exit_code(waiting) == exit_code(lost) == 4
    (line,) = [line for line in untracked_lines(lost.to_dict()) if "bolt" in line]
    assert line.startswith("untracked tuples for bolt: 10 sent, 0 delivered, 10 unknown")


def _untracked_topology() -> Any:
    builder = TopologyBuilder()
    builder.set_spout("spout", Once(10, ids=False))
    builder.set_bolt("bolt", RefusesOdd()).shuffle_grouping("spout")
    return builder.build()


def test_a_spout_says_what_it_waits_for() -> None:
    clock = ManualClock()
    builder = TopologyBuilder()
    builder.set_spout("spout", Once(3))
    builder.set_bolt("bolt", AcksTicksToo()).shuffle_grouping("spout")
    with LocalRunner(builder.build(), clock=clock, copy=lambda spec: spec.component) as runner:
        for seconds, active, congested in ((1, False, False), (2, True, True), (4, True, False), (1, True, False)):
            runner.core.set_active(active)
            runner.core.congest(congested)
            runner.step()
            clock.advance(seconds)
        runner.step()
        report = runner.report()
    assert report.components["spout"].waits == {
        "pending_limit": 0.0, "credit": 0.25, "retry": 0.0, "input": 0.625, "inactive": 0.125,
    }
    assert list(wait_lines(report.to_dict())) == [
        "spout waited: 62% for its source, 25% for room downstream, 12% to be activated"
    ]
