"""The gate: the state that a worker's loop and the thread of a blocking spout share, behind one lock.

Guarantees
    * The thread emits only while the loop allows it: the topology is active, nothing downstream is congested, the task
      may have one more message open. An emit that comes too early waits inside `emit`.
    * Emits that the loop has not taken yet count as pending, so the topology is not drained or idle meanwhile.
    * The thread gets answers in the order in which they came, between two calls of `next_tuple`.

Thread: two, the spout's and the worker's loop; each method names its own. The loop never waits here for longer than the
engine's part of one emit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from squall.engine.api.component import Spout
from squall.engine.api.failure import Failure
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.flow.collectors import AddBlock, SpoutCollector
from squall.engine.tracking.open_messages import OpenMessages


class Stopped(BaseException):
    """Unwinds `next_tuple` if the worker ends while the spout waits in `emit`. Never leaves the thread."""


class Emits:
    """Stands for the open messages on the spout's thread; the loop enters what was emitted when it takes it."""

    def __init__(self, messages: OpenMessages) -> None:
        self.messages = messages
        self.attempts = messages.attempts
        self.now_ns = messages.now_ns
        self.spout = messages.spout
        """Told of answers, by the thread: the user's object, or a wrapper around it (see `engine.core.watching`)."""
        self.emitted: Sequence[Any] = ()
        """Message ids of the trees that are not entered yet."""
        self.held: list[tuple[Any, Any]] = []
        self.buried: list[tuple[Any, Any, Failure]] = []
        self.untracked: list[Any] = []
        """Message ids that are acked at once, because there are no ackers."""

    def __len__(self) -> int:
        return len(self.messages) + len(self.emitted) + len(self.held) + len(self.buried)

    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None:
        self.messages.add(root, message_id, values, xor, mask)

    @property
    def add_block(self) -> AddBlock | None:
        return self.messages.add_block

    def hold(self, message_id: Any, values: Any) -> None:
        self.held.append((message_id, values))

    def bury(self, message_id: Any, values: Any, failure: Failure) -> None:
        self.buried.append((message_id, values, failure))

    def answer_untracked(self, message_id: Any) -> None:
        self.untracked.append(message_id)

    def ack_untracked(self) -> None:
        """Tell the spout of messages that are acked at once. Thread: the spout's, without the lock."""
        while self.untracked:
            self.spout.ack(self.untracked.pop(0))

    def enter(self) -> None:
        """Enter what was held and given up. Thread: the worker's loop, with the lock."""
        for message in self.held:
            self.messages.hold(*message)
        for given_up in self.buried:
            self.messages.bury(*given_up)
        self.held.clear()
        self.buried.clear()


class Letter(NamedTuple):
    """A call that the thread is to make."""

    task: BlockingSpoutTask
    on: Spout
    method: str
    arguments: tuple[Any, ...]


class BlockingSpoutTask(SpoutTask):
    """One task. Its `collector` is the loop's, which emits held messages; `own` is the user's."""

    __slots__ = ("emits", "gate", "own", "taken", "taken_untracked", "waiting")

    gate: Gate
    own: SpoutCollector
    emits: Emits
    taken: int
    """Emits that the loop has taken."""
    taken_untracked: int
    """The emits without a tree."""
    waiting: int
    """The spout's `waiting_count`, as its thread read it last."""

    def join(self, gate: Gate, own: SpoutCollector, emits: Emits) -> None:
        """Connect the two sides, at set-up."""
        self.gate, self.own, self.emits, self.taken, self.taken_untracked, self.waiting = gate, own, emits, 0, 0, 0
        self.pending.spout = Answers(gate, self)
        emits.emitted = own.new_ids
        own.gathers = True

    def take(self) -> None:
        """Enter the emits. Thread: the worker's loop, with the lock."""
        self.taken, self.taken_untracked = self.own.emitted, self.own.untracked
        self.own.put_new()
        self.emits.enter()

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


