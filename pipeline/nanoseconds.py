"""Timestamps of Parquet in nanoseconds, for which Spark has no type.

Guarantees that they are told before Spark fails with the name of a setting, and, where `squall verify` reads them, that
no digit is lost: Spark gives them as whole numbers. Relies on `spark.sql.legacy.parquet.nanosAsLong`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet
    from pyspark.sql import Column, SparkSession

ADVICE = 'write them in microseconds (pyarrow: coerce_timestamps="us")'
_AS_LONG = "spark.sql.legacy.parquet.nanosAsLong"
_PER_MICRO, _PER_SECOND = 10**3, 10**9


def columns_of_nanoseconds(footer: pyarrow.parquet.FileMetaData) -> list[str]:
    """The paths of such columns: with dots, of those within others. Not of those in INT96, which Spark reads."""
    columns = (footer.schema.column(place) for place in range(len(footer.schema)))
    return [column.path for column in columns if "timeUnit=nanoseconds" in _timestamp(str(column.logical_type))]


def _timestamp(logical_type: str) -> str:
    return logical_type if logical_type.startswith("Timestamp(") else ""


@contextmanager
def nanoseconds_as_long(spark: SparkSession) -> Iterator[None]:
    """Let Spark read them as whole numbers; it is planned so when a job begins, not when a table is made."""
    before = spark.conf.get(_AS_LONG, None)
    spark.conf.set(_AS_LONG, "true")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_AS_LONG)
        else:
            spark.conf.set(_AS_LONG, before)


def timestamp_of(nanos: Column) -> tuple[Column, Column]:
    """The timestamp, and if Spark has none for it, its text."""
    from pyspark.sql import functions as f

    second = f.timestamp_seconds(_floor(nanos, _PER_SECOND))
    fraction = f.lpad(f.pmod(nanos, f.lit(_PER_SECOND)).cast("string"), 9, "0")
    text = f.concat(f.date_format(second, "yyyy-MM-dd HH:mm:ss"), f.lit("."), fraction)
    is_whole = f.pmod(nanos, f.lit(_PER_MICRO)) == 0
    return f.when(is_whole, f.timestamp_micros(_floor(nanos, _PER_MICRO))), f.when(~is_whole, text)


def _floor(nanos: Column, unit: int) -> Column:
    from pyspark.sql import functions as f

    return f.call_function("div", nanos, f.lit(unit)) - f.when(
        (nanos < 0) & (f.pmod(nanos, f.lit(unit)) != 0), f.lit(1)
    ).otherwise(f.lit(0))
