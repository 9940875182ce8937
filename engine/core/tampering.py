"""Runs a function before a task's own code, to break tasks on purpose.

Guarantees: a task that is not tampered with, or no longer, runs as without this module. Ticks are not tampered with.
The function counts as the task's own code: its exceptions, its time, and the stack in which it hangs.

Thread: the worker's loop. A task with a thread of its own follows from its next batch on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.tuple import Tuple
from squall.engine.core.batch_spout import BatchSpoutTask
from squall.engine.core.watching import tuples_of
from squall.engine.core.worker_core import WorkerCore

Before = Callable[[Tuple | None], None]
"""Called with each tuple that `execute` or `execute_batch` is about to get; None before `next_tuple` or
`next_batch`."""


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
        asked = spout.user.next_batch if isinstance(spout, BatchSpoutTask) else spout.user.next_tuple
        spout.asks = None if before is None else _asks(before, asked)
        return True
    return False


def _execute(before: Before, genuine: Callable[..., Any]) -> Callable[..., Any]:
    def execute(tup: Tuple | ColumnBatch, *collector: object) -> Any:
        if not tup.is_tick:
            for one in tuples_of(tup) if isinstance(tup, ColumnBatch) else (tup,):
                before(one)
        return genuine(tup, *collector)

    return execute


def _asks(before: Before, asked: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*rows: int) -> Any:
        before(None)
        return asked(*rows)

    return ask
