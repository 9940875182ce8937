"""An executor with a thread of its own, for spouts that wait (for a queue, a socket, a service) in `next_tuple`.

Guarantees
    * The user's object still sees one call at a time: this one thread calls `next_tuple`, `ack`, `fail`, `on_failure`,
      `on_dead_letter`, `activate` and `deactivate`, in the order in which the loop asked for them, and `close` at the
      end (see `engine.core.closing`). So answers are told between two calls of `next_tuple`, however long one takes;
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
    * Only the loop touches open messages, ackers and limits. Entering a tuple without a tree would enter the trees
      before it, so such an emit waits until the loop has taken those.

What both sides touch is behind one lock; the loop never waits for it longer than the engine's part of one emit.

Thread: one for each executor, and the worker's loop. Methods `_thread...` are the thread's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from squall.engine.api.component import Spout
from squall.engine.api.failure import Failure
from squall.engine.core.blocking import JOIN_SECS, Handover
from squall.engine.core.closing import ThreadEnd
from squall.engine.core.emit_paths import wrap
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
from squall.engine.flow.outbox import Outbox
from squall.engine.flow.spout_collector import AddBlock, SpoutCollector
from squall.engine.foreign.methods import checked
from squall.engine.tracking.fate import Letter
from squall.engine.tracking.open_messages import OpenMessages

_IN_CALL_JOIN_SECS = 1.0
"""Longest wait for a spout that sits in `next_tuple` at the end: most do, and may for ever. `close` is then called
meanwhile, and can make it return by closing the source."""
_IN_TURN = ("emit", "emit_direct", "give_up")
"""Methods of a collector that wait for their turn."""
_PAUSE_MIN_SECS, _PAUSE_MAX_SECS = 0.001, 0.03
"""Pause before a spout that emitted nothing is asked again: as in an idle worker (`IDLE_WAIT_MIN_MS`)."""


class SpoutStopped(BaseException):
    """Unwinds the thread, and `next_tuple` if the worker ends while the spout waits in `emit`. Never leaves it."""


class Emits:
    """Stands for the open messages on the spout's thread; the loop enters what was emitted when it takes it."""

    def __init__(self, messages: OpenMessages) -> None:
        self.messages = messages
        self.attempts = messages.attempts
        self.now_ns = messages.now_ns
        self.spout = messages.spout
        """Told of answers, by the thread: the user's object, or a wrapper around it (see `engine.core.hook_calls`)."""
        self.set_aside: list[Callable[[], None]] = []
        """Enters the messages that were emitted or given up and have no tree."""
        self.untracked: list[Any] = []
        """Message ids that are acked at once, because there are no ackers."""

    def __len__(self) -> int:
        return len(self.messages) + len(self.set_aside)

    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None:
        self.messages.add(root, message_id, values, xor, mask)

    @property
    def add_block(self) -> AddBlock | None:
        return self.messages.add_block

    def hold(self, message_id: Any, values: Any) -> None:
        self.set_aside.append(partial(self.messages.hold, message_id, values))

    def bury(self, message_id: Any, values: Any, failure: Failure) -> None:
        self.set_aside.append(partial(self.messages.bury, message_id, values, failure))

    def answer_untracked(self, message_id: Any) -> None:
        self.untracked.append(message_id)


class BlockingSpoutTask(SpoutTask):
    """One task. Its `collector` is the loop's, which emits held messages; `own` is the user's."""

    __slots__ = ("emits", "own", "taken", "taken_untracked", "waiting")

    own: SpoutCollector
    emits: Emits
    taken: int
    """Emits that the loop has taken."""
    taken_untracked: int
    """The emits without a tree."""
    waiting: int
    """The spout's `waiting_count`, as its thread read it last."""

    def take(self) -> None:
        """Enter the emits. Thread: the worker's loop, with the lock."""
        emits = self.emits
        self.taken, self.taken_untracked = self.own.emitted, self.own.untracked
        self.own.put_new()
        for enter in emits.set_aside:
            enter()
        emits.set_aside.clear()

    @property
    def held_for_retry(self) -> int:
        return self.waiting

    @property
    def own_emits(self) -> int:
        return self.own.emitted

    @property
    def emitted(self) -> int:
        return self.collector.emitted + self.taken

    @property
    def untracked(self) -> int:
        return self.collector.untracked + self.taken_untracked


