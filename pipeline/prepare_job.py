"""What Spark does in a run of prepare: from files to an increment of a feed.

::

    text ─► lines ─┬──────────────────────────────┐
                   └─► Parquet ─┐                 ├─► one task for each partition ─┬─ good ────► FEED/rows
    csv, json, parquet, orc ────┴─► SQL, function ┘                                └─ refused ─► FEED/quarantine

Guarantees that each line, or each row of a frame, is written once, and that only outcomes come back to the driver:
names, counts and checksums; that mistakes in SQL, columns and the cleaning function are told before the first row of
the feed is written.
"""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from squall.engine.foreign.text import repr_of
from squall.pipeline.feed.manifest import (
    PLACE_COLUMNS,
    ROW_GROUP_BYTES,
    Manifest,
    PartPlace,
    Written,
    places,
    with_schema,
)
from squall.pipeline.feed.staging import LINES_NAME
from squall.pipeline.read.input_files import InputFile, balance
from squall.pipeline.read.input_frame import (
    INTERNAL,
    REFUSED,
    check_columns,
    columns_of,
    read_frame,
    spark_path,
)
from squall.pipeline.read.inputs import SourceFile, path_in
from squall.pipeline.read.json_lines import COPY, can_check, check_records, is_document, tree_of
from squall.pipeline.read.lines import MAX_RAW_BYTES, LineFinder, last_line, read_chunks
from squall.pipeline.read.recipe import Recipe, clean

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

#: Spark cuts files into so many pieces for each partition, which `coalesce` deals out in equal numbers.
PIECES = 8
#: Of lines on their way to SQL or a function: smaller ones would cost more than they even out.
MIN_GROUP_BYTES = 16 << 10
#: Of a value that is wrong; the whole record is beside it.
SHOWN_CHARS = 80
#: Columns of a line beside partition and offset.
LINE_COLUMNS = ("path", "line_no", "text")
_LINE_SCHEMA = {"path": "string", "line_no": "int", "text": "string"}
#: Columns that say where a line is from: rows have them, spouts emit them only if asked.
_PLACE_OF_LINE = LINE_COLUMNS[:2]


class Done(NamedTuple):
    """The outcome of a job, and the manifest before it, with the schema of its rows."""

    base: Manifest
    written: list[Written]


