"""Lets the hooks of a task see what it does: its collector and its `execute` are wrapped, once.

Guarantees: a task without hooks is not touched.

Relies on: emits, acks and fails going through the collector at the moment they are made: a component that keeps
`collector.emit` itself (the method, not the collector) before its hooks are in place is not seen emitting by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from squall.engine.api.component import Spout
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
from squall.engine.api.tuple import Anchors, Tuple
from squall.engine.core.spout_gate import BlockingSpoutCollector, Emits
from squall.engine.flow.collectors import BasicCollector, BoltCollector, SpoutCollector
from squall.engine.foreign.identity import key_of
from squall.engine.tracking.open_messages import OpenMessages

Execute = Callable[..., None]


class _WatchedSpoutCollector(SpoutCollector):
    hooks: Hooks
    began_ns: dict[Any, int]
    """Message's key -> when it was emitted."""

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        self._note(message_id)
        return self.hooks.emitted(stream, values, super().emit(values, message_id, stream))

    def emit_direct(
        self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        self._note(message_id)
        return self.hooks.emitted(stream, values, super().emit_direct(task, values, message_id, stream))

    def _note(self, message_id: Any) -> None:
        # Before the emit: without ackers it is answered before the emit returns.
        if message_id is not None:
            self.began_ns[key_of(message_id)] = self.hooks.now_ns()


class _WatchedBlockingSpoutCollector(_WatchedSpoutCollector, BlockingSpoutCollector):
    """The same on a thread of its own."""


class _WatchedSpout(Spout):
    """Stands before a spout where its answers are given."""

    def __init__(self, spout: Spout, hooks: Hooks, began_ns: dict[Any, int]) -> None:
        self._spout = spout
        self._hooks = hooks
        self._began_ns = began_ns

    def ack(self, message_id: Any) -> None:
        self._spout.ack(message_id)
        self._hooks.tell("spout_ack", SpoutAckInfo(self._hooks.task, message_id, self._latency_ms(message_id)))

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        # Taken first: the spout may emit the message again at once.
        latency_ms = self._latency_ms(message_id)
        self._spout.on_failure(message_id, failure)
        self._hooks.tell("spout_fail", SpoutFailInfo(self._hooks.task, message_id, failure, latency_ms))

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        latency_ms = self._latency_ms(message_id)
        self._spout.on_dead_letter(message_id, failure)
        self._hooks.tell("spout_fail", SpoutFailInfo(self._hooks.task, message_id, failure, latency_ms))

    def _latency_ms(self, message_id: Any) -> float | None:
        began_ns = self._began_ns.pop(key_of(message_id), None)
        return None if began_ns is None else (self._hooks.now_ns() - began_ns) / 1e6


def watch_spout(hooks: Hooks, collector: SpoutCollector, told: OpenMessages | Emits) -> None:
    """Have the hooks see what a spout task does from now on. `told`: who tells the spout of answers."""
    blocking = isinstance(collector, BlockingSpoutCollector)
    collector.__class__ = _WatchedBlockingSpoutCollector if blocking else _WatchedSpoutCollector
    watched = cast("_WatchedSpoutCollector", collector)
    watched.hooks, watched.began_ns = hooks, {}
    told.spout = _WatchedSpout(told.spout, hooks, watched.began_ns)


class _WatchedBoltCollector(BoltCollector):
    hooks: Hooks

    def emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        return self.hooks.emitted(stream, values, super().emit(values, anchors, stream))

    def emit_direct(
        self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        return self.hooks.emitted(stream, values, super().emit_direct(task, values, anchors, stream))

    def ack(self, tup: Tuple) -> None:
        super().ack(tup)
        if not tup.is_tick:
            self.hooks.tell("bolt_ack", BoltAckInfo(self.hooks.task, tup))

    def fail(self, tup: Tuple) -> None:
        super().fail(tup)
        if not tup.is_tick:
            self.hooks.tell("bolt_fail", BoltFailInfo(self.hooks.task, tup))


class _WatchedBasicCollector(BasicCollector):
    hooks: Hooks

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return self.hooks.emitted(stream, values, super().emit_direct(task, values, stream))


def watch_bolt(hooks: Hooks, collector: BoltCollector | BasicCollector, execute: Execute) -> Execute:
    """Have the hooks see what a bolt task does from now on; its `execute`, watched."""
    if isinstance(collector, BasicCollector):
        collector.__class__ = _WatchedBasicCollector
        cast("_WatchedBasicCollector", collector).hooks = hooks
        collector.emit = _watched_emit(hooks, collector.emit)
        return _watched_basic_execute(hooks, execute)
    collector.__class__ = _WatchedBoltCollector
    cast("_WatchedBoltCollector", collector).hooks = hooks
    return _watched_execute(hooks, execute)


def _watched_emit(hooks: Hooks, emit: Callable[..., list[int]]) -> Callable[..., list[int]]:
    def watched(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return hooks.emitted(stream, values, emit(values, stream))

    return watched


def _watched_execute(hooks: Hooks, execute: Execute) -> Execute:
    def watched(tup: Tuple, *collector: BasicCollector) -> None:
        began_ns = hooks.now_ns()
        execute(tup, *collector)
        if not tup.is_tick:
            hooks.tell("bolt_execute", BoltExecuteInfo(hooks.task, tup, (hooks.now_ns() - began_ns) / 1e6))

    return watched


def _watched_basic_execute(hooks: Hooks, execute: Execute) -> Execute:
    watched_execute = _watched_execute(hooks, execute)

    def watched(tup: Tuple, *collector: BasicCollector) -> None:
        try:
            watched_execute(tup, *collector)
        except BaseException:
            if not tup.is_tick:
                hooks.tell("bolt_fail", BoltFailInfo(hooks.task, tup))
            raise
        if not tup.is_tick:
            hooks.tell("bolt_ack", BoltAckInfo(hooks.task, tup))

    return watched
