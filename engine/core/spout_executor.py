"""Runs the tasks of a spout: asks for tuples while there is room, and tells answers.

Guarantees: `next_tuple` is called only while the topology is active, fewer than `max_spout_pending` messages are open
(or what `engine.core.pending_limit` allows), and nothing downstream is congested. Answers are told whatever the state,
each once: acks in their order, failures in theirs, before the caller that brought them goes on; they are in the account
already, and if the spout's method raises, the acks that it did not take are taken out of it again. A spout's
`waiting_count` is not trusted: anything but an integer that fits a word of the board is a ComponentError. `exhausted`
is read as true or false; what a property raises passes through.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

from squall.engine.api.component import BatchSpout, Spout
from squall.engine.core.executor import AtHand, TaskCrashed
from squall.engine.core.pace import MOST_BATCH_EMITS, MOST_EMITS
from squall.engine.core.pending_limit import PendingLimit
from squall.engine.errors import ComponentError
from squall.engine.flow.spout_collector import SpoutCollector
from squall.engine.foreign.methods import Returned
from squall.engine.foreign.text import repr_of
from squall.engine.report.metrics import (
    ACKED,
    DEAD_LETTERS,
    EMITTED,
    FAILED,
    REPLAYED,
    TRACKED,
    WAITS,
    SpoutStats,
    Words,
)
from squall.engine.tracking.fate import Letter
from squall.engine.tracking.open_messages import Answers, OpenMessages

MAX_WAITING = 2**63 - 1

T = TypeVar("T")


def waiting_count(spout: Spout) -> int:
    """Read how many failed messages it holds for a retry."""
    count = operator.index(spout.waiting_count)
    if not 0 <= count <= MAX_WAITING:
        raise ComponentError(f"waiting_count is {repr_of(count)}; allowed: 0 to 2**63 - 1")
    return count


class SpoutStopped(BaseException):
    """Unwinds the thread, and `next_tuple` when the worker ends while the spout waits in `emit`. Never leaves it."""


PENDING_LIMIT, CREDIT, RETRY, INPUT, INACTIVE = range(len(WAITS))
NOTHING = -1


class SpoutTask:
    """One task of a spout."""

    __slots__ = (
        "_before", "_done_at", "_emitted", "_held", "_since_ns", "_waited_ns", "active", "adaptive", "asked",
        "collector", "component", "emit_bytes", "finished", "fitting", "lock", "make_call", "max_pending", "may_look",
        "outermost", "own", "pending", "returned", "said_quiet", "stats", "task", "user", "usual_rows", "waits_for",
    )

    def __init__(
        self, component: str, task: int, user: Spout, collector: SpoutCollector, pending: OpenMessages,
        stats: SpoutStats, max_pending: int | PendingLimit | None,
    ) -> None:
        self.component = component
        self.task = task
        self.user = user
        self.outermost: Any = user
        """Asked for tuples and told of answers: the user's object, or what `engine.core.hook_calls` puts around it."""
        self.collector = collector
        """The loop's, which emits held messages; its counts are those of the emits that the loop has taken."""
        self.own = collector
        """The user's: another one if the spout has a thread."""
        self.make_call: Callable[[Callable[[], None]], None] = operator.call
        """Makes a call of the spout's methods: at once, or, if it has a thread, there."""
        self.lock: AbstractContextManager[Any] = nullcontext()
        """Before what the spout's thread touches too, if it has one."""
        self.pending = pending
        if not isinstance(user, BatchSpout):
            pending.answer_untracked = self.ack_at_once
        self.stats = stats
        self.adaptive = max_pending if isinstance(max_pending, PendingLimit) else None
        self.max_pending: int | None = max_pending.limit if isinstance(max_pending, PendingLimit) else max_pending
        self.asked = "next_batch" if isinstance(user, BatchSpout) else "next_tuple"
        """The spout's method that emits."""
        self.returned = Returned(component, task, self.asked)
        """Called with the value that the spout returns when it is asked, unless it is None."""
        self._done_at = -1
        """How many messages had failed when it said that it is exhausted; -1: it has not."""
        self.active = False
        self.emit_bytes = 0
        """Estimated memory of one emit: the newest size, or a fading share of an earlier, larger one."""
        self.fitting = MOST_BATCH_EMITS
        """How many emits of that size fit a turn, one at least."""
        self.finished = False
        """True if the spout was exhausted when asked last, with nothing pending and nothing to replay."""
        self.said_quiet: Words = [0]
        """See `Surroundings.said_quiet`."""
        self.waits_for = NOTHING
        """Index in WAITS of the reason why it did not emit more in its last turn; NOTHING if there was none."""
        self._since_ns = 0
        self._waited_ns = [0] * (len(WAITS) + 1)
        """Time waited for each of WAITS, and last for NOTHING."""
        self._before = stats.replayed, stats.emitted, stats.tracked
        self._emitted = 0
        """Emits counted last: the spout's and the engine's."""
        self.may_look = True
        """False if the loop must not read `waiting_count`: a thread does, or reading it has raised."""
        self._held = 0
        self.usual_rows = 0
        """Rows that it emits in one call of `next_batch` while it has some: the newest call's, or a fading share of an
        earlier, longer one's."""

    def see_size(self, newest_bytes: int, turn_bytes: int) -> None:
        """Note the size of its newest emit; all emits of a turn may hold `turn_bytes`."""
        fading_bytes = self.emit_bytes * 3 // 4
        self.emit_bytes = size_bytes = newest_bytes if newest_bytes > fading_bytes else fading_bytes
        self.fitting = turn_bytes // size_bytes or 1 if size_bytes else MOST_BATCH_EMITS

    def count_emits(self) -> None:
        """Count emits in the account before they are visible to anyone."""
        emitted = self.collector.emitted + self.pending.emitted_again
        if emitted != self._emitted:
            self._emitted = emitted
            self.said_quiet[0] = 0
            account, (replayed_before, emitted_before, tracked_before) = self.stats.account, self._before
            account[REPLAYED] = replayed_before + self.pending.replays
            account[EMITTED] = emitted_before + emitted
            account[TRACKED] = tracked_before + emitted - self.collector.untracked

    def adapt(self, adaptive: PendingLimit, now_ns: int) -> None:
        """Raise or lower the limit of open messages if that is due."""
        adaptive.look(now_ns, self.stats.account[ACKED], self._waited_ns[PENDING_LIMIT], self.emit_bytes)
        self.max_pending = adaptive.limit

    @property
    def starves(self) -> bool:
        """True if it waits at a limit that may rise, and only for answers of the bolts."""
        adaptive, table, fate = self.adaptive, self.pending.table, self.pending.fate
        return (
            adaptive is not None and self.waits_for == PENDING_LIMIT and self.active
            and not (fate.held or fate.waiting)
            and len(table) >= adaptive.limit and adaptive.may_rise(self.emit_bytes)
        )

    @property
    def rests(self) -> bool:
        """True if it has nothing to emit until it is told something: it is exhausted or deactivated, and no message is
        open or waits for a retry."""
        return (self.finished or not self.active) and not (len(self.pending) or self.held_for_retry)

    def widen(self) -> None:
        """Raise the limit of a task that starves."""
        if self.adaptive is not None:
            self.adaptive.starved(self.emit_bytes)
            self.max_pending = self.adaptive.limit

    def count_wait(self, now_ns: int) -> None:
        """Add the time since the last call to the reason that its last turn left."""
        self._waited_ns[self.waits_for] += now_ns - self._since_ns
        self._since_ns = now_ns

    def refresh_stats(self) -> None:
        """Bring the gauges and derived counters of `stats` up to date."""
        stats = self.stats
        self.count_emits()
        stats.pending = len(self.pending)
        stats.waiting = self.held_for_retry
        stats.unreplayed = self.pending.unreplayed(stats.waiting)
        stats.limit = self.max_pending or 0
        stats.exhausted = self.finished
        stats.crashes = self.pending.attempts.crashes
        (
            stats.wait_pending_limit_ns, stats.wait_credit_ns, stats.wait_retry_ns, stats.wait_input_ns,
            stats.wait_inactive_ns, _,
        ) = self._waited_ns

    @property
    def held_for_retry(self) -> int:
        """The spout's `waiting_count`. Raises TaskCrashed the first time, and returns the last value from then on, so
        that a worker that ends by it can still publish."""
        if self.may_look:
            self.may_look = False
            self.look()
            self.may_look = True
        return self._held

    def look(self) -> None:
        """Read the spout's `waiting_count`. Raises TaskCrashed."""
        self._held = self.call("waiting_count", waiting_count, self.user)

    @property
    def exhausted(self) -> bool:
        """True if the spout says that it has nothing more to emit. Raises TaskCrashed."""
        return self.call("exhausted", lambda: bool(self.user.exhausted))

    def ask(self) -> Any:
        """Call `next_tuple` of a spout that may wait in it. One that has said that it is exhausted is not called before
        another of its messages has failed: it might wait for ever."""
        account = self.stats.account
        failures = account[FAILED] + account[DEAD_LETTERS]
        was_exhausted = bool(self.user.exhausted)
        if was_exhausted and self._done_at == failures:
            return None
        before = self.own.emitted
        value = self.outermost.next_tuple()
        # A spout that was exhausted from the start is still asked until a call emits nothing.
        says_so = self.user.exhausted and not (was_exhausted and self.own.emitted != before)
        self._done_at = failures if says_so else -1
        return value

    def switch(self, method: str) -> None:
        """Activate or deactivate it; it is then asked again, whatever it has said. Raises TaskCrashed."""
        self._done_at = -1
        self.call(method, getattr(self.user, method))

    def call(self, doing: str, call: Callable[..., T], *arguments: Any) -> T:
        """Call what calls the spout's method `doing`. Raises TaskCrashed for whatever that raises."""
        try:
            return call(*arguments)
        except SpoutStopped:
            raise
        except BaseException as error:
            raise self.crashed(doing, error) from error

    def crashed(self, doing: str, error: BaseException) -> TaskCrashed:
        """Make the error for the worker to end by: the spout's method raised."""
        self.stats.errors += 1
        return TaskCrashed(self.component, self.task, doing, error)

    def give_back(self, letter: Letter) -> None:
        """A dead letter is to be emitted again."""
        with self.lock:
            self.finished = False
            self.pending.give_back(letter)

    def tell(self) -> None:
        """Have the spout told of the answers collected. Raises TaskCrashed."""
        if self.pending.answers:
            answers = self.pending.take_answers()
            self.finished = False
            try:
                self.make_call(partial(self.hear, answers))
            except TaskCrashed:
                self.pending.not_taken(len(answers.acked))
                raise

    def ack_at_once(self, message_id: Any) -> None:
        """Ack a message as it is emitted: there are no ackers (Storm's rule)."""
        self.outermost.ack(message_id)

    def hear(self, answers: Answers) -> None:
        """Tell the spout of answers; leaves the acks that it did not take. Raises TaskCrashed."""
        listener = self.outermost
        if isinstance(self.user, BatchSpout):
            if answers.acked:
                self.call("ack_batch", listener.ack_batch, answers.acked)
                answers.acked = []
            if answers.failed:
                self.call("fail_batch", listener.fail_batch, *map(list, zip(*answers.failed, strict=True)))
        else:
            acks, ack = iter(answers.acked), listener.ack
            try:
                for message_id in acks:
                    ack(message_id)
            except BaseException as error:
                answers.acked = [message_id, *acks]
                raise self.crashed("ack", error) from error
            answers.acked = []
            for failed in answers.failed:
                self.call("on_failure", listener.on_failure, *failed)
        for dead in answers.dead:
            self.call("on_dead_letter", listener.on_dead_letter, *dead)


