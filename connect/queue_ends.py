"""QueueSource and QueueSink: the ends of a `Queue` as components.

Guarantees: a record that `QueueSource` reads is removed when it is acked, or a dead letter. When its worker dies, the
next reader gets what was not. `QueueSink` acks a tuple when it is on disk.

A record's position is the queue's id and the row's: the same at any task, and in another queue of the same path never.

Thread: that of the source or sink.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.connect.durable_queue import Queue, pack, row_mistake
from squall.connect.sink import Sink
from squall.connect.source import Source, Unreadable
from squall.engine.api.replaying import Record
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.engine.api.columns import ColumnBatch
    from squall.engine.api.context import TopologyContext


class QueueSource(Source):
    """A spout that reads a queue: `QueueSource("build/queue")`. All tasks read, and other consumers may."""

    away = (OSError, sqlite3.OperationalError)
    every_task = True
    delivers_again = True
    record_identity = "dense"
    _seen: tuple[str, int] | None = None
    """The queue's id and its floor, as the reading thread saw them last."""

    def __init__(
        self, path: str | os.PathLike[str], fields: Sequence[str] = ("value",), *, until_empty: bool = False
    ) -> None:
        """`fields` name the values of a record. `until_empty`: it ends when nothing is left to take. UsageError if
        there can be no queue at `path`."""
        if isinstance(fields, str):
            raise UsageError(f"QueueSource has fields {repr_of(fields)}; allowed: names, as in [{repr_of(fields)}]")
        Queue(path).close()
        self._path, self.outputs, self._until_empty = Path(path).absolute(), tuple(fields), until_empty

    def connect(self, context: TopologyContext) -> None:
        self._queue = self._other_side = Queue(self._path)

    def read_from(self, position: Any) -> Iterator[list[Record] | None]:
        width, name = len(self.outputs), self._queue.id
        while True:
            found = self._queue.open(self.fitting)
            self._seen = name, self._queue.floor()
            if not found and self._until_empty:
                return
            yield [
                ((name, id_), row if row is not None and len(row) == width else self._unreadable(id_, row))
                for id_, row in found
            ] or None

    def _unreadable(self, id_: int, row: tuple[Any, ...] | None) -> Unreadable:
        what = "bytes that are no record" if row is None else f"the values {repr_of(row)}"
        width = len(self.outputs)
        return Unreadable((None,) * width, f"record {id_} of {self._path} holds {what}, not {width}")

    def confirm(self, positions: Sequence[tuple[str, int]]) -> None:
        self._queue.confirm([id_ for _, id_ in positions])
        self._seen = self._queue.id, self._queue.floor()

    def floor(self) -> Mapping[tuple[str], int]:
        """The number below which no record of its partition comes here any more, as its thread saw it last: what is
        not acked here is not below, what others have confirmed is. Without a synced `confirm`, a power failure may give
        such records back; they are confirmed then without being counted."""
        seen = self._seen
        return {} if seen is None else {(seen[0],): seen[1]}


class QueueSink(Sink):
    """A bolt that appends the values of its tuples to a queue: `QueueSink("build/queue")`."""

    away = (OSError, sqlite3.OperationalError)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """UsageError if there can be no queue at `path`."""
        Queue(path).close()
        self._path = Path(path).absolute()

    def connect(self, context: TopologyContext) -> None:
        self._queue = self._other_side = Queue(self._path)

    def write(self, batch: ColumnBatch) -> Mapping[int, str]:
        packed, refused = [], {}
        for place, row in enumerate(batch.to_rows()):
            try:
                packed.append(pack(row))
            except (TypeError, OverflowError, ValueError) as error:
                refused[place] = row_mistake(row, error)
        self._queue.put_packed(packed)
        return refused
