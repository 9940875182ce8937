"""Reads rows of one Parquet file of a feed, in columns.

Guarantees each row of the asked-for range once and in order, or a UsageError that names feed and file; rows with a
value that is none are told apart, each with its reason. Memory for one chunk, whatever the size of the file's row
groups. Imports pyarrow when the first file is opened. Relies on the file never changing. Thread: one at a time, any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.engine.foreign.text import text_of_error

#: Rows per chunk: enough that conversion (0.1 us for each value) is the main cost, few enough to arrive soon.
CHUNK_ROWS = 4096
#: Bytes of a column that are read from the file at a time.
BUFFER_BYTES = 1 << 20

#: Of a text that is none.
SHOWN_BYTES = 60
#: What Arrow raises for a value for which Python has none.
NOT_HELD = (ValueError, OverflowError)


class PartReader:
    """A file that is open. Neighbouring ranges are read on without finding the place again."""

    def __init__(self, feed: Path, name: str, columns: Sequence[str]) -> None:
        self.feed = feed
        self.name = name
        self._columns = list(columns)
        self._batches: Iterator[Any] = iter(())
        self.flaws: dict[int, str] = {}
        """What is wrong with rows of the chunk that was read last, by row of the file."""
        self._rest: Any = None
        """Of a batch, what was not read yet."""
        self._row = 0
        """Of the file: where `_rest` or the next batch begins."""
        self._groups = [0]
        """The first row of each row group, and the end."""
        with named_errors(feed, name):
            from pyarrow import parquet

            self._file = parquet.ParquetFile(
                feed / name, buffer_size=BUFFER_BYTES, page_checksum_verification=True,
                # The old form INT96 would come as a pandas.Timestamp, or as an error without pandas.
                coerce_int96_timestamp_unit="us",
            )
        for group in range(self._file.num_row_groups):
            self._groups.append(self._groups[-1] + self._file.metadata.row_group(group).num_rows)

    @property
    def rows(self) -> int:
        return self._groups[-1]

    @property
    def types(self) -> dict[str, str]:
        """The type of each column."""
        return {field.name: str(field.type) for field in self._file.schema_arrow}

    def read(self, start: int, stop: int) -> Iterator[list[Any]]:
        """Read the rows in chunks: of each the list of values of each column. Look at `flaws` after each. Makes earlier
        iterators void."""
        with named_errors(self.feed, self.name):
            if start != self._row or not self._row:
                self._find(start)
            while self._row < stop:
                batch = next(self._batches, None) if self._rest is None else self._rest
                if batch is None:
                    raise UsageError(f"feed {self.feed} is damaged: {self.name} ends at row {self._row} of {stop}")
                begin = min(max(start - self._row, 0), batch.num_rows)
                end = min(stop - self._row, batch.num_rows)
                self._rest = batch.slice(end) if end < batch.num_rows else None
                self._row += end
                if begin < end:
                    wanted = batch.slice(begin, end - begin)
                    self.flaws = {}
                    yield [self._values(wanted, name, self._row - wanted.num_rows) for name in self._columns]

    def _values(self, batch: Any, name: str, first_row: int) -> list[Any]:
        column = batch.column(name)
        try:
            values: list[Any] = column.to_pylist()
        except NOT_HELD:
            # Writers do not check texts, Spark neither.
            values = [self._value(value, name, row) for row, value in enumerate(column, first_row)]
        return values

    def _value(self, value: Any, name: str, row: int) -> Any:
        """A value, or what there is of it; then it is a flaw of its row."""
        try:
            return value.as_py()
        except NOT_HELD as error:
            if isinstance(error, UnicodeDecodeError):
                what, shown = "a text that is not UTF-8", _shown(error.object)
            else:
                what, shown = f"a value of {value.type} that Python cannot hold", text_of_error(error)
            said = f"feed {self.feed} is damaged: {self.name} has {what} in row {row}, column {name!r}: {shown}"
            self.flaws.setdefault(row, said)
            return raw_of(value)

    def _find(self, start: int) -> None:
        """Begin to decode at the row group that holds `start`, unless that lies ahead in the present one."""
        group = bisect_right(self._groups, start) - 1
        if self._row < start and self._row and self._groups[group] < self._row:
            return
        groups = list(range(group, self._file.num_row_groups))
        self._batches = self._file.iter_batches(CHUNK_ROWS, groups, columns=self._columns, use_threads=False)
        self._rest, self._row = None, self._groups[group]

    def close(self) -> None:
        self._batches, self._rest = iter(()), None
        self._file.close()


def raw_of(value: Any) -> bytes | int | None:
    """Of a text that is none its bytes, of a time that Python does not have its number; None of what holds others."""
    import pyarrow

    if isinstance(value, pyarrow.StringScalar | pyarrow.LargeStringScalar | pyarrow.StringViewScalar):
        return bytes(value.as_buffer())
    number = getattr(value, "value", None)
    return number if isinstance(number, int) else None


def _shown(data: bytes) -> str:
    return repr(data if len(data) <= SHOWN_BYTES else data[:SHOWN_BYTES])


@contextmanager
def named_errors(feed: Path, name: str) -> Iterator[None]:
    """Make one line of an error in reading a file of a feed."""
    import pyarrow

    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"feed {feed} is damaged, or was replaced while it was read: {name} is missing") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"feed {feed} is damaged: {name}: {reason}") from error
