"""Reads JSON so that what Spark's reader passes over is refused, as it stands in the file.

A line is a record, or an array of objects, a record each; so is a file with `multiLine`.

Guarantees that a line, or such a file, that is not UTF-8 or not one value is refused as a whole, with its bytes.
Decides and plans; no job is started but to find the files that are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from squall.pipeline.cleaning import FATE, INTERNAL, PATH, RAW, REFUSED, quoted
from squall.pipeline.column_names import twins_among, twins_told
from squall.pipeline.corpus import MAX_RAW_BYTES
from squall.pipeline.json_numbers import (
    all_texts,
    has_fraction,
    marked,
    may_be_changed,
    unmarked,
    with_exact_texts,
)
from squall.pipeline.records import (
    LINE,
    has_key_twice,
    has_nameless_key,
    is_half_character,
    is_one_record,
    is_strict,
    lines_of,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructType

_CORRUPT, _RECORD, _EXACT = (INTERNAL + name for name in ("corrupt", "record", "exact"))
_MALFORMED = f"{REFUSED}malformed JSON"
_NOT_UTF8 = f"{REFUSED}not UTF-8"
_HALF = f"{REFUSED}half a character"
_TWICE = f"{REFUSED}a key twice in an object"
_NAMELESS = f"{REFUSED}a key without a name"
_OBJECTS = "array<map<string, string>>"
_MARK = "\ufeff"
_ANY_LENGTH = (1 << 31) - 1
#: Characters at the beginning of a file that tell whether it is blank.
_BEGIN = 4096
_CASE = "spark.sql.caseSensitive"


def json_lines(
    spark: SparkSession, paths: list[str], known: StructType, options: Mapping[str, str], folders: Sequence[str],
    *, is_inferred: bool,
) -> DataFrame:
    """The rows of JSON with a record in each line, or an array of them, with path, fate and raw record. `is_inferred`:
    whether the columns are those of the files."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    reader = spark.read.options(**{**options, "wholetext": "false"})
    lines = lines_of(reader, paths, [field for field in known if field.name in folders])
    value = f.col(LINE)
    lines = lines.withColumn(LINE, _without_mark(value)).where(f.trim(LINE) != "")
    own = StructType([field for field in known if field.name not in folders])
    parsing = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    named = [f.col(quoted(name)) for name in folders]
    lines = lines.select(
        *named, f.col("_metadata.file_path").alias(PATH), _flaw_of_line(value, options, is_inferred).alias(FATE), value
    )
    lines = lines.select(*named, PATH, FATE, f.explode(_records_of_line(value, options)).alias(RAW))
    into = StructType([*own, StructField(_CORRUPT, StringType())])
    parsed = lines.withColumn(_RECORD, f.from_json(RAW, into, parsing))
    record = f.col(_RECORD)
    is_malformed = record.isNull() | record.getField(_CORRUPT).isNotNull()
    fate = f.coalesce(FATE, f.when(is_malformed, f.lit(_MALFORMED)))
    columns = {field.name: record.getField(field.name) for field in own}
    changed = may_be_changed(record, own)
    if changed is not None and is_strict(options):
        in_texts = StructType([StructField(field.name, all_texts(field.dataType)) for field in own])
        exact = f.from_json(marked(f.col(RAW)), in_texts, parsing)
        parsed = parsed.withColumn(_EXACT, f.when(has_fraction(f.col(RAW)) & changed, exact))
        for field in own:
            exactly = f.col(_EXACT).getField(field.name)
            columns[field.name] = with_exact_texts(columns[field.name], exactly, field.dataType)
    return parsed.select(
        *(column.alias(name) for name, column in columns.items()), *named, PATH, fate.alias(FATE),
        f.when(fate.isNotNull(), f.col(RAW).cast("binary")).alias(RAW),
    )


def schema_of_good_lines(
    spark: SparkSession, reader: DataFrameReader, paths: list[str], options: Mapping[str, str]
) -> StructType:
    """The schema of files whose refused lines have columns of their own, such as one key twice. Spark's reader takes
    such lines from Python alone."""
    from pyspark.sql import functions as f

    lines = lines_of(spark.read.options(**{**options, "wholetext": "false"}), paths)
    good = lines.where(_flaw_of_line(f.col(LINE), options, is_inferred=True).isNull())
    return reader.json(good.rdd.map(lambda row: str(row[0]))).schema


def _without_mark(text: Column) -> Column:
    """A text without the byte order mark with which a file may begin."""
    from pyspark.sql import functions as f

    return f.when(f.startswith(text, f.lit(_MARK)), f.substring(text, 2, _ANY_LENGTH)).otherwise(text)


