"""Has something happen before a task's own code is called, for a while: tasks are broken by this on purpose.

Guarantees: a task that nobody tampers with is as it is without this module, and so is one again that is let be. Ticks
are not tampered with. What happens before a tuple counts as the task's own doing: what it raises, the time it takes,
and the stack in which it hangs.

Relies on: being called by the worker's loop. A task with a thread of its own follows from its next batch on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.tuple import Tuple
from squall.engine.core.worker_core import WorkerCore

Before = Callable[[Tuple | None], None]
"""Is given the tuple that `execute` is about to get; None before `next_tuple`."""


def tamper(core: WorkerCore, task: int, before: Before | None) -> bool:
    """Have `before` called before the code of a task, or nothing any more. Whether it is a task of this worker."""
    bolt = core.bolt_tasks.get(task)
    if bolt is not None:
        genuine = bolt.genuine = bolt.genuine or bolt.execute
        execute = genuine if before is None else _execute(before, genuine)
        bolt.execute = execute if bolt.noted is None else bolt.noted(execute)
        # Nobody knows how long it takes from now on: one tuple first, not a whole frame.
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
