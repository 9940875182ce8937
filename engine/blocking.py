"""An executor with a thread of its own, for bolts that wait (on a database, a file, a service) in `execute`.

Guarantees: the bolt's tasks still see one call at a time, in order. Everything the thread touches (outbox, emitters,
collectors) is its own; what it produced is handed to the worker's loop as one `Handover` when its queue is empty or the
batch is done, so that no lock is needed on the tuple path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from engine.batch import Batch
from engine.executor import BoltExecutor, BoltTask, TaskCrashed
from engine.failure import Failure
from engine.outbox import Outbox

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
    """Runs a BoltExecutor on a thread. `put` and `stop` are the loop's, the rest is the thread's."""

    def __init__(self, executor: BoltExecutor, name: str, post: Callable[[Handover], None]) -> None:
        self.executor = executor
        self._post = post
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._put = 0
        self._finished = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        self._put += 1
        self._queue.put((task, batch, done))

    @property
    def busy(self) -> bool:
        """Something was put that has not been handed over yet."""
        return self._put != self._finished

    def stop(self) -> None:
        """End the thread after the batch it is at; what is queued behind belongs to trees that nobody waits for."""
        self._stopping = True
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout=_JOIN_SECS)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            if self._stopping:
                return
            task, batch, done = work
            crash = None
            try:
                self.executor.process(task, batch)
            except TaskCrashed as error:
                crash = error
            except BaseException as error:
                # `sys.exit` in a bolt, or a fault of ours: the loop would wait for ever for a thread that just ended.
                crash = TaskCrashed(task.component, task.task, "execute", error)
                crash.__cause__ = error
            self._post(Handover(self.executor.outbox, [done] if done is not None else [], crash))
            self._finished += 1
            if crash is not None:
                return
