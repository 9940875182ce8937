"""What users write: spouts and bolts.

Every method of a task is called by one thread, one call at a time: the worker's loop, or the task's own thread when the
component says `blocking = True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.api.stream import Outputs

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector, BoltCollector, SpoutCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure
    from squall.engine.api.tuple import Tuple


class Component:
    """What spouts and bolts have in common."""

    outputs: Outputs = ()
    """Field names of the default stream, or a dict of stream name -> field names or `Stream`."""


class Spout(Component):
    """A source of tuples."""

    exhausted: bool = False
    """True = a finite source has nothing more to emit, now or later on its own account. Failed records may still be
    replayed: while a spout holds some back for later it must say False. May be a property."""

    blocking: bool = False
    """True: this spout's executors get a thread of their own, and `next_tuple` may wait for as long as it likes.
    Answers, `activate` and `deactivate` are told between two calls of it."""

    @property
    def waiting_count(self) -> int:
        """How many failed messages this spout holds to emit them again later. The account shows them as waiting: a
        spout that holds some and says 0 is shown with that many failed. An integer from 0 to 2**63 - 1. The thread
        that calls `next_tuple` asks."""
        return 0

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        """Called once before anything else, in the worker."""

    def next_tuple(self) -> None:
        """Emit nothing, one or several tuples. Unless `blocking` is True it must not wait: the worker's other executors
        wait meanwhile."""
        raise TypeError(f"{type(self).__name__} must define next_tuple")

    def ack(self, message_id: Any) -> None:
        """The tree of this message is processed completely."""

    def fail(self, message_id: Any) -> None:
        """The tree of this message failed; a reliable spout emits it again, under the same message id."""

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        """What the engine calls on a failure; override it to see why. The default calls `fail`."""
        self.fail(message_id)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        """The message failed `max_attempts` times and is now in the dead-letter ledger, which answers for it. The
        default treats it as done, so that the source can move on."""
        self.ack(message_id)

    def activate(self) -> None:
        """The topology has been activated; `next_tuple` will be called."""

    def deactivate(self) -> None:
        """The topology has been deactivated; `next_tuple` will not be called until it is activated again."""

    def close(self) -> None:
        """Called at an orderly end. Not called when the worker is killed. A spout with `blocking = True` that still
        sits in `next_tuple` a second later is closed all the same: close what it waits for."""


class Bolt(Component):
    """A consumer of tuples that acks each itself."""

    blocking: bool = False
    """True: this component's executors get a thread of their own, so that waiting in `execute` holds up nobody else.
    How long one tuple may take is limited by the setting `execute_timeout_secs`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        """Called once before anything else, in the worker."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple. It must be acked or failed, now or later."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end. Not called when the worker is killed."""


class BasicBolt(Component):
    """A bolt whose every emit is anchored to its input, which is acked when `execute` returns and failed when it
    raises `FailedTuple`."""

    blocking: bool = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before anything else, in the worker."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Process one tuple."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end. Not called when the worker is killed."""


class CustomGrouping:
    """A grouping of the user's own."""

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once per source task before the first tuple."""

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        """The tasks, out of `target_tasks`, that this tuple goes to."""
        raise TypeError(f"{type(self).__name__} must define choose_tasks")
