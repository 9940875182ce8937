"""Checks the patterns of dates that options name: with a wrong one, Spark's readers find every record malformed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from squall.engine.foreign.text import repr_of
from squall.pipeline.spark_errors import InputTrouble, data_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATTERNS = ("dateformat", "timestampformat", "timestampntzformat")


def check_patterns(spark: SparkSession, options: Mapping[str, str]) -> None:
    """UsageError for a pattern with which Spark reads no date. Constants: Spark computes them without a job."""
    for name, pattern in options.items():
        if name.casefold() in _PATTERNS:
            with data_errors(partial(_told, name, pattern)):
                spark.sql("SELECT try_to_timestamp('', :pattern)", {"pattern": pattern}).collect()


def _told(name: str, pattern: str, trouble: InputTrouble) -> str:
    return (
        f"--option {name} is {repr_of(pattern)}, with which Spark reads no date; allowed: letters of "
        "yyyy-MM-dd HH:mm:ss.SSS XXX, others in single quotes"
    )
