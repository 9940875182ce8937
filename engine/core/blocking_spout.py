"""An executor with a thread of its own, for spouts that wait (for a queue, a socket, a service) in `next_tuple`.

Guarantees
    * The user's object still sees one call at a time: this one thread calls `next_tuple`, `ack`, `fail`, `on_failure`,
      `on_dead_letter`, `activate` and `deactivate`, in the order in which the loop asked for them, and `close` at the
      end (see `TasksThread`). So answers are told between two calls of `next_tuple`, however long one takes;
      the loop counts them at once.
    * Emits of the thread leave at once, not when `next_tuple` returns. Their trees are in the pending table, and in the
      task's journal if it has one, before any bolt sees them. Until the loop has taken them they count as pending, so
      the topology is not drained or idle meanwhile.
    * The thread emits only while the loop allows it: the topology is active, nothing downstream is congested, the task
      may have one more message open. An emit that comes too early waits inside `emit`; so a topology comes to rest
      although its thread sits in `next_tuple`. If the worker ends before the topology is active again, that tuple
      counts as not emitted.
    * A spout that has said that it is exhausted is not asked again before it is told of a failure: it may read a source
      that would let it wait for ever, and then neither hear of its acks nor end.
    * Only the loop touches open messages, ackers and limits.

What both sides touch is behind one lock; the loop never waits for it longer than the engine's part of one emit.

Thread: one for each executor, and the worker's loop. Methods `_thread...` are the thread's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from squall.engine.core.blocking import JOIN_SECS, Handover, TasksThread
from squall.engine.core.emit_paths import wrap
from squall.engine.core.spout_executor import (
    INPUT,
    NOTHING,
    PENDING_LIMIT,
    RETRY,
    SpoutExecutor,
    SpoutStopped,
    SpoutTask,
)
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.spout_collector import AddBlock
from squall.engine.foreign.methods import checked
from squall.engine.tracking.open_messages import OpenMessages

_IN_CALL_JOIN_SECS = 1.0
"""Longest wait for a spout that sits in `next_tuple` at the end: most do, and may for ever. `close` is then called
meanwhile, and can make it return by closing the source."""
_IN_TURN = ("emit", "emit_direct", "give_up")
"""Methods of a collector that wait for their turn."""
_PAUSE_MIN_SECS, _PAUSE_MAX_SECS = 0.001, 0.03
"""Pause before a spout that emitted nothing is asked again: as in an idle worker (`IDLE_WAIT_MIN_MS`)."""


class Emits:
    """Stands for the open messages on the spout's thread: notes what the loop is to enter when it takes the emits."""

    def __init__(self, messages: OpenMessages) -> None:
        self._messages = messages
        self.attempts = messages.attempts
        self.now_ns = messages.now_ns
        self._entries: list[Callable[[], object]] = []
        self.add = partial(self._note, 1, messages.add)
        self.hold = partial(self._note, 1, messages.hold)
        self.bury = partial(self._note, 1, messages.bury)
        self._noted = 0
        """Messages among these."""
        self.untracked: list[Any] = []
        """Message ids that are acked at once, because there are no ackers."""
        self.answer_untracked = self.untracked.append
        self.add_block: AddBlock | None = None
        if (add_block := messages.add_block) is not None:
            self.add_block = lambda block, *trees: self._note(block.members, add_block, block, *trees)

    def __len__(self) -> int:
        return len(self._messages) + self._noted

    def _note(self, messages: int, enter: Callable[..., object], *arguments: Any) -> None:
        self._noted += messages
        self._entries.append(partial(enter, *arguments))

    def enter(self) -> None:
        """Enter what was noted. Thread: the worker's loop, with the lock."""
        for enter in self._entries:
            enter()
        self._entries.clear()
        self._noted = 0


def _emits_of(task: SpoutTask) -> Emits:
    return cast("Emits", task.own.pending)


