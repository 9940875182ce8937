"""Publishes which task of a worker is being opened, and tells the operator of a `setup` that does not end.

Guarantees: a task in `open`, `prepare` or `setup` is named on the status board while it is; one that is in `setup` for
long, in the worker's log, once. A worker whose `open` or `prepare` does not end never becomes ready; its supervisor
ends it, and reads here which task it was in.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from squall.engine.api.async_component import AsyncBolt, AsyncSpout
from squall.engine.core.worker_core import WorkerCore

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
