"""Reads text files as a feed: a part for each file, a row for each line, without pyarrow.

Guarantees the fields that `squall prepare` gives: partition (the file's place in the list), offset and line_no (from 0
and from 1), path, text without its end of line; bytes that are no UTF-8 are replaced. Relies on files that only grow,
if they change at all. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from squall.engine.errors import UsageError
from squall.pipeline.feed.part_reader import CHUNK_ROWS
from squall.pipeline.feed.shares import Part

FIELDS = ("partition", "offset", "path", "line_no", "text")


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
