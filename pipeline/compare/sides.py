"""The two results that `squall verify LEFT RIGHT --by KEY` compares: what is on disk, as tables of Spark.

::

    FEED                 `squall prepare` made it; or the output of a Structured Streaming query
    DIRECTORY, FILE      Parquet, CSV (with a header) or JSON Lines; in a directory, files of one of these kinds

Guarantees all rows of a side or a UsageError: a feed has the files of its manifest, with their checksums; a text has no
byte that is not UTF-8, and no second record on a line of JSON, both of which Spark's readers pass over. Relies on files
that do not change meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.feed.manifest import MANIFEST_NAME, check_files, load_manifest
from squall.pipeline.feed.sources import SPARK_LOG_NAME, open_feed
from squall.pipeline.read.input_frame import CSV_OPTIONS, spark_path
from squall.pipeline.read.json_lines import flaw_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARQUET, CSV, JSON = "Parquet", "CSV", "JSON"
_ENDINGS = {
    ".parquet": PARQUET, ".csv": CSV, ".csv.gz": CSV, ".json": JSON, ".jsonl": JSON, ".ndjson": JSON,
    ".json.gz": JSON, ".jsonl.gz": JSON, ".ndjson.gz": JSON,
}
_READ_AS = {
    # A column that only some of the files have is not lost.
    PARQUET: {"mergeSchema": "true"},
    CSV: {**CSV_OPTIONS, "columnPruning": "false", "mode": "FAILFAST"},
    JSON: {"mode": "FAILFAST"},
}
DIGITS = "digits"
"""In the metadata of a column: its texts are numbers."""
#: Characters of a line that are shown.
SHOWN_CHARS = 60
ALLOWED = "give a feed, or .parquet, .csv, .json or .jsonl files"


class Side(NamedTuple):
    """Where a side is, its kind, and its files in order of name."""

    path: Path
    kind: str
    files: tuple[str, ...]


def find_side(path: Path) -> Side:
    """Look at what is on disk; UsageError if it cannot be a side."""
    path = path.absolute()
    if (path / MANIFEST_NAME).exists() or (path / SPARK_LOG_NAME).exists():
        # The list of complete files is in the directory itself.
        names = [part.name for part in open_feed(path, (), follow=False).find()]
        if (path / MANIFEST_NAME).exists():
            check_files(path, load_manifest(path), whole=True)
        if not names:
            raise UsageError(f"{path} holds no rows; {ALLOWED}")
        return Side(path, PARQUET, tuple(str(path / name) for name in names))
    files = [*_data_files(path)] if path.is_dir() else [str(path)] if path.is_file() else []
    if not files:
        raise UsageError(f"{path} {'holds no data file' if path.exists() else 'does not exist'}; {ALLOWED}")
    kinds = {_kind_of(file): file for file in files}
    if None in kinds:
        raise UsageError(f"{kinds[None]} cannot be compared; {ALLOWED}")
    if len(kinds) > 1:
        raise UsageError(f"{path} holds files of several kinds ({', '.join(sorted(map(str, kinds)))}); {ALLOWED}")
    return Side(path, str(*kinds), tuple(files))


def _data_files(path: Path) -> Iterator[str]:
    """The files in a directory and below, without those whose names begin with a dot or an underscore, as in Spark."""
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        yield from (os.path.join(folder, name) for name in sorted(names) if name[0] not in "._")


def _kind_of(name: str) -> str | None:
    return next((kind for ending, kind in _ENDINGS.items() if name.lower().endswith(ending)), None)


def read_sides(spark: SparkSession, sides: tuple[Side, Side]) -> tuple[DataFrame, DataFrame]:
    """The tables. What only shows in the data is raised by Spark, when it is read."""
    left, right = (_read(spark, side) for side in sides)
    # JSON files without a row have no columns of their own.
    if not left.columns:
        left = right.limit(0)
    return left, right if right.columns else left.limit(0)


def _read(spark: SparkSession, side: Side) -> DataFrame:
    from pyspark.sql import types

    paths = [*map(spark_path, side.files)]
    if side.kind != PARQUET:
        _check_text(spark.read.text(paths), side)
    reader = spark.read.options(**_READ_AS[side.kind]).format(side.kind.lower())
    if side.path.is_dir():
        # Values of columns may be in the names of folders: day=2026-11-22.
        reader = reader.option("basePath", f"file://{side.path}")
    if side.kind == CSV and "\\" in "".join(paths):
        # By lines, the reader takes no name of a file for a pattern. Its header is a line.
        reader = reader.schema(spark.read.options(header="true").csv(paths).schema)
    frame = reader.load(paths)
    if side.kind == JSON and any(type_ == "double" for _, type_ in frame.dtypes):
        # As texts, Spark reads them with every digit: 0.1 is not the double nearest to it.
        digits = [
            types.StructField(one.name, types.StringType(), metadata={DIGITS: True})
            if one.dataType == types.DoubleType() else one for one in frame.schema
        ]
        frame = reader.schema(types.StructType(digits)).load(paths)
    return frame


def _check_text(lines: DataFrame, side: Side) -> None:
    from pyspark.sql import functions as f

    wrong = {"is not UTF-8": ~f.is_valid_utf8("value")}
    if side.kind == JSON:
        is_flawed = f.udf(lambda line: bool(flaw_of(line.encode())), "boolean", useArrow=True)
        wrong["has a line that is not one record"] = is_flawed("value")
    for said, condition in wrong.items():
        for row in lines.where(condition).select(f.make_valid_utf8("value").alias("line")).take(1):
            raise UsageError(f"{side.path} {said}; the line begins with {repr_of(row.line[:SHOWN_CHARS])}")
