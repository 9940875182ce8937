"""The Spark job for plain lines of text: each task reads its files and writes its part of the feed, in one pass.

Guarantees that each line of the files is in the feed or in the quarantine, in order of file name and line, and that
only the outcomes come back to the driver: names, counts and checksums. Relies on `read.lines` for what a line is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from squall.pipeline.read.files import InputFile, balance
from squall.pipeline.read.inputs import SourceFile, path_in
from squall.pipeline.read.lines import last_line, read_chunks
from squall.pipeline.write.written import Place, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Columns of a line beside partition and offset.
LINE_COLUMNS = ("path", "line_no", "text")


def write_lines(spark: SparkSession, root: str, files: Sequence[InputFile], places: Sequence[Place]) -> list[Written]:
    """Write all lines of the files, in one task for each place."""
    plan = balance(files, len(places))

    def write(task: int) -> Written:
        return _write(root, plan[task], places[task])

    # No row passes through Java; to load its SQL classes takes 2.5 s of processor time.
    return spark.sparkContext.parallelize(range(len(places)), len(places)).map(write).collect()


def _write(root: str, files: Sequence[InputFile], place: Place) -> Written:
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