class _Answers(Spout):
    """Told of answers, has the thread tell the spout. Thread: the worker's loop."""

    def __init__(self, executor: BlockingSpoutExecutor, task: BlockingSpoutTask) -> None:
        self._post = partial(executor.post, task)
        self._emits = task.emits

    def ack(self, message_id: Any) -> None:
        self._post("ack", self._emits.spout.ack, message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._post("on_failure", self._emits.spout.on_failure, message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._post("on_dead_letter", self._emits.spout.on_dead_letter, message_id, failure)


class BlockingSpoutExecutor(SpoutExecutor):
    """Runs spout tasks on a thread."""

    tasks: list[BlockingSpoutTask]  # type: ignore[assignment]

    def __init__(
        self, outbox: Outbox, name: str, absorb: Callable[[Handover], None], wake: Callable[[], None], turn_bytes: int
    ) -> None:
        """`outbox` is the thread's; `absorb` takes its emits into the loop; `wake` has the loop take a turn."""
        super().__init__([], turn_ns=None, turn_bytes=turn_bytes)
        self._bytes_a_turn = turn_bytes
        self.outbox = outbox
        self._absorb = absorb
        self._wake = wake
        self._thread = threading.Thread(target=self._thread_run, name=name, daemon=True)
        self._thread_end = ThreadEnd(self.tasks, "close")
        self.end_errors = self._thread_end.errors
        self._changed = threading.Condition()
        """With the lock before what both sides touch."""
        self._woken = False
        self._calls: list[tuple[BlockingSpoutTask, str, Callable[[], object]]] = []
        """What the thread is to call, between two calls of `next_tuple`."""
        self._permits = 0
        """Emits that the loop still allows before its next turn."""
        self._asking = False
        """True while the thread is in `next_tuple`."""
        self._delivering = False
        """True while the thread is telling answers."""
        self._stopping = False
        self._crash: tuple[BlockingSpoutTask, str, BaseException] | None = None

    def add(self, task: BlockingSpoutTask, own: SpoutCollector, emits: Emits) -> None:
        """Add a task, at set-up: `own` is the collector that its user has."""
        task.own, task.emits, task.taken, task.taken_untracked, task.waiting = own, emits, 0, 0, 0
        task.pending.spout = _Answers(self, task)
        own.gathers = own.refuses_batches = True
        wrap(own, lambda name, emit: partial(self._emit_in_turn, task, name, emit), *_IN_TURN)
        self.tasks.append(task)

    def start(self) -> None:
        self._thread.start()

    # ---- with the lock ----

    def _may_emit(self, task: BlockingSpoutTask) -> bool:
        return self._permits > 0 and (task.max_pending is None or task.own.pending_count < task.max_pending)

    def _must_wait(self, task: BlockingSpoutTask, tracked: bool) -> bool:
        """Return True if an emit must wait for the loop: until it allows more, or has taken the trees before a tuple
        without one. Before the thread starts and when the worker ends, the loop enters nothing meanwhile."""
        if self._asking and not self._may_emit(task):
            return True
        return not tracked and bool(task.own.new_ids) and self._thread.is_alive() and not self._stopping

    def _tell(self) -> None:
        """Wake the loop, unless it is about to look."""
        if not self._woken:
            self._woken = True
            self._wake()

    # ---- the loop ----

    def post(self, task: BlockingSpoutTask, doing: str, call: Callable[..., object], *arguments: Any) -> None:
        """Have the thread call a method of the task's object, or of its wrapper, after its present call."""
        with self._changed:
            task.finished = False
            self._calls.append((task, doing, partial(call, *arguments)))
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
        for task in self.tasks:
            if task.active != active:
                task.active = active
                doing = "activate" if active else "deactivate"
                self.post(task, doing, getattr(task.user, doing))

    def run(self, emits: int, may_send: bool = True) -> bool:
        """Take the emits of the thread, do all that is due, and let it emit up to `emits` more."""
        taken = self._take()
        worked = super().run(0, may_send) or taken
        if any(task.pending.stopped for task in self.tasks):
            emits = 0
        for task in self.tasks if emits else ():
            if task.active:
                task.waits_for = self._waits_for(task, taken)
        self._allow(min(emits, self.tasks[0].fitting))
        return worked

    @staticmethod
    def _waits_for(task: BlockingSpoutTask, taken: bool) -> int:
        if task.max_pending is not None and task.own.pending_count >= task.max_pending:
            return PENDING_LIMIT
        return NOTHING if taken else RETRY if task.held_for_retry else INPUT

    def _take(self) -> bool:
        """Take the emits of the thread; return True if there were any. Raises TaskCrashed if the thread has crashed."""
        with self._changed:
            self._woken = False
            crash, taken = self._crash, None
            if any(task.taken != task.own.emitted for task in self.tasks):
                for task in self.tasks:
                    task.take()
                self._changed.notify_all()
                taken = Handover(self.outbox, [], None)
        if taken is not None:
            # Of all tasks that share the thread, together.
            batches = taken.here + taken.there
            rows = sum(len(batch.rows) for batch in batches)
            self.tasks[0].see_size(sum(batch.weigh() for batch in batches) // (rows or 1), self._bytes_a_turn)
            self.write_journal()
            self._absorb(taken)
        if crash is not None:
            task, doing, error = crash
            raise task.crashed(doing, error) from error
        return taken is not None

    @property
    def busy(self) -> bool:
        """True if emits wait to be taken, or may in a moment. A spout that sits in `next_tuple` is not busy, though
        answers wait for it: its emits have to wait for their turn."""
        with self._changed:
            if self._crash or self._delivering or (self._calls and not self._asking):
                return True
            return any(task.taken != task.own.emitted for task in self.tasks)

    def give_back(self, task: SpoutTask, letter: Letter) -> None:
        with self._changed:
            super().give_back(task, letter)

    def end(self) -> None:
        """Have the thread tell the remaining answers, close its tasks and end. `stop` waits for it."""
        with self._changed:
            self._stopping = True
            self._permits = 0
            self._changed.notify_all()

    def stop(self) -> bool:
        self.end()
        if self._thread.is_alive():
            self._thread.join(_IN_CALL_JOIN_SECS)
            if not self._asking:
                self._thread.join(JOIN_SECS - _IN_CALL_JOIN_SECS)
        closed = self._thread_end.await_closed(self._thread)
        with self._changed:
            self._calls.clear()  # or a spout that the loop's `close` wakes would be told of answers after it
        return closed

    # ---- the thread ----

    def _emit_in_turn(
        self, task: BlockingSpoutTask, name: str, emit: Callable[..., Any], *arguments: Any, **named: Any
    ) -> Any:
        """Wait until the loop lets the task emit. Emits of a spout while it is told of an answer need no permit, as a
        replay must go out. Raises SpoutStopped. Thread: the spout's, whatever it calls from."""
        tracked = name == "give_up" or named.get("message_id") is not None
        with self._changed:
            while self._must_wait(task, tracked):
                if self._stopping:
                    raise SpoutStopped
                self._changed.wait()
            emitted = emit(*arguments, **named)
            self._permits -= 1
            task.finished = False
            self._tell()
        # Without the lock: it is the user's code.
        while task.emits.untracked:
            task.emits.spout.ack(task.emits.untracked.pop(0))
        return emitted

    def _thread_run(self) -> None:
        pause_secs = 0.0
        try:
            while (calls := self._thread_next(pause_secs)) is not None:
                if calls:
                    pause_secs = 0.0
                    self._thread_deliver(calls)
                elif self._thread_ask():
                    pause_secs = 0.0
                else:
                    pause_secs = min(max(2 * pause_secs, _PAUSE_MIN_SECS), _PAUSE_MAX_SECS)
        except SpoutStopped:
            if self._crash is not None:
                return
        self._thread_end.close()

    def _thread_next(self, pause_secs: float) -> list[tuple[BlockingSpoutTask, str, Callable[[], object]]] | None:
        """Take the calls to make before the thread asks again; if empty, it may ask; None: it must end. Waits while
        there are none and no room to emit, and up to `pause_secs` before."""
        with self._changed:
            if pause_secs:
                self._changed.wait_for(lambda: self._calls or self._stopping, pause_secs)
            self._changed.wait_for(lambda: self._calls or self._stopping or any(map(self._may_emit, self.tasks)))
            calls, self._calls = self._calls, []
            self._delivering = bool(calls)
            return None if self._stopping and not calls else calls

    def _thread_deliver(self, calls: list[tuple[BlockingSpoutTask, str, Callable[[], object]]]) -> None:
        for task, doing, call in calls:
            if doing == "activate":
                task.ask_anew()
            self._thread_call(task, doing, call)
        for task in self.tasks:
            self._thread_look(task)
        with self._changed:
            self._delivering = False
            self._tell()

    def _thread_ask(self) -> bool:
        """Ask each task for a tuple; return True if one emitted anything."""
        some = False
        for task in self.tasks:
            with self._changed:
                self._asking = asks = not (self._stopping or self._calls) and self._may_emit(task)
            if not asks:
                continue
            before = task.own.emitted
            self._thread_call(task, "next_tuple", checked(task.ask, task.returned))
            self._thread_look(task)
            with self._changed:
                self._asking = False
            if task.own.emitted != before:
                some = True
                continue
            says_so = self._thread_call(task, "exhausted", partial(exhausted, task.user))
            with self._changed:
                finished = says_so and not (self._calls or task.own.pending_count)
                if finished != task.finished:
                    task.finished = finished
                    self._tell()
        return some

    def _thread_look(self, task: BlockingSpoutTask) -> None:
        """Note the spout's `waiting_count`: the loop may not read it while the spout is in a call."""
        task.waiting = self._thread_call(task, "waiting_count", partial(waiting_count, task.user))

    def _thread_call(self, task: BlockingSpoutTask, doing: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except SpoutStopped:
            raise
        except BaseException as error:
            # Also `sys.exit` in a spout: the loop would wait for ever for a thread that just ended.
            with self._changed:
                self._asking = self._delivering = False
                self._crash = task, doing, error
                self._tell()
            raise SpoutStopped from error
