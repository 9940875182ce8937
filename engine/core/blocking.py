"""An executor with a thread of its own, for bolts that wait (on a database, a file, a service) in `execute`.

Guarantees: the bolt's tasks still see one call at a time, in order. Everything the thread touches (outbox, emitters,
collectors) is its own; it hands its output to the worker's loop as one `Handover` when a slice of a batch is done, so
that the tuple path needs no lock. Only `reset_timeout` does not wait for that: it is meant for a tuple that takes long.

Tuples wait in the inboxes of the tasks, as for any bolt, and the loop gives the thread a few slices at a time, so that
it need not wait for the loop. It gives none while a bolt that the thread feeds is full, or before it has taken in what
the thread made of the slices before.

The loop can see whether the thread makes progress (`at_hand`), and may give it up: a thread cannot be ended, so the
worker ends in its stead, and the tuple at hand is known.

Thread: one for each executor, and the worker's loop.
"""

from __future__ import annotations

import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from squall.engine.api.component import BatchBolt
from squall.engine.api.failure import HUNG
from squall.engine.api.stream import TICK_STREAM
from squall.engine.core.executor import BoltExecutor, BoltTask, TaskCrashed, TaskHung, call_for
from squall.engine.core.pace import CallCost
from squall.engine.flow.batch import Batch
from squall.engine.flow.bolt_collectors import BasicCollector, BatchCollector
from squall.engine.flow.outbox import Outbox

if TYPE_CHECKING:
    from squall.engine.core.spout_executor import SpoutTask

_AHEAD = 4
"""Slices that the thread has at a time: some 20 ms of work, longer than a turn of a busy loop."""
_CALL_NS = 50_000_000
"""Time that the rows of a batch bolt's call may take: nothing but their own acks waits for it."""
JOIN_SECS = 4.0
"""Longest wait for a bolt's thread at the end, so that `cleanup` does not run beside it; it dies with the process."""


class TasksThread(threading.Thread):
    """The thread of an executor. At an orderly end it closes the tasks, because some objects (of sqlite3, for one) may
    be used only by the thread that made them; if it sits in the user's code, the loop closes them meanwhile."""

    def __init__(self, tasks: Sequence[BoltTask | SpoutTask], run: Callable[[], None], method: str) -> None:
        """`method` closes a task."""
        first = tasks[0]
        super().__init__(target=run, name=f"{first.component}[{first.task}]", daemon=True)
        self.errors: list[TaskCrashed] = []
        """Raised at the orderly end of the tasks."""
        self._tasks, self._method = tasks, method
        self._closers = count()

    def close_tasks(self) -> None:
        """Close the tasks, unless the loop has been told that it shall. Called by the thread, when it ends."""
        for task in self._tasks if self._is_first() else ():
            try:
                call_for(task.component, task.task, self._method, getattr(task.user, self._method))
            except TaskCrashed as crash:
                self.errors.append(crash)

    def _is_first(self) -> bool:
        return next(self._closers) == 0

    def has_closed(self) -> bool:
        """Return False if the thread has not begun to close the tasks: it will not any more. Otherwise wait for it."""
        if self._is_first():
            return False
        self.join()
        return True


class Handover:
    """The output of the thread since the last handover."""

    __slots__ = ("acks", "crash", "done", "fails", "here", "there")

    def __init__(self, outbox: Outbox, done: list[Callable[[], None]], crash: TaskCrashed | None) -> None:
        self.here, self.there = outbox.take_here(), outbox.take_there()
        self.acks = outbox.take_acks()
        self.fails = outbox.take_fails()
        self.done = done
        self.crash = crash


