"""Reads rows of one part of a feed, in columns: of a Parquet file; or of a text file, a row for each line.

Guarantees
    * Each row of the asked-for range comes once and in order, or there is a UsageError that names feed and file: of a
      value that Python cannot hold, too, such as a text that is not UTF-8. Memory for one chunk, whatever the size of
      the file's row groups.
    * Text files have the fields that `squall prepare` gives: partition (the file's place in the list), offset and
      line_no (from 0 and from 1), path, text without its end of line; bytes that are no UTF-8 are replaced.

Imports pyarrow when the first Parquet file is opened. Relies on Parquet files never changing, and on text files that
only grow, if they change at all. Thread: one at a time, any.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.pipeline.feed.shares import Part

#: Rows per chunk: enough that conversion (0.1 us for each value) is the main cost, few enough to arrive soon.
CHUNK_ROWS = 4096
#: Bytes of a column that are read from the file at a time.
BUFFER_BYTES = 1 << 20
FIELDS = ("partition", "offset", "path", "line_no", "text")


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


class TextSource:
    """Text files. A reader finds a line by the mark before it; `mark_rows`: lines from one mark to the next."""

    def __init__(self, paths: Sequence[Path], fields: Sequence[str], mark_rows: int) -> None:
        if not paths:
            raise UsageError("a feed of text files needs one file at least")
        for field in fields:
            if field not in FIELDS:
                raise UsageError(f"text files have no field {field!r}; allowed: {', '.join(FIELDS)}")
        for path in paths:
            if not path.is_file():
                what = "is not a file" if path.exists() else "does not exist"
                raise UsageError(f"input file {path} {what}")
        self.paths = paths
        self.fields = fields
        self._mark_rows = mark_rows
        self._marks: dict[str, list[int]] = {}
        """By part: the place of each line whose number is a multiple of `mark_rows`."""

    def find(self) -> list[Part]:
        """The parts, once."""
        parts = []
        for partition, path in enumerate(self.paths):
            if (name := f"{partition}:{path}") not in self._marks:
                parts.append(Part(name, partition, 0, self._mark(name, path)))
        return parts

    def _mark(self, name: str, path: Path) -> int:
        """Note the marks of a file. Its number of lines."""
        marks = self._marks[name] = [0]
        rows = place = 0
        try:
            with open(path, "rb") as file:
                for rows, line in enumerate(file, 1):
                    place += len(line)
                    if rows % self._mark_rows == 0:
                        marks.append(place)
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error
        return rows

    def open(self, part: Part) -> TextReader:
        partition = int(part.partition)
        return TextReader(self.paths[partition], partition, self.fields, self._mark_rows, self._marks[part.name])


class TextReader:
    """A file that is open."""

    def __init__(self, path: Path, partition: int, fields: Sequence[str], mark_rows: int, marks: list[int]) -> None:
        self._path = path
        self._partition = partition
        self._fields = fields
        self._mark_rows = mark_rows
        self._marks = marks
        try:
            self._file = open(path, "rb")  # noqa: SIM115 - closed by `close`
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}") from error

    def read(self, start: int, stop: int) -> Iterator[list[Any]]:
        """Read the lines in chunks: of each the values of each field. Makes earlier iterators void."""
        try:
            self._file.seek(self._marks[start // self._mark_rows])
            for _ in islice(self._file, start % self._mark_rows):
                pass
            for row in range(start, stop, CHUNK_ROWS):
                lines = list(islice(self._file, min(CHUNK_ROWS, stop - row)))
                if not lines:
                    raise UsageError(f"{self._path} was replaced while it was read: it ends at line {row} of {stop}")
                yield [self._values(field, row, lines) for field in self._fields]
        except OSError as error:
            raise UsageError(f"cannot read {self._path}: {error.strerror}") from error

    def _values(self, field: str, row: int, lines: list[bytes]) -> Sequence[Any]:
        count = len(lines)
        match field:
            case "text":
                return [line.rstrip(b"\r\n").decode("utf-8", "replace") for line in lines]
            case "path":
                return list(repeat(str(self._path), count))
            case "partition":
                return list(repeat(self._partition, count))
            case "line_no":
                return range(row + 1, row + 1 + count)
        return range(row, row + count)

    def close(self) -> None:
        self._file.close()
