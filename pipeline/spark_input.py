"""Reads files of the formats that Spark knows into a DataFrame of rows, malformed ones among them.

Guarantees that every record of every file is in the frame, as a row or, with a fate, as it stands in the file; that all
files have one schema, or a UsageError that names a file which has another. Relies on Spark's own readers.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from squall.engine.errors import UsageError
from squall.engine.foreign.text import repr_of
from squall.pipeline.cleaning import FATE, INTERNAL, LINE_NO, PATH, RAW, REFUSED, quoted
from squall.pipeline.corpus import InputFile
from squall.pipeline.csv_bytes import begins_with_mark, can_read, read_by_bytes, wide_coding, wrong_header
from squall.pipeline.csv_header import header_mistake
from squall.pipeline.date_patterns import check_patterns
from squall.pipeline.folders import check_hidden, folder_columns
from squall.pipeline.footers import check_footers, check_types
from squall.pipeline.given_schema import given_schema
from squall.pipeline.json_records import flawed_documents, json_lines, schema_of_good_lines, twins_in
from squall.pipeline.manifest import PLACE_COLUMNS
from squall.pipeline.opened import is_compressed
from squall.pipeline.reader_options import check_options
from squall.pipeline.records import (
    CSV_OPTIONS,
    LINE,
    PATTERN_CHARACTERS,
    REPLACEMENT,
    is_by_line,
    is_utf8,
    lines_of,
    options_to_infer,
)
from squall.pipeline.rules import near
from squall.pipeline.spark_errors import InputTrouble
from squall.pipeline.valid_text import is_valid_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

TEXT = "text"
FORMATS = (TEXT, "csv", "json", "parquet", "orc")
_WITH_RECORDS = ("csv", "json")
"""Formats in which single records can be malformed."""
_WITH_FOOTERS = ("parquet", "orc")
"""Formats whose files have a schema."""
_CORRUPT = INTERNAL + "corrupt"
#: Longest file of multi-line JSON that is searched for a second value.
MAX_CHECKED_BYTES = 16 << 20
_DEFAULTS: Mapping[str, Mapping[str, str]] = {"csv": CSV_OPTIONS}


def check_format(format_: str, options: Mapping[str, str], schema: str | None, columns: Sequence[str]) -> None:
    """Refuse what can be refused without Spark."""
    if format_ not in FORMATS:
        found = difflib.get_close_matches(format_, FORMATS, n=1)
        hint = f"; did you mean {found[0]}?" if found else ""
        raise UsageError(f"--format is {format_!r}; allowed: {', '.join(FORMATS)}{hint}")
    if format_ == TEXT and (options or schema or columns):
        given = "--option" if options else "--schema" if schema else "--columns"
        raise UsageError(f"{given} is given, but --format is text, whose columns are path, line_no and text")
    if options:
        check_options(format_, options)
    if len(set(columns)) < len(columns):
        raise UsageError(f"--columns names one twice: {', '.join(columns)}")


def read_frame(
    spark: SparkSession, format_: str, root: str, files: Sequence[InputFile], options: Mapping[str, str],
    schema: str | None, columns: Sequence[str], former_schema: str,
) -> tuple[DataFrame, str]:
    """The rows of the files, in their columns, with path and fate; and the schema of the source. `former_schema`: the
    one that the feed was made with, or nothing."""
    from pyspark.sql import functions as f

    check_patterns(spark, options)
    options = _with_defaults(format_, options)
    # Spark takes paths for patterns. Its option not to (`__globPaths__`) reads the last of several files twice.
    paths = [f"file://{PATTERN_CHARACTERS.sub(_escaped, file.location)}" for file in files]
    folders = folder_columns(root, files)
    if schema is not None:
        known = given_schema(schema, format_)
    else:
        known = _schema(spark, format_, paths, options)
        check_hidden(root, folders, known.names)
    if folders:
        options["basePath"] = f"file://{root}"
        if schema is None:
            known = _with_folders(spark, paths, options, known, folders)
    if schema is not None and format_ in _WITH_FOOTERS:
        there = spark.read.format(format_).options(**options).load(paths[:1]).schema
        check_types(format_, known, there, files[0].location)
    if former_schema:
        known = _as_before(known, former_schema, is_given=schema is not None or format_ != "json")
    noted = known.json()
    if format_ == "json" and is_by_line(options):
        frame = json_lines(spark, paths, known, options, folders, is_inferred=schema is None)
    elif format_ == "json" and is_utf8(options):
        by_path = dict(zip(paths, files, strict=True))
        frame = _json_documents(spark, by_path, known, options, folders, is_inferred=schema is None)
    else:
        frame = _records(spark, format_, dict(zip(paths, files, strict=True)), known, options, folders)
    if not columns and not folders:
        # All as they are: each name is a call to Java, and a file may have thousands.
        return frame.drop(_CORRUPT).withColumn(LINE_NO, f.lit(0)), noted
    names = list(columns) or known.names
    for name in columns:
        if name not in known.names:
            lacks = f"which {files[0].location} does not have"
            raise UsageError(f"--columns names {name!r}, {lacks}{near(name, known.names)}")
    return frame.select(*(quoted(name) for name in names), PATH, f.lit(0).alias(LINE_NO), FATE, RAW), noted


def _with_folders(
    spark: SparkSession, paths: list[str], options: Mapping[str, str], known: StructType, folders: Sequence[str]
) -> StructType:
    """A schema with the columns of folders, of the types that Spark finds in their names."""
    from pyspark.sql.types import StructType

    named = spark.read.format(TEXT).option("basePath", options["basePath"]).load(paths).schema
    return StructType([*known.fields, *(named[name] for name in folders)])


def why_refused(
    spark: SparkSession, format_: str, trouble: InputTrouble, options: Mapping[str, str], schema: str, wanted_by: str,
    folders: Sequence[str],
) -> str | None:
    """What is wrong with a file that Spark has refused, if it can be said better than Spark does. `schema`: as
    `read_frame` has noted it; `wanted_by`: who has it; `folders`: columns that no file has."""
    from pyspark.sql.types import StructType

    if format_ != "csv" or "CSV header" not in trouble.why or not trouble.file:
        return None
    names = [name for name in StructType.fromJson(json.loads(schema)).names if name not in folders]
    return header_mistake(spark, trouble.file, _with_defaults(format_, options), names, f"{wanted_by} has")


def _with_defaults(format_: str, options: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's reader, whose names are the same in any case."""
    given = {name.casefold() for name in options}
    defaults = _DEFAULTS.get(format_, {})
    return {**{name: value for name, value in defaults.items() if name.casefold() not in given}, **options}


