"""Suspects are tried apart while the rest flows, poison is buried, innocents are not, and letters given back go out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from squall import Failure, Spout
from squall.engine.api.failure import EXCEPTION, FAILED, FROM_OUTSIDE, HUNG, TIMEOUT, WORKER_DIED
from squall.engine.clock import NS_PER_SEC, ManualClock
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.flow.spout_collector import Routed
from squall.engine.report.metrics import SpoutStats, bucket_of
from squall.engine.tracking.attempts import Limits, Remembered
from squall.engine.tracking.fate import Fate, Letter, TrialPermit
from squall.engine.tracking.open_messages import OpenMessages, Ports
from tests.sim.invariants import BURIED_INNOCENT, InvariantBrokenError
from tests.unit.lab import Kept
from tests.unit.rig import STREAMS, Feeder

REFUSED, RAISED, DIED = Failure(FAILED), Failure(EXCEPTION, error="ValueError: no"), Failure(WORKER_DIED)
KILLED = Failure(WORKER_DIED, error=FROM_OUTSIDE)


class Lab(Kept):
    def __init__(self, **settings: Any) -> None:
        self.spout = Feeder(STREAMS)
        super().__init__(self.spout, **settings)
        self.task = self.spout_task
        self.table = self.task.pending

    def emit(self, *ids: int) -> None:
        for message_id in ids:
            self.spout.feed(message_id, id=message_id)
        self.settle()

    def die(self) -> None:
        """A worker that held everything under way dies, and the spout emits all of it again."""
        self.spout.failures.clear()
        for root, _ in list(self.table.table):
            self.table.failed(root, DIED)
        self.task.tell()
        self.bolt.kept.clear()
        self.emit(*(message_id for message_id, _ in self.spout.failures))

    def give_back(self, values: Any) -> list[str]:
        closed: list[str] = []
        self.task.give_back(Letter("m", values, lambda: closed.append("closed")))
        self.settle()
        return closed

    @property
    def under_way(self) -> list[Any]:
        return [tree[0] for _, tree in self.table.table]


@pytest.mark.parametrize("poison", [1, 511, 1000])
@pytest.mark.parametrize("limits", [{"max_crashes": 5}, {"max_attempts": 5}])
def test_a_poison_among_a_thousand_is_buried_alone_after_few_deaths_and_rounds(
    poison: int, limits: dict[str, int]
) -> None:
    lab = Lab(message_timeout_secs=3600, **limits)
    lab.emit(*range(1, 1001))
    rounds = deaths = 0
    while lab.pending:
        rounds += 1
        if poison in lab.under_way:
            deaths += 1
            lab.die()
        else:
            lab.emit(1000 + rounds)
            assert 1000 + rounds in lab.under_way, "the rest flows"
            assert lab.pending == len(lab.under_way) + len(lab.table.attempts.held_back - {*lab.under_way})
            lab.ack(*lab.under_way)
    assert [letter[2] for letter in lab.dead_letters] == [poison]
    acked = {*lab.spout.acked}
    assert acked >= {*range(1, 1001)}  # the default `on_dead_letter` acks
    assert len(acked) == len(lab.spout.acked)
    # In the common flow, in a group, and alone.
    assert deaths == 2 + 1 + 5
    assert rounds < 1000 / 32 + 32 + deaths + 5


class Watched(TrialPermit):
    """The permit in a topology with other workers, which take turns when the test says so."""

    well = True

    def turned_since(self, at_ns: int) -> bool:
        return self.well


def hung(**settings: Any) -> tuple[Lab, Watched]:
    """1 and 2 are suspects; 1 was on trial alone and has timed out in a worker that has not been heard of since."""
    lab, permit = Lab(message_timeout_secs=10, **settings), Watched()
    lab.table.ports.permit = permit
    lab.table.ports.forget = lambda root: 2
    lab.emit(1, 2)
    for _ in range(3):
        lab.die()
    assert lab.under_way == [1]
    permit.well = False
    lab.spout.failures.clear()
    lab.advance(11)
    assert lab.spout.reasons == [(1, TIMEOUT)]
    lab.bolt.kept.clear()
    lab.emit(1)
    return lab, permit


def test_nobody_else_is_tried_until_it_is_known_whether_a_late_suspect_hangs_its_worker() -> None:
    lab, permit = hung()
    lab.emit(3)
    assert (lab.under_way, lab.pending) == ([3], 3)
    permit.well = True
    lab.settle()
    # 1 has hung nobody, and is no suspect any more.
    assert lab.table.attempts.held_back == {2}
    lab.ack(*lab.under_way)
    lab.ack(*lab.under_way)
    assert sorted(lab.spout.acked) == [1, 2, 3]


def test_nothing_held_goes_out_while_downstream_is_full() -> None:
    lab = Lab()
    lab.emit(1)
    lab.die()
    lab.congest(True)
    lab.die()
    assert lab.under_way == []
    lab.congest(False)
    lab.settle()
    assert lab.under_way == [1]


@pytest.mark.parametrize("values", [("again",), Routed.on("pair", None, ("again", 2))])
def test_a_letter_that_is_given_back_goes_out_where_it_came_from_until_it_is_acked(values: Any) -> None:
    lab = Lab()
    closed = lab.give_back(values)
    assert lab.under_way == ["m"]
    (tup,) = lab.bolt.kept
    assert (tup.values, tup.source_stream) == (tuple(values), "default" if len(values) == 1 else "pair")
    lab.fail()
    # Later, and without the spout: it is done with this message since it was told of the dead letter.
    assert (lab.under_way, lab.pending, closed, lab.spout.failures) == ([], 1, [], [])
    lab.advance(0.01)
    assert lab.under_way == ["m"]
    lab.ack("again")
    assert (closed, lab.spout.acked, lab.pending) == (["closed"], [], 0)
    assert not lab.table.attempts.alert


def test_a_letter_that_no_longer_fits_goes_back_to_the_ledger() -> None:
    lab = Lab()
    closed = lab.give_back(Routed.on("gone", None, (1,)))
    ((_, _, message_id, _, failure),) = lab.dead_letters
    assert message_id == "m"
    assert "undeclared stream 'gone'" in failure.error
    assert (closed, lab.pending) == (["closed"], 0)


# ---- the law, under any events in any order ----


class Task(Spout):
    """A spout task of a world: its source, its open messages, and what becomes of them."""

    def __init__(self, world: World, number: int, limits: Limits) -> None:
        self.world, self.limits, self.number, self.stats = world, limits, number, SpoutStats()
        self.messages = OpenMessages(
            number, self.stats, 10 * NS_PER_SEC, Fate(limits), Ports(
                lambda: world.now_ns, lambda *init: None, lambda root: self.masks[root], self.bury, permit=world.permit
            ),
        )
        self.inside = SpoutTask("spout", number, self, Mock(), self.messages, self.stats, None)
        self.masks: dict[int, int] = {}
        """root -> the workers that held a part, of every attempt."""
        self.late: dict[int, tuple[int, bool]] = {}
        """root of each tree that timed out -> (message, whether it was on trial alone)."""
        self.emits = 0
        self.to_replay: list[int] = []
        self.letters: dict[int, Letter] = {}
        self.own: Counter[int] = Counter()
        """Failures that are a message's own, since it was new, acked or given back."""
        self.crashes: Counter[int] = Counter()

    @property
    def attempts(self) -> Any:
        return self.messages.attempts

    # ---- what it is told ----

    def on_failure(self, message_id: int, failure: Failure) -> None:
        self.to_replay.append(message_id)

    def on_dead_letter(self, message_id: int, failure: Failure) -> None:
        assert message_id in self.letters, "told of a letter that is not there"

    def bury(self, message_id: int, values: Any, failure: Failure) -> None:
        attempts, crashes = self.limits.max_attempts, self.limits.max_crashes
        own, ended = self.own[message_id], self.crashes[message_id]
        if (attempts is None or own < attempts) and (crashes is None or ended < crashes):
            raise InvariantBrokenError(BURIED_INNOCENT, f"{message_id}: {own} failures, {ended} workers ended")
        assert message_id not in self.letters, "buried twice"
        self.letters[message_id] = Letter(message_id, values, lambda: None)

    # ---- what happens ----

    def emit(self, message_id: int) -> None:
        self.emits += 1
        if message_id in self.attempts.held_back:
            self.messages.hold(message_id, (message_id,))
        else:
            self.send(message_id, (message_id,))

    def send(self, message_id: int, values: Any) -> int:
        if message_id in self.attempts.held_back:
            assert self.world.permit.owner == self.number, "a suspect without the permit"
            assert not any(task.attempts.on_trial for task in self.world.tasks), "two trials at once"
        root = self.world.next()
        self.masks[root] = (1, 2, 3)[root % 3]
        self.messages.add(root, message_id, values, 1, self.masks[root])
        return root

    def acked(self, root: int) -> None:
        message_id = self.messages.trees[root][0]
        self.messages.acked(root)
        self.forget(message_id)

    def failed(self, root: int, failure: Failure) -> None:
        message_id = self.messages.trees[root][0]
        alone = failure is DIED and self.attempts.group == (root,)
        self.own[message_id] += alone or failure.reason != WORKER_DIED
        self.crashes[message_id] += alone or (failure.reason == EXCEPTION and self.limits.exceptions_crash)
        self.messages.failed(root, failure)
        self.inside.tell()

    def expire(self) -> None:
        for root in self.messages.table.overdue(self.world.now_ns):
            message_id = self.messages.trees[root][0]
            self.own[message_id] += 1
            self.late[root] = message_id, self.attempts.group == (root,)
        self.messages.expire()
        self.inside.tell()

    def late_crash(self, root: int) -> None:
        self.crashes[self.late.pop(root)[0]] += 1
        self.messages.charge_late(root, Failure(HUNG))

    def give_back(self, message_id: int) -> None:
        self.forget(message_id)
        self.messages.give_back(self.letters.pop(message_id))

    def forget(self, message_id: int) -> None:
        del self.own[message_id], self.crashes[message_id]

    def let_go(self) -> None:
        if self.messages.fate.is_busy:
            self.messages.let_go(self.send)
            self.inside.tell()


