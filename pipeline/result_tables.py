"""The files of a word count's result as tables of Spark; `pipeline/results.py` parses them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.read.files import InputFile, balance
from squall.pipeline.results import SCHEMAS, find_results, pieces_of, row_batches
from squall.pipeline.session import usable_cores

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

_PLACE = re.compile(r"(.*?\.jsonl):(\d+) ")
_Batches = Iterator["pyarrow.RecordBatch"]


def result_table(spark: SparkSession, kind: str, files: list[InputFile]) -> DataFrame:
    """All rows, and what is wrong with files, in the columns of SCHEMAS[kind]."""
    pieces = pieces_of(files)
    tasks = max(1, min(len(pieces), 2 * usable_cores()))
    plan = balance(pieces, tasks)

    def read(batches: _Batches) -> _Batches:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from row_batches(kind, plan[task])

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, SCHEMAS[kind])


def check_readable(problems: Iterable[str]) -> None:
    """UsageError for the first of the problems, each of which begins with the file and line of a row."""
    found = sorted(problems, key=_place_of)
    if found:
        more = f" (and {len(found) - 1} more such lines)" if len(found) > 1 else ""
        raise UsageError(f"the result cannot be read: {found[0]}{more}")


def _place_of(problem: str) -> tuple[str, int, str]:
    place = _PLACE.match(problem)
    return (place[1], int(place[2]), problem) if place else (problem, 0, problem)


def checked_result(spark: SparkSession, result: Path, kind: str) -> DataFrame:
    """The rows of a result's folder, once all of its files are known to be readable; torn last lines are left out."""
    rows = result_table(spark, kind, find_results(result, kind))
    check_readable(row.problem for row in rows.where("problem is not null").select("problem").collect())
    return rows.where("problem is null and torn is null")
