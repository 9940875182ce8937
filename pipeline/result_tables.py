"""The files of a word count's result as tables of Spark; `pipeline/results.py` parses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile, balance
from squall.pipeline.results import SCHEMAS, find_results, row_batches
from squall.pipeline.session import usable_cores

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_Batches = Iterator["pyarrow.RecordBatch"]


def result_table(spark: SparkSession, kind: str, files: list[InputFile]) -> DataFrame:
    """All rows, and what is wrong with files, in the columns of SCHEMAS[kind]."""
    tasks = max(1, min(len(files), 2 * usable_cores()))
    plan = balance(files, tasks)

    def read(batches: _Batches) -> _Batches:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from row_batches(kind, plan[task])

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, SCHEMAS[kind])


def check_readable(rows: DataFrame) -> tuple[str, ...]:
    """The places of torn lines; UsageError for the first invalid row."""
    found = rows.where("problem is not null or torn is not null").select("problem", "torn").collect()
    problems = sorted(row.problem for row in found if row.problem)
    if problems:
        more = f" (and {len(problems) - 1} more files have such lines)" if len(problems) > 1 else ""
        raise UsageError(f"the result cannot be read: {problems[0]}{more}")
    return tuple(sorted(row.torn for row in found if row.torn))


def checked_result(spark: SparkSession, result: Path, kind: str) -> DataFrame:
    """The rows of a result's folder, once all of its files are known to be readable; torn last lines are left out."""
    rows = result_table(spark, kind, find_results(result, kind))
    check_readable(rows)
    return rows.where("problem is null and torn is null")
