"""The end of a worker's tasks: each is closed, whatever the others raise.

Thread: the worker's loop, after its last turn; stops the threads that still execute.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from squall.engine.core.executor import TaskCrashed, call_for

if TYPE_CHECKING:
    from squall.engine.core.worker_core import WorkerCore


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
    for runner in core.blocking:
        runner.stop()
        if runner.end_error is not None:
            crashes.append(runner.end_error)
    for spout in core.spouts:
        spout.stop()
    for component, task, user in core.users():
        method = "close" if task in core.spout_tasks else "cleanup"
        collect(call_for, component, task, method, partial(methodcaller(method), user))
    for component, hooks in core.hooks:
        collect(call_for, component, hooks.task, "cleanup of a hook", hooks.close)
    return crashes
