"""Watches the tasks of a worker that do not come back: from `open`, `prepare`, `setup`, or in a thread of their own.

The supervisor watches the loop; the loop watches executors that have a thread: being in the same process, it knows the
tuple at hand, can fail exactly its trees and show where the thread is. Code that holds the interpreter's lock stops the
loop too; then the supervisor acts.

Guarantees
    * A task in `open`, `prepare` or `setup` is named on the status board while it is. A worker whose `open` or
      `prepare` does not end never becomes ready; its supervisor ends it, and reads on the board which task it was in.
    * Only time in which the loop turned counts, so a worker that was stopped and continued blames no tuple.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.core.worker_core import WorkerCore
from squall.scheduler.common.standstill import ProgressWatch


class Opening:
    """The task that a worker opens."""

    def __init__(self, publish: Callable[[int, int], None], now_ns: Callable[[], int]) -> None:
        """`publish` takes the task, 0 = none, and since when."""
        self._write = publish
        self._published = 0
        self._now_ns = now_ns
        self._tasks: dict[int, AsyncBolt | AsyncSpout] = {}
        self._since_ns: dict[int, int] = {}
        """Tasks in `setup` -> when the first look found them there."""

    def begin(self, task: int) -> None:
        """The loop calls `open` or `prepare` of this task."""
        self._publish(task, self._now_ns())

    def ended(self, core: WorkerCore) -> None:
        """All tasks are open, but those that go on with `setup` in a thread of their own."""
        self._publish(0, 0)
        self._tasks = {task: user for _, task, user in core.users() if isinstance(user, AsyncBolt | AsyncSpout)}

    def look(self) -> None:
        """Find tasks that are in `setup`. Cheap: called several times a second."""
        for task, user in self._tasks.items():
            if user._in_setup is None:
                self._since_ns.pop(task, None)
            else:
                self._since_ns.setdefault(task, self._now_ns())
        longest = min(self._since_ns, key=self._since_ns.__getitem__, default=0)
        self._publish(longest, self._since_ns.get(longest, 0))

    def _publish(self, task: int, since_ns: int) -> None:
        if self._published != task:
            self._published = task
            self._write(task, since_ns)


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
