"""Reads JSON so that what Spark's reader passes over is refused, as it stands in the file.

A line is a record, or an array of objects, a record each.

Guarantees that a line that is not UTF-8, or neither of these, is refused as a whole, with its bytes. Decides and plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from squall.pipeline.cleaning import FATE, INTERNAL, PATH, RAW, REFUSED, quoted
from squall.pipeline.footers import twins_among, twins_told
from squall.pipeline.records import is_half_character, is_one_record, is_strict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType, StructType

_CORRUPT, _RECORD = INTERNAL + "corrupt", INTERNAL + "record"
_MALFORMED = f"{REFUSED}malformed JSON"
_NOT_UTF8 = f"{REFUSED}not UTF-8"
_OBJECTS = "array<map<string, string>>"
_CASE = "spark.sql.caseSensitive"


def json_lines(
    spark: SparkSession, paths: list[str], known: StructType, options: Mapping[str, str], folders: Sequence[str]
) -> DataFrame:
    """The rows of JSON with a record in each line, or an array of them, with path, fate and raw record."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    lines = spark.read.options(**{**options, "wholetext": "false"}).text(paths).where(f.trim("value") != "")
    value = f.col("value")
    flaw = f.when(~f.is_valid_utf8(value), f.lit(_NOT_UTF8))
    if is_strict(options):
        flaw = flaw.when(~is_one_record(value), f.lit(_MALFORMED))
    flaw = flaw.when(is_half_character(value), f.lit(f"{REFUSED}half a character"))
    # Its other elements would be records without their quotes, or none.
    are_objects = f.from_json(value, _OBJECTS, options).isNotNull()
    texts = f.transform(f.from_json(value, "array<string>", options), lambda text: f.coalesce(text, f.lit("null")))
    many = f.when(flaw.isNull() & value.rlike(r"^\s*\[") & are_objects, texts)
    own = StructType([field for field in known if field.name not in folders])
    parsing = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    named = [f.col(quoted(name)) for name in folders]
    lines = lines.select(
        *named, f.col("_metadata.file_path").alias(PATH), flaw.alias(FATE),
        f.explode(f.coalesce(many, f.array(value))).alias(RAW),
    )
    into = StructType([*own, StructField(_CORRUPT, StringType())])
    parsed = lines.withColumn(_RECORD, f.from_json(RAW, into, parsing))
    record = f.col(_RECORD)
    is_malformed = record.isNull() | record.getField(_CORRUPT).isNotNull()
    fate = f.coalesce(FATE, f.when(is_malformed, f.lit(_MALFORMED)))
    return parsed.select(
        *(record.getField(field.name).alias(field.name) for field in own), *named, PATH, fate.alias(FATE),
        f.when(fate.isNotNull(), f.col(RAW).cast("binary")).alias(RAW),
    )


def twins_in(spark: SparkSession, reader: DataFrameReader, paths: list[str]) -> str | None:
    """Which columns of JSON are one to Spark, and where."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType, StructField, StructType

    with _telling_case(spark):
        found = _twins(reader.load(paths).schema)
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