class World:
    """Spout tasks that share a permit, and a clock."""

    def __init__(self, tasks: int, limits: Limits) -> None:
        self.now_ns = 0
        self.permit = Watched()
        self._counted = 0
        self.tasks = [Task(self, number, limits) for number in range(1, tasks + 1)]

    def next(self) -> int:
        self._counted += 1
        return self._counted

    def pass_time(self, secs: float) -> None:
        self.now_ns += round(secs * NS_PER_SEC)
        for task in self.tasks:
            task.expire()
            task.let_go()

    def kill(self, bit: int, failure: Failure) -> None:
        """A worker dies, by a cause that a tuple can have or by a kill from outside: what it held fails."""
        for task in self.tasks:
            for root, (message_id, alone) in list(task.late.items()):
                if failure is DIED and task.masks[root] & bit:
                    del task.late[root]
                    task.crashes[message_id] += alone
            if failure.accuses:  # as `Tracking.worker_died`
                task.messages.fate.worker_died(bit, failure)
            for root in [root for root in task.messages.trees if task.masks[root] & bit]:
                task.failed(root, failure)


def some(among: Any, number: int) -> Any:
    found = list(among)
    return found[number % len(found)] if found else None


def replay(world: World, task: Task, number: int) -> None:
    if task.to_replay:
        task.emit(task.to_replay.pop(number % len(task.to_replay)))


