"""ReplayingSpout: emits failed records again, with growing delays; subclasses only read. `@spout` makes one of a
function.

Guarantees: a record is held until it is acked or a dead letter, and emitted again after each failure, with the same
message id. The delay doubles with each attempt of that record, with jitter, so that a system that is down does not get
all retries at once.

Not guaranteed: replay after the death of this spout's worker. A source that can be read again from a position defines
`store`, which is called at the right times, and keeps that position in `context.state_dir`: see `unacked` and
`AckedPrefix`. `FeedSpout` does it for files, `FunctionSpout` for functions with a parameter `start`, and so does every
`Source` (`connect.source`).
"""

from __future__ import annotations

import heapq
import inspect
import itertools
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.api.acked_prefix import AckedPrefix, PositionFile
from squall.engine.api.component import Spout
from squall.engine.api.functions import Function, OfFunction, Streams, name_of, outputs_of
from squall.engine.api.stream import Emit, Outputs
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, ComponentError, UsageError
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import repr_of, text_of_error

if TYPE_CHECKING:
    from squall.engine.api.collectors import SpoutCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.failure import Failure

Record = tuple[Any, Any]
"""(message id, values); the values are an `Emit` if they go to another stream, or to one task."""
STORE_SECS, STORE_AGAIN_SECS = 0.1, 5.0
"""Time between two calls of `store`; the second, after one that failed."""


class ReplayingSpout(Spout):
    """A spout that keeps each record until it is acked, and emits it again after a failure, with a growing delay.

    Subclasses define `outputs` and `read()`, and may define `start(conf, context)`, `store()` and `idle()`. A subclass
    that overrides `open`, `ack`, `on_failure` or `close` calls the inherited method. What it keeps is in memory: to
    survive the death of the spout's own worker, define `store`, and begin there (see `AckedPrefix`)."""

    collector: SpoutCollector
    """For emits without a message id, which are not replayed, and for `report_error`."""
    context: TopologyContext
    """The argument of `open`."""
    kept: dict[Any, Record]
    """The records that were read and are not acked, in the order of reading. The key of a plain id (a string, a number,
    a tuple of them) is the id itself."""
    at_end: bool
    """True once `read` has ended."""

    first_delay_secs: float = 0.01
    """Delay before a record's first replay: short, as most failures are dead workers, and those are back in 50 ms."""
    max_delay_secs: float = 5.0
    """Longest delay: each failure of a record doubles its own up to this."""
    max_waiting: int = 1_000_000
    """Records that may wait for a replay, in memory; while there are this many, `read` is paused."""

    _ids_are_keys = False
    """Whether `read` gives no id twice, only ids that are their own keys, and only values for the default stream. Not
    to check that makes FeedSpout 1.5 times as fast."""

    def read(self) -> Iterator[Record | None]:
        """Yield (message id, values) for each record, or None if there is none at the moment; return at the end. For
        another stream than the default one, or for one task, yield (message id, Emit(values, stream, task)). No two
        records that are pending may have the same id."""
        raise TypeError(f"{type(self).__name__} must define read")

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once in the worker, before `read`: open the source here."""

    def idle(self) -> None:
        """Called when there is nothing to emit, again and again."""

    def store(self) -> None:
        """Store how far the source is done, if that has risen: called every tenth of a second, when all is acked, and
        at the end. After an OSError, which is told, records go on, and it is called again in 5 s."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.context = collector, context
        self.kept = {}
        self._due: list[tuple[int, int, Any]] = []
        self._under_way: set[Any] = set()
        """Keys of records that are read again by another connection, while an emit or a retry of each is pending."""
        self._order = 0
        self._now_ns, self._jitter = context.now_ns, context.random
        self.at_end = False
        self._stores = type(self).store is not ReplayingSpout.store
        self._store_at_ns = context.now_ns() if self._stores else 0
        kept = self.kept
        self.start(conf, context)
        if self.kept is not kept:
            raise ComponentError(
                f"{type(self).__name__} sets its attribute kept, in which a ReplayingSpout holds the records that are "
                "not acked; allowed: another name"
            )
        self._records = self.read()

    def next_tuple(self) -> None:
        if self.emit_due(1):
            return
        if self.at_end or len(self._due) >= self.max_waiting:
            self._rest()
            return
        record = next(self._records, _END)
        if record is _END or record is None:
            self.at_end = record is _END
            self._rest()
        elif self._ids_are_keys:
            message_id, values = record
            self.kept[message_id] = record
            self.collector.emit(values, message_id=message_id)
        else:
            message_id, values = record
            key = key_of(message_id)
            if message_id is None or key in self.kept:
                raise ComponentError(
                    f"{type(self).__name__}.read yielded message id {repr_of(message_id)}; every record needs one, "
                    "and no two that are pending may share it"
                )
            self.kept[key] = message_id, values
            if values.__class__ is Emit:
                self._emit(message_id, values)
            else:
                self.collector.emit(values, message_id=message_id)

    def emit_due(self, most: int) -> bool:
        """Emit up to `most` records again whose delay is over; return True if there were any."""
        before, due = most, self._due
        while most and due and due[0][0] <= self._now_ns():
            key = heapq.heappop(due)[2]
            if (kept := self.kept.get(key)) is not None:
                self._emit(*kept)
            self._under_way.discard(key)
            most -= 1
        return most < before

    def _emit(self, message_id: Any, values: Any) -> None:
        if values.__class__ is Emit:
            values.by(self.collector, message_id=message_id)
        else:
            self.collector.emit(values, message_id=message_id)

    def replace(self, message_id: Any, values: Any) -> None:
        """Emit other values at the next attempt of a pending record. ComponentError if there is no such record."""
        key = key_of(message_id)
        if key not in self.kept:
            raise ComponentError(
                f"{type(self).__name__} cannot replace the values of message {repr_of(message_id)}; allowed: of one "
                "that is pending"
            )
        self.kept[key] = message_id, values

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        """True if `read` has ended and every record is acked."""
        return self.at_end and not self.kept

    @property
    def waiting_count(self) -> int:
        return len(self._due)

    @property
    def unacked(self) -> Iterator[Any]:
        """Ids of the records that were read and are not acked, in the order of reading; everything before the first is
        done."""
        return (message_id for message_id, _ in self.kept.values())

    def ack(self, message_id: Any) -> None:
        self.kept.pop(message_id if self._ids_are_keys else key_of(message_id), None)
        if self._stores and (self._now_ns() >= self._store_at_ns or (self.at_end and not self.kept)):
            self._store_now()

    def close(self) -> None:
        if self._stores:
            self._store_now()

    def _rest(self) -> None:
        self.idle()
        if self._stores and self._now_ns() >= self._store_at_ns:
            self._store_now()

    def _store_now(self) -> None:
        again_secs = STORE_SECS
        try:
            self.store()
        except OSError as error:
            again_secs = STORE_AGAIN_SECS
            self.collector.report_error(ClusterError(
                f"{type(self).__name__} cannot store how far it is: {text_of_error(error)}; records go on meanwhile"
            ))
        self._store_at_ns = self._now_ns() + round(again_secs * NS_PER_SEC)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        key = key_of(message_id)
        if key not in self.kept:
            self._under_way.discard(key)
            return
        delay_secs = min(self.max_delay_secs, self.first_delay_secs * 2.0 ** min(failure.attempt - 1, 30))
        self._order += 1
        due_ns = self._now_ns() + round(delay_secs * self._jitter.uniform(0.5, 1.0) * NS_PER_SEC)
        heapq.heappush(self._due, (due_ns, self._order, key))
        self.fail(message_id)