class SpoutExecutor:
    """Runs spout tasks that share an executor."""

    most_emits = MOST_EMITS
    """Emits that a task may make in one turn."""
    end_errors: Sequence[TaskCrashed] = ()
    """Raised by tasks that were closed in `stop`."""

    def __init__(self, at_hand: AtHand, emit_ns: int, turn_bytes: int) -> None:
        """`emit_ns`: time that a task may emit in one turn.
        `turn_bytes`: about how many bytes a task may emit in one turn."""
        self.tasks: list[SpoutTask] = []
        self._turn_bytes = turn_bytes
        self._emit_ns = emit_ns
        self._at_hand = at_hand
        self.ran_dry = True
        """True if the spouts emitted less than they might in their last turn: no more input, or waiting for answers."""

    def set_active(self, active: bool) -> None:
        """Activate or deactivate the tasks."""
        for task in self.tasks:
            if task.active != active:
                task.active = active
                task.make_call(partial(task.switch, "activate" if active else "deactivate"))

    def run(self, emits: int, may_send: bool = True) -> bool:
        """Expire overdue trees, send held messages if allowed, and ask each task for up to `emits` tuples. Return
        True if anything happened."""
        worked = False
        self.ran_dry = True
        now_ns = self.tasks[0].pending.now_ns()
        for task in self.tasks:
            pending = task.pending
            stopped = pending.stops()
            pending.may_emit_more = task.waits_for in (NOTHING, CREDIT)
            task.count_wait(now_ns)
            self._at_hand[0] = task.task
            if task.adaptive is not None and now_ns >= task.adaptive.due_ns:
                task.adapt(task.adaptive, now_ns)
            if now_ns >= pending.table.due_ns and pending.table:
                worked = pending.expire() > 0 or worked
            task.tell()
            if stopped or not emits or not task.active:
                task.waits_for = CREDIT if task.active else INACTIVE
            elif self._emit(task, emits):
                worked = True
            if may_send and not stopped and pending.fate.is_busy:
                worked = task.call("on_dead_letter", pending.let_go, task.collector.send) or worked
            task.tell()
        self._at_hand[0] = 0
        return worked

    @property
    def busy(self) -> bool:
        """True if emits are under way inside that are in no table yet."""
        return False

    def start(self) -> None:
        """Begin to ask for tuples: all tasks of the worker are open."""

    def end(self) -> None:
        """Stop asking for tuples: the worker ends."""

    def stop(self) -> bool:
        """Wait, after `end`, for calls that have not returned. Returns True if the tasks have been closed."""
        return False

    def write_journal(self) -> None:
        """Write the journals: after anything that may have made a spout emit, and before the tuples leave."""
        for task in self.tasks:
            task.count_emits()
            task.pending.write_journal()

    def _emit(self, task: SpoutTask, emits: int) -> bool:
        """Ask for up to `emits` tuples; return True if there were any."""
        collector = task.collector
        before = collector.emitted
        collector.gathers = True
        try:
            try:
                self._emit_some(task, emits)
            finally:
                # Also what was emitted before an error.
                collector.put_new()
                collector.put_gathered()
                collector.gathers = False
        except TaskCrashed:
            raise
        except BaseException as error:
            raise task.crashed(task.asked, error) from error
        if collector.emitted == before:
            return False
        task.finished = False
        return True

    def _emit_some(self, task: SpoutTask, emits: int) -> None:
        collector, now_ns = task.collector, task.pending.now_ns
        # Ever longer series, so that the clock is read early and yet seldom; one tuple first, to see its size.
        series, ends_ns = 1, now_ns() + self._emit_ns
        if task.fitting < emits:
            emits = task.fitting
        while self._emit_series(task, series):
            emits -= series
            if series == 1:
                task.see_size(collector.emitter.newest_row_bytes(), self._turn_bytes)
                if task.fitting <= emits:
                    emits = task.fitting - 1
            if emits <= 0 or now_ns() >= ends_ns:
                self.ran_dry = False
                # If it has reached its limit with this emit, it waits for answers until its next turn.
                task.waits_for = PENDING_LIMIT if self._room(task) <= 0 else NOTHING
                break
            series = min(2 * series, emits)

    @staticmethod
    def _room(task: SpoutTask) -> float:
        """How many trees may be opened still."""
        if task.max_pending is None:
            return math.inf
        # Messages in doubt wait for others, which need room.
        doubt = min(len(task.pending.attempts.doubt.causes), len(task.pending.fate.held))
        return task.max_pending + doubt - task.own.pending_count

    def _emit_series(self, task: SpoutTask, count: int) -> bool:
        """Ask for `count` tuples; False if one did not come, or there is no room for it."""
        collector, next_tuple = task.collector, task.ask if task.user.blocking else task.outermost.next_tuple
        before = began = collector.emitted
        room = self._room(task)
        for _ in range(count):
            if before - began >= room:
                # Not every emit has opened a tree.
                began, room = before, self._room(task)
                if room <= 0:
                    task.waits_for = PENDING_LIMIT
                    return False
            if (value := next_tuple()) is not None:
                task.returned(value)
            after = collector.emitted
            if after == before:
                task.finished = not collector.pending_count and task.exhausted
                task.waits_for = RETRY if task.held_for_retry else INPUT
                return False
            before = after
        return True
