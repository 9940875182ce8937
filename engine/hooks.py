"""Task hooks: a look at what a task does, for those who measure or log (Storm's `ITaskHook`).

Guarantees: a task without hooks pays nothing for them; with hooks, each is called in the order they were added, on the
task's own thread, right after the thing has happened. What a hook raises counts as raised by the component.

Relies on: emits, acks and fails going through the collector at the moment they are made: a component that keeps
`collector.emit` itself (the method, not the collector) before its hooks are in place is not seen emitting by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from squall.engine.collectors import BasicCollector, BoltCollector, SpoutCollector
from squall.engine.component import Spout
from squall.engine.errors import ComponentError
from squall.engine.failure import Failure
from squall.engine.identity import key_of
from squall.engine.spout_gate import BlockingSpoutCollector, Emits
from squall.engine.stream import DEFAULT_STREAM
from squall.engine.tuple import Anchors, Tuple
from squall.engine.user_text import repr_of

if TYPE_CHECKING:
    from squall.engine.context import TopologyContext
    from squall.engine.pending import PendingTable

Execute = Callable[..., None]


class EmitInfo(NamedTuple):
    """A tuple was emitted."""

    task_id: int
    stream: str
    values: Any
    out_tasks: list[int]


class SpoutAckInfo(NamedTuple):
    """A message of this spout task was processed completely."""

    task_id: int
    message_id: Any
    complete_latency_ms: float | None
    """Since it was emitted; None where that was before the hook was added."""


class SpoutFailInfo(NamedTuple):
    """A message of this spout task failed."""

    task_id: int
    message_id: Any
    failure: Failure
    fail_latency_ms: float | None


class BoltExecuteInfo(NamedTuple):
    """`execute` returned."""

    task_id: int
    tup: Tuple
    execute_latency_ms: float


class BoltAckInfo(NamedTuple):
    """A tuple was acked; for a basic bolt, when `execute` has returned."""

    task_id: int
    tup: Tuple


class BoltFailInfo(NamedTuple):
    """A tuple was failed; for a basic bolt, because `execute` raised."""

    task_id: int
    tup: Tuple


class TaskHook:
    """Override what you want to see. Added in `open` or `prepare` with `context.add_hook(hook)`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once, when the component has been opened."""

    def emit(self, info: EmitInfo) -> None: ...
    def spout_ack(self, info: SpoutAckInfo) -> None: ...
    def spout_fail(self, info: SpoutFailInfo) -> None: ...
    def bolt_execute(self, info: BoltExecuteInfo) -> None: ...
    def bolt_ack(self, info: BoltAckInfo) -> None: ...
    def bolt_fail(self, info: BoltFailInfo) -> None: ...

    def cleanup(self) -> None:
        """Called at an orderly end, after the component's own `close` or `cleanup`."""


class Hooks:
    """The hooks of one task. Empty until the component adds one; nothing is wrapped while it is."""

    def __init__(self, component: str, task: int, now_ns: Callable[[], int]) -> None:
        self.task = task
        self.now_ns = now_ns
        self._component = component
        self._hooks: list[TaskHook] = []
        self._opened = False

    def add(self, hook: TaskHook) -> None:
        """ComponentError for what is no hook, or when the component is open already."""
        if not isinstance(hook, TaskHook):
            raise ComponentError(
                f"{self._component}[{self.task}] adds {repr_of(hook)} as a hook; allowed: a TaskHook"
            )
        if self._opened:
            raise ComponentError(f"{self._component}[{self.task}] adds a hook too late; add hooks in open or prepare")
        self._hooks.append(hook)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> bool:
        """The component has been opened: prepare the hooks; whether there are any."""
        self._opened = True
        for hook in self._hooks:
            hook.prepare(conf, context)
        return bool(self._hooks)

    def close(self) -> None:
        for hook in self._hooks:
            hook.cleanup()

    def emitted(self, stream: str, values: Any, tasks: list[int]) -> list[int]:
        """Tell of an emit; the tasks."""
        self.tell("emit", EmitInfo(self.task, stream, values, tasks))
        return tasks

    def tell(self, method: str, info: tuple[Any, ...]) -> None:
        """Call `method` of every hook."""
        for hook in self._hooks:
            getattr(hook, method)(info)


# ---- spouts ----


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


def watch_spout(hooks: Hooks, collector: SpoutCollector, told: PendingTable | Emits) -> None:
    """Have the hooks see what a spout task does from now on. `told`: who tells the spout of answers."""
    blocking = isinstance(collector, BlockingSpoutCollector)
    collector.__class__ = _WatchedBlockingSpoutCollector if blocking else _WatchedSpoutCollector
    watched = cast("_WatchedSpoutCollector", collector)
    watched.hooks, watched.began_ns = hooks, {}
    told.spout = _WatchedSpout(told.spout, hooks, watched.began_ns)


# ---- bolts ----


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