def to_one(of: Callable[[Task], Any], do: Callable[[Task, Any], object]) -> Callable[[World, Task, int], None]:
    def event(world: World, task: Task, number: int) -> None:
        if (chosen := some(of(task), number)) is not None:
            do(task, chosen)

    return event


def turn(world: World, task: Task, number: int) -> None:
    world.permit.well = number % 2 == 0


EVENTS: dict[str, Callable[[World, Task, int], Any]] = {
    "emit": lambda world, task, number: task.emit(world.next()),
    "replay": replay,
    "ack": to_one(lambda task: task.messages.trees, Task.acked),
    "refuse": to_one(lambda task: task.messages.trees, lambda task, root: task.failed(root, REFUSED)),
    "raise": to_one(lambda task: task.messages.trees, lambda task, root: task.failed(root, RAISED)),
    "late crash": to_one(lambda task: task.late, Task.late_crash),
    "kill": lambda world, task, number: world.kill(1 + number % 2, (DIED, KILLED)[number // 2 % 2]),
    "give back": to_one(lambda task: task.letters, Task.give_back),
    "turn": turn,
    "pass time": lambda world, task, number: world.pass_time((0, 0.01, 6)[number % 3]),
}


@given(
    limits=st.builds(Limits, st.sampled_from([None, 1, 4]), st.sampled_from([None, 1, 3]), st.booleans(), st.none()),
    tasks=st.integers(1, 3),
    events=st.lists(st.tuples(st.sampled_from(list(EVENTS)), st.integers(0, 2), st.integers(0, 10**6)), max_size=150),
)
@settings(max_examples=300, deadline=None)
def test_every_attempt_ends_once_and_nothing_is_held_for_ever(
    limits: Limits, tasks: int, events: list[tuple[str, int, int]]
) -> None:
    world = World(tasks, limits)
    for name, task, number in events:
        EVENTS[name](world, world.tasks[task % tasks], number)
        for each in world.tasks:
            stats, messages = each.stats, each.messages
            ended = stats.acked + stats.failed + stats.dead_letters
            assert ended + len(messages) == each.emits + messages.emitted_again, name
            for message_id, tries in each.attempts.tries.items():
                assert tries.dead or (tries.charged, tries.crashes) == (each.own[message_id], each.crashes[message_id])
    end_well(world)


def end_well(world: World) -> None:
    """From now on every worker lives and every bolt acks: soon nothing is open, and each message is acked or in the
    ledger."""
    world.permit.well = True
    for _ in range(2000):
        if not any(task.to_replay or len(task.messages) or task.messages.fate.is_busy for task in world.tasks):
            break
        for task in world.tasks:
            while task.to_replay:
                task.emit(task.to_replay.pop())
            for root in list(task.messages.trees):
                task.acked(root)
        world.pass_time(0.5)
    for task in world.tasks:
        assert len(task.messages) == 0, "something is held for ever"
        assert not task.messages.fate.is_busy


# ---- one table of open messages: every tree is answered once, time-outs are precise, attempts are counted ----


TIMEOUT_SECS = 10
WHY = Failure(FAILED, "bolt", 3, "node-1:6700", "bad luck")


class Table(OpenMessages):
    """With everything it talks to."""

    def __init__(self, spout: Feeder | None = None) -> None:
        self.clock = ManualClock()
        self.spout = spout or Feeder()
        self.stats = SpoutStats()
        self.forgotten: list[int] = []
        self.buried: list[Any] = []
        super().__init__(
            7, self.stats, TIMEOUT_SECS * NS_PER_SEC, Fate(), Ports(
                self.clock.now_ns, lambda *init: None, self.forgotten.append,
                lambda *letter: self.buried.append(letter[1]),
            ),
        )
        self.tell = SpoutTask("spout", 7, self.spout, Mock(), self, self.stats, None).tell

    def emit(self, root: int, message_id: Any) -> None:
        self.add(root, message_id, (f"values of {message_id}",), root ^ 5, 0b10)


def test_a_tree_times_out_when_its_time_is_up_and_not_before_and_a_reset_begins_it_anew() -> None:
    table = Table()
    table.emit(1, "a")
    table.clock.advance(3)
    table.emit(2, "b")
    table.clock.advance(TIMEOUT_SECS - 3 - 0.001)
    assert table.expire() == 0
    table.clock.advance(0.001)
    assert table.expire() == 1
    table.tell()
    assert (table.spout.reasons, table.forgotten) == ([("a", TIMEOUT)], [1])
    assert (table.stats.timed_out, table.stats.failed) == (1, 1)
    table.reset(2)
    table.reset(99)
    table.clock.advance(TIMEOUT_SECS - 0.001)
    assert table.expire() == 0
    table.acked(2)
    table.acked(2)
    assert (len(table), table.stats.acked) == (0, 1)
    # The latency counts from the emit.
    assert table.stats.histogram[bucket_of(1_000_000 * (2 * TIMEOUT_SECS - 3) - 1_000)] == 1


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
    table.tell()
    assert len(table) == 3
    assert table.expire() == 0
    table.acker_died(lambda root: root == 101)
    table.tell()
    assert len(table) == 3
    failure = spout.failures[-1][1]
    assert (failure.reason, failure.attempt) == (WORKER_DIED, 2)


# ---- a message that its spout gives up is a dead letter: counted, told, and written down once ----


@pytest.mark.parametrize("settings", [{}, {"max_crashes": None}, {"ackers": 0}])
def test_it_is_in_the_ledger_and_the_account_and_the_others_flow(settings: dict[str, Any]) -> None:
    lab = Lab(**settings)
    spout = lab.user("spout")
    spout.on_dead_letter = Mock()
    spout.feed("0", id=0)
    spout.collector.give_up(("1",), 1, "1 is odd")
    lab.emit(2)
    lab.ack("0", 2)
    failure = Failure("failed", "spout", lab.task.task, error="1 is odd")
    assert [letter[2:] for letter in lab.dead_letters] == [(1, ("1",), failure)]
    spout.on_dead_letter.assert_called_once_with(1, failure)
    assert spout.acked == [0, 2]
    lab.core.refresh_gauges()
    stats = lab.task.stats
    # Without ackers, what is emitted is in no account.
    emitted = 1 if settings.get("ackers") == 0 else 3
    assert (stats.tracked, stats.dead_letters, stats.failed, lab.pending) == (emitted, 1, 0, 0)


def test_one_that_is_in_the_ledger_already_is_not_written_there_again() -> None:
    first, second = Table(), Table()
    first.attempts.resume(Remembered())
    first.bury("m", ("1",), WHY)
    second.attempts.resume(Remembered(dict(first.attempts.tries)))
    # Its source gives it up once more, on purpose; or a message with other contents has its id.
    for values in (("1",), ("1",), ("2",)):
        second.bury("m", values, WHY)
    assert (first.buried, second.buried) == ([("1",)], [("1",), ("2",)])
