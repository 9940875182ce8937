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
    from squall.engine.api.config import Config
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure
    from squall.engine.api.tuple import Tuple


class Component:
    """The common base of spouts and bolts."""

    outputs: Outputs = ()
    """A tuple of field names for the default stream, or a dict from stream names to field names or `Stream` objects."""

    component_config: Mapping[str, Any] = {}
    """Settings that this component brings along, such as `{"tick_tuple_freq_secs": 1}`; `set_config` overrides them."""

    def settings_mistake(self, config: Config) -> str | None:
        """What is wrong with the topology's settings for this bolt; None if nothing is. For its start."""
        return None


class Spout(Component):
    """A source of tuples: subclasses define `outputs` and `next_tuple`. Records that are to survive failures need a
    message id, and a `fail` that emits them again; `ReplayingSpout` does both."""

    exhausted: bool = False
    """True if a finite source has nothing to emit, now or later; it must be False while the spout holds a failed
    message back for a retry. May be a property."""

    blocking: bool = False
    """If True, each of this spout's executors gets its own thread, and `next_tuple` may block for any time. The other
    methods, such as `ack` and `fail`, are called between two calls of `next_tuple`."""

    record_identity: str | None = "task"
    """What a message id means to state that counts each record once. Ids that are whole numbers, or tuples that end
    with one such as (file, offset), are positions; what comes before the last number is the partition.

    * "task": ids name records of this task only: 5 of task 0 and 5 of task 1 are two records.
    * "partition": whichever task reads a partition, one at a time, its positions name the same records, and ascend.
    * "dense": the same, but several tasks may read one partition at a time, and no position is left out.
    * "name": ids are any values that name a record, whichever task reads it. They are numbered as they come; if
      `confirmed` is defined, what it returns is forgotten.
    * None: this source cannot name its records; `build()` refuses it before such state, with `identity_remedy`."""

    identity_remedy: str = "set its record_identity"
    """What the user can do if `record_identity` is None; `build()` ends its message with it."""

    counts_at_least_once: bool = False
    """True if ids name deliveries, not records, as the user has chosen: what is delivered again counts again, and the
    report says so."""

    feeds_state: bool = False
    """Set by the engine before `open`: True if state behind this spout counts each record once."""

    def partitions(self) -> Mapping[tuple[Any, ...], bool] | None:
        """The partitions that this task reads at present, by what their message ids begin with, such as `("lines-0",)`
        for the id `("lines-0", 17)`, and `()` for ids that are numbers. The value is True if everything that is there
        at the moment has been read. Event time waits for each of these. Partitions that have ended are left out; one
        that moves to another task must stay until that task reads it, or its records may be late. None: not known; then
        event time waits for every partition of which this task has emitted a record in this life."""
        return None

    def confirmed(self) -> Sequence[Any]:
        """The message ids that are confirmed outside since the last call, so that their records never come again. Only
        called if the spout `feeds_state`."""
        return ()

    @property
    def waiting_count(self) -> int:
        """Number of failed messages that this spout holds for a retry, from 0 to 2**63 - 1. The account shows them as
        waiting; a message that is held but not counted here is shown as failed. Thread: that of `next_tuple`."""
        return 0

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        """Called once in the worker, before anything else. `conf` has every setting under Squall's name and Storm's
        key, and the topology's own keys. Open files and connections here: the object itself was pickled to get
        there."""

    def next_tuple(self) -> None:
        """Emit zero, one or several tuples. It is called again and again. It must not block unless `blocking` is True,
        or it holds up the worker's other executors."""
        raise TypeError(f"{type(self).__name__} must define next_tuple")

    def ack(self, message_id: Any) -> None:
        """Called when every tuple of the message's tree has been processed."""

    def fail(self, message_id: Any) -> None:
        """Called when an attempt of this message failed; a reliable spout emits it again, with the same message id."""

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        """Called when an attempt failed, with the reason; override it to see that. The default calls `fail`."""
        self.fail(message_id)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        """Called instead of `on_failure` when the message is given up and has been written to the dead-letter ledger.
        The default calls `ack`, so that the source can move on."""
        self.ack(message_id)

    def activate(self) -> None:
        """Called when the topology has been activated, before `next_tuple` is called again."""

    def deactivate(self) -> None:
        """Called when the topology has been deactivated; `next_tuple` is not called until it is activated again."""

    def close(self) -> None:
        """Called at an orderly end, not when the worker is killed. If `next_tuple` of a blocking spout has not returned
        after a second, `close` is called while it waits: close the resource on which it waits."""


