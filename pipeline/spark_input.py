"""Reads files of the formats that Spark knows into a DataFrame of rows, malformed ones among them.

Guarantees that every record of every file is in the frame, as a row or, with a fate, as it stands in the file; that all
files have one schema, or a UsageError that names a file which has another. Relies on Spark's own readers.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from squall.engine.errors import UsageError
from squall.pipeline.cleaning import FATE, INTERNAL, LINE_NO, PATH, RAW, REFUSED
from squall.pipeline.corpus import InputFile
from squall.pipeline.manifest import PLACE_COLUMNS
from squall.pipeline.rules import near
from squall.pipeline.spark_errors import mistake_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TEXT = "text"
FORMATS = (TEXT, "csv", "json", "parquet", "orc")
_WITH_RECORDS = ("csv", "json")
"""Formats in which single records can be malformed."""
_CORRUPT = INTERNAL + "corrupt"
#: Options that prepare sets itself.
_OURS = ("mode", "columnNameOfCorruptRecord", "path", "paths", "recursiveFileLookup", "pathGlobFilter", "columnPruning")
_PATTERN_CHARACTERS = re.compile(r"[\\*?{}\[\]]")
_DEFAULTS: Mapping[str, Mapping[str, str]] = {"csv": {"header": "true", "enforceSchema": "false"}}


def check_format(format_: str, options: Mapping[str, str], schema: str | None, columns: Sequence[str]) -> None:
    """Refuse what can be refused without Spark."""
    if format_ not in FORMATS:
        found = difflib.get_close_matches(format_, FORMATS, n=1)
        hint = f"; did you mean {found[0]}?" if found else ""
        raise UsageError(f"--format is {format_!r}; allowed: {', '.join(FORMATS)}{hint}")
    if format_ == TEXT and (options or schema or columns):
        given = "--option" if options else "--schema" if schema else "--columns"
        raise UsageError(f"{given} is given, but --format is text, whose columns are path, line_no and text")
    ours = {name.casefold(): name for name in _OURS}
    for name in options:
        if name.casefold() in ours:
            raise UsageError(f"--option {name} is set by prepare; allowed: the others of Spark's {format_} reader")
    if len(set(columns)) < len(columns):
        raise UsageError(f"--columns names one twice: {', '.join(columns)}")


def read_frame(
    spark: SparkSession, format_: str, files: Sequence[InputFile], options: Mapping[str, str], schema: str | None,
    columns: Sequence[str], former_schema: str,
) -> tuple[DataFrame, str]:
    """The rows of the files, in their columns, with path and fate; and the schema of the source. `former_schema`: the
    one that the feed was made with, or nothing."""
    from pyspark.sql import functions as f

    options = {**_DEFAULTS.get(format_, {}), **options}
    # Spark takes paths for patterns. Its option not to (`__globPaths__`) reads the last of several files twice.
    paths = [f"file://{_PATTERN_CHARACTERS.sub(_escaped, file.location)}" for file in files]
    known = _schema(spark, format_, paths, options, schema)
    if former_schema:
        known = _as_before(known, former_schema, is_given=schema is not None or format_ != "json")
    noted = known.json()
    reader = spark.read.format(format_).options(**options)
    if format_ in _WITH_RECORDS:
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", _CORRUPT)
        # A record is malformed whether or not a column of it is wanted.
        reader = reader.option("columnPruning", "false")
        frame = reader.schema(known.add(_CORRUPT, "string")).load(paths)
        corrupt = f.col(_CORRUPT)
        fate = f.when(corrupt.isNotNull(), f.lit(f"{REFUSED}malformed {format_.upper()}"))
        raw = f.encode(corrupt, "utf-8")
    else:
        frame = reader.schema(known).load(paths)
        fate, raw = f.lit(None).cast("string"), f.lit(None).cast("binary")
    names = list(columns) or [name for name in known.names if name != _CORRUPT]
    for name in names:
        if name not in known.names:
            lacks = f"which {files[0].location} does not have"
            raise UsageError(f"--columns names {name!r}, {lacks}{near(name, known.names)}")
    path = f.col("_metadata.file_path").alias(PATH)
    own = [f.col(f"`{name}`") for name in names]
    return frame.select(*own, path, f.lit(0).alias(LINE_NO), fate.alias(FATE), raw.alias(RAW)), noted


def _escaped(match: re.Match[str]) -> str:
    return "\\" + match[0]


def _schema(
    spark: SparkSession, format_: str, paths: list[str], options: Mapping[str, str], schema: str | None
) -> StructType:
    """The schema that is given, or else that of the files."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if schema is not None:
        try:
            found = StructType.fromDDL(schema)
            if not isinstance(found, StructType):
                raise UsageError(f"--schema is {schema!r}; allowed: columns, such as 'host string, status int'")
            return found
        except PySparkException as error:
            raise UsageError(f"--schema {schema!r} is no schema: {mistake_of(error)}") from error
    return spark.read.format(format_).options(**options).load(paths).schema


def _as_before(found: StructType, former_schema: str, is_given: bool) -> StructType:
    """The schema of the feed, if that of the new files fits. Files of JSON may lack columns."""
    from pyspark.sql.types import StructType

    former = StructType.fromJson(json.loads(former_schema))
    before = {field.name: field.dataType.simpleString() for field in former}
    now = {field.name: field.dataType.simpleString() for field in found}
    for name in (*before, *now):
        if before.get(name) != now.get(name) and (name in now or is_given):
            raise UsageError(
                f"the source changed its schema: column {name!r} is {now.get(name, 'not there')} in the new files, and "
                f"{before.get(name, 'not there')} in those of the feed; --overwrite makes the feed anew"
            )
    return former


def check_files(format_: str, files: Sequence[InputFile]) -> None:
    """Refuse files that Spark cannot read as rows of one schema, as far as that shows without Spark."""
    for file in files:
        if file.problem:
            raise UsageError(f"{file.location} {file.problem}")
    if format_ in ("parquet", "orc"):
        _check_footers(format_, files)


def _check_footers(format_: str, files: Sequence[InputFile]) -> None:
    """Refuse a Parquet or ORC file that is damaged or has another schema than the first. Needs no Spark, which would
    read nulls in place of columns that are missing."""
    import pyarrow

    first: dict[str, str] = {}
    for file in files:
        try:
            found = {field.name: str(field.type) for field in _footer(format_, file.location)}
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(f"{file.location} is no {format_} file, or damaged: {reason}") from error
        first = first or found
        for name in (*first, *found):
            if first.get(name) != found.get(name):
                raise UsageError(
                    f"the files differ in their schema: column {name!r} is {found.get(name, 'not there')} in "
                    f"{file.location}, and {first.get(name, 'not there')} in {files[0].location}"
                )


def _footer(format_: str, location: str) -> Any:
    if format_ == "parquet":
        from pyarrow import parquet

        return parquet.read_schema(location)
    from pyarrow import orc

    return orc.ORCFile(location).schema


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that a feed cannot have."""
    for name in names:
        if name in PLACE_COLUMNS or name.startswith(INTERNAL):
            raise UsageError(f"the rows have a column {name!r}, which is the feed's own; allowed: other names")
