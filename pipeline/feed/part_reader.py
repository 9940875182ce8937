"""Reads rows of one Parquet file of a feed, in columns.

Guarantees each row of the asked-for range once and in order, or a UsageError that names feed and file: of a value that
Python cannot hold, too, such as a text that is not UTF-8. Memory for one chunk, whatever the size of the file's row
groups. Imports pyarrow when the first file is opened. Relies on the file never changing. Thread: one at a time, any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError

#: Rows per chunk: enough that conversion (0.1 us for each value) is the main cost, few enough to arrive soon.
CHUNK_ROWS = 4096
#: Bytes of a column that are read from the file at a time.
BUFFER_BYTES = 1 << 20


class PartReader:
    """A file that is open. Neighbouring ranges are read on without finding the place again."""

    def __init__(self, feed: Path, name: str, columns: Sequence[str]) -> None:
        self.feed = feed
        self.name = name
        self._columns = list(columns)
        self._batches: Iterator[Any] = iter(())
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
        """Read the rows in chunks: of each the list of values of each column. Makes earlier iterators void."""
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
                    yield [wanted.column(name).to_pylist() for name in self._columns]

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


@contextmanager
def named_errors(feed: Path, name: str) -> Iterator[None]:
    """Make one line of an error in reading a file of a feed."""
    import pyarrow

    try:
        yield
    except FileNotFoundError as error:
        raise UsageError(f"feed {feed} is damaged, or was replaced while it was read: {name} is missing") from error
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"feed {feed} is damaged: {name}: {reason}") from error