def _records(
    spark: SparkSession, format_: str, files: Mapping[str, InputFile], known: StructType, options: Mapping[str, str],
    folders: Sequence[str],
) -> DataFrame:
    """The rows as Spark's reader of files gives them, with path, fate and raw record. `files`: by path, as Spark takes
    it."""
    from pyspark.sql import functions as f

    paths = list(files)
    reader = spark.read.format(format_).options(**options)
    path = f.col("_metadata.file_path")
    if format_ in _WITH_RECORDS:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
        # A record is malformed whether or not a column of it is wanted.
        reader = reader.option("columnPruning", "false")
        texts = [quoted(field.name) for field in known if field.dataType.simpleString() == "string"]
        broken = _files_not_utf8(spark, paths) if texts and is_utf8(options) else []
        if broken and format_ == "csv" and can_read(options, known):
            wrong = {unquote(urlsplit(path).path) for path in broken}
            by_bytes = [at for at, file in files.items() if file.location in wrong and not begins_with_mark(file)]
            if by_bytes:
                read = read_by_bytes(reader, by_bytes, known, folders)
                rest = {at: file for at, file in files.items() if at not in by_bytes}
                if not rest:
                    return read
                others = _records(spark, format_, rest, known, options, folders)
                return read.unionByName(others.select(*map(quoted, read.columns)))
        # A copy: `add` changes the schema itself.
        frame = reader.schema(_with_corrupt(known)).load(paths)
        corrupt = f.col(_CORRUPT)
        fate = f.when(corrupt.isNotNull(), f.lit(f"{REFUSED}malformed {format_.upper()}"))
        if broken:
            # The reader has put the same character for any wrong byte.
            has = f.expr(f"exists(array({', '.join(texts)}), text -> coalesce(contains(text, '{REPLACEMENT}'), false))")
            fate = fate.when(path.isin(broken) & has, f.lit(f"{REFUSED}not UTF-8"))
        # With columns of its own, as Spark refuses to read nothing but malformed records.
        raw = f.when(fate.isNotNull(), f.coalesce(f.encode(corrupt, "utf-8"), _as_json(known)))
    else:
        frame = reader.schema(known).load(paths)
        fate, raw = f.lit(None).cast("string"), f.lit(None).cast("binary")
        for field in known:
            valid = is_valid_text(f.col(quoted(field.name)), field.dataType)
            if valid is not None:
                said = f.lit(f"{REFUSED}{field.name} is not UTF-8")
                fate, raw = f.coalesce(fate, f.when(~valid, said)), f.when(~valid, _as_json(known)).otherwise(raw)
    return frame.select("*", path.alias(PATH), fate.alias(FATE), raw.alias(RAW))