class BlockingSpoutExecutor(SpoutExecutor):
    """Runs spout tasks on a thread."""

    def __init__(
        self, outbox: Outbox, absorb: Callable[[Handover], None], wake: Callable[[], None], turn_bytes: int
    ) -> None:
        """`outbox` is the thread's; `absorb` takes its emits into the loop; `wake` has the loop take a turn."""
        super().__init__([0], 0, turn_bytes)
        self.outbox = outbox
        self._absorb = absorb
        self._wake = wake
        self._changed = threading.Condition()
        """With the lock before what both sides touch."""
        self._woken = False
        self._calls: list[Callable[[], None]] = []
        """Made by the thread, between two calls of `next_tuple`; each is here until it has been made."""
        self._permits = 0
        """Emits that the loop still allows before its next turn."""
        self._asking = False
        """True while the thread is in `next_tuple`."""
        self._stopping = False
        self._crash: BaseException | None = None

    def give(self, task: SpoutTask) -> None:
        """Give a task to the thread, at set-up: the collector that its user has enters into `Emits`."""
        task.may_look, task.make_call, task.lock = False, partial(self._post, task), self._changed
        task.own.gathers = task.own.refuses_batches = True
        wrap(task.own, lambda _, emit: partial(self._emit_in_turn, task, emit), *_IN_TURN)

    def start(self) -> None:
        self._thread = TasksThread(self.tasks, self._thread_run, "close")
        self.end_errors = self._thread.errors
        self._thread.start()

    # ---- with the lock ----

    def _may_emit(self, task: SpoutTask) -> bool:
        return self._permits > 0 and self._room(task) > 0

    def _tell(self) -> None:
        """Wake the loop, unless it is about to look."""
        if not self._woken:
            self._woken = True
            self._wake()

    # ---- the loop ----

    def _post(self, task: SpoutTask, call: Callable[[], None]) -> None:
        """Have the thread call the task's object after its present call."""
        with self._changed:
            task.finished = False
            self._calls.append(call)
            self._changed.notify_all()

    def _allow(self, emits: int) -> None:
        """Allow this many emits until the next turn."""
        with self._changed:
            self._permits = emits
            if any(map(self._may_emit, self.tasks)):
                self._changed.notify_all()

    def set_active(self, active: bool) -> None:
        if not active:
            self._allow(0)
        super().set_active(active)

    def run(self, emits: int, may_send: bool = True) -> bool:
        """Take the emits of the thread, do all that is due, and let it emit up to `emits` more."""
        taken = self._take()
        worked = super().run(0, may_send) or taken
        if any(task.pending.stopped for task in self.tasks):
            emits = 0
        for task in self.tasks if emits else ():
            if task.active:
                idle = NOTHING if taken else RETRY if task.held_for_retry else INPUT
                task.waits_for = PENDING_LIMIT if self._room(task) <= 0 else idle
        self._allow(min(emits, self.tasks[0].fitting))
        return worked

    def _take(self) -> bool:
        """Take the emits of the thread; return True if there were any. Raises TaskCrashed if the thread has crashed."""
        taken = None
        with self._changed:
            self._woken = False
            crash = self._crash
            if self._has_emits:
                for task in self.tasks:
                    task.collector.emitted, task.collector.untracked = task.own.emitted, task.own.untracked
                    task.own.put_new()
                    _emits_of(task).enter()
                taken = Handover(self.outbox, [], None)
        if taken is not None:
            # Of all tasks that share the thread, together.
            batches = taken.here + taken.there
            rows = sum(len(batch.rows) for batch in batches)
            self.tasks[0].see_size(sum(batch.weigh() for batch in batches) // (rows or 1), self._turn_bytes)
            self.write_journal()
            self._absorb(taken)
        if crash is not None:
            raise crash
        return taken is not None

    @property
    def _has_emits(self) -> bool:
        return any(task.collector.emitted != task.own.emitted for task in self.tasks)

    @property
    def busy(self) -> bool:
        """True if emits wait to be taken, or may in a moment. A spout that sits in `next_tuple` is not busy, though
        answers wait for it: its emits have to wait for their turn."""
        with self._changed:
            return self._crash is not None or (bool(self._calls) and not self._asking) or self._has_emits

    def end(self) -> None:
        """Have the thread tell the remaining answers, close its tasks and end. `stop` waits for it."""
        with self._changed:
            self._stopping = True
            self._permits = 0
            self._changed.notify_all()

    def stop(self) -> bool:
        self.end()
        self._thread.join(_IN_CALL_JOIN_SECS)
        if not self._asking:
            self._thread.join(JOIN_SECS - _IN_CALL_JOIN_SECS)
        closed = self._thread.has_closed()
        with self._changed:
            self._calls.clear()  # or a spout that the loop's `close` wakes would be told of answers after it
        return closed

    # ---- the thread ----

    def _emit_in_turn(self, task: SpoutTask, emit: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Wait until the loop lets the task emit. Emits of a spout while it is told of an answer need no permit, as a
        replay must go out. Raises SpoutStopped. Thread: the spout's, whatever it calls from."""
        with self._changed:
            while self._asking and not self._may_emit(task):
                if self._stopping:
                    raise SpoutStopped
                self._changed.wait()
            emitted = emit(*arguments, **named)
            self._permits -= 1
            task.finished = False
            self._tell()
        # Without the lock: it is the user's code.
        untracked = _emits_of(task).untracked
        while untracked:
            task.outermost.ack(untracked.pop(0))
        return emitted

    def _thread_run(self) -> None:
        pause_secs = 0.0
        try:
            while (calls := self._thread_next(pause_secs)) is not None:
                worked = self._thread_make(calls) if calls else self._thread_ask()
                pause_secs = 0.0 if worked else min(max(2 * pause_secs, _PAUSE_MIN_SECS), _PAUSE_MAX_SECS)
        except SpoutStopped:
            pass
        except BaseException as error:
            # Also an error in the engine: the loop would wait for ever for a thread that just ended.
            with self._changed:
                self._asking = False
                self._crash = error
                self._tell()
            return
        self._thread.close_tasks()

    def _thread_next(self, pause_secs: float) -> list[Callable[[], None]] | None:
        """Return the calls to make before the thread asks again: if there are none, it may ask; if None, it must end.
        Waits while there are none and no room to emit, and up to `pause_secs` before."""
        with self._changed:
            if pause_secs:
                self._changed.wait_for(lambda: self._calls or self._stopping, pause_secs)
            self._changed.wait_for(lambda: self._calls or self._stopping or any(map(self._may_emit, self.tasks)))
            return None if self._stopping and not self._calls else self._calls[:]

    def _thread_make(self, calls: list[Callable[[], None]]) -> bool:
        for call in calls:
            call()
        for task in self.tasks:
            task.look()
        with self._changed:
            del self._calls[: len(calls)]
            self._tell()
        return True

    def _thread_ask(self) -> bool:
        """Ask each task for a tuple; return True if one emitted anything."""
        some = False
        for task in self.tasks:
            with self._changed:
                self._asking = asks = not (self._stopping or self._calls) and self._may_emit(task)
            if not asks:
                continue
            before = task.own.emitted
            task.call(task.asked, checked(task.ask, task.returned))
            task.look()
            emitted = task.own.emitted != before
            ended = not emitted and task.exhausted
            with self._changed:
                self._asking = False
                finished = ended and not (self._calls or task.own.pending_count)
                if finished != task.finished:
                    task.finished = finished
                    self._tell()
            some = some or emitted
        return some
