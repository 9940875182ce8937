"""Watches the tasks of a worker that do not come back: from `open`, `prepare`, `setup`, or in a thread of their own.

The supervisor watches the loop; the loop watches executors that have a thread: being in the same process, it knows the
tuple at hand, can fail exactly its trees and show where the thread is. Code that holds the interpreter's lock stops the
loop too; then the supervisor acts.

Guarantees
    * A task in `open`, `prepare` or `setup` is named on the status board while it is; one that is in `setup` for long,
      in the worker's log, once. A worker whose `open` or `prepare` does not end never becomes ready; its supervisor
      ends it, and reads on the board which task it was in.
    * Only time in which the loop turned counts, so a worker that was stopped and continued blames no tuple.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.core.worker_core import WorkerCore
from squall.scheduler.common.progress_watch import ProgressWatch

_LONG_SECS = 10.0
"""Time in `setup` after which the log tells."""


class _Task(NamedTuple):
    component: str
    task: int
    user: AsyncBolt | AsyncSpout


class Opening:
    """The task that a worker opens."""

    def __init__(
        self, publish: Callable[[int, int], None], now_ns: Callable[[], int], tell: Callable[[str], None]
    ) -> None:
        """`publish` takes the task, 0 = none, and since when; `tell` writes a line to the worker's log."""
        self._write = publish
        self._published = 0
        self._now_ns = now_ns
        self._tell = tell
        self._tasks: Sequence[_Task] = ()
        self._since_ns: dict[int, int] = {}
        """Tasks in `setup` -> when the first look found them there."""
        self._told: set[int] = set()

    def begin(self, task: int) -> None:
        """The loop calls `open` or `prepare` of this task."""
        self._publish(task, self._now_ns())

    def ended(self, core: WorkerCore) -> None:
        """All tasks are open, but those that go on with `setup` in a thread of their own."""
        self._publish(0, 0)
        tasks: list[Any] = [task for _, task in core.spout_tasks.values()]
        tasks += core.bolt_tasks.values()
        self._tasks = [
            _Task(task.component, task.task, task.user)
            for task in tasks if isinstance(task.user, AsyncBolt | AsyncSpout)
        ]

    def look(self) -> None:
        """Find tasks that are in `setup`. Cheap: called several times a second."""
        for component, task, user in self._tasks:
            coroutine = user._in_setup
            if coroutine is None:
                self._since_ns.pop(task, None)
                continue
            secs = (self._now_ns() - self._since_ns.setdefault(task, self._now_ns())) / 1e9
            if secs >= _LONG_SECS and task not in self._told:
                self._told.add(task)
                self._tell(f"{component}[{task}] is still in setup after {secs:.0f} s{_place(coroutine)}")
        longest = min(self._since_ns, key=self._since_ns.__getitem__, default=0)
        self._publish(longest, self._since_ns.get(longest, 0))

    def _publish(self, task: int, since_ns: int) -> None:
        if self._published != task:
            self._published = task
            self._write(task, since_ns)


def _place(coroutine: Any) -> str:
    """The line in which a coroutine waits."""
    frame = getattr(coroutine, "cr_frame", None)
    return "" if frame is None else f", in line {frame.f_lineno} of {frame.f_code.co_filename}"


LONGEST_GAP_SECS = 1.0
"""Longest time between two looks of a loop that is not stopped: an idle one looks five times a second."""


class ExecutorWatch:
    """Looks with every publication: two comparisons for each blocking executor that has a limit."""

    def __init__(self, core: WorkerCore) -> None:
        self._outbox = core.outbox
        self._runners = [
            (number, runner, runner.execute_timeout_secs)
            for number, runner in enumerate(core.blocking)
            if runner.execute_timeout_secs is not None
        ]
        self._progress = ProgressWatch(LONGEST_GAP_SECS)

    def look(self, now: float) -> None:
        """Raise TaskHung, after failing its trees, if a tuple takes longer than its component allows."""
        for number, runner, limit_secs in self._runners:
            at_hand = runner.at_hand
            if not at_hand:
                self._progress.forget(number)
                continue
            secs = self._progress.still_secs(number, at_hand, now)
            if secs > limit_secs:
                hung = runner.give_up(round(secs, 1), self._outbox)
                if hung is not None:
                    raise hung
