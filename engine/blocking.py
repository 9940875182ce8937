"""An executor with a thread of its own, for bolts that wait (on a database, a file, a service) in `execute`.

Guarantees: the bolt's tasks still see one call at a time, in order. Everything the thread touches (outbox, emitters,
collectors) is its own; what it produced is handed to the worker's loop as one `Handover` when a batch is done, or a
slice of one that takes long, so that no lock is needed on the tuple path.

Whoever turns the loop can see whether the thread is getting on (`at_hand`), and may give it up: a thread cannot be
ended, so the worker ends in its stead, and the tuple at hand is known.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue

from engine.batch import Batch
from engine.executor import BoltExecutor, BoltTask, TaskCrashed, TaskHung
from engine.failure import HUNG, Failure
from engine.outbox import Outbox
from engine.tuple import Run, Tuple

Work = tuple[BoltTask, Batch, Callable[[], None] | None]


_JOIN_SECS = 4.0
"""How long to wait for a bolt that waits. Its thread dies with the process; `cleanup` should not run beside it."""


class Handover:
    """What the thread produced since the last one."""

    __slots__ = ("acks", "crash", "done", "fails", "here", "resets", "there", "workers")

    def __init__(self, outbox: Outbox, done: list[Callable[[], None]], crash: TaskCrashed | None) -> None:
        self.here = [batch.take() for batch in outbox.opened_here]
        self.there = [batch.take() for batch in outbox.opened_there]
        outbox.opened_here, outbox.opened_there = [], []
        self.acks, outbox.acks = outbox.acks, {}
        self.workers, outbox.workers = outbox.workers, {}
        self.fails: dict[int, Failure]
        self.fails, outbox.fails = outbox.fails, {}
        self.resets, outbox.resets = outbox.resets, set()
        self.done = done
        self.crash = crash


class BlockingExecutor:
    """Runs a BoltExecutor on a thread. What begins with an underscore is the thread's, the rest is the loop's."""

    def __init__(
        self, executor: BoltExecutor, name: str, post: Callable[[Handover], None],
        execute_timeout_secs: float | None = None,
    ) -> None:
        self.executor = executor
        self._post = post
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._put = 0
        self._finished = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.execute_timeout_secs = execute_timeout_secs
        """How long one tuple may be in `execute`; None = for ever."""
        self._calls = 0
        self._doing: tuple[BoltTask, Run] | None = None

    def start(self) -> None:
        if self.execute_timeout_secs is not None:
            for task in self.executor.tasks:
                task.execute = self._noted(task, task.execute)
        self._thread.start()

    def _noted(self, task: BoltTask, execute: Callable[..., None]) -> Callable[..., None]:
        """`execute`, which says of each tuple that it is at hand."""

        def noted(tup: Tuple, *collector: object) -> None:
            self._calls += 1
            self._doing = task, tup._run
            try:
                execute(tup, *collector)
            finally:
                self._doing = None

        return noted

    @property
    def at_hand(self) -> int:
        """A number for the call of `execute` that the thread is in, another for each; 0 = it is in none."""
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

    @property
    def busy(self) -> bool:
        """Something was put that has not been handed over yet."""
        return self._put != self._finished

    def stop(self) -> None:
        """End the thread after the slice it is at; what is queued behind belongs to trees that nobody waits for."""
        self._stopping = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=_JOIN_SECS)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            if self._stopping:
                return
            task, batch, done = work
            more, crash = True, None
            while more:
                more = False
                try:
                    more = self.executor.process(task, batch)
                except TaskCrashed as error:
                    crash = error
                except BaseException as error:
                    # `sys.exit` in a bolt, or a fault of ours: the loop would wait for ever for a thread that just
                    # ended.
                    crash = TaskCrashed(task.component, task.task, "execute", error)
                    crash.__cause__ = error
                self._post(Handover(self.executor.outbox, [] if more or done is None else [done], crash))
                if self._stopping:
                    return
            self._finished += 1
            if crash is not None:
                return
