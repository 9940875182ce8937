"""Source: a spout over what can be read again from a position, or delivers again what was not confirmed.

Guarantees
    * A record is emitted, and after each failure again, until it is acked or a dead letter. Only then is it committed
      or confirmed; so after any death it is read again.
    * A source's own methods are called by a thread of its own (`connect.read_ahead`), and may wait.

Relies on: positions being the same when a record is read again, and no two records that are pending having the same.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from squall.connect.outside import Outside
from squall.connect.read_ahead import Again, End, ReadAhead
from squall.engine.api.component import BatchSpout
from squall.engine.api.replaying import Record, ReplayingSpout
from squall.engine.errors import ComponentError
from squall.engine.foreign.files import replace_file
from squall.engine.foreign.text import repr_of

if TYPE_CHECKING:
    from squall.engine.api.collectors import SpoutCollector
    from squall.engine.api.context import TopologyContext


DEEPEST = 100
"""Most lists and objects of JSON around one value."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for the values of a record that cannot be processed, such as bytes that are no text: it becomes a dead
    letter at once."""

    values: tuple[Any, ...]
    """What is shown of it, a value for each field."""
    why: str
    """The error of its dead letter."""


def read_json(text: bytes) -> Any:
    """Decode JSON. ValueError for what is nested deeper than `DEEPEST`, which could not be sent on to a worker."""
    value = msgspec.json.decode(text)
    if text.count(b"[") + text.count(b"{") > DEEPEST:
        _check_depth(value, DEEPEST)
    return value


def _check_depth(value: Any, most: int) -> None:
    if isinstance(value, list | dict):
        if not most:
            raise ValueError(f"it is nested deeper than {DEEPEST}")
        for part in value.values() if isinstance(value, dict) else value:
            _check_depth(part, most - 1)


class Source(Outside, ReplayingSpout, BatchSpout):
    """A spout that reads from something outside. Subclasses define `outputs` and `read_from`, and what they need of the
    other methods::

        class Numbers(Source):
            outputs = ("n",)

            def read_from(self, position):
                for n in range(position or 0, 1_000_000):
                    yield n + 1, (n,)
    """

    every_task: bool = False
    """True if each task reads, because the other side shares the records out among them. Otherwise the first one reads,
    and others have nothing to do."""
    delivers_again: bool = False
    """True if, after a new connection, the other side delivers again what was not confirmed: what does not
    come again is then forgotten, and what is under way or waits for its retry is not emitted once more."""
    partitioned: bool = False
    """True if positions are tuples that begin with a partition. Each partition is committed by itself, and `read_from`
    is given a dict with the position of each."""
    pause_secs: float = 0.05
    """Time until `read_from` is asked again after a None; 0 if it waits itself."""

    fitting: int = 32
    """Records that a list which `read_from` yields should have at most: few at first, then as many like the newest as
    take about 1 MiB."""
    connection: int = 0
    """Number of the present connection, from 1."""

    _ids_are_keys = True
    _stored: Any = None

    @cached_property
    def record_identity(self) -> str | None:  # type: ignore[override]
        """How `Spout.record_identity` says: positions name records whoever reads them, but where the other side shares
        them out without partitions: there ids are names. Positions that do not end with a number are names, too."""
        return "name" if (self.every_task or self.is_confirmed_one_by_one) and not self.partitioned else "partition"

    # ---- what subclasses define ----

    def read_from(self, position: Any) -> Iterator[Record | list[Record] | None]:
        """Yield (position, values) for each record, or several in a list, or None if there is none at the moment;
        return at the end.

        A record's position is where to go on after it; it is the message id too, so it is a plain value: a number, a
        text, a date, or a tuple of these. `position` is the one that was committed last, or, after a new connection,
        read last; None at first. The values are a tuple, an `Emit` for another stream, or `Unreadable`."""
        raise TypeError(f"{type(self).__name__} must define read_from")

    def commit(self, position: Any) -> None:
        """Every record up to this position is done: store that. By default in the task's state directory, for
        `read_from`. It may raise one of `away`."""
        state = self._state_file
        if state is not None:
            if self.partitioned:
                position = self._stored = {**(self._stored or {}), position[0]: position}
            replace_file(state, pickle.dumps(position))

    def confirm(self, positions: Sequence[Any]) -> None:
        """These records are done. Define it instead of `commit` if they are confirmed one by one, in any order."""

    def keep_alive(self) -> None:
        """Called each second while nothing may be read, for clients whose connection would end."""

    def tell(self, error: BaseException) -> None:
        """Tell the operator of an error, while reading goes on. Subclasses call it."""
        self._ahead.tell(error)

    def is_taken(self) -> bool:
        """Return True if the task has taken everything that `read_from` yielded. Subclasses that define `partitions`
        call it."""
        return self._ahead.is_taken

    # ---- what the engine calls ----

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self._ahead = ReadAhead(self, context)
        root = context.state_root
        self._state_file = None if root is None else os.path.join(context.state_dir, "position")
        super().open(conf, context, collector)
        if self.every_task or not context.task_index:
            self._ahead.start()
        else:
            self.at_end = True

    def read(self) -> Iterator[Record | None]:
        return iter(())

    def next_batch(self, rows: int) -> None:
        for error in self._ahead.errors():
            self.collector.report_error(error)
        if self.emit_due(rows) or len(self._due) >= self.max_waiting:
            return
        found = self._ahead.take(rows)
        if isinstance(found, list):
            if found:
                self._emit_all(found)
        elif found is Again:
            self._under_way |= self.kept.keys()
            self.kept.clear()
        elif found is End:
            self.at_end = True

    def _emit_all(self, records: list[Record]) -> None:
        positions = [position for position, _ in records]
        kept, before = self.kept, len(self.kept)
        kept.update(zip(positions, records, strict=True))
        if len(kept) < before + len(positions):
            raise ComponentError(
                f"{type(self).__name__}.read_from yielded a position twice, such as {repr_of(positions[-1])}; no two "
                "records that are pending may have the same"
            )
        self._ahead.emitted(positions)
        if self._under_way:
            # One that waits for its retry would be two, and four after another connection.
            records = [record for record in records if record[0] not in self._under_way]
            self._under_way.difference_update(positions)
        positions, rows = [position for position, _ in records], [values for _, values in records]
        if set(map(type, rows)) == {tuple} and len(set(map(len, rows))) == 1:
            columns = [list(column) for column in zip(*rows, strict=True)]
            self.collector.emit_batch(columns, message_ids=positions)
            return
        for position, values in records:
            if isinstance(values, Unreadable):
                self.collector.give_up(values.values, position, values.why)
            else:
                self._emit(position, values)

    def ack_batch(self, message_ids: list[Any]) -> None:
        self._under_way.difference_update(message_ids)
        self._ahead.acked([one for one in message_ids if self.kept.pop(one, None) is not None])

    def ack(self, message_id: Any) -> None:
        self.ack_batch([message_id])

    def partitions(self) -> Mapping[tuple[Any, ...], bool] | None:
        reads = self.every_task or not self.context.task_index
        return self._ahead.partitions() if reads and not self.at_end else {}

    def confirmed(self) -> Sequence[Any]:
        return self._ahead.confirmed()

    def close(self) -> None:
        self._ahead.close()

    # ---- what its thread calls ----

    @property
    def is_confirmed_one_by_one(self) -> bool:
        """Return True if it defines `confirm`."""
        return type(self).confirm is not Source.confirm

    def stored_position(self) -> Any:
        """What `commit` stored last, of a partitioned source for each partition; None if it stored nothing."""
        if self._state_file is None or not os.path.exists(self._state_file):
            return None
        with open(self._state_file, "rb") as file:
            self._stored = pickle.load(file)
        return self._stored