_END: Any = object()


# ---- functions ----


class FunctionSpout(OfFunction, ReplayingSpout):
    """A spout made by `@spout`.

    Guarantees
        * The records of a task are numbered from 0; the number is the message id. Each is emitted until it is acked or
          a dead letter.
        * After the death of its worker, a function with a parameter `start` is called with the number of the first
          record that is not acked, and of a sequence the records before are left out. Any other function begins anew:
          all that it yields is emitted, also what was acked.

    Relies on: a function with `start` beginning there, and a sequence being the same each time. The position is stored
    in the task's state directory, at most every tenth of a second.
    """

    kind, positional, by_name = "spout", 0, ("start", "context")

    def __init__(self, function: Function, outputs: Outputs, blocking: bool) -> None:
        if not outputs:
            raise UsageError(f'@spout on {name_of(function)} names no field to emit; allowed: @spout("field", ...)')
        super().__init__(function, outputs, blocking)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        file = None if context.state_root is None else PositionFile(os.path.join(context.state_dir, "position"))
        begin = 0 if file is None else file.load()
        known = {"start": begin, "context": context}
        made = self.function(**{name: known[name] for name in self.takes})
        if isinstance(made, str | bytes) or not isinstance(made, Iterable):
            raise ComponentError(
                f"@spout function {self.__name__} returned {repr_of(made)}; allowed: yields, or an iterable to emit"
            )
        if "start" not in self.takes:
            if isinstance(made, Sequence):
                made = map(made.__getitem__, range(begin, len(made)))
            else:
                file, begin = None, 0
        self._made, self._file = made, file
        self._prefix, self._stored = AckedPrefix(begin), begin

    def read(self) -> Generator[Record | None, None, None]:
        numbers = itertools.count(self._stored)
        for values in self._made:
            if values is None:
                yield None
            elif self.has_one_field and values.__class__ is not tuple and values.__class__ is not Emit:
                yield next(numbers), (values,)
            else:
                yield next(numbers), values

    def ack(self, message_id: int) -> None:
        self._prefix.ack(message_id)
        super().ack(message_id)

    def store(self) -> None:
        position = self._prefix.committable
        if self._file is not None and position != self._stored:
            self._file.store(position)
            self._stored = position

    def close(self) -> None:
        super().close()
        if inspect.isgenerator(self._made) and not self._made.gi_running:
            self._made.close()  # its `finally`; a blocking one may be at work


def spout(*fields: str, streams: Streams | None = None, blocking: bool = False) -> Callable[[Function], FunctionSpout]:
    """Make a spout of a generator function, or of one that returns an iterable: `@spout("n")`.

    `fields` name the values of the default stream; `streams` is a dict of further streams, as in `Spout.outputs`; with
    `blocking=True` the function may wait, in a thread of its own. The function takes nothing, `context` (the
    `TopologyContext`) or `start` (the number of the record to begin with). UsageError if it takes anything else.
    """
    if len(fields) == 1 and callable(fields[0]):
        return FunctionSpout(fields[0], (), blocking)  # refused: it names no field
    outputs = outputs_of(fields, streams)
    return lambda function: FunctionSpout(function, outputs, blocking)