def _json_documents(
    spark: SparkSession, files: Mapping[str, InputFile], known: StructType, options: Mapping[str, str],
    folders: Sequence[str], *, is_inferred: bool,
) -> DataFrame:
    """The rows of files that are one value each, and those that are not as refused records. Longer files are not looked
    at: a JVM cannot hold them twice."""
    short = [
        path for path, file in files.items()
        if file.size_bytes <= MAX_CHECKED_BYTES and not is_compressed(file.location)
    ]
    if not short:
        return _records(spark, "json", files, known, options, folders)
    flawed, wrong = flawed_documents(spark, short, known, options, is_inferred=is_inferred)
    good = {path: file for path, file in files.items() if file.location not in wrong}
    if not good:
        return flawed
    read = _records(spark, "json", good, known, options, folders)
    return read.select(*map(quoted, flawed.columns)).unionByName(flawed) if wrong else read


def _as_json(known: StructType) -> Column:
    """A row that has no record in a file."""
    from pyspark.sql import functions as f

    # One text, as each column of Python's is a call to Java.
    return f.expr(f"encode(to_json(struct({', '.join(map(quoted, known.names))})), 'utf-8')")


def _with_corrupt(known: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([*known.fields, StructField(_CORRUPT, StringType())])


def _files_not_utf8(spark: SparkSession, paths: list[str]) -> list[str]:
    from pyspark.sql import functions as f

    lines = lines_of(spark.read, paths)
    wrong = lines.where(~f.is_valid_utf8(LINE)).select(f.col("_metadata.file_path").alias("path"))
    return [row.path for row in wrong.distinct().collect()]


def _escaped(match: re.Match[str]) -> str:
    return "\\" + match[0]


def _schema(spark: SparkSession, format_: str, paths: list[str], options: Mapping[str, str]) -> StructType:
    """The schema of the files, without columns of folders."""
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StructType

    if format_ == "csv":
        options = options_to_infer(options, paths)
    reader = spark.read.format(format_).options(**options).option("columnNameOfCorruptRecord", _CORRUPT)
    # Spark looks for no columns in the names of folders then.
    reader = reader.option("recursiveFileLookup", "true")
    try:
        found = reader.load(paths).schema
    except AnalysisException as error:
        if error.getCondition() != "COLUMN_ALREADY_EXISTS":
            raise
        if mistake := twins_in(spark, reader, paths):
            raise UsageError(mistake) from error
        if format_ != "json" or not is_by_line(options):
            raise
        found = schema_of_good_lines(spark, reader, paths, options)
    else:
        if format_ == "json" and is_by_line(options) and REPLACEMENT in found.json():
            found = schema_of_good_lines(spark, reader, paths, options)
    return StructType([field for field in found if field.name != _CORRUPT])


def _as_before(found: StructType, former_schema: str, is_given: bool) -> StructType:
    """The schema of the feed, if that of the new files fits. Files of JSON may lack columns."""
    from pyspark.sql.types import StructType

    former = StructType.fromJson(json.loads(former_schema))
    if not found.fields:
        # Files without a record.
        return former
    before = {field.name: field.dataType.simpleString() for field in former}
    now = {field.name: field.dataType.simpleString() for field in found}
    for name in (*before, *now):
        if before.get(name) != now.get(name) and (name in now or is_given):
            raise UsageError(
                f"the source changed its schema: column {name!r} is {now.get(name, 'not there')} in the new files, and "
                f"{before.get(name, 'not there')} in those of the feed; --overwrite makes the feed anew"
            )
    return former


def check_files(format_: str, root: str, files: Sequence[InputFile], options: Mapping[str, str]) -> list[str]:
    """Refuse files that Spark cannot read as rows of one schema, as far as that shows without Spark. The names of their
    columns, if only footers had to be read for them."""
    for file in files:
        if file.problem:
            raise UsageError(f"{file.location} {file.problem}")
        if ":" in PurePosixPath(file.location).name:
            raise UsageError(f"{file.location} has a colon in its name, with which Spark cannot read it; rename it")
        if format_ == "csv" and is_utf8(options):
            _check_coding(file, options)
    if format_ not in _WITH_FOOTERS:
        return []
    names, folders = check_footers(format_, files), folder_columns(root, files)
    check_hidden(root, folders, names)
    return [*names, *folders]


def _check_coding(file: InputFile, options: Mapping[str, str]) -> None:
    given = {name.casefold(): value.casefold() for name, value in options.items()}
    by_name = given.get("header", "true") == "true" and given.get("enforceschema", "false") == "false"
    try:
        coding = wide_coding(file)
        header = wrong_header(file) if by_name and not coding else b""
    except OSError as error:
        raise UsageError(f"cannot read {file.location}: {error.strerror or error}") from error
    if coding:
        raise UsageError(f"{file.location} begins as {coding} does; allowed: UTF-8, or --option encoding={coding}")
    if header:
        raise UsageError(
            f"{file.location} has a header that is not UTF-8, {repr_of(header)}; allowed: UTF-8, or its encoding, such "
            "as --option encoding=ISO-8859-1"
        )


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that a feed cannot have."""
    for name in names:
        if name in PLACE_COLUMNS or name.startswith(INTERNAL):
            raise UsageError(f"the rows have a column {name!r}, which is the feed's own; allowed: other names")