def run_job(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    # Tasks may have another working directory.
    root = os.path.abspath(root)
    if recipe.is_plain:
        base = with_schema(base, _LINE_SCHEMA, "", LINE_COLUMNS[2:])
        return Done(base, write_lines(spark, root, files, places(base, str(staging))))
    lines = staging / LINES_NAME
    lines.mkdir()
    # It takes a file for 4 MiB longer than it is: of three small ones, two would be one piece.
    settings = {"openCostInBytes": "4096", "minPartitionNum": str(PIECES * len(base.partitions))}
    before = {f"spark.sql.files.{name}": spark.conf.get(f"spark.sql.files.{name}", None) for name in settings}
    try:
        _configure(spark, dict(zip(before, settings.values(), strict=True)))
        if recipe.is_text:
            return _write_clean_lines(spark, recipe, base, root, files, staging)
        return _write_records(spark, recipe, base, root, files, staging)
    finally:
        shutil.rmtree(lines)
        _configure(spark, before)


def _configure(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


def _write_clean_lines(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    lines = staging / LINES_NAME
    # A row group is what Spark cannot cut.
    wanted_bytes = sum(file.size_bytes - file.start_bytes for file in files) // (PIECES * len(base.partitions))
    group_bytes = min(max(wanted_bytes, MIN_GROUP_BYTES), ROW_GROUP_BYTES)
    read = write_lines(spark, root, files, places(base, str(lines)), group_bytes)
    rows = [spark_path(str(lines / one.rows.name)) for one in read if one.rows]
    refused = _only_refused(read, lines, staging)
    if not rows or recipe.cleaner is None:
        return Done(base, refused)
    cleaned = clean(spark.read.parquet(*rows).select(*LINE_COLUMNS), recipe.cleaner)
    columns = columns_of(cleaned)
    check_columns(columns, PLACE_COLUMNS)
    schema = {field.name: field.dataType.simpleString() for field in cleaned.schema if field.name in columns}
    base = with_schema(base, schema, "", [name for name in columns if name not in _PLACE_OF_LINE])
    return Done(base, [*refused, *write_frame(cleaned, root, places(base, str(staging)))])


def _write_records(
    spark: SparkSession, recipe: Recipe, base: Manifest, root: str, files: Sequence[InputFile], staging: Path
) -> Done:
    lines = staging / LINES_NAME
    refused: list[Written] = []
    root = root if os.path.isdir(root) else os.path.dirname(root)
    tree, locations = root, [file.location for file in files]
    if recipe.format_ == "json" and can_check(recipe.options):
        found = check_records(spark, root, files, places(base, str(lines)), by_line=not is_document(recipe.options))
        refused = _only_refused(found, lines, staging)
        if copied := [location for one in found for location in one.copied]:
            tree, locations = tree_of(root, files, copied, str(lines))
    frame, source_schema = read_frame(
        spark, recipe.format_, tree, locations, recipe.options, recipe.schema, base.source_schema
    )
    given = frame
    if recipe.cleaner:
        frame = clean(frame, recipe.cleaner)
    columns = columns_of(frame)
    check_columns(columns, PLACE_COLUMNS)
    schema = {field.name: field.dataType.simpleString() for field in frame.schema if field.name in columns}
    base = with_schema(base, schema, source_schema, columns)
    if recipe.cleaner:
        # A pass of its own: in a union, half of the tasks would get no good row.
        malformed = given.where(given[REFUSED].isNotNull()).select(REFUSED)
        refused += write_frame(malformed, tree, places(base, str(staging)))
    return Done(base, [*refused, *write_frame(frame, tree, places(base, str(staging)))])


def _only_refused(written: list[Written], lines: Path, staging: Path) -> list[Written]:
    """What a first pass has refused becomes part of the increment; its rows do not."""
    for one in written:
        if one.quarantine:
            (lines / one.quarantine.name).rename(staging / one.quarantine.name)
        one.rows = None
    return written


def write_lines(
    spark: SparkSession, root: str, files: Sequence[InputFile], places: Sequence[PartPlace],
    group_bytes: int = ROW_GROUP_BYTES,
) -> list[Written]:
    """Write all lines of the files, in one task for each place."""
    plan = balance(files, len(places))

    def write(task: int) -> Written:
        return _write_lines(root, plan[task], places[task], group_bytes)

    # No row passes through Java; to load its SQL classes takes 2.5 s of processor time.
    return spark.sparkContext.parallelize(range(len(places)), len(places)).map(write).collect()


def _write_lines(root: str, files: Sequence[InputFile], place: PartPlace, group_bytes: int) -> Written:
    import pyarrow

    from squall.pipeline.feed.part_writer import PartWriter

    types = {"path": pyarrow.string(), "line_no": pyarrow.int32(), "text": pyarrow.string()}
    writer = PartWriter(place, types, group_bytes)
    for file in files:
        checksums: list[str] = []
        line_no, problem = file.start_line, ""
        for chunk in read_chunks(file, checksums.append):
            if chunk.texts:
                texts = pyarrow.array(chunk.texts, types["text"])
                paths = pyarrow.repeat(file.name, len(texts))
                writer.add([paths, pyarrow.array(chunk.line_nos, types["line_no"]), texts])
            line_no = last_line(chunk, line_no)
            writer.refuse([(file.name, line.line_no, line.reason or "", line.raw or b"") for line in chunk.refused])
            if not checksums and chunk.refused and not chunk.refused[-1].line_no:
                problem = chunk.refused[-1].reason or ""
        source = SourceFile(path_in(root, file), file.size_bytes, file.mtime_ns, "".join(checksums), problem, line_no)
        writer.written.sources.append(source)
    return writer.close()


def write_frame(frame: DataFrame, root: str, places: Sequence[PartPlace]) -> list[Written]:
    """Write all rows of a frame with REFUSED, in a task for each place at most."""

    def write(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        context = TaskContext.get()
        place = places[context.partitionId() if context else 0]
        rows = (pyarrow.RecordBatch.from_struct_array(batch.column(0)) for batch in batches)
        outcome = pickle.dumps(_write_rows(root, place, rows))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([outcome])], ["outcome"])

    # As one column: PySpark takes a dot in a name for a field of a struct here, and asks Java for each column.
    rows = frame.selectExpr("struct(*) AS record").coalesce(len(places)).mapInArrow(write, "outcome binary").collect()
    return [pickle.loads(row.outcome) for row in rows]


def _write_rows(root: str, place: PartPlace, batches: Iterator[pyarrow.RecordBatch]) -> Written:
    from squall.pipeline.feed.part_writer import PartWriter

    writer: PartWriter | None = None
    finder = LineFinder()
    for batch in batches:
        names = [name for name in batch.schema.names if not name.startswith(INTERNAL)]
        writer = writer or PartWriter(place, {name: batch.schema.field(name).type for name in names})
        refused = batch.column(REFUSED)
        good = batch if refused.null_count == batch.num_rows else batch.filter(refused.is_null())
        if good.num_rows:
            writer.add([good.column(name) for name in names])
        if good.num_rows < batch.num_rows:
            rows = refused.drop_null().to_pylist()
            writer.refuse([_refused(root, finder, row) for row in rows], [row["reason"] for row in rows])
    return writer.close() if writer else Written(place.partition)


def _refused(root: str, finder: LineFinder, row: dict[str, Any]) -> tuple[str, int, str, bytes]:
    """A row of the quarantine: (path, line_no, reason, raw)."""
    path, reason, text, raw = row["path"] or "", row["reason"], row["text"], bytes(row["raw"] or b"")
    line_no = row["line_no"] or 0
    if path.startswith("file:"):
        location = unquote(urlsplit(path).path)
        if row["begin"] is not None:
            sought = raw.decode() if row["is_record"] else text
            line_no = finder.line_of(location, row["begin"], sought, is_record=row["is_record"])
        plain = PurePosixPath(location.removesuffix(COPY))
        path = str(plain.relative_to(root)) if plain.is_relative_to(root) else plain.name
    if text is not None:
        reason += f": {repr_of(text, SHOWN_CHARS)}"
    return path, line_no, reason, raw[:MAX_RAW_BYTES]
