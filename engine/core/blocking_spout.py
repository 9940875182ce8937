"""An executor with a thread of its own, for spouts that wait (for a queue, a socket, a service) in `next_tuple`.

Guarantees
    * The user's object still sees one call at a time: this one thread calls `next_tuple`, `ack`, `fail`, `on_failure`,
      `on_dead_letter`, `activate` and `deactivate`. So answers are told between two calls of `next_tuple`, however long
      one takes; the loop counts them at once.
    * Emits of the thread leave at once, not when `next_tuple` returns. Their trees are in the pending table, and in the
      task's journal if it has one, before any bolt sees them.
    * A topology comes to rest although its thread sits in `next_tuple`: while it is inactive, an emit waits inside
      `emit`. If the worker ends before the topology is active again, that tuple counts as not emitted.
    * A spout that has said that it is exhausted is not asked again before it is told of a failure: it may read a source
      that would let it wait for ever, and then neither hear of its acks nor end.

Only the loop touches open messages, ackers and limits; the shared state is behind `engine.core.spout_gate`.

Thread: one for each executor, and the worker's loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from squall.engine.core.blocking import JOIN_SECS, Handover
from squall.engine.core.spout_executor import (
    INPUT,
    NOTHING,
    PENDING_LIMIT,
    RETRY,
    SpoutExecutor,
    SpoutTask,
    exhausted,
    waiting_count,
)
from squall.engine.core.spout_gate import BlockingSpoutTask, Gate, Stopped
from squall.engine.flow.outbox import Outbox
from squall.engine.foreign.methods import checked
from squall.engine.tracking.instruction import Letter as DeadLetter

_IN_CALL_JOIN_SECS = 1.0
"""Longest wait for a spout that sits in `next_tuple` at the end: most do, and may for ever. `close` is then called
meanwhile, and can make it return by closing the source."""
_PAUSE_MIN_SECS, _PAUSE_MAX_SECS = 0.001, 0.03
"""Pause before a spout that emitted nothing is asked again: as in an idle worker (`IDLE_WAIT_MIN_MS`)."""


class BlockingSpoutExecutor(SpoutExecutor):
    """Runs spout tasks on a thread. Thread: its own for methods `_thread...`, the worker's loop for the rest."""

    def __init__(
        self, tasks: list[BlockingSpoutTask], gate: Gate, outbox: Outbox, name: str,
        absorb: Callable[[Handover], None], turn_bytes: int,
    ) -> None:
        """`outbox` is the thread's; `absorb` takes its emits into the loop."""
        super().__init__(list(tasks), turn_ns=None, turn_bytes=turn_bytes)
        self._bytes_a_turn = turn_bytes
        self.gate = gate
        gate.tasks = tasks
        self._outbox = outbox
        self._absorb = absorb
        self._thread = threading.Thread(target=self._thread_run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_active(self, active: bool) -> None:
        if not active:
            self.gate.allow(0)
        for task in self.gate.tasks:
            if task.active != active:
                task.active = active
                self.gate.post(task, task.user, "activate" if active else "deactivate")

    def run(self, emits: int, may_send: bool = True) -> bool:
        """Take the emits of the thread, do all that is due, and let it emit up to `emits` more."""
        taken = self._take()
        worked = super().run(0, may_send) or taken
        for task in self.gate.tasks if emits else ():
            if task.active:
                task.waits_for = self._waits_for(task, taken)
        self.gate.allow(min(emits, self.tasks[0].fitting))
        return worked

    @staticmethod
    def _waits_for(task: BlockingSpoutTask, taken: bool) -> int:
        if task.max_pending is not None and len(task.emits) >= task.max_pending:
            return PENDING_LIMIT
        return NOTHING if taken else RETRY if task.held_for_retry else INPUT

    def _take(self) -> bool:
        """Take the emits of the thread; whether there were any. Raises TaskCrashed if the thread has crashed."""
        gate = self.gate
        with gate:
            gate.looked()
            crash, taken = gate.crash, None
            if any(task.taken != task.own.emitted for task in gate.tasks):
                for task in gate.tasks:
                    task.take()
                taken = Handover(self._outbox, [], None)
        if taken is not None:
            # Of all tasks that share the thread, together.
            self.tasks[0].see_size(taken.bytes // (taken.rows or 1), self._bytes_a_turn)
            self.write_journal()
            self._absorb(taken)
        if crash is not None:
            task, doing, error = crash
            raise task.crashed(doing, error) from error
        return taken is not None

    @property
    def busy(self) -> bool:
        return self.gate.busy

    def give_back(self, task: SpoutTask, letter: DeadLetter) -> None:
        with self.gate:
            super().give_back(task, letter)

    def end(self) -> None:
        """Have the thread tell the remaining answers, and end. `stop` waits for it."""
        self.gate.stop()

    def stop(self) -> None:
        self.gate.stop()
        if self._thread.is_alive():
            self._thread.join(_IN_CALL_JOIN_SECS)
            if not self.gate.asking:
                self._thread.join(JOIN_SECS - _IN_CALL_JOIN_SECS)

    # ---- the thread ----

    def _thread_run(self) -> None:
        pause_secs = 0.0
        while (letters := self.gate.next_letters(pause_secs)) is not None:
            try:
                if letters:
                    pause_secs = 0.0
                    for task, on, method, arguments in letters:
                        if method == "activate":
                            task.ask_anew()
                        self._thread_call(task, method, getattr(on, method), arguments)
                    for task in self.gate.tasks:
                        self._thread_look(task)
                    self.gate.delivered()
                elif self._thread_ask():
                    pause_secs = 0.0
                else:
                    pause_secs = min(max(2 * pause_secs, _PAUSE_MIN_SECS), _PAUSE_MAX_SECS)
            except (_Crashed, Stopped):
                return

    def _thread_ask(self) -> bool:
        """Ask each task for a tuple; whether one emitted anything."""
        some = False
        for task in self.gate.tasks:
            if not self.gate.begin(task):
                continue
            before = task.own.emitted
            self._thread_call(task, "next_tuple", checked(task.ask, task.returned))
            self._thread_look(task)
            self.gate.end()
            if task.own.emitted != before:
                some = True
            else:
                self.gate.emitted_nothing(task, self._thread_call(task, "exhausted", exhausted, (task.user,)))
        return some

    def _thread_look(self, task: BlockingSpoutTask) -> None:
        """Note the spout's `waiting_count`: the loop may not read it while the spout is in a call."""
        task.waiting = self._thread_call(task, "waiting_count", waiting_count, (task.user,))

    def _thread_call(
        self, task: BlockingSpoutTask, doing: str, call: Callable[..., Any], arguments: tuple[Any, ...] = ()
    ) -> Any:
        try:
            return call(*arguments)
        except Stopped:
            raise
        except BaseException as error:
            # Also `sys.exit` in a spout: the loop would wait for ever for a thread that just ended.
            self.gate.crashed(task, doing, error)
            raise _Crashed from error


class _Crashed(Exception):
    """Ends the thread; the loop has been told why."""
