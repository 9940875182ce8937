"""Short batches that a spout emits one after the other, joined: each batch has a price of its own on its whole way, in
routing, tracking, frames and the calls of bolts.

Guarantees: rows, their message ids and their order are those that were emitted; a batch that comes alone, or is long,
or has a column that is no list, stays what it is.

Thread: the sending task's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from squall.engine.api.columns import Columns

LONG_ROWS = 512
"""Rows of a batch to which nothing is joined: in a longer one, a row costs little less."""
_LISTS = {list}


class Gathered:
    """Batches of one stream."""

    __slots__ = ("_batches", "_ids", "_stream", "rows")

    def __init__(self) -> None:
        self._batches: list[Columns] = []
        self._ids: list[Sequence[Any]] = []
        self._stream = ""
        self.rows = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_long(self) -> bool:
        """Whether nothing more is to be joined."""
        return self.rows >= LONG_ROWS

    def fits(self, rows: Columns, stream: str) -> bool:
        """Whether rows can be joined to what there is."""
        if not self._batches:
            return True
        return stream == self._stream and len(rows) < LONG_ROWS and all(
            set(map(type, batch.columns)) == _LISTS for batch in (self._batches[-1], rows)
        )

    def add(self, rows: Columns, ids: Sequence[Any], stream: str) -> None:
        """Take up tracked rows, which fit."""
        self._batches.append(rows)
        self._ids.append(ids)
        self._stream = stream
        self.rows += len(rows)

    def take(self) -> tuple[Columns, Sequence[Any], str]:
        """Take out all rows, their message ids and their stream."""
        batches, ids, count = self._batches, self._ids, self.rows
        self._batches, self._ids, self.rows = [], [], 0
        if len(batches) == 1:
            return batches[0], ids[0], self._stream
        columns = zip(*(batch.columns for batch in batches), strict=True)
        joined = Columns(tuple(list(chain.from_iterable(parts)) for parts in columns), count)
        return joined, list(chain.from_iterable(ids)), self._stream