class BatchSpout(Spout):
    """A source that emits batches of columns, and is told of answers in batches. Each row is a message of its own: it
    is acked, failed and replayed alone."""

    def next_batch(self, rows: int) -> None:
        """Emit up to about `rows` rows, by one `collector.emit_batch` or several, or none if there are none. The engine
        chooses the number by time and room. It must not block."""
        raise TypeError(f"{type(self).__name__} must define next_batch")

    def next_tuple(self) -> None:
        """Never called; the engine calls `next_batch` instead."""

    def ack_batch(self, message_ids: list[Any]) -> None:
        """Called with the ids of messages that are fully processed. The default calls `ack` for each."""
        for message_id in message_ids:
            self.ack(message_id)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        """Called with the ids of messages that failed, and a `Failure` for each; a reliable spout emits them again,
        with the same ids. The default calls `on_failure` for each."""
        for message_id, failure in zip(message_ids, failures, strict=True):
            self.on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        """Called as in `Spout`. The default calls `ack_batch`, so that the source can move on."""
        self.ack_batch([message_id])


class Bolt(Component):
    """A consumer of tuples that anchors its emits and acks its input itself, now or later. Where one input leads to its
    output at once, `BasicBolt` does that for you."""

    blocking: bool = False
    """If True, each of this bolt's executors gets its own thread, so that blocking in `execute` holds up no other
    executor. The setting `execute_timeout_secs` limits the time for one tuple."""

    needed_fields: Sequence[str] = ()
    """Names of the fields that it reads: `build()` refuses an input that does not declare them."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        """Called once in the worker, before anything else, with the collector that emits, acks and fails. Open files
        and connections here."""

    def execute(self, tup: Tuple) -> None:
        """Process one tuple. It must be acked or failed, now or later; otherwise its trees time out. An exception ends
        the worker (`on_error="crash"`) or fails the tuple (`"fail"`); `FailedTuple` always fails the tuple alone."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class BasicBolt(Component):
    """A bolt that anchors and acks by itself: every emit is anchored to the input tuple, which is acked when `execute`
    returns and failed when `execute` raises `FailedTuple`."""

    blocking: bool = False
    """As in `Bolt`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once in the worker, before anything else. Open files and connections here."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """Process one tuple; what is emitted is anchored to it. Raise `FailedTuple` to fail it. Other exceptions end
        the worker, or fail the tuple too with `on_error="fail"`."""
        raise TypeError(f"{type(self).__name__} must define execute")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class BatchBolt(Component):
    """A bolt that processes batches of columns, and anchors and acks by itself: every row that it emits is anchored to
    the input row it was made from, and all input rows are acked when `execute_batch` returns, except the rows that it
    failed by `collector.fail(row)`."""

    blocking: bool = False
    """As in `Bolt`; `execute_timeout_secs` limits the time for one batch."""

    needed_fields: Sequence[str] = ()
    """As in `Bolt`."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once in the worker, before anything else. Open files and connections here."""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        """Process the rows of one batch; a tick is a batch too (`batch.is_tick`). The engine chooses the number of rows
        by the time that the last ones took. `FailedTuple` fails all of them; any other exception ends the worker as
        well, unless `on_error` is "fail"."""
        raise TypeError(f"{type(self).__name__} must define execute_batch")

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""


class CustomGrouping:
    """The base of groupings that users write, for `custom_grouping`."""

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        """Called once in each task that emits, before the first tuple. `target_tasks`: ids of the receiving bolt's
        tasks."""

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        """Return the ids, out of `target_tasks`, of the tasks that receive this tuple; none drops it."""
        raise TypeError(f"{type(self).__name__} must define choose_tasks")
