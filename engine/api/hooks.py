"""Task hooks: callbacks on a task's emits, executes, acks and fails, to measure or log them (Storm's `ITaskHook`).

Guarantees: a task without hooks pays nothing for them; with hooks, they are called in the order of their addition,
right after the event. An error in a hook counts as raised by the component.

Relies on: `engine.core.hook_calls`, which calls them. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.engine.api.failure import Failure
from squall.engine.api.tuple import Tuple
from squall.engine.errors import ComponentError
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext


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
    """Time since its emit; None if the hook was added after that."""


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
    """Base class of hooks: override the methods you need, and call `context.add_hook(hook)` in `open` or `prepare`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once, after the component's `open` or `prepare`."""

    def emit(self, info: EmitInfo) -> None:
        """Called after each emit of the task."""

    def spout_ack(self, info: SpoutAckInfo) -> None:
        """Called after the spout's `ack`."""

    def spout_fail(self, info: SpoutFailInfo) -> None:
        """Called after the spout's `on_failure`."""

    def bolt_execute(self, info: BoltExecuteInfo) -> None:
        """Called after the bolt's `execute`."""

    def bolt_ack(self, info: BoltAckInfo) -> None:
        """Called after the bolt has acked a tuple."""

    def bolt_fail(self, info: BoltFailInfo) -> None:
        """Called after the bolt has failed a tuple."""

    def cleanup(self) -> None:
        """Called at an orderly end, after the component's own `close` or `cleanup`."""


class Hooks:
    """The hooks of one task. Nothing is wrapped until the component adds one."""

    def __init__(self, component: str, task: int, now_ns: Callable[[], int]) -> None:
        self.task = task
        self.now_ns = now_ns
        self.component = component
        self._hooks: list[TaskHook] = []
        self._opened = False

    def __bool__(self) -> bool:
        """Return True if there are any."""
        return bool(self._hooks)

    def add(self, hook: TaskHook) -> None:
        """Add a hook. ComponentError if it is no hook, or the component is open already."""
        if not isinstance(hook, TaskHook):
            raise ComponentError(
                f"{self.component}[{self.task}] adds {repr_of(hook)} as a hook; allowed: a TaskHook"
            )
        if self._opened:
            raise ComponentError(f"{self.component}[{self.task}] adds a hook too late; add hooks in open or prepare")
        self._hooks.append(hook)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> bool:
        """Prepare the hooks, once the component is open. Return True if there are any."""
        self._opened = True
        for hook in self._hooks:
            hook.prepare(conf, context)
        return bool(self._hooks)

    def close(self) -> None:
        for hook in self._hooks:
            hook.cleanup()

    def emitted(self, stream: str, values: Any, tasks: list[int]) -> list[int]:
        """Tell the hooks of an emit. Returns `tasks`."""
        self.tell("emit", EmitInfo(self.task, stream, values, tasks))
        return tasks

    def tell(self, method: str, info: tuple[Any, ...]) -> None:
        """Call `method` of every hook."""
        for hook in self._hooks:
            getattr(hook, method)(info)
