"""One of the two results that `squall verify LEFT RIGHT --by KEY` compares: what is on disk, as a table of Spark.

::

    FEED                 `squall prepare` made it; or the output of a Structured Streaming query
    DIRECTORY, FILE      Parquet, CSV (with a header) or JSON Lines; in a directory, files of one of these kinds
    RESULT               of examples/word_count.py (ledger/ and counts/): word, count; the largest total of each word

Guarantees a UsageError in one line before Java starts if there is no such thing, a Parquet file is damaged, or its
columns are not those of the file before it; never a part of a table. Relies on files that do not change meanwhile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from squall.engine.errors import UsageError
from squall.engine.foreign.text import message_of, repr_of
from squall.pipeline.feed.manifest import MANIFEST_NAME, check_content, load_manifest
from squall.pipeline.feed.sources import SPARK_LOG_NAME, open_feed
from squall.pipeline.nanoseconds import ADVICE, columns_of_nanoseconds
from squall.pipeline.number_texts import with_number_texts
from squall.pipeline.records import (
    CSV_OPTIONS,
    LINE,
    is_half_character,
    is_one_record,
    lines_of,
    options_to_infer,
    twice_in_header,
)
from squall.pipeline.result_tables import checked_result
from squall.pipeline.results import ROW_TYPES
from squall.pipeline.spark_errors import data_errors
from squall.pipeline.unread_types import unread_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType

PARQUET, CSV, JSON, WORD_COUNT = "Parquet", "CSV", "JSON", "word count"
_ENDINGS = {
    ".parquet": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON,
    ".json.gz": JSON, ".jsonl.gz": JSON, ".ndjson.gz": JSON,
}
#: Characters of a line that are shown.
SHOWN_CHARS = 60
ALLOWED = "a feed, a result of examples/word_count.py, or .parquet, .csv, .json or .jsonl files"


@dataclass(frozen=True)
class Side:
    """Where a side is, its kind, and its files in order of name."""

    path: Path
    kind: str
    files: tuple[str, ...]
    nanos: frozenset[str] = frozenset()
    """Columns of Parquet that hold timestamps in nanoseconds."""

    @property
    def is_loose(self) -> bool:
        """Whether a text in it may stand for a value of another type, as the format has no better way to write it."""
        return self.kind in (CSV, JSON)

    @property
    def is_of_totals(self) -> bool:
        """Whether, of rows with one key, only the largest counts."""
        return self.kind == WORD_COUNT


class Table(NamedTuple):
    """A side in Spark, and the types of its columns. In the frame, others stand for two that Spark would not read
    exactly: texts for doubles of JSON, and whole numbers for timestamps in nanoseconds."""

    frame: DataFrame
    types: dict[str, DataType]

    def is_raw(self, name: str) -> bool:
        """Whether another type stands for a column's own."""
        return self.frame.schema[name].dataType != self.types[name]


def find_side(path: Path) -> Side:
    """Look at what is on disk; UsageError if it is not `ALLOWED`."""
    if path.is_dir():
        return _directory(path.absolute())
    if not path.exists():
        raise UsageError(f"{path} does not exist; allowed: {ALLOWED}")
    kind = _kind_of(path.name)
    if kind is None or not path.is_file():
        raise UsageError(f"{path} cannot be compared; allowed: {ALLOWED}")
    nanos = _check_parquet(path.parent.absolute(), [path.name]) if kind == PARQUET else frozenset[str]()
    return replace(_side(path.absolute(), kind, [""]), nanos=nanos)


def _directory(path: Path) -> Side:
    if all((path / folder).is_dir() for folder in ROW_TYPES):
        return Side(path, WORD_COUNT, ())
    if (path / MANIFEST_NAME).exists() or (path / SPARK_LOG_NAME).exists():
        # The list of complete files is in the directory itself.
        names = [part.name for part in open_feed(path, (), follow=False).find()]
        if not names:
            raise UsageError(f"{path} holds no rows; allowed: {ALLOWED}")
        nanos = _check_parquet(path, names)
        if (path / MANIFEST_NAME).exists():
            check_content(path, load_manifest(path))
        return replace(_side(path, PARQUET, names), nanos=nanos)
    found: dict[str, list[str]] = {}
    for name in _data_files(path):
        kind = _kind_of(name)
        if kind is None:
            raise UsageError(f"{path} holds {name!r}, which cannot be compared; allowed: {ALLOWED}")
        found.setdefault(kind, []).append(name)
    if len(found) != 1:
        what = f"files of several kinds ({', '.join(sorted(found))})" if found else "no data file"
        raise UsageError(f"{path} holds {what}; allowed: {ALLOWED}")
    ((kind, names),) = found.items()
    nanos = _check_parquet(path, names) if kind == PARQUET else frozenset[str]()
    return replace(_side(path, kind, names), nanos=nanos)


