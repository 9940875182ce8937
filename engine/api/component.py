"""The base classes of users' components: spouts, bolts, their kinds for batches, and custom groupings.

Guarantees: one thread calls all methods of a task, one call at a time.

Thread: the worker's loop; the executor's own if the component has `blocking = True`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.api.stream import Outputs

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector, BatchCollector, BoltCollector, SpoutCollector
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure
    from squall.engine.api.tuple import Tuple


class Component:
    """The common base of spouts and bolts."""

    outputs: Outputs = ()
    """Field names of the default stream, or a dict of stream name -> field names or `Stream`."""

    component_config: Mapping[str, Any] = {}
    """A dict of settings that this component brings along, such as its ticks; `set_config` overrides them."""


class Spout(Component):
    """A source of tuples."""

    exhausted: bool = False
    """True: a finite source has no new tuples to emit, now or later. Failed messages may still be replayed: while the
    spout holds one back for a retry, this must be False. May be a property."""

    blocking: bool = False
    """True: each of this spout's executors gets its own thread, and `next_tuple` may block for any time. The other
    methods, such as `ack` and `fail`, are called between two calls of `next_tuple`."""

    @property
    def waiting_count(self) -> int:
        """Number of failed messages that this spout holds for a retry, from 0 to 2**63 - 1. The account shows them as
        waiting; a message that is held but not counted here is shown as failed. Thread: that of `next_tuple`."""
        return 0

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        """Called once before anything else, in the worker."""

    def next_tuple(self) -> None:
        """Emit zero, one or several tuples. Must not block unless `blocking` is True: that would hold up the worker's
        other executors."""
        raise TypeError(f"{type(self).__name__} must define next_tuple")

    def ack(self, message_id: Any) -> None:
        """Called when the tree of this message is fully processed."""

    def fail(self, message_id: Any) -> None:
        """Called when the tree of this message failed; a reliable spout emits it again, with the same message id."""

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        """Called by the engine on a failure; override it to see the reason. The default calls `fail`."""
        self.fail(message_id)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        """Called when the message failed `max_attempts` times, or was given up, and is stored as a dead letter. The
        default calls `ack`, so that the source can move on."""
        self.ack(message_id)

    def activate(self) -> None:
        """Called when the topology has been activated, before `next_tuple` is."""

    def deactivate(self) -> None:
        """Called when the topology has been deactivated; `next_tuple` is not called until it is activated again."""

    def close(self) -> None:
        """Called at an orderly end, not when the worker is killed. For a spout with `blocking = True` that is still in
        `next_tuple` after one second, called meanwhile: close the resource on which it waits."""


class BatchSpout(Spout):
    """A source that emits batches of columns, and is told of answers in batches. Each message has its own tree, as if
    it had been emitted alone."""

    def next_batch(self, rows: int) -> None:
        """Emit up to about `rows` rows, by one `collector.emit_batch` or several; none if there are none. The engine
        chooses the number by time and room. Must not block."""
        raise TypeError(f"{type(self).__name__} must define next_batch")

    def next_tuple(self) -> None:
        """Never called: `next_batch` is."""

    def ack_batch(self, message_ids: list[Any]) -> None:
        """Called with messages that are fully processed. The default calls `ack` for each."""
        for message_id in message_ids:
            self.ack(message_id)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        """Called with messages that failed, and why each did; a reliable spout emits them again, with the same ids. The
        default calls `on_failure` for each."""
        for message_id, failure in zip(message_ids, failures, strict=True):
            self.on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        """As of any spout. The default calls `ack_batch`, so that the source can move on."""
        self.ack_batch([message_id])


class Bolt(Component):
    """A consumer of tuples that acks each one itself."""

    blocking: bool = False
    """True: each of this bolt's executors gets its own thread, so that blocking in `execute` holds up no other
    executor. The setting `execute_timeout_secs` limits the time for one tuple."""

    needed_fields: Sequence[str] = ()
    """Fields without which it cannot use a tuple: `build()` refuses an input that does not declare them."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        """Called once before anything else, in the worker."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple. It must be acked or failed, now or later."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class BasicBolt(Component):
    """A bolt that anchors and acks by itself: every emit is anchored to the input tuple, which is acked when `execute`
    returns and failed when `execute` raises `FailedTuple`."""

    blocking: bool = False
    """As in `Bolt`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before anything else, in the worker."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Process one tuple."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class BatchBolt(Component):
    """A bolt that processes batches of columns, and anchors and acks by itself: every row that it emits is anchored to
    the input row it was made from, and all input rows are acked when `execute_batch` returns, but for those that it
    failed (`collector.fail(row)`)."""

    blocking: bool = False
    """Must be False: batches are executed by the worker's loop."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once before anything else, in the worker."""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        """Process the rows of one batch; ticks come here, too (`batch.is_tick`). The engine chooses the number of rows
        by the time that the last ones took. An exception fails all of them; a `FailedTuple` does no more than that."""
        raise TypeError(f"{type(self).__name__} must define execute_batch")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class CustomGrouping:
    """A grouping that a user writes."""

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once per source task before the first tuple."""

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        """Choose the tasks, out of `target_tasks`, that receive this tuple."""
        raise TypeError(f"{type(self).__name__} must define choose_tasks")
