"""An executor with a thread of its own, for bolts that wait (on a database, a file, a service) in `execute`.

Guarantees: the bolt's tasks still see one call at a time, in order. Everything the thread touches (outbox, emitters,
collectors) is its own; what it produced is handed to the worker's loop as one `Handover` when a batch is done, or a
slice of one that takes long, so that no lock is needed on the tuple path. Only `reset_timeout` does not wait for that:
it is for the tuple that takes long.

A thread waits before its next slice while a bolt that it feeds is full, or while the loop has not yet taken in what it
emitted before.

Whoever turns the loop can see whether the thread is getting on (`at_hand`), and may give it up: a thread cannot be
ended, so the worker ends in its stead, and the tuple at hand is known.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Any

from squall.engine.api.failure import HUNG
from squall.engine.api.tuple import Run, Tuple
from squall.engine.core.executor import BoltExecutor, BoltTask, TaskCrashed, TaskHung
from squall.engine.flow.batch import Batch
from squall.engine.flow.outbox import Outbox

Work = tuple[BoltTask, Batch, Callable[[], None] | None]


JOIN_SECS = 4.0
"""How long to wait for a bolt that waits. Its thread dies with the process; `cleanup` should not run beside it."""


class Handover:
    """What the thread produced since the last one."""

    __slots__ = ("acks", "bytes", "crash", "done", "fails", "here", "masks", "rows", "there")

    def __init__(self, outbox: Outbox, done: list[Callable[[], None]], crash: TaskCrashed | None) -> None:
        self.here, self.there = outbox.take_here(), outbox.take_there()
        self.bytes = sum(batch.weigh() for batch in self.here + self.there)
        self.rows = sum(len(batch.rows) for batch in self.here + self.there)
        self.acks, self.masks = outbox.take_acks()
        self.fails = outbox.take_fails()
        self.done = done
        self.crash = crash


class BlockingExecutor:
    """Runs a BoltExecutor on a thread. What begins with an underscore is the thread's, the rest is the loop's."""

    def __init__(
        self, executor: BoltExecutor, name: str, post: Callable[[Handover], None],
        execute_timeout_secs: float | None = None, post_resets: Callable[[Iterable[int]], None] = lambda roots: None,
        most_bytes: int = 8 << 20,
    ) -> None:
        """`post` and `post_resets` (roots) bring something to the loop; both may be called by any thread.
        `most_bytes`: so much it may have emitted that the loop has not taken in, before the thread waits."""
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
        """Set whenever it may be that the thread need not wait any more."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.execute_timeout_secs = execute_timeout_secs
        """How long one tuple may be in `execute` without a `reset_timeout`; None = for ever."""
        self._calls = 0
        self._doing: tuple[BoltTask, Run] | None = None

    def start(self) -> None:
        self.executor.outbox.pass_resets_to(self._reset)
        if self.execute_timeout_secs is not None:
            for task in self.executor.tasks:
                task.genuine, task.noted = task.execute, partial(self._noted, task)
                task.execute = task.noted(task.execute)
        self._thread.start()

    def _noted(self, task: BoltTask, execute: Callable[..., Any]) -> Callable[..., Any]:
        """`execute`, which says of each tuple that it is at hand."""

        def noted(tup: Tuple, *collector: object) -> Any:
            self._calls += 1
            self._doing = task, tup._run
            value = execute(tup, *collector)
            # What raises is at hand for longer, until the next call or the end of the slice: to ask an error for its
            # text is to call users' code, which may hang as well.
            self._doing = None
            return value

        return noted

    def _reset(self, roots: Iterable[int]) -> None:
        """The bolt has reset a timeout. It says that it is getting on: it is not to be taken for hung either."""
        self._calls += 1
        self._post_resets(roots)

    @property
    def at_hand(self) -> int:
        """A number for what the thread is at: another for each call of `execute`, and after each `reset_timeout`; 0 =
        it is in none."""
        return self._calls if self._doing is not None else 0

    def give_up(self, secs: float, outbox: Outbox) -> TaskHung | None:
        """The thread is in one call for so long: fail the trees of that tuple in `outbox`, the loop's; what the worker
        is to end by. None if the call has just come back."""
        doing = self._doing
        frame = sys._current_frames().get(self._thread.ident or 0)
        if doing is None or frame is None or self.execute_timeout_secs is None:
            return None
        task, run = doing
        stack = f"Thread {self._thread.name} (most recent call last):\n" + "".join(traceback.format_stack(frame))
        hung = TaskHung(task.component, task.task, secs, self.execute_timeout_secs, stack)
        outbox.fail_run(run, self.executor.failure(task, HUNG, hung.error_text))
        task.stats.errors += 1
        return hung

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        self._put += 1
        self._queue.put((task, batch, done))

    def hold(self, step: int) -> None:
        """One more of the tasks it can send to is full (1), or one fewer (-1)."""
        self._held += step
        self._may_go.set()

    def _took(self, size_bytes: int) -> None:
        """The loop has taken in so much of what the thread emitted."""
        self._taken_bytes += size_bytes
        self._may_go.set()

    @property
    def must_wait(self) -> bool:
        """Whether the thread emits nothing until there is room."""
        return self._held > 0 or self._emitted_bytes - self._taken_bytes >= self._most_bytes

    @property
    def busy(self) -> bool:
        """Something was put that has not been handed over yet."""
        return self._put != self._finished

    def stop(self) -> None:
        """End the thread after the slice it is at; what is queued behind belongs to trees that nobody waits for."""
        self._stopping = True
        self._may_go.set()
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=JOIN_SECS)

    def _await_leave(self) -> None:
        """Wait while there is no room for more."""
        while self.must_wait and not self._stopping:
            self._may_go.clear()
            if self.must_wait and not self._stopping:  # as it is now: what changes from here on sets it
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
                    # A fault of ours: the loop would wait for ever for a thread that just ended.
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
