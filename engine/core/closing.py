"""The end of a worker's tasks: each is closed, whatever the others raise.

Guarantees: a task whose executor has a thread is closed on it, because some objects (of sqlite3, for one) may be used
only by the thread that made them. If that thread sits in the user's code, the loop closes the task meanwhile.

Thread: the worker's loop, after its last turn; stops the threads that still execute.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from squall.engine.core.executor import TaskCrashed, call_for

if TYPE_CHECKING:
    from squall.engine.core.blocking import BlockingExecutor
    from squall.engine.core.executor import BoltTask
    from squall.engine.core.spout_executor import SpoutExecutor, SpoutTask
    from squall.engine.core.worker_core import WorkerCore


class ThreadEnd:
    """Closes the tasks of an executor that has a thread, on that thread."""

    def __init__(self, tasks: Iterable[BoltTask | SpoutTask], method: str) -> None:
        self.errors: list[TaskCrashed] = []
        """Raised at the orderly end of the tasks."""
        self._tasks, self._method = tasks, method
        self._takers = count()

    def close(self) -> None:
        """Close the tasks, unless the loop has been told that it shall. Called by the thread, when it ends."""
        for task in self._tasks if self._take() else ():
            try:
                call_for(task.component, task.task, self._method, getattr(task.user, self._method))
            except TaskCrashed as crash:
                self.errors.append(crash)

    def _take(self) -> bool:
        return next(self._takers) == 0

    def await_closed(self, thread: threading.Thread) -> bool:
        """Return False if the thread has not begun to close the tasks: it will not any more. Otherwise wait for it."""
        if self._take():
            return False
        thread.join()
        return True


def close_tasks(core: WorkerCore) -> list[TaskCrashed]:
    """Call `close` and `cleanup` of every task, after `deactivate` of active spouts; returns the errors they raised."""
    crashes: list[TaskCrashed] = []

    def collect(call: Callable[..., object], *arguments: Any) -> None:
        try:
            call(*arguments)
        except TaskCrashed as crash:
            crashes.append(crash)

    for spout in core.spouts:
        collect(spout.set_active, False)
    for spout in core.spouts:
        spout.end()
    closed: set[int] = set()
    runners: list[BlockingExecutor | SpoutExecutor] = [*core.blocking, *core.spouts]
    for runner in runners:
        if runner.stop():
            closed.update(task.task for task in runner.tasks)
        crashes += runner.end_errors
    for component, task, user in core.users():
        if task in closed:
            continue
        method = "close" if task in core.spout_tasks else "cleanup"
        collect(call_for, component, task, method, partial(methodcaller(method), user))
    for component, hooks in core.hooks:
        collect(call_for, component, hooks.task, "cleanup of a hook", hooks.close)
    return crashes
