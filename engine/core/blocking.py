"""An executor with a thread of its own, for bolts that wait (on a database, a file, a service) in `execute`.

Guarantees: the bolt's tasks still see one call at a time, in order. Everything the thread touches (outbox, emitters,
collectors) is its own; it hands its output to the worker's loop as one `Handover` when a batch is done, or a slice of a
long one, so that the tuple path needs no lock. Only `reset_timeout` does not wait for that: it is meant for a tuple
that takes long.

The thread waits before its next slice while a bolt that it feeds is full, or while the loop has not yet taken in its
earlier emits.

The loop can see whether the thread makes progress (`at_hand`), and may give it up: a thread cannot be ended, so the
worker ends in its stead, and the tuple at hand is known.

Thread: one for each executor, and the worker's loop.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from squall.engine.api.failure import HUNG
from squall.engine.api.tuple import Tuple
from squall.engine.core.executor import BoltExecutor, BoltTask, TaskCrashed, TaskHung
from squall.engine.flow.batch import Batch
from squall.engine.flow.collectors import BasicCollector
from squall.engine.flow.outbox import Outbox

Work = tuple[BoltTask, Batch, Callable[[], None] | None]


JOIN_SECS = 4.0
"""Longest wait for a bolt's thread at the end, so that `cleanup` does not run beside it; it dies with the process."""


class Handover:
    """The output of the thread since the last handover."""

    __slots__ = ("acks", "blocks", "bytes", "crash", "done", "fails", "here", "masks", "rows", "there")

    def __init__(self, outbox: Outbox, done: list[Callable[[], None]], crash: TaskCrashed | None) -> None:
        self.here, self.there = outbox.take_here(), outbox.take_there()
        self.bytes = sum(batch.weigh() for batch in self.here + self.there)
        self.rows = sum(len(batch.rows) for batch in self.here + self.there)
        self.acks, self.masks = outbox.take_acks()
        self.blocks = outbox.take_block_acks()
        self.fails = outbox.take_fails()
        self.done = done
        self.crash = crash


class BlockingExecutor:
    """Runs a BoltExecutor on a thread. Thread: its own for names with an underscore, the worker's loop for the rest."""

    def __init__(
        self, executor: BoltExecutor, name: str, post: Callable[[Handover], None],
        execute_timeout_secs: float | None = None, post_resets: Callable[[Iterable[int]], None] = lambda roots: None,
        most_bytes: int = 8 << 20,
    ) -> None:
        """`post` and `post_resets` (roots) pass output to the loop; any thread may call them. `most_bytes`: bytes of
        emits that the loop has not taken in, at which the thread waits."""
        self.executor = executor
        self._post = post
        self._post_resets = post_resets
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._put = 0
        self._finished = 0
        self._stopping = False
        self._most_bytes = most_bytes
        self._emitted_bytes = 0
        self._taken_bytes = 0
        self._held = 0
        self._may_go = threading.Event()
        """Set whenever the reason to wait may be gone."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.execute_timeout_secs = execute_timeout_secs
        """Longest that one tuple may be in `execute` without a `reset_timeout`; None = for ever."""
        self._calls = 0
        self._doing: tuple[BoltTask, Sequence[int]] | None = None
        """The task in whose `execute` the thread is, and the roots of the trees of its tuple."""
        self.end_error: TaskCrashed | None = None
        """The error of what the thread did at its orderly end."""

    def start(self) -> None:
        self.executor.outbox.pass_resets_to(self._reset)
        if self.execute_timeout_secs is not None:
            for task in self.executor.tasks:
                task.genuine, task.noted = task.execute, partial(self._noted, task)
                task.execute = task.noted(task.execute)
        self._thread.start()

    def _noted(self, task: BoltTask, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `execute` so that it notes the tuple at hand."""

        def noted(tup: Tuple, *collector: BasicCollector) -> Any:
            self._calls += 1
            self._doing = task, collector[0].trees() if collector else tup._run.trees()
            value = execute(tup, *collector)
            # A tuple that raises stays at hand until the next call or the end of the slice: asking its error for a text
            # calls users' code, which may hang as well.
            self._doing = None
            return value

        return noted

    def _reset(self, roots: Iterable[int]) -> None:
        """Pass on a reset of a timeout. It shows progress, so the thread does not count as hung either."""
        self._calls += 1
        self._post_resets(roots)

    @property
    def at_hand(self) -> int:
        """A number for the thread's present call: a new one for each `execute` and `reset_timeout`; 0 = in no call."""
        return self._calls if self._doing is not None else 0

    def give_up(self, secs: float, outbox: Outbox) -> TaskHung | None:
        """Give up a thread that has been in one call for `secs`: fail the trees of that tuple in `outbox`, the loop's.
        Returns the error for the worker to end by; None if the call has just returned."""
        doing = self._at_hand_now()
        frame = sys._current_frames().get(self._thread.ident or 0)
        if doing is None or frame is None or self.execute_timeout_secs is None:
            return None
        task, trees = doing
        stack = f"Thread {self._thread.name} (most recent call last):\n" + "".join(traceback.format_stack(frame))
        hung = TaskHung(task.component, task.task, secs, self.execute_timeout_secs, stack)
        outbox.fail_roots(trees, self.executor.failure(task, HUNG, hung.error_text))
        task.stats.errors += 1
        return hung

    def _at_hand_now(self) -> tuple[BoltTask, Sequence[int]] | None:
        """The task and the trees of the tuple in the present call. Thread: the worker's loop."""
        return self._doing

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        self._put += 1
        self._queue.put((task, batch, done))

    def hold(self, step: int) -> None:
        """Count one more full task that it can send to (1), or one fewer (-1)."""
        self._held += step
        self._may_go.set()

    def _took(self, size_bytes: int) -> None:
        """Count bytes of emits that the loop has taken in."""
        self._taken_bytes += size_bytes
        self._may_go.set()

    @property
    def must_wait(self) -> bool:
        """Whether the thread must wait for room before it emits."""
        return self._held > 0 or self._emitted_bytes - self._taken_bytes >= self._most_bytes

    at_once = 1
    """Tuples that may be in `execute` at a time."""

    @property
    def busy(self) -> bool:
        """Whether a batch was put and its output not handed over yet."""
        return self._put != self._finished

    def stop(self) -> None:
        """End the thread after its present slice; no spout waits for the tuples queued behind."""
        self._stopping = True
        self._may_go.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=JOIN_SECS)

    def _await_leave(self) -> None:
        """Wait while there is no room for more."""
        while self.must_wait and not self._stopping:
            self._may_go.clear()
            if self.must_wait and not self._stopping:  # read after the clear: later changes set the event
                self._may_go.wait()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            task, batch, done = work
            more, crash = True, None
            while more:
                self._await_leave()
                if self._stopping:
                    return
                more = False
                try:
                    more = self.executor.process(task, batch)
                except TaskCrashed as error:
                    crash = error
                except BaseException as error:
                    # An error in the engine: the loop would wait for ever for a thread that just ended.
                    crash = TaskCrashed(task.component, task.task, "execute", error)
                    crash.__cause__ = error
                self._doing = None
                handover = Handover(self.executor.outbox, [] if more or done is None else [done], crash)
                if handover.bytes:
                    self._emitted_bytes += handover.bytes
                    handover.done.append(partial(self._took, handover.bytes))
                self._post(handover)
            self._finished += 1
            if crash is not None:
                return
