"""Lets the hooks of a task see what it executes and is answered (`engine.core.emit_paths`: what it emits and acks), and
runs a function before a task's own code, to break it on purpose.

Guarantees: a task without hooks is not touched; one that is not tampered with, or no longer, runs as without this
module. Ticks are not tampered with. The function counts as the task's own code: its exceptions, its time, and the stack
in which it hangs.

Relies on: emits, acks and fails going through the collector at the moment they are made: a component that keeps
`collector.emit` itself (the method, not the collector) before its hooks are in place is not seen emitting by them.

Thread: the worker's loop. A task with a thread of its own is tampered with from its next batch on.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BatchSpout
from squall.engine.api.failure import Failure
from squall.engine.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    Hooks,
    SpoutAckInfo,
    SpoutFailInfo,
)
from squall.engine.api.tuple import Run, Tuple
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.bolt_collectors import BasicCollector, BatchCollector
from squall.engine.foreign.identity import key_of

Execute = Callable[..., None]


class _WatchedSpout(BatchSpout):
    """Stands before a spout to see its answers."""

    def __init__(self, spout: Any, hooks: Hooks, began_ns: dict[Any, int]) -> None:
        self._spout = spout
        self._hooks = hooks
        self._began_ns = began_ns

    def ack(self, message_id: Any) -> None:
        self._spout.ack(message_id)
        self._acked([message_id])

    def ack_batch(self, message_ids: list[Any]) -> None:
        self._spout.ack_batch(message_ids)
        self._acked(message_ids)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._fail(partial(self._spout.on_failure, message_id, failure), [message_id], [failure])

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        self._fail(partial(self._spout.fail_batch, message_ids, failures), message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._fail(partial(self._spout.on_dead_letter, message_id, failure), [message_id], [failure])

    def _acked(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            self._hooks.tell("spout_ack", SpoutAckInfo(self._hooks.task, message_id, self._latency_ms(message_id)))

    def _fail(self, tell: Callable[[], None], message_ids: list[Any], failures: list[Failure]) -> None:
        # Taken first: the spout may emit the messages again at once.
        latencies_ms = list(map(self._latency_ms, message_ids))
        tell()
        for message_id, failure, latency_ms in zip(message_ids, failures, latencies_ms, strict=True):
            self._hooks.tell("spout_fail", SpoutFailInfo(self._hooks.task, message_id, failure, latency_ms))

    def _latency_ms(self, message_id: Any) -> float | None:
        began_ns = self._began_ns.pop(key_of(message_id), None)
        return None if began_ns is None else (self._hooks.now_ns() - began_ns) / 1e6


def watch_answers(hooks: Hooks, task: SpoutTask) -> dict[Any, int]:
    """Have the hooks see the answers to a spout task from now on. Returns message's key -> time of its emit, which the
    emit path fills."""
    began_ns: dict[Any, int] = {}
    task.listener = _WatchedSpout(task.listener, hooks, began_ns)
    return began_ns


def watched_execute(hooks: Hooks, execute: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a bolt's `execute` so that the hooks see it. That of an AsyncBolt gives a coroutine on an event loop."""

    def watched(tup: Tuple, *collector: BasicCollector) -> Any:
        began_ns = hooks.now_ns()
        value = execute(tup, *collector)
        if inspect.isawaitable(value):
            return ended(value, tup, began_ns)
        tell(tup, began_ns)
        return value

    async def ended(value: Awaitable[Any], tup: Tuple, began_ns: int) -> Any:
        result = await value
        tell(tup, began_ns)
        return result

    def tell(tup: Tuple, began_ns: int) -> None:
        if not tup.is_tick:
            hooks.tell("bolt_execute", BoltExecuteInfo(hooks.task, tup, (hooks.now_ns() - began_ns) / 1e6))

    return watched


def watched_basic_execute(hooks: Hooks, execute: Execute) -> Execute:
    """Wrap a basic bolt's `execute`, which acks when it returns and fails when it raises."""
    executed = watched_execute(hooks, execute)

    def watched(tup: Tuple, *collector: BasicCollector) -> None:
        try:
            executed(tup, *collector)
        except BaseException:
            if not tup.is_tick:
                hooks.tell("bolt_fail", BoltFailInfo(hooks.task, tup))
            raise
        if not tup.is_tick:
            hooks.tell("bolt_ack", BoltAckInfo(hooks.task, tup))

    return watched


def watched_batch_execute(hooks: Hooks, execute: Execute) -> Execute:
    """Wrap a batch bolt's `execute_batch`: the hooks see each row, as a tuple of its own."""

    def watched(batch: ColumnBatch, collector: BatchCollector) -> None:
        began_ns = hooks.now_ns()
        tuples = [] if batch.is_tick else tuples_of(batch)
        failed: Any = ()
        try:
            execute(batch, collector)
        except BaseException:
            failed = range(len(tuples))
            raise
        else:
            failed = collector.failed
            latency_ms = (hooks.now_ns() - began_ns) / 1e6 / (len(tuples) or 1)
            for tup in tuples:
                hooks.tell("bolt_execute", BoltExecuteInfo(hooks.task, tup, latency_ms))
        finally:
            for row, tup in enumerate(tuples):
                if row in failed:
                    hooks.tell("bolt_fail", BoltFailInfo(hooks.task, tup))
                else:
                    hooks.tell("bolt_ack", BoltAckInfo(hooks.task, tup))

    return watched


def tuples_of(batch: ColumnBatch) -> list[Tuple]:
    """The rows of a batch as tuples, to be looked at only."""
    return [Tuple(row, batch._source, Run(0, 0, 1)) for row in batch.to_rows()]


Before = Callable[[Tuple | None], None]
"""Called with each tuple that `execute` or `execute_batch` is about to get; None before `next_tuple` or
`next_batch`."""


def tamper(core: WorkerCore, task: int, before: Before | None) -> None:
    """Call `before` before the code of a task of this worker from now on, or nothing if None."""
    bolt = core.bolt_tasks.get(task)
    if bolt is not None:
        genuine = bolt.genuine = bolt.genuine or bolt.execute
        execute = genuine if before is None else _execute(before, genuine)
        bolt.execute = execute if bolt.noted is None else bolt.noted(execute)
        # Its time per tuple is unknown from now on: one tuple first, not a whole frame.
        bolt.slice_rows = 1
    elif task in core.spout_tasks:
        spout = core.spout_tasks[task][1]
        asked = spout.user.next_batch if isinstance(spout.user, BatchSpout) else spout.user.next_tuple
        spout.asks = None if before is None else _asks(before, asked)


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
