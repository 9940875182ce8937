"""Writes the rows of one partition to files of a feed: the rows to one, the refused ones with reasons to another.

Guarantees that each row that it is given is in one of the two files, in order, with offsets without gaps; memory for a
row group, whatever the number of rows; checksums of pages and files, so that damage is noticed by those who read.
Runs in Spark's Python workers, in one pass, so nothing has to be kept or read twice. Imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import pyarrow
from pyarrow import parquet

from squall.pipeline.feed.manifest import (
    PLACE_COLUMNS,
    QUARANTINE_NAME,
    ROW_GROUP_BYTES,
    ROWS_NAME,
    PartFile,
    PartPlace,
    Refused,
    Written,
)
from squall.pipeline.read.inputs import sha256_of

#: Refused rows of a partition that are shown by name: enough for examples.
SHOWN = 10
PLACE_TYPES = (pyarrow.int32(), pyarrow.int64())
QUARANTINE_SCHEMA = pyarrow.schema(
    {
        "partition": pyarrow.int32(),
        "path": pyarrow.string(),
        "line_no": pyarrow.int32(),
        "reason": pyarrow.string(),
        "raw": pyarrow.binary(),
    }
)


class TableFile:
    """A Parquet file that is written row group by row group; it is made with the first row."""

    def __init__(self, directory: str, name: str, schema: pyarrow.Schema, group_bytes: int = ROW_GROUP_BYTES) -> None:
        self.name = name
        self.rows = 0
        self._path = Path(directory, name)
        self._schema = schema
        self._group_bytes = group_bytes
        self._writer: Any = None
        self._held: list[pyarrow.RecordBatch] = []
        self._held_bytes = 0

    def append(self, batch: pyarrow.RecordBatch) -> None:
        if batch.num_rows:
            self._held.append(batch)
            self._held_bytes += batch.nbytes
            self.rows += batch.num_rows
            if self._held_bytes >= self._group_bytes:
                self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._path.parent.mkdir(exist_ok=True)
            self._writer = parquet.ParquetWriter(self._path, self._schema, write_page_checksum=True)
        table = pyarrow.Table.from_batches(self._held, self._schema)
        groups = max(1, round(self._held_bytes / self._group_bytes))
        self._writer.write_table(table, row_group_size=-(-table.num_rows // groups))
        self._held, self._held_bytes = [], 0

    def close(self) -> PartFile | None:
        """Complete the file. Return None if it had no row and was not made."""
        if self._held:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        return PartFile(self.name, self.rows, self._path.stat().st_size, sha256_of(self._path))


class PartWriter:
    """Writes what one task gives it."""

    def __init__(
        self, place: PartPlace, types: Mapping[str, pyarrow.DataType], group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        """`types`: the columns of the rows, without partition and offset."""
        self._place = place
        self.written = Written(place.partition)
        self._next = place.offset
        self.schema = pyarrow.schema([*zip(PLACE_COLUMNS, PLACE_TYPES, strict=True), *types.items()])
        self._rows = TableFile(place.directory, f"{ROWS_NAME}/{place.stem}.parquet", self.schema, group_bytes)
        self._quarantine = TableFile(
            place.directory, f"{QUARANTINE_NAME}/{place.stem}.parquet", QUARANTINE_SCHEMA
        )

    def add(self, columns: Sequence[pyarrow.Array]) -> None:
        """Add rows, in the columns of the schema that follow partition and offset."""
        count = len(columns[0])
        partitions = pyarrow.repeat(pyarrow.scalar(self._place.partition, PLACE_TYPES[0]), count)
        offsets = pyarrow.array(numpy.arange(self._next, self._next + count))
        self._rows.append(pyarrow.RecordBatch.from_arrays([partitions, offsets, *columns], schema=self.schema))
        self._next += count

    def refuse(self, rows: Sequence[tuple[str, int, str, bytes]], counted: Sequence[str] = ()) -> None:
        """Quarantine rows: (path, line_no, reason, raw); line_no 0 if it is not known. `counted`: the reasons without
        what is of one row alone."""
        if not rows:
            return
        paths, line_nos, reasons, raws = zip(*rows, strict=True)
        columns = [[self._place.partition] * len(rows), paths, line_nos, reasons, raws]
        arrays = [pyarrow.array(values, one.type) for values, one in zip(columns, QUARANTINE_SCHEMA, strict=True)]
        self._quarantine.append(pyarrow.RecordBatch.from_arrays(arrays, schema=QUARANTINE_SCHEMA))
        self.written.reasons.update(counted or reasons)
        for path, line_no, reason, _ in rows[: SHOWN - len(self.written.shown)]:
            self.written.shown.append(Refused(path, line_no, reason))

    def close(self) -> Written:
        self.written.rows = self._rows.close()
        self.written.quarantine = self._quarantine.close()
        return self.written
