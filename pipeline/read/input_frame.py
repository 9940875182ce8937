"""Reads files into a DataFrame of Spark's, by Spark's own readers.

Guarantees that each record of the files is in the frame: as a row, or as a refused one, with the reason, the value
that is wrong if it is one, and the record itself; and that all files have the columns of the feed, or a UsageError.
What else is wrong with a file, an option or a schema is Spark's to tell.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from squall.engine.errors import UsageError
from squall.pipeline.read.input_files import InputFile, is_compressed, opened

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

TEXT = "text"
FORMATS = (TEXT, "csv", "json", "parquet", "orc")
#: Columns of prepare's own begin so.
INTERNAL = "_squall_"
#: Of a refused row what `refusal` makes; null: it is good.
REFUSED = INTERNAL + "refused"
#: Set by prepare, which decides what is read and leaves nothing out without a word.
OURS = (
    "mode", "columnNameOfCorruptRecord", "columnPruning", "path", "paths", "basePath", "recursiveFileLookup",
    "pathGlobFilter", "modifiedBefore", "modifiedAfter", "ignoreCorruptFiles", "ignoreMissingFiles",
)
CSV_OPTIONS: Mapping[str, str] = {
    "header": "true",
    # The names in the header count, not the order of the schema.
    "enforceSchema": "false",
    # A line break in quotes belongs to the value.
    "multiLine": "true",
    # As RFC 4180 has it; Spark's default is a backslash.
    "escape": '"',
    # What an empty field is read as: a text that nobody writes, or "" in quotes would be null too.
    "nullValue": "\ufdd0",
    "maxCharsPerColumn": str(1 << 20),
}
_CORRUPT, _FLAW, _FILE, _BEGIN = (INTERNAL + name for name in ("corrupt", "flaw", "file", "begin"))
#: What Spark's reader of CSV puts in place of bytes that are not text.
_REPLACEMENT = "\ufffd"
_PATTERN_CHARACTERS = re.compile(r"[\\*?{}\[\]]")


def check_format(format_: str, options: Mapping[str, str], schema: str | None) -> None:
    """Refuse what Spark would not tell."""
    if format_ not in FORMATS:
        raise UsageError(f"--format is {format_!r}; allowed: {', '.join(FORMATS)}")
    if format_ == TEXT and (options or schema):
        given = "--option" if options else "--schema"
        raise UsageError(f"{given} is given, but --format is text, whose columns are path, line_no and text")
    if format_ in ("parquet", "orc") and schema:
        raise UsageError(f"--schema is given, but {format_} files have their own; --sql can cast")
    ours = {name.casefold() for name in OURS}
    for name in options:
        if name.casefold() in ours:
            raise UsageError(f"--option {name} is set by prepare; remove it")


def check_schemas(format_: str, files: Sequence[InputFile]) -> None:
    """Refuse Parquet and ORC files whose columns differ: Spark reads all by one schema, and nulls for the rest."""
    import pyarrow
    from pyarrow import orc, parquet

    first: dict[str, str] = {}
    for file in files:
        try:
            schema = parquet.read_schema(file.location) if format_ == "parquet" else orc.ORCFile(file.location).schema
        except (pyarrow.ArrowException, OSError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(f"{file.location} is no {format_} file, or damaged: {reason}") from error
        found = {field.name: str(field.type) for field in schema}
        first = first or found
        for name in (*first, *found):
            if first.get(name) != found.get(name):
                raise UsageError(
                    f"the files differ in their schema: column {name!r} is {found.get(name, 'not there')} in "
                    f"{file.location}, and {first.get(name, 'not there')} in {files[0].location}"
                )


def check_quotes(files: Sequence[InputFile], options: Mapping[str, str]) -> bool:
    """Refuse CSV with a quote that nothing closes: Spark reads all that follows as one value, without a word. Return
    True if surely no value holds a line break, so that Spark may cut large files into pieces for all cores.

    Quotes that open and close add up to an even number, so only a file with an odd one is looked into: it may be a
    value such as 5" without quotes around it.
    """
    if not {"quote", "escape", "multiline", "encoding", "charset", "linesep"}.isdisjoint(map(str.casefold, options)):
        return False
    separator = options.get("sep", options.get("delimiter", ","))
    are_lines = True
    for file in files:
        try:
            spans, is_open = _quotes_of(file)
            are_lines &= not spans
            if not is_open:
                continue
            with opened(file) as (stream, _):
                lines = (line.decode(errors="replace") for line in iter(stream.readline, b""))
                for _ in csv.reader(lines, delimiter=separator, strict=True):
                    pass
        except OSError as error:
            raise UsageError(f"{file.location} cannot be read: {error.strerror}") from error
        except (csv.Error, TypeError) as error:
            # It is otherwise no CSV to Python, or has a separator of several characters: Spark tells what it is to it.
            if "unexpected end of data" in str(error) or "field limit" in str(error):
                remedy = "close it, or give --option quote= if quotes mean nothing in these files"
                raise UsageError(f"{file.location} has a quote that nothing closes: {remedy}") from error
    return are_lines


def _quotes_of(file: InputFile) -> tuple[bool, bool]:
    """Return whether the number of quotes is odd at the end of a line, and at the end of the file."""
    import numpy

    spans, is_open = False, 0
    with contextlib.ExitStack() as stack:
        # `opened` computes a checksum, which takes longer than counting.
        stream = (
            stack.enter_context(opened(file))[0] if is_compressed(file.location)
            else stack.enter_context(open(file.location, "rb", buffering=0))
        )
        for data in iter(lambda: stream.read(1 << 23), b""):
            # To Spark, a carriage return alone ends a line, too.
            spans |= data.count(b"\r") != data.count(b"\r\n")
            if is_open or b'"' in data:
                characters = numpy.frombuffer(data, numpy.uint8)
                quotes, ends = (numpy.flatnonzero(characters == ord(one)) for one in '"\n')
                spans |= bool(((numpy.searchsorted(quotes, ends) + is_open) % 2).any())
                is_open = (is_open + len(quotes)) % 2
    return spans, bool(is_open)


def read_frame(
    spark: SparkSession, format_: str, root: str, locations: Sequence[str], options: Mapping[str, str],
    schema: str | None, former_schema: str,
) -> tuple[DataFrame, str]:
    """The records of files inside `root`, with REFUSED, and the schema of the source in JSON. `former_schema`: the
    one that the feed was made with, or nothing."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    given = {name.casefold() for name in options}
    defaults = CSV_OPTIONS if format_ == "csv" else {}
    options = {**{name: value for name, value in defaults.items() if name.casefold() not in given}, **options}
    # Folders such as day=2026-11-22 are columns.
    options["basePath"] = f"file://{root}"
    has_records = format_ in ("csv", "json")
    if has_records:
        # A record is malformed whether or not a column of it is wanted.
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "columnPruning": "false"}
    paths = [*map(spark_path, locations)]
    given_schema = None if schema is None else cast("StructType", StructType.fromDDL(schema))
    known = _schema(given_schema or _inferred(spark, format_, options, paths))
    if former_schema:
        known = _as_before(known, former_schema)
    reader = spark.read.format(format_).options(**options)
    frame = (reader.schema(known.add(_CORRUPT, "string")) if has_records else reader).load(paths)
    columns = _schema(frame.schema)
    whole = f.encode(f.to_json(f.struct(*map(quoted, columns.names))), "utf-8")
    begin = f.lit(None)
    if has_records:
        flaw = f.when(f.col(_CORRUPT).isNotNull(), _flaw(format_, columns, options))
        if format_ == "csv" and not {"encoding", "charset"} & given:
            flaw = f.coalesce(flaw, _not_utf8(columns, lambda name: f.contains(name, f.lit(_REPLACEMENT))))
        whole = f.coalesce(f.encode(f.col(_CORRUPT), "utf-8"), whole)
        begin = f.col("_metadata.file_block_start")
    else:
        flaw = _not_utf8(columns, lambda name: ~f.is_valid_utf8(name))
    frame = frame.withColumns({_FLAW: flaw, _FILE: f.col("_metadata.file_path"), _BEGIN: begin})
    is_record = f.col(_CORRUPT).isNotNull() if has_records else f.lit(False)
    refused = refusal(
        f.col(_FLAW)["reason"], f.col(_FILE), f.lit(0), whole, text=f.col(_FLAW)["text"], begin=f.col(_BEGIN),
        is_record=is_record,
    )
    frame = frame.withColumn(REFUSED, f.when(f.col(_FLAW).isNotNull(), refused))
    return frame.drop(_CORRUPT, _FLAW, _FILE, _BEGIN), columns.json()


