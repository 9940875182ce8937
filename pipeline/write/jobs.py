"""The jobs of Spark's that write a feed: each task writes its part, and what was refused to the quarantine.

Guarantees that each line, or each row of a frame, is written once, and that only outcomes come back to the driver:
names, counts and checksums. Relies on `read.lines` for what a line is.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from squall.pipeline.read.files import InputFile, balance
from squall.pipeline.read.frame import INTERNALS, LINE_NO, PATH, RAW, REASON
from squall.pipeline.read.inputs import SourceFile, path_in
from squall.pipeline.read.json_lines import COPY
from squall.pipeline.read.lines import MAX_RAW_BYTES, last_line, read_chunks
from squall.pipeline.write.written import Place, Written

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

#: Columns of a line beside partition and offset.
LINE_COLUMNS = ("path", "line_no", "text")


def write_lines(spark: SparkSession, root: str, files: Sequence[InputFile], places: Sequence[Place]) -> list[Written]:
    """Write all lines of the files, in one task for each place."""
    plan = balance(files, len(places))

    def write(task: int) -> Written:
        return _write_lines(root, plan[task], places[task])

    # No row passes through Java; to load its SQL classes takes 2.5 s of processor time.
    return spark.sparkContext.parallelize(range(len(places)), len(places)).map(write).collect()


def _write_lines(root: str, files: Sequence[InputFile], place: Place) -> Written:
    import pyarrow

    from squall.pipeline.write.part_writer import PartWriter

    types = {"path": pyarrow.string(), "line_no": pyarrow.int32(), "text": pyarrow.string()}
    writer = PartWriter(place, types)
    for file in files:
        checksums: list[str] = []
        line_no, problem = file.start_line, ""
        for chunk in read_chunks(file, checksums.append):
            if chunk.texts:
                texts = pyarrow.array(chunk.texts, types["text"])
                paths = pyarrow.repeat(file.name, len(texts))
                writer.add([paths, pyarrow.array(chunk.line_nos, types["line_no"]), texts])
                joined = "\n".join(chunk.texts)
                writer.written.words += len(joined.split())
                writer.written.bytes += len(joined.encode()) - len(chunk.texts) + 1
            line_no = last_line(chunk, line_no)
            writer.refuse([(file.name, line.line_no, line.reason or "", line.raw or b"") for line in chunk.refused])
            if not checksums and chunk.refused and not chunk.refused[-1].line_no:
                problem = chunk.refused[-1].reason or ""
        source = SourceFile(path_in(root, file), file.size_bytes, file.mtime_ns, "".join(checksums), problem, line_no)
        writer.written.sources.append(source)
    return writer.close()


def write_frame(frame: DataFrame, root: str, places: Sequence[Place]) -> list[Written]:
    """Write all rows of a frame with INTERNALS, in a task for each place at most."""
    from pyspark.sql import functions as f

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = places[context.partitionId() if context else 0]
        rows = (pyarrow.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        outcome = pickle.dumps(_write_rows(root, place, rows))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([outcome])], ["outcome"])

    # Of good rows, nobody asks for the file.
    frame = frame.withColumn(PATH, f.when(f.col(REASON).isNotNull(), f.col(PATH)))
    # As one column: PySpark takes a dot in a name for a field of a struct here, and asks Java for each column.
    rows = frame.selectExpr("struct(*) AS record").coalesce(len(places)).mapInArrow(write, "outcome binary").collect()
    return [pickle.loads(row.outcome) for row in rows]


def _write_rows(root: str, place: Place, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    from squall.pipeline.write.part_writer import PartWriter

    writer: PartWriter | None = None
    for batch in batches:
        names = [name for name in batch.schema.names if name not in INTERNALS]
        writer = writer or PartWriter(place, {name: batch.schema.field(name).type for name in names})
        reasons = batch.column(REASON)
        good = batch if reasons.null_count == batch.num_rows else batch.filter(reasons.is_null())
        if good.num_rows:
            writer.add([good.column(name) for name in names])
        if good.num_rows < batch.num_rows:
            writer.refuse([
                (_name(root, row[PATH] or ""), row[LINE_NO] or 0, row[REASON], bytes(row[RAW] or b"")[:MAX_RAW_BYTES])
                for row in batch.filter(reasons.is_valid()).select(list(INTERNALS)).to_pylist()
            ])
    return writer.close() if writer else Written(place.partition)


def _name(root: str, path: str) -> str:
    """The name of a file in the input, as people read it."""
    if not path.startswith("file:"):
        return path
    plain = PurePosixPath(unquote(urlsplit(path).path).removesuffix(COPY))
    return str(plain.relative_to(root)) if plain.is_relative_to(root) else plain.name
