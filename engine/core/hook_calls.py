"""What the engine puts around a task's object: hooks that see what the component does, and a fault that breaks it.

Of all that may stand around a user's object, each stands where this list has it::

    user's object ◄─ tap ◄─ identities ◄─ hooks ◄─ fault ◄─ engine

The first two are part of the topology (`squall.chaos.taps`, `engine.state.records.identified`): they are copied with
the component, opened in its place, and give it another collector. Hooks and faults come later, to a component that is
open: they are the task's `outermost`, and hooks take the place of methods of the collector that it has. Each of them is
an `Around`, so the engine takes the outermost for the component that it is.

Guarantees: a task without hooks is not touched; one that is not tampered with, or no longer, runs as without this
module. Ticks are not tampered with. A fault's function counts as the task's own code: its exceptions, its time, and the
stack in which it hangs.

Relies on: emits, acks and fails going through the collector at the moment they are made: a component that keeps
`collector.emit` itself (the method, not the collector) before its hooks are in place is not seen emitting by them.

Thread: the worker's loop. A task with a thread of its own is tampered with from its next batch on.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from squall.engine.api.around import Around
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BasicBolt, BatchBolt
from squall.engine.api.failure import Failure
from squall.engine.api.hooks import (
    BoltAckInfo,
    BoltExecuteInfo,
    BoltFailInfo,
    Hooks,
    SpoutAckInfo,
    SpoutFailInfo,
)
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Run, Tuple
from squall.engine.core.emit_paths import AnyCollector, wrap
from squall.engine.core.executor import BoltTask
from squall.engine.core.spout_executor import SpoutTask
from squall.engine.core.worker_core import WorkerCore
from squall.engine.flow.bolt_collectors import BatchCollector, BoltCollector
from squall.engine.foreign.identity import key_of

Note = Callable[[Iterable[Any]], None]
"""Takes the message ids of what is about to be emitted."""


def watch_task(hooks: Hooks, task: SpoutTask | BoltTask) -> None:
    """Have the hooks see what a task emits, what a spout is answered, and what a bolt executes and answers, from now
    on."""
    if isinstance(task, SpoutTask):
        task.outermost = spout = _HookedSpout(task.outermost, hooks)
        task.own.note_ids = spout.note
        _watch_emits(hooks, task.own, spout.note)
        return
    kinds = ((BatchBolt, _HookedBatchBolt), (BasicBolt, _HookedBasicBolt), (object, _HookedBolt))
    hooked = next(hooked for kind, hooked in kinds if isinstance(task.user, kind))
    task.outermost = hooked(task.outermost, hooks, task.returned)
    _watch_emits(hooks, task.collector)


# ---- hooks ----


class _HookedSpout(Around):
    """Shows the answers to a spout."""

    def __init__(self, spout: Any, hooks: Hooks) -> None:
        super().__init__(spout)
        self._hooks = hooks
        self._began_ns: dict[Any, int] = {}
        """Key of a message -> time of its emit."""

    def note(self, message_ids: Iterable[Any]) -> None:
        """Note the time at which messages are emitted."""
        now_ns = self._hooks.now_ns()
        self._began_ns.update((key_of(message_id), now_ns) for message_id in message_ids)

    def ack(self, message_id: Any) -> None:
        self._inner.ack(message_id)
        self._acked([message_id])

    def ack_batch(self, message_ids: list[Any]) -> None:
        self._inner.ack_batch(message_ids)
        self._acked(message_ids)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._fail(partial(self._inner.on_failure, message_id, failure), [message_id], [failure])

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        self._fail(partial(self._inner.fail_batch, message_ids, failures), message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._fail(partial(self._inner.on_dead_letter, message_id, failure), [message_id], [failure])

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


class _HookedBolt(Around):
    """Shows what a bolt executes. Of an AsyncBolt, `execute` gives a coroutine on an event loop."""

    def __init__(self, bolt: Any, hooks: Hooks, returned: Callable[[Any], None]) -> None:
        """`returned` checks what the bolt returns, before the hooks are told that it has."""
        super().__init__(bolt)
        self._hooks, self._returned = hooks, returned

    def execute(self, tup: Tuple, *collector: Any) -> Any:
        began_ns = self._hooks.now_ns()
        value = self._inner.execute(tup, *collector)
        if isinstance(self, AsyncBolt) and inspect.isawaitable(value):
            return self._ended(value, tup, began_ns)
        if value is not None:
            self._returned(value)
        self._executed(tup, began_ns)
        return None

    async def _ended(self, value: Awaitable[Any], tup: Tuple, began_ns: int) -> Any:
        result = await value
        self._executed(tup, began_ns)
        return result

    def _executed(self, tup: Tuple, began_ns: int) -> None:
        if not tup.is_tick:
            latency_ms = (self._hooks.now_ns() - began_ns) / 1e6
            self._hooks.tell("bolt_execute", BoltExecuteInfo(self._hooks.task, tup, latency_ms))


class _HookedBasicBolt(_HookedBolt):
    """Shows a bolt that acks when `execute` returns, and fails when it raises."""

    def execute(self, tup: Tuple, *collector: Any) -> None:
        try:
            super().execute(tup, *collector)
        except BaseException:
            _tell_end(self._hooks, tup, has_failed=True)
            raise
        _tell_end(self._hooks, tup, has_failed=False)


class _HookedBatchBolt(_HookedBolt):
    """Shows each row of a batch, as a tuple of its own."""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        hooks, began_ns = self._hooks, self._hooks.now_ns()
        tuples = [] if batch.is_tick else tuples_of(batch)
        failed: Any = range(len(tuples))
        try:
            if (value := self._inner.execute_batch(batch, collector)) is not None:
                self._returned(value)
            failed = collector.failed
            latency_ms = (hooks.now_ns() - began_ns) / 1e6 / (len(tuples) or 1)
            for tup in tuples:
                hooks.tell("bolt_execute", BoltExecuteInfo(hooks.task, tup, latency_ms))
        finally:
            for row, tup in enumerate(tuples):
                _tell_end(hooks, tup, has_failed=row in failed)


def _tell_end(hooks: Hooks, tup: Tuple, *, has_failed: bool) -> None:
    """Tell hooks that a tuple was acked, or that it has failed."""
    if tup.is_tick:
        return
    if has_failed:
        hooks.tell("bolt_fail", BoltFailInfo(hooks.task, tup))
    else:
        hooks.tell("bolt_ack", BoltAckInfo(hooks.task, tup))


def tuples_of(batch: ColumnBatch) -> list[Tuple]:
    """The rows of a batch as tuples, to be looked at only."""
    return [Tuple(row, batch._source, Run(0, 0, 1)) for row in batch.to_rows()]


def _watch_emits(hooks: Hooks, collector: AnyCollector | BatchCollector, note: Note | None = None) -> None:
    """Have the hooks see what a component emits, acks and fails. `note`: told of each message before its emit."""
    for stream, out in collector.emitter.streams.items():
        out.watch = partial(hooks.emitted, stream)  # the rows of batches

    def watched_emit(name: str, emit: Callable[..., list[int]]) -> Callable[..., list[int]]:
        values_at = 0 if name == "emit" else 1

        def watched(*arguments: Any, **named: Any) -> list[int]:
            message_id = named.get("message_id")
            if note is not None and message_id is not None:
                # Before the emit: without ackers it is answered before the emit returns.
                note([message_id])
            tasks = emit(*arguments, **named)
            values = arguments[values_at] if len(arguments) > values_at else named["values"]
            return hooks.emitted(named.get("stream", DEFAULT_STREAM), values, tasks)

        return watched

    def watched_end(name: str, end: Callable[[Tuple], None]) -> Callable[[Tuple], None]:
        def watched(tup: Tuple) -> None:
            end(tup)
            _tell_end(hooks, tup, has_failed=name == "fail")

        return watched

    if isinstance(collector, BatchCollector):
        return
    wrap(collector, watched_emit, "emit", "emit_direct")
    if isinstance(collector, BoltCollector):
        wrap(collector, watched_end, "ack", "fail")


# ---- faults ----

Before = Callable[[Tuple | None], None]
"""Called with each tuple that `execute` or `execute_batch` is about to get; None before `next_tuple` or
`next_batch`."""


def tamper(core: WorkerCore, task: int, before: Before | None) -> None:
    """Call `before` before the code of a task of this worker from now on, or nothing if None."""
    bolt = core.bolt_tasks.get(task)
    target = bolt or core.spout_tasks.get(task)
    if target is None:
        return
    genuine = target.outermost._inner if type(target.outermost) is _Tampered else target.outermost
    target.outermost = genuine if before is None else _Tampered(genuine, before)
    if bolt is not None:
        bolt.enter()
        # Its time per tuple is unknown from now on: one tuple first, not a whole frame.
        bolt.slice_rows = 1


class _Tampered(Around):
    """Calls a function before a component's own code."""

    def __init__(self, inner: Any, before: Before) -> None:
        super().__init__(inner)
        self._before = before

    def next_tuple(self) -> Any:
        self._before(None)
        return self._inner.next_tuple()

    def next_batch(self, rows: int) -> Any:
        self._before(None)
        return self._inner.next_batch(rows)

    def execute(self, tup: Tuple, *collector: Any) -> Any:
        if not tup.is_tick:
            self._before(tup)
        return self._inner.execute(tup, *collector)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> Any:
        for tup in () if batch.is_tick else tuples_of(batch):
            self._before(tup)
        return self._inner.execute_batch(batch, collector)
