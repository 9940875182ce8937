"""SqlSource: the rows of a table, in the order of an ascending column, by any DB-API module.

Guarantees: a row that the query returned is emitted until it is acked or a dead letter. No transaction is open and no
cursor holds a lock while it waits. A database that is away is asked again; a query that is wrong ends the worker.

Not seen: rows that are committed after the poll that passed their position, changes and deletes (docs/connectors.md).

Thread: that of the source.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any

from squall.connect.read_ahead import ROWS
from squall.connect.source import Source
from squall.engine.api.replaying import Record
from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of, text_of_error
from squall.engine.state.sinks import is_of_outside

if TYPE_CHECKING:
    from squall.engine.api.context import TopologyContext

_SQLITE_ERROR = 1
"""SQLite's code for a mistake in SQL and for a table that is missing, which it calls operational."""


class SqlSource(Source):
    """A spout that polls a table. The first task reads::

        SqlSource(connect, "SELECT id, text FROM lines WHERE id > ? ORDER BY id LIMIT 1000", ("id", "text"),
                  position="id")
    """

    away = (ConnectionError,)

    def __init__(
        self, connect: Callable[[], Any], query: str, fields: Sequence[str], *, position: str, begin: Any = 0,
        every_secs: float = 1.0, until_end: bool = False,
    ) -> None:
        """`connect()` returns a connection of a DB-API module. `query` has one parameter, and returns rows of `fields`
        beyond that, in ascending order of the field `position`, which is unique. `begin` is its first parameter.
        `every_secs`: time until the next poll after one without rows. `until_end`: it ends instead."""
        if not callable(connect):
            raise UsageError(f"SqlSource has connect {repr_of(connect)}; allowed: a function that returns a connection")
        if isinstance(fields, str) or position not in fields:
            raise UsageError(f"SqlSource has position {position!r}; allowed: one of its fields, {repr_of(fields)}")
        self._connect, self._query, self.outputs = connect, query, tuple(fields)
        self._position, self._begin, self._fields = position, begin, tuple(fields)
        self._place, self._every_secs, self._until_end = self._fields.index(position), every_secs, until_end

    def connect(self, context: TopologyContext) -> None:
        try:
            self._connection = self._other_side = self._connect()
        except Exception as error:
            raise self._told(error) from error

    def read_from(self, position: Any) -> Iterator[list[Record] | None]:
        last = self._begin if position is None else position
        while True:
            rows = self._polled(last)
            for begin in range(0, len(rows), ROWS):
                some = rows[begin : begin + ROWS]
                positions = self._positions(some, last)
                last = positions[-1]
                yield list(zip(positions, map(tuple, some), strict=True))
            if not rows:
                if self._until_end:
                    return
                again = time.monotonic() + self._every_secs
                yield None
                while time.monotonic() < again:
                    yield None

    def _polled(self, last: Any) -> Sequence[Any]:
        try:
            cursor = self._connection.cursor()
            cursor.execute(self._query, (last,))
            rows: Sequence[Any] = cursor.fetchall()
            self._connection.rollback()
        except Exception as error:
            raise self._told(error) from error
        return rows

    def _positions(self, rows: Sequence[Sequence[Any]], last: Any) -> list[Any]:
        """The positions of rows, of which there is one at least."""
        if set(map(len, rows)) == {len(self._fields)}:
            positions = [row[self._place] for row in rows]
            with contextlib.suppress(TypeError):
                if all(map(lt, [last, *positions], positions)):
                    return positions
        return [last := self._next(row, last) for row in rows]

    def _next(self, row: Sequence[Any], last: Any) -> Any:
        """The position of a row."""
        if len(row) != len(self._fields):
            what, fields = f"{len(row)} columns by {self._query!r}", ", ".join(self._fields)
            raise UsageError(f"SqlSource read {what}; allowed: as many as there are fields: {fields}")
        position = row[self._place]
        try:
            # Texts are in the database's order, which need not be Python's.
            ascends = position != last if isinstance(position, str) else last < position
        except TypeError:
            ascends = False
        if not ascends:
            raise UsageError(
                f"SqlSource read the position {repr_of(position)} after {repr_of(last)}, by {self._query!r}; allowed: "
                f"ascending ones, as by WHERE {self._position} > ? ORDER BY {self._position}"
            )
        return position

    def _told(self, error: Exception) -> Exception:
        """The error to raise: whether the database is away, or something is set up wrong."""
        what = f"its database by {self._query!r}: {text_of_error(error)}"
        if not is_of_outside(error) or getattr(error, "sqlite_errorcode", 0) == _SQLITE_ERROR:
            return UsageError(f"SqlSource cannot read {what}")
        return ConnectionError(f"cannot read {what}")
