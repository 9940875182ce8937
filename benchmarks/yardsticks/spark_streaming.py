"""The word count as a PySpark structured streaming query: files in, complete counts into memory that nobody reads.

At its best setting: SQL functions, which no Python process runs (`run`); or a function on Arrow batches that splits
(`run_python`). The rate is that of the batches after the first, which compiles and warms up.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.corpus import Corpus
    from benchmarks.measured import Measured

WARM_UP = 2
"""Batches that are left out."""


def run(corpus: Corpus, workers: int, repeat: int) -> Measured:
    return _run(corpus, f"{workers}", repeat)


def run_python(corpus: Corpus, workers: int, repeat: int) -> Measured:
    return _run(corpus, f"{workers}-python", repeat)


def _run(corpus: Corpus, workers: str, repeat: int) -> Measured:
    from benchmarks.measured import Measured
    from benchmarks.yardsticks.apart import need, need_java, run_apart

    python = need("pyspark")
    need_java()
    found = run_apart("spark_streaming", corpus, workers, repeat, python)
    return Measured(found.secs, found.lines, round(found.lines * corpus.words / corpus.lines))


def split_words(batches: Iterator[Any]) -> Iterator[Any]:
    """Of Arrow batches of lines, by Python."""
    import pyarrow

    for batch in batches:
        words: list[str] = []
        for line in batch.column(0).to_pylist():
            words += line.split()
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array(words, pyarrow.string())], ["word"])


def main(path: str, workers: str, repeat: int) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sql

    # Else Python functions run in the `python3` of PATH, which may lack Arrow.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    cores, _, python = workers.partition("-")
    with tempfile.TemporaryDirectory(prefix="spark-", dir=Path(path).parent) as name:
        spark = (
            SparkSession.builder.master(f"local[{cores}]")
            .config("spark.sql.shuffle.partitions", cores)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.memory", "2g")
            .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000")
            .config("spark.sql.streaming.checkpointLocation", f"{name}/checkpoint")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("OFF")
        lines = Path(path).read_text(encoding="utf-8").split("\n")
        texts = Path(name) / "texts"
        texts.mkdir()
        # As many files as cores, so that no core waits in a batch.
        for number in range(int(cores)):
            (texts / f"0-{number}.txt").write_text("\n".join(lines[number :: int(cores)]), encoding="utf-8")
            for again in range(1, repeat + WARM_UP):
                shutil.copy(texts / f"0-{number}.txt", texts / f"{again}-{number}.txt")
        source = spark.readStream.option("maxFilesPerTrigger", cores).text(str(texts))
        if python:
            words = source.mapInArrow(split_words, "word string")
        else:
            words = source.select(sql.explode(sql.split("value", " ")).alias("word"))
        counts = words.groupBy("word").count()
        query = counts.writeStream.outputMode("complete").format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        measured = [each for each in query.recentProgress if each["numInputRows"]][WARM_UP:]
        secs = sum(each["durationMs"]["triggerExecution"] for each in measured) / 1e3
        counted = sum(each["numInputRows"] for each in measured)
        spark.stop()
    print(json.dumps((secs, counted, 0)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
