"""The Spark job for rows with fates: each task writes its part of the feed, and what was refused to the quarantine.

::

    source frame ─► clean function ─► rules ─► one task per partition ─┬─ good ─────► FEED/rows
                                                                      ├─ refused ──► FEED/quarantine
                                                                      └─ dropped ──► counted

Guarantees that each row of the frame is written once or counted, and that only outcomes come back to the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from squall.pipeline.cleaning import DROPPED, FATE, INTERNALS, LINE_NO, PATH, RAW, REFUSED, SOURCE_FILE
from squall.pipeline.corpus import MAX_RAW_BYTES, InputFile, balance, last_line, read_chunks
from squall.pipeline.inputs import SourceFile, path_in
from squall.pipeline.written import Place, Written

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

    from squall.pipeline.part_writer import PartWriter

_TEXT_SCHEMA = (
    f"path string, line_no int, text string, {PATH} string, {LINE_NO} int, {FATE} string, {RAW} binary"
)


def text_frame(spark: SparkSession, root: str, files: Sequence[InputFile], tasks: int) -> DataFrame:
    """The lines of text files as rows, those that are no text with a fate; and a row for each file that was read."""
    plan = balance(files, tasks)

    def read(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for file in plan[task]:
                    yield from _line_batches(root, file)

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, _TEXT_SCHEMA)


def _line_batches(root: str, file: InputFile) -> Iterator[pyarrow.RecordBatch]:
    checksums: list[str] = []
    line_no, problem = file.start_line, ""
    for chunk in read_chunks(file, checksums.append):
        count = len(chunk.texts)
        if count:
            nothing = [None] * count
            names = [file.name] * count
            yield _batch([names, chunk.line_nos, chunk.texts, names, chunk.line_nos, nothing, nothing])
        line_no = last_line(chunk, line_no)
        for line in chunk.refused:
            yield _batch([[None], [None], [None], [file.name], [line.line_no], [f"{REFUSED}{line.reason}"], [line.raw]])
        if not checksums and chunk.refused and not chunk.refused[-1].line_no:
            problem = chunk.refused[-1].reason or ""
    source = SourceFile(path_in(root, file), file.size_bytes, file.mtime_ns, "".join(checksums), problem, line_no)
    yield _batch([[None], [None], [None], [file.name], [0], [SOURCE_FILE], [pickle.dumps(source)]])


def _batch(columns: Sequence[Sequence[Any]]) -> pyarrow.RecordBatch:
    import pyarrow

    text, number, raw = pyarrow.string(), pyarrow.int32(), pyarrow.binary()
    names = ("path", "line_no", "text", *INTERNALS)
    types = dict(zip(names, (text, number, text, text, number, text, raw), strict=True))
    arrays = [pyarrow.array(values, type_) for values, type_ in zip(columns, types.values(), strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, list(types))


def write_frame(frame: DataFrame, root: str, places: Sequence[Place]) -> list[Written]:
    """Write all rows of a frame with fates, in a task for each place at most."""

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = places[context.partitionId() if context else 0]
        rows = (pyarrow.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        outcome = pickle.dumps(_write(root, place, rows))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([outcome])], ["outcome"])

    # As one column: PySpark takes a dot in a name for a field of a struct here, and asks Java for each column.
    rows = frame.selectExpr("struct(*) AS record").coalesce(len(places)).mapInArrow(write, "outcome binary").collect()
    return [pickle.loads(row.outcome) for row in rows]


def _write(root: str, place: Place, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    from squall.pipeline.part_writer import PartWriter

    writer: PartWriter | None = None
    for batch in batches:
        names = [name for name in batch.schema.names if name not in INTERNALS]
        writer = writer or PartWriter(place, {name: batch.schema.field(name).type for name in names})
        fates = batch.column(FATE)
        good = batch if fates.null_count == batch.num_rows else batch.filter(fates.is_null())
        if good.num_rows:
            writer.add([good.column(name) for name in names])
            writer.written.used.update(_name(root, path or "") for path in good.column(PATH).unique().to_pylist())
        if good.num_rows < batch.num_rows:
            _end(root, writer, batch.filter(fates.is_valid()).select(list(INTERNALS)).to_pylist())
    return writer.close() if writer else Written(place.partition)


def _end(root: str, writer: PartWriter, rows: list[dict[str, Any]]) -> None:
    """Quarantine, count or note rows that are not good."""
    refused = []
    for row in rows:
        kind, text = row[FATE][0], row[FATE][1:]
        if kind == DROPPED:
            writer.written.dropped[text] += 1
            writer.written.used.add(_name(root, row[PATH] or ""))
        elif kind == SOURCE_FILE:
            writer.written.sources.append(pickle.loads(row[RAW]))
        else:
            raw = bytes(row[RAW] or b"")[:MAX_RAW_BYTES]
            refused.append((_name(root, row[PATH] or ""), row[LINE_NO] or 0, text, raw))
    writer.refuse(refused)


def _name(root: str, path: str) -> str:
    """The name of a file in the input, as people read it."""
    if not path.startswith("file:"):
        return path
    plain = PurePosixPath(unquote(urlsplit(path).path))
    return str(plain.relative_to(root)) if plain.is_relative_to(root) and str(plain) != root else plain.name
