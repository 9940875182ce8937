"""Runs the tasks of a spout: asks for tuples while there is room, and hands answers back.

Guarantees: `next_tuple` is called only while the topology is active, fewer than `max_spout_pending` messages are open,
and nothing downstream is congested; `ack`, failures and time-outs are delivered whatever the state. What a turn emitted
is in the task's journal, where one is kept, before any bolt sees it.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.collectors import SpoutCollector
from engine.component import Spout
from engine.executor import AtHand, TaskCrashed
from engine.failure import Failure
from engine.lane import Letter
from engine.metrics import TaskStats
from engine.pending import PendingTable

FIRST_TURN_EMITS, MAX_TURN_EMITS = 16, 256
"""Emits per task and turn: large enough that a turn's overhead (some 50 us with its frames) is small against it, small
enough that bolts and answers are never long in coming. More gained nothing in `make bench`, 128 cost 10 %. A worker
begins with fewer, and doubles them: nobody knows yet how slow its bolts are."""
TURN_NS = 2_000_000
"""So long a task may emit in one turn: one that reads slowly, or sleeps between tuples as Storm's spouts do, does not
keep bolts, answers and its worker's sign of life waiting. Word count's 256 lines take 0.8 ms."""


class SpoutTask:
    """One task of a spout."""

    __slots__ = ("active", "collector", "component", "finished", "max_pending", "pending", "stats", "task", "user")

    def __init__(
        self, component: str, task: int, user: Spout, collector: SpoutCollector, pending: PendingTable,
        stats: TaskStats, max_pending: int | None,
    ) -> None:
        self.component = component
        self.task = task
        self.user = user
        self.collector = collector
        self.pending = pending
        self.stats = stats
        self.max_pending = max_pending
        self.active = False
        self.finished = False
        """The spout is exhausted, nothing of it is pending, and it had nothing to replay when asked last."""

    def crashed(self, doing: str, error: Exception) -> TaskCrashed:
        """What the worker is to die of: the spout's method raised."""
        self.stats.errors += 1
        return TaskCrashed(self.component, self.task, doing, error)


class SpoutExecutor:
    """Runs spout tasks that share an executor."""

    def __init__(
        self, tasks: list[SpoutTask], at_hand: AtHand | None = None, turn_ns: int | None = TURN_NS
    ) -> None:
        """`turn_ns`: how long a task may emit in one turn; None: only their number ends it, never the time."""
        self.tasks = tasks
        self._turn_ns = turn_ns
        self._at_hand: AtHand = [0] if at_hand is None else at_hand
        self.ran_dry = True
        """In their last turn the spouts emitted less than they might have: they have no more, or wait for answers."""

    def set_active(self, active: bool) -> None:
        """The topology was activated or deactivated."""
        for task in self.tasks:
            if task.active != active:
                task.active = active
                self._guard(task, "activate" if active else "deactivate")

    def _guard(self, task: SpoutTask, method: str) -> None:
        try:
            getattr(task.user, method)()
        except Exception as error:
            raise task.crashed(method, error) from error

    def run(self, emits: int, may_send: bool = True) -> bool:
        """Expire what is due, send what is held back if that is allowed, and ask each task for up to `emits` tuples;
        whether anything happened."""
        worked = False
        self.ran_dry = True
        for task in self.tasks:
            pending = task.pending
            self._at_hand[0] = task.task
            if pending.trees and pending.now_ns() >= pending.due_ns and self._expire(task):
                worked = True
            if emits and task.active and self._emit(task, emits):
                worked = True
            lane = pending.lane
            if may_send and (lane.held or lane.waiting or lane.overdue_ns) and self._send_held(task):
                worked = True
        self._at_hand[0] = 0
        self.write_journal()
        return worked

    def write_journal(self) -> None:
        """After anything that may have made a spout emit, and before the tuples leave."""
        for task in self.tasks:
            task.pending.attempts.flush(task.pending.trees)

    def _send_held(self, task: SpoutTask) -> bool:
        pending = task.pending
        try:
            return pending.lane.run(pending, task.collector.send, pending.now_ns())
        except Exception as error:
            raise task.crashed("on_dead_letter", error) from error

    def give_back(self, task: SpoutTask, letter: Letter) -> None:
        """A dead letter is to be emitted again."""
        task.finished = False
        task.pending.give_back(letter)

    def _expire(self, task: SpoutTask) -> bool:
        try:
            return task.pending.expire() > 0
        except Exception as error:
            raise task.crashed("on_failure", error) from error

    def _emit(self, task: SpoutTask, emits: int) -> bool:
        """Ask for up to `emits` tuples; whether there were any."""
        collector, now_ns = task.collector, task.pending.now_ns
        before = collector.emitted
        # Ever longer series, so that the clock is looked at soon and yet seldom.
        series, ends_ns = emits, 0
        if self._turn_ns is not None:
            series, ends_ns = 1, now_ns() + self._turn_ns
        try:
            while self._emit_series(task, series):
                emits -= series
                if not emits or now_ns() >= ends_ns:
                    self.ran_dry = False
                    break
                series = min(2 * series, emits)
        except Exception as error:
            raise task.crashed("next_tuple", error) from error
        if collector.emitted == before:
            return False
        task.finished = False
        return True

    @staticmethod
    def _emit_series(task: SpoutTask, count: int) -> bool:
        """Ask for `count` tuples; False if one did not come, or there is no room for it."""
        next_tuple, pending, collector = task.user.next_tuple, task.pending, task.collector
        trees, held = pending.trees, pending.lane.held
        limit = None if task.max_pending is None else task.max_pending - len(pending.lane.waiting)
        before = collector.emitted
        for _ in range(count):
            if limit is not None and len(trees) + len(held) >= limit:
                return False
            next_tuple()
            after = collector.emitted
            if after == before:
                task.finished = not pending and bool(task.user.exhausted)
                return False
            before = after
        return True

    def acker_died(self, task: SpoutTask, is_its: Callable[[int], bool], failure: Failure) -> None:
        """An acker is gone; `is_its(root)` says which trees were with it."""
        try:
            task.pending.acker_died(is_its, failure)
        except Exception as error:
            raise task.crashed("on_failure", error) from error