class BlockingExecutor(BoltExecutor):
    """Executes on a thread. Thread: its own for names with an underscore, the worker's loop for the rest."""

    end_errors: list[TaskCrashed]
    """The errors of what the thread did at its orderly end."""

    def start(
        self, post: Callable[[Handover], None], post_resets: Callable[[Iterable[int]], None],
        new_edge: Callable[[], int], execute_timeout_secs: float | None,
    ) -> None:
        """`post` and `post_resets` (roots) pass output to the loop; any thread may call them. `new_edge`: see
        `Batch.split`."""
        self._post = post
        self._post_resets = post_resets
        self._new_edge = new_edge
        self._at_hand = [0]
        self.execute_timeout_secs = execute_timeout_secs
        """Longest that one tuple, or one batch, may be in `execute` without a `reset_timeout`; None = for ever."""
        self._thread = TasksThread(self.tasks, self._run, "cleanup")
        self.end_errors = self._thread.errors
        self._queue: SimpleQueue[tuple[BoltTask, Batch, Callable[[], None] | None] | None] = SimpleQueue()
        self._in_turn = deque(self.tasks)
        """The task that is given tuples first is another one each time."""
        self._under_way = 0
        """Tuples that the thread has, or whose output is not taken in."""
        self._ticks_given = self._ticks_ended = 0
        """Ticks that the thread was given, and those that it has ended and whose output it has handed over."""
        self._stopping = False
        self._calls = 0
        self._doing: tuple[BoltTask, Sequence[int]] | None = None
        """The task in whose `execute` the thread is, and the roots of the trees of its tuple."""
        self.outbox.pass_resets_to(self._reset)
        for task in self.tasks:
            if task.cost is not None:
                task.cost = CallCost(_CALL_NS, task.cost.set_rows)
        self._take_tasks()
        self._thread.start()

    def _take_tasks(self) -> None:
        """Prepare the tasks to be executed by the thread."""
        if self.execute_timeout_secs is not None:
            for task in self.tasks:
                task.noted = partial(self._noted, task)
                task.enter()

    def _noted(self, task: BoltTask, execute: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `execute` so that it notes the tuple at hand."""

        def noted(given: Any, *collector: BasicCollector | BatchCollector) -> Any:
            self._calls += 1
            self._doing = task, collector[0].trees() if collector else given._run.trees()
            value = execute(given, *collector)
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
        among = len(trees) if isinstance(task.user, BatchBolt) else 1
        outbox.fail_roots(trees, replace(self.failure(task, HUNG, hung.error_text), among=among))
        task.stats.errors += 1
        return hung

    def _at_hand_now(self) -> tuple[BoltTask, Sequence[int]] | None:
        """The task and the trees of the tuple in the present call. Thread: the worker's loop."""
        return self._doing

    def run(self) -> bool:
        """Give the thread as many tuples as it may have; whether there were any."""
        gave = False
        for task in self._in_turn:
            while task.inbox and (room := self.most_rows(task) - self._given) > 0:
                batch, done = task.inbox[0]
                if len(batch.rows) > room:
                    batch, done = batch.split(room, self._new_edge), None
                else:
                    batch, done = self._next(task)
                if batch.stream == TICK_STREAM:
                    self._ticks_given += 1
                else:
                    self._under_way += len(batch.rows)
                    self.acted = True
                self.put(task, batch, done)
                gave = True
        self._in_turn.rotate()
        return gave

    @property
    def _given(self) -> int:
        """Tuples and ticks that the thread has."""
        return self._under_way + self._ticks_given - self._ticks_ended

    def most_rows(self, task: BoltTask) -> int:
        """How many tuples the thread may have at a time. A batch bolt's wait for the end of its present call, as what
        has come by then goes into one."""
        if task.cost is not None:
            return 0 if self._given else task.slice_rows
        return _AHEAD * task.slice_rows

    def put(self, task: BoltTask, batch: Batch, done: Callable[[], None] | None) -> None:
        """Give the thread tuples."""
        self._queue.put((task, batch, done))

    def ended(self, rows: int, done: Callable[[], None] | None) -> None:
        """The output of tuples has been taken in."""
        self._under_way -= rows
        if done is not None:
            done()

    @property
    def busy(self) -> bool:
        """Whether the thread has tuples, or their output is not handed over yet. Ticks do not count: what they lead to
        does, once it is handed over."""
        return self._under_way > 0

    def _tick_ended(self) -> None:
        """Count a tick, once what it led to is handed over, and have the loop give more."""
        self._ticks_ended += 1
        self._around.wake()

    def stop(self) -> bool:
        """End the thread after its present slice; no spout waits for the tuples queued behind. Returns True if it has
        closed its tasks."""
        self._stopping = True
        self._queue.put(None)
        self._thread.join(timeout=JOIN_SECS)
        return self._thread.has_closed()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            task, batch, done = work
            rows, more, crash = len(batch.rows), True, None
            while more and not self._stopping:
                more = False
                try:
                    more = self.process(task, batch)
                except TaskCrashed as error:
                    crash = error
                except BaseException as error:
                    # An error in the engine: the loop would wait for ever for a thread that just ended.
                    crash = TaskCrashed(task.component, task.task, "execute", error)
                    crash.__cause__ = error
                self._doing = None
                if batch.stream != TICK_STREAM:
                    self._post(Handover(self.outbox, [] if more else [partial(self.ended, rows, done)], crash))
                    continue
                if self.outbox or crash is not None:
                    self._post(Handover(self.outbox, [], crash))
                self._tick_ended()
            if crash is not None:
                return
        self._thread.close_tasks()
