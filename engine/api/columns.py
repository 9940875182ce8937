"""Rows that are kept as columns, and the batch of them that a `BatchBolt` receives.

Guarantees: `Columns` is a sequence of the same tuples that a list of rows would hold; a series of them shares nothing
with the whole but the values.

Relies on: nobody changing a column that was emitted or received. Several tasks, and the spout's pending table, share
one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, overload

from squall.engine.api.tuple import FromSource, TupleSource
from squall.engine.foreign.given_columns import is_text, select, value_at, values_of

Row = tuple[Any, ...]


class Columns(Sequence[Row]):
    """Rows, by column. Thread: any; it never changes."""

    __slots__ = ("_length", "_texts", "columns")

    def __init__(self, columns: tuple[Any, ...], length: int) -> None:
        """`length`: of every column; rows without values have none to tell it."""
        self.columns = columns
        self._length = length
        self._texts: dict[int, bool] = {}

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Columns:
        """Turn rows into columns, which are lists; columns stay as they are."""
        return rows if isinstance(rows, Columns) else cls(tuple(map(list, zip(*rows, strict=True))), len(rows))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Row]:
        return zip(*map(values_of, self.columns), strict=True) if self.columns else repeat((), self._length)

    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice) -> Columns: ...
    def __getitem__(self, key: int | slice) -> Row | Columns:
        if isinstance(key, slice):
            length = len(range(*key.indices(self._length)))
            return self._part(Columns(tuple(column[key] for column in self.columns), length))
        if not -self._length <= key < self._length:
            raise IndexError(f"row {key} of {self._length}")
        return tuple(value_at(column, key) for column in self.columns)

    def continues_with(self, later: Columns) -> bool:
        """Return True if `joined` takes both: columns of lists, or of numpy arrays of one type. Arrow's are long."""
        return len(self.columns) == len(later.columns) and all(
            type(one) is type(other) and (
                type(one) is list or (
                    type(one).__name__ == "ndarray" and one.dtype == other.dtype and one.shape[1:] == other.shape[1:]
                )
            )
            for one, other in zip(self.columns, later.columns, strict=True)
        )

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Make the rows of several, each of which continues the first."""
        columns = tuple(
            list(chain.from_iterable(column)) if type(column[0]) is list
            else sys.modules["numpy"].concatenate(column)
            for column in zip(*(part.columns for part in parts), strict=True)
        )
        return cls(columns, sum(map(len, parts)))

    def select(self, wanted: bytes) -> Columns:
        """The rows where `wanted` is 1 and not 0."""
        return self._part(Columns(tuple(select(column, wanted) for column in self.columns), wanted.count(1)))

    def is_text(self, position: int) -> bool:
        """Whether a column is a list of plain text and of nothing else. Looked at once; its parts know."""
        known = self._texts.get(position)
        if known is None:
            column = self.columns[position]
            known = self._texts[position] = type(column) is list and bool(column) and is_text(column)
        return known

    def is_known_text(self, position: int) -> None:
        """Note that a column is such a list."""
        self._texts[position] = True

    def _part(self, part: Columns) -> Columns:
        """Tell a part of these rows what is known of the columns."""
        part._texts.update(self._texts)
        return part


class ColumnBatch(FromSource):
    """The batch that a `BatchBolt` executes: neighbouring tuples of one stream from one task. `batch["word"]` is the
    column of a field, `len(batch)` the number of rows, `to_rows()` the rows.

    Do not change a column: other tasks may read it, too.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Columns, source: TupleSource) -> None:
        self._rows = rows
        self._source = source

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, field: str) -> Any:
        """Return the column of a field: a list, `array`, numpy or Arrow array, as it was emitted."""
        try:
            return self._rows.columns[self._source.index[field]]
        except (KeyError, TypeError):
            raise self._has_no(field) from None

    __iter__ = None
    """Not iterable: over rows or over fields, it would surprise half of its users."""

    @property
    def columns(self) -> tuple[Any, ...]:
        """All columns, in the order of the fields."""
        return self._rows.columns

    def to_rows(self) -> list[Row]:
        """Return the rows as a list of tuples of Python objects."""
        return list(self._rows)

    def __repr__(self) -> str:
        source = self._source
        return (
            f"<ColumnBatch of {len(self)} rows from {source.component}:{source.task} {source.stream} "
            f"({', '.join(source.fields)})>"
        )
