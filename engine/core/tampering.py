"""Runs a function before a task's own code, to break tasks on purpose.

Guarantees: a task that is not tampered with, or no longer, runs as without this module. Ticks are not tampered with.
The function counts as the task's own code: its exceptions, its time, and the stack in which it hangs.

Thread: the worker's loop. A task with a thread of its own follows from its next batch on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.tuple import Tuple
from squall.engine.core.worker_core import WorkerCore

Before = Callable[[Tuple | None], None]
"""Called with the tuple that `execute` is about to get; None before `next_tuple`."""


def tamper(core: WorkerCore, task: int, before: Before | None) -> bool:
    """Call `before` before the code of a task from now on, or nothing if None. Whether it is a task of this worker."""
    bolt = core.bolt_tasks.get(task)
    if bolt is not None:
        genuine = bolt.genuine = bolt.genuine or bolt.execute
        execute = genuine if before is None else _execute(before, genuine)
        bolt.execute = execute if bolt.noted is None else bolt.noted(execute)
        # Its time per tuple is unknown from now on: one tuple first, not a whole frame.
        bolt.slice_rows = 1
        return True
    if task in core.spout_tasks:
        spout = core.spout_tasks[task][1]
        spout.asks = None if before is None else _next_tuple(before, spout.user)
        return True
    return False


def _execute(before: Before, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def execute(tup: Tuple, *collector: object) -> Any:
        if not tup.is_tick:
            before(tup)
        return genuine(tup, *collector)

    return execute


def _next_tuple(before: Before, spout: Any) -> Callable[[], Any]:
    def next_tuple() -> Any:
        before(None)
        return spout.next_tuple()

    return next_tuple