class Gate:
    """Shared by the loop and one thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake()` has the loop take a turn."""
        self._wake = wake
        self._woken = False
        self.changed = threading.Condition()
        self.tasks: Sequence[BlockingSpoutTask] = ()
        self.letters: list[Letter] = []
        self.permits = 0
        """Emits that the loop still allows before its next turn."""
        self.asking = False
        """Whether the thread is in `next_tuple`."""
        self.delivering = False
        """Whether the thread is telling answers."""
        self.stopping = False
        self.crash: tuple[BlockingSpoutTask, str, BaseException] | None = None

    # ---- both ----

    def may_emit(self, task: BlockingSpoutTask) -> bool:
        """Whether the task may emit now. With the lock."""
        return self.permits > 0 and (task.max_pending is None or len(task.emits) < task.max_pending)

    # ---- the thread ----

    def next_letters(self, pause_secs: float) -> list[Letter] | None:
        """Take the calls to make before the thread asks again; if empty, it may ask; None: it must end. Waits while
        there are none and no room to emit, and up to `pause_secs` before."""
        with self.changed:
            if pause_secs:
                self.changed.wait_for(lambda: self.letters or self.stopping, pause_secs)
            self.changed.wait_for(lambda: self.letters or self.stopping or any(map(self.may_emit, self.tasks)))
            letters, self.letters = self.letters, []
            self.delivering = bool(letters)
            return None if self.stopping and not letters else letters

    def delivered(self) -> None:
        with self.changed:
            self.delivering = False
            self.tell()

    def begin(self, task: BlockingSpoutTask) -> bool:
        """Whether `next_tuple` may be called now."""
        with self.changed:
            self.asking = not (self.stopping or self.letters) and self.may_emit(task)
            return self.asking

    def end(self) -> None:
        with self.changed:
            self.asking = False

    def emitted_nothing(self, task: BlockingSpoutTask, exhausted: bool) -> None:
        """Note that the task was asked and emitted nothing."""
        with self.changed:
            finished = exhausted and not (self.letters or len(task.emits))
            if finished != task.finished:
                task.finished = finished
                self.tell()

    def crashed(self, task: BlockingSpoutTask, doing: str, error: BaseException) -> None:
        with self.changed:
            self.asking = self.delivering = False
            self.crash = task, doing, error
            self.tell()

    def __enter__(self) -> None:
        self.changed.acquire()

    def wait_for_turn(self, task: BlockingSpoutTask) -> None:
        """Wait until the task may emit. With the lock. Emits of a spout while it is told of an answer go out at once,
        as a replay must. Raises Stopped."""
        while self.asking and not self.may_emit(task):
            if self.stopping:
                raise Stopped
            self.changed.wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.changed.release()

    def emitted(self, task: BlockingSpoutTask) -> None:
        """Count an emit, and tell the loop. With the lock."""
        self.permits -= 1
        task.finished = False
        self.tell()

    def tell(self) -> None:
        """Wake the loop, unless it is about to look. With the lock."""
        if not self._woken:
            self._woken = True
            self._wake()

    # ---- the loop ----

    def looked(self) -> None:
        """Note that the loop takes all emits. With the lock."""
        self._woken = False

    def post(self, task: BlockingSpoutTask, on: Spout, method: str, *arguments: Any) -> None:
        """Have the thread call a method of the task's object, or of its wrapper, after its present call."""
        with self.changed:
            task.finished = False
            self.letters.append(Letter(task, on, method, arguments))
            self.changed.notify()

    def allow(self, emits: int) -> None:
        """Allow so many emits until the next turn."""
        with self.changed:
            self.permits = emits
            if any(map(self.may_emit, self.tasks)):
                self.changed.notify()

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.permits = 0
            self.changed.notify()

    @property
    def busy(self) -> bool:
        """Whether emits wait to be taken, or may in a moment. A spout that sits in `next_tuple` is not busy, though
        answers wait for it: its emits have to wait for their turn."""
        with self.changed:
            if self.crash or self.delivering or (self.letters and not self.asking):
                return True
            return any(task.taken != task.own.emitted for task in self.tasks)


class Answers(Spout):
    """Told of answers, has the thread tell the spout. Thread: the worker's loop."""

    def __init__(self, gate: Gate, task: BlockingSpoutTask) -> None:
        self._gate = gate
        self._task = task

    def ack(self, message_id: Any) -> None:
        self._gate.post(self._task, self._task.emits.spout, "ack", message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._gate.post(self._task, self._task.emits.spout, "on_failure", message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._gate.post(self._task, self._task.emits.spout, "on_dead_letter", message_id, failure)