def _side(path: Path, kind: str, names: list[str]) -> Side:
    """`names`: relative to the path."""
    files = [str(path / name) for name in names]
    odd = next((file for file in files if ":" in Path(file).name), None)
    if odd is not None:
        raise UsageError(f"{odd} has a colon in its name, with which Spark cannot read it; rename it")
    for file in files if kind == CSV else ():
        twice = twice_in_header(file)
        if twice is not None:
            first, second = twice
            which = repr(first) if first == second else f"{first!r} and {second!r}, which Spark takes for one"
            raise UsageError(f"{file} has two columns {which}, in its header; allowed: different names")
    return Side(path, kind, tuple(files))


def _data_files(path: Path) -> Iterator[str]:
    """The files in a directory and below, without those whose names begin with a dot or an underscore, as in Spark."""

    def refuse(error: OSError) -> None:
        raise UsageError(f"cannot read {error.filename}: {error.strerror}") from error

    for folder, folders, names in os.walk(path, onerror=refuse):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        inside = os.path.relpath(folder, path)
        yield from (os.path.normpath(f"{inside}/{name}") for name in sorted(names) if name[0] not in "._")


def _kind_of(name: str) -> str | None:
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def _check_parquet(path: Path, names: list[str]) -> frozenset[str]:
    """The columns of timestamps in nanoseconds."""
    first: dict[str, str] = {}
    nanos: set[str] = set()
    for name in names:
        types, found = _types(path / name)
        first = first or types
        nanos |= found
        for column in first.keys() | types.keys():
            if first.get(column) != types.get(column):
                this, other = (columns.get(column, "missing") for columns in (types, first))
                raise UsageError(
                    f"the files of {path} do not agree: column {column!r} is {this} in {name}, {other} in {names[0]}"
                )
    return frozenset(nanos)


def _types(file: Path) -> tuple[dict[str, str], set[str]]:
    """The types of columns, and which are timestamps in nanoseconds."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError(f'this command needs pyarrow ({error}): pip install "squall[spark]"') from error
    try:
        footer = parquet.read_metadata(file)
        schema = footer.schema.to_arrow_schema()
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"{file} is damaged: {message_of(error)}") from error
    if unread := unread_column(schema):
        raise UsageError(f"{file} has {unread}")
    types = {field.name: str(field.type) for field in schema}
    nanos = columns_of_nanoseconds(footer)
    for name in nanos:
        if name not in types:
            raise UsageError(f"{file} has timestamps in nanoseconds within column {name!r}; {ADVICE}")
    return types, set(nanos)


def read_side(spark: SparkSession, side: Side) -> Table:
    """The table. What only shows in the data is raised by Spark, when it is read."""
    from pyspark.sql.types import TimestampType

    with data_errors(lambda trouble: f"{side.path} cannot be read: {trouble}"):
        frame = _read(spark, side)
        types = {field.name: field.dataType for field in frame.schema}
        types |= {name: TimestampType() for name in side.nanos}
        if side.kind == JSON and (exact := with_number_texts(frame.schema)) != frame.schema:
            frame = _reader(spark, side).schema(exact).json(list(side.files))
        return Table(frame, types)


def _read(spark: SparkSession, side: Side) -> DataFrame:
    if side.kind == WORD_COUNT:
        return checked_result(spark, side.path, "counts").select("word", "count")
    reader = _reader(spark, side)
    if side.kind == PARQUET:
        return reader.parquet(*side.files)
    _check_text(_reader(spark, side), side)
    if side.kind == JSON:
        return reader.json(list(side.files))
    schema = reader.options(**options_to_infer(CSV_OPTIONS, side.files)).csv(list(side.files)).schema
    return reader.options(**CSV_OPTIONS).schema(schema).csv(list(side.files))


def _reader(spark: SparkSession, side: Side) -> DataFrameReader:
    # Names are names: no character in them is a pattern.
    reader = spark.read.option("__globPaths__", "false")
    if side.path.is_dir():
        # Values of columns may be in the names of folders: day=2026-11-22.
        reader = reader.option("basePath", str(side.path))
    return reader if side.kind == PARQUET else reader.option("mode", "FAILFAST")


def _check_text(reader: DataFrameReader, side: Side) -> None:
    """UsageError if there is a line that is not UTF-8: Spark would put the same character for any wrong byte; or a line
    of JSON that is not one record: Spark would read the first."""
    from pyspark.sql import functions as f

    lines = lines_of(reader, side.files)
    value, path = f.col(LINE), f.col("_metadata.file_path")
    checks = [(~f.is_valid_utf8(value), "is not UTF-8, in a line that begins with")]
    if side.kind == JSON:
        odd = (f.trim(value) != "") & (~is_one_record(value) | is_half_character(value))
        checks.append((odd, "has a line that is not one record of JSON; it begins with"))
    for wrong, said in checks:
        for row in lines.where(wrong).select(path, f.make_valid_utf8(value).alias("line")).take(1):
            name = re.sub(r"^file:/*(?=/)", "", unquote(row.file_path))
            raise UsageError(f"{name} {said} {repr_of(row.line[:SHOWN_CHARS])}")
