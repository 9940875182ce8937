"""Compares any two results by key, with Spark: `squall verify LEFT RIGHT --by KEY`.

Guarantees that every key of both sides is compared and falls under one kind, and that no more than the counts and the
first few differences of each kind leave Spark, whatever the size of the sides.

::

    LEFT  ── rows by key: number, values ──┐
                                           ├─ full outer join ─► kind ─┬─► counts
    RIGHT ── rows by key: number, values ──┘                           └─► first examples

    FEED                 `squall prepare` made it; or the output of a Structured Streaming query
    DIRECTORY, FILE      Parquet, CSV (with a header) or JSON Lines; in a directory, files of one of these kinds

Guarantees all rows of a side or a UsageError: a feed has the files of its manifest, with their checksums; a text has no
byte that is not UTF-8, and no second record on a line of JSON, both of which Spark's readers pass over. Relies on files
that do not change meanwhile.

Keys and values are equal as Spark's `<=>` has it: null equals null, NaN equals NaN, 0.0 equals -0.0; numbers may also
differ within a tolerance.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.feed.manifest import MANIFEST_NAME, check_files, load_manifest
from squall.pipeline.feed.sources import SPARK_LOG_NAME, open_feed
from squall.pipeline.read.input_frame import CSV_OPTIONS, spark_path
from squall.pipeline.read.json_lines import flaw_of
from squall.pipeline.session import spark_session
from squall.pipeline.spark_errors import data_errors

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
#: What is wrong with a key. Duplicated: a side has it more than once, so it cannot be told which row to compare.
KINDS = ("missing", "extra", "duplicated", "different")
EQUAL = "equal"
_AMOUNTS = "a number from 0 (0.01), a percentage (1%), or one of them for a column (p99_ms=0.5)"


class Side(NamedTuple):
    """Where a side is, its kind, and its files in order of name."""

    path: Path
    kind: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Tolerance:
    """Numbers a and b are equal if |a - b| <= absolute, or |a - b| <= relative * max(|a|, |b|)."""

    absolute: float = 0.0
    relative: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.absolute or self.relative)


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Tolerances by column, "" for all others. An absolute and a relative one may both hold for a column."""
    found: dict[str, Tolerance] = {}
    for text in texts:
        column, equals, amount = text.rpartition("=")
        try:
            size = float(amount.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not (math.isfinite(size) and size >= 0) or (equals and not column):
            raise UsageError(f"--tolerance is {repr_of(text)}; give {_AMOUNTS}")
        change = {"relative": size / 100} if amount.endswith("%") else {"absolute": size}
        found[column] = replace(found.get(column, Tolerance()), **change)
    return found


@dataclass(frozen=True)
class Request:
    """What to compare, and how. `compare`: None for all columns that are not of the key."""

    by: tuple[str, ...]
    compare: tuple[str, ...] | None = None
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    repeats_ok: bool = False
    """True if a side may have the same row several times, as at-least-once output has."""
    last: str | None = None
    """Of rows with one key, only the row with the largest value in this column counts, on each side that has it."""
    examples: int = 10
    """Most differences of each kind that are named."""

    def __post_init__(self) -> None:
        named = (*self.by, *(self.compare or ()))
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"--by and --compare name {twice!r} twice; a column is of the key, or compared")

    def tolerance(self, column: str) -> Tolerance:
        return self.tolerances.get(column) or self.tolerances.get("", Tolerance())


@dataclass(frozen=True)
class Difference:
    """A key that is not equal on both sides. `values` holds the values, left and right, of columns that differ."""

    kind: str
    key: dict[str, Any]
    rows: tuple[int, int]
    values: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class ColumnCheck:
    """A compared column: the number of keys that differ in it, and the largest difference of its numbers."""

    different: int
    largest: float | None
    tolerance: Tolerance


@dataclass(frozen=True)
class Comparison:
    """The outcome. `rows`: of the left and the right. `repeated`: the rows beyond the first of a key."""

    sides: tuple[Side, Side]
    rows: tuple[int, int]
    repeated: tuple[int, int]
    keys: dict[str, int]
    columns: dict[str, ColumnCheck]
    examples: tuple[Difference, ...] = ()

    @property
    def passed(self) -> bool:
        return not any(self.keys[kind] for kind in KINDS)


#: Called with one line about the present step.
Progress = Callable[[str], None]


def compare(left: Path, right: Path, request: Request, *, progress: Progress = lambda line: None) -> Comparison:
    """Compare `right` with `left`, which has what is expected. What is wrong on disk is refused before Java starts."""
    sides = find_side(left), find_side(right)
    progress(f"{sides[0].kind} and {sides[1].kind}, starting Spark")
    with (
        spark_session("squall verify") as spark,
        data_errors(lambda trouble: f"{left} and {right} cannot be compared: {trouble}"),
    ):
        from squall.pipeline.verify_join import Join

        progress("reading both sides")
        frames = read_sides(spark, sides)
        request = _complete(request, sides, (frames[0].columns, frames[1].columns))
        join = Join(frames, request)
        progress("comparing every key")
        outcome = join.count(sides)
        if outcome.passed or not request.examples:
            return outcome
        progress("looking for examples of differences")
        return replace(outcome, examples=tuple(join.examples()))


def _complete(request: Request, sides: tuple[Side, Side], columns: tuple[list[str], list[str]]) -> Request:
    """The request with the columns to compare. UsageError if it names one that is not there."""
    def check(names: tuple[str, ...]) -> None:
        for side, there in zip(sides, columns, strict=True):
            for name in names:
                if there.count(name) != 1:
                    raise UsageError(f"{side.path} has no column {repr_of(name)}; it has {', '.join(there) or 'none'}")

    check((*request.by, *(request.compare or ())))
    chosen = request.compare
    if chosen is None:
        left, right = ([name for name in there if name not in (*request.by, request.last)] for there in columns)
        chosen = tuple(left)
        for lacking in sorted(set(left) ^ set(right)):
            raise UsageError(
                f"{sides[lacking in left].path} has no column {lacking!r}, which the other side has; name the columns "
                "to compare with --compare, or use --keys-only"
            )
        check(chosen)
    if request.last is not None and request.last not in (*columns[0], *columns[1]):
        raise UsageError(f"--last is {repr_of(request.last)}, a column of neither side")
    for name in request.tolerances:
        if name and name not in chosen:
            raise UsageError(f"--tolerance is for column {name!r}, which is not compared")
    return replace(request, compare=chosen)


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