def refusal(reason: Column, path: Column, line_no: Column, raw: Column, **found: Column) -> Column:
    """What is known of a refused row. `found`: if a reader refused it, `text`, the value that is wrong (null: not one
    value), `begin`, where its part of the file begins (null: `line_no` holds), and `is_record`, whether `raw` is the
    record as the file has it, or else `text` is to be found in the file."""
    from pyspark.sql import functions as f

    kinds = {"text": "string", "begin": "bigint", "is_record": "boolean"}
    return f.struct(
        reason.alias("reason"), path.alias("path"), line_no.alias("line_no"), raw.alias("raw"),
        *(found.get(name, f.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()),
    )


def _flaw(format_: str, columns: StructType, options: Mapping[str, str]) -> Column:
    """What is wrong with a malformed record: the first column that is null, and is not if all are read as texts."""
    from pyspark.sql import functions as f

    texts = ", ".join(f"{quoted(name)} string" for name in (*columns.names, _CORRUPT))
    read = f.from_csv if format_ == "csv" else f.from_json
    given = read(f.col(_CORRUPT), texts, {**options})
    flaws = [
        f.when(f.col(quoted(field.name)).isNull() & given[field.name].isNotNull(), f.struct(
            f.lit(f"column {field.name} is no {field.dataType.simpleString()}").alias("reason"),
            given[field.name].alias("text"),
        ))
        for field in columns if field.dataType.simpleString() != "string"
    ]
    other = f.lit(f"malformed {format_.upper()}")
    if format_ == "csv":
        other = f.when(given[_CORRUPT].isNotNull(), f.lit("not as many values as columns")).otherwise(other)
    return f.coalesce(*flaws, f.struct(other.alias("reason"), f.lit(None).cast("string").alias("text")))


def spark_path(location: str) -> str:
    """A file as Spark finds it, which takes paths for patterns. Its option not to reads the last of several twice."""
    return "file://" + _PATTERN_CHARACTERS.sub(r"\\\g<0>", location)


def _schema(found: StructType) -> StructType:
    from pyspark.sql.types import StructType

    return StructType([field for field in found if field.name != _CORRUPT])


def _inferred(spark: SparkSession, format_: str, options: Mapping[str, str], paths: list[str]) -> StructType:
    if format_ == "csv" and "\\" in "".join(paths):
        # By lines, the reader takes no name of a file for a pattern. Its header is a line.
        options = {**options, "multiLine": "false"}
    return spark.read.format(format_).options(**options).load(paths).schema


def _as_before(found: StructType, former_schema: str) -> StructType:
    """The schema of the feed, if that of the new files only lacks columns of it, as JSON may."""
    from pyspark.sql.types import StructType

    former = StructType.fromJson(json.loads(former_schema))
    return former if all(field in former.fields for field in found) else found


def _not_utf8(columns: StructType, is_wrong: Callable[[str], Column]) -> Column:
    """The first text that is not UTF-8, which neither Parquet's writers check nor Spark."""
    from pyspark.sql import functions as f

    flaw = f.lit(None).cast("struct<reason: string, text: string>")
    for name in [field.name for field in columns if field.dataType.simpleString() == "string"]:
        text = f.make_valid_utf8(quoted(name)).alias("text")
        here = f.struct(f.lit(f"column {name} is not UTF-8").alias("reason"), text)
        flaw = f.coalesce(flaw, f.when(is_wrong(quoted(name)), here))
    return flaw


def check_columns(names: Sequence[str], reserved: Sequence[str]) -> None:
    """Refuse columns that a feed cannot have."""
    if not names:
        raise UsageError("the rows have no column left; a feed needs one at least")
    for name in names:
        if name in reserved or name.startswith(INTERNAL):
            raise UsageError(f"the rows have a column {name!r}, which is the feed's own; give it another name")


def quoted(name: str) -> str:
    """A name of a column as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def columns_of(frame: DataFrame) -> list[str]:
    """The columns that are not prepare's own."""
    return [name for name in frame.columns if not name.startswith(INTERNAL)]
