"""The end of a worker's tasks: each is closed, whatever the others raise.

Thread: the worker's loop, after its last turn; stops the threads that still execute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall.engine.core.executor import TaskCrashed

if TYPE_CHECKING:
    from squall.engine.core.worker_core import WorkerCore


def close_tasks(core: WorkerCore) -> list[TaskCrashed]:
    """Call `close` and `cleanup` of every task, after `deactivate` of active spouts; returns the errors they raised."""
    crashes = []
    for spout in core.spouts:
        try:
            spout.set_active(False)
        except TaskCrashed as crash:
            crashes.append(crash)
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
        try:
            getattr(user, method)()
        except BaseException as error:
            crashes.append(TaskCrashed(component, task, method, error))
    for component, hooks in core.hooks:
        try:
            hooks.close()
        except BaseException as error:
            crashes.append(TaskCrashed(component, hooks.task, "cleanup of a hook", error))
    return crashes
