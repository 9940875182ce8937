"""The Spark job for rows in columns: each task writes its part of the feed, and what was refused to the quarantine.

Guarantees that each row of the frame is written once, and that only outcomes come back to the driver.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from squall.pipeline.read.frame import INTERNALS, LINE_NO, PATH, RAW, REASON
from squall.pipeline.read.json_lines import COPY
from squall.pipeline.read.lines import MAX_RAW_BYTES
from squall.pipeline.write.written import Place, Written

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame


def write_frame(frame: DataFrame, root: str, places: Sequence[Place]) -> list[Written]:
    """Write all rows of a frame with INTERNALS, in a task for each place at most."""
    from pyspark.sql import functions as f

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = places[context.partitionId() if context else 0]
        rows = (pyarrow.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        outcome = pickle.dumps(_write(root, place, rows))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([outcome])], ["outcome"])

    # Of good rows, nobody asks for the file.
    frame = frame.withColumn(PATH, f.when(f.col(REASON).isNotNull(), f.col(PATH)))
    # As one column: PySpark takes a dot in a name for a field of a struct here, and asks Java for each column.
    rows = frame.selectExpr("struct(*) AS record").coalesce(len(places)).mapInArrow(write, "outcome binary").collect()
    return [pickle.loads(row.outcome) for row in rows]


def _write(root: str, place: Place, batches: Iterator[pyarrow.RecordBatch]) -> Written:
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