def _flaw_of_line(value: Column, options: Mapping[str, str], is_inferred: bool) -> Column:
    """The fate of a line of which Spark's reader would lose something; null if there is nothing."""
    from pyspark.sql import functions as f

    flaw = f.when(~f.is_valid_utf8(value), f.lit(_NOT_UTF8))
    if is_strict(options):
        flaw = flaw.when(~is_one_record(value), f.lit(_MALFORMED))
    flaw = flaw.when(is_half_character(value), f.lit(_HALF))
    if is_strict(options):
        flaw = flaw.when(has_key_twice(value), f.lit(_TWICE))
    return flaw.when(has_nameless_key(value), f.lit(_NAMELESS)) if is_inferred else flaw


def _records_of_line(value: Column, options: Mapping[str, str]) -> Column:
    """The records of a line, in an array: itself, or the elements of an array of objects."""
    from pyspark.sql import functions as f

    # Its other elements would be records without their quotes, or none.
    are_objects = f.from_json(value, _OBJECTS, options).isNotNull()
    exact = f.when(has_fraction(value), marked(value)).otherwise(value) if is_strict(options) else value
    texts = f.transform(
        f.from_json(exact, "array<string>", options), lambda text: f.coalesce(unmarked(text), f.lit("null"))
    )
    return f.coalesce(f.when(f.col(FATE).isNull() & value.rlike(r"^\s*\[") & are_objects, texts), f.array(value))


def flawed_documents(
    spark: SparkSession, paths: list[str], known: StructType, options: Mapping[str, str], *, is_inferred: bool
) -> tuple[DataFrame, set[str]]:
    """The files of which Spark's reader would lose something, such as a second value, as refused records, and their
    names. `is_inferred`: whether the columns are those of the files."""
    from pyspark.sql import functions as f

    # A file may be as long as a JVM can hold: no regular expression sees it, unless it looks wrong.
    value = f.col(LINE)
    text = _without_mark(value)
    is_one = f.coalesce(f.json_array_length(f.concat(f.lit("["), text, f.lit("]"))) == 1, f.lit(False))
    flaw = f.when(~f.is_valid_utf8(value), f.lit(_NOT_UTF8))
    if is_strict(options):
        flaw = flaw.when(~(is_one | is_one_record(text)), f.lit(_MALFORMED))
    escapes = f.contains(text, f.lit("\\ud")) | f.contains(text, f.lit("\\uD"))
    flaw = flaw.when(escapes & is_half_character(text), f.lit(_HALF))
    if is_strict(options):
        flaw = flaw.when(has_key_twice(text), f.lit(_TWICE))
    if is_inferred:
        flaw = flaw.when(f.contains(text, f.lit('""')) & has_nameless_key(text), f.lit(_NAMELESS))
    # Spark tells UTF-16 and UTF-32 by their zeros.
    can_tell = f.substring(value, 1, _BEGIN).rlike(r"\S") & ~f.contains(value, f.lit("\0"))
    files = lines_of(spark.read.option("wholetext", "true"), paths).withColumn(PATH, f.col("_metadata.file_path"))
    wrong = files.select(PATH, f.when(can_tell, flaw).alias(FATE), LINE).where(f.col(FATE).isNotNull())
    flawed = wrong.select(
        *(f.lit(None).cast(field.dataType).alias(field.name) for field in known), PATH, FATE,
        f.substring(value.cast("binary"), 1, MAX_RAW_BYTES).alias(RAW),
    )
    return flawed, {unquote(urlsplit(row[PATH]).path) for row in wrong.select(PATH).collect()}


def twins_in(spark: SparkSession, reader: DataFrameReader, paths: list[str]) -> str | None:
    """Which columns of JSON are one to Spark, and where; None if they have one name, twice in an object."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    with _telling_case(spark):
        try:
            found = _twins(reader.load(paths).schema)
        except AnalysisException:
            return None
        if found is None:
            return None
        named = reader.schema(StructType([StructField(found[1], StringType())])).load(paths)
        row = named.where(f.col(quoted(found[1])).isNotNull()).select(f.col("_metadata.file_path").alias("at")).first()
    place = f"{unquote(urlsplit(row['at']).path)} or another file" if row else "a file"
    return f"{place} has {twins_told(*found)}, or a --schema with one of them"


def _twins(type_: DataType) -> tuple[str, str] | None:
    """The first two fields of a type, or of one inside it, that are one to Spark."""
    from pyspark.sql.types import ArrayType, StructType

    match type_:
        case StructType():
            inner = (_twins(field.dataType) for field in type_)
            return twins_among(type_.names) or next(filter(None, inner), None)
        case ArrayType():
            return _twins(type_.elementType)
    return None


@contextmanager
def _telling_case(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(_CASE)
    spark.conf.set(_CASE, "true")
    try:
        yield
    finally:
        spark.conf.set(_CASE, before or "false")
