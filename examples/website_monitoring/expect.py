"""Computes with Spark what monitor.py must find, from the feed alone: every window, and every alarm that is raised.

    python examples/website_monitoring/expect.py build/web

writes build/web/expected/windows and build/web/expected/alarms, to compare with `squall verify`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

WINDOW_SECS = 300
MIN_REQUESTS = 20
LIMITS = {"error_ratio": 0.2, "p99_ms": 2000.0}


def expect(spark: SparkSession, base: Path) -> None:
    from pyspark.sql import functions as f

    def percentile(percent: int) -> Column:
        """In whole numbers: 0.99 * 300 is a little more than 297 in floating point."""
        rank = f.floor((f.count("*") * percent + 99) / 100)
        return f.element_at(f.sort_array(f.collect_list("ms")), rank.cast("int"))

    start = f.col("at") - f.col("at") % WINDOW_SECS
    errors = f.count_if(f.col("status") >= 500)
    requests = spark.read.parquet(str(base / "feed/rows"))
    windows = requests.withColumn("window", f.date_format(f.timestamp_seconds(start), "yyyy-MM-dd HH:mm")).groupBy(
        "url", "window"
    ).agg(
        f.count("*").alias("requests"), errors.alias("errors"), f.sum("bytes").alias("bytes"),
        (errors / f.count("*")).alias("error_ratio"),
        percentile(50).alias("p50_ms"), percentile(99).alias("p99_ms"),
    )
    windows.write.mode("overwrite").parquet(str(base / "expected/windows"))
    windows = spark.read.parquet(str(base / "expected/windows"))
    alarms = None
    for kind, limit in LIMITS.items():
        value = f.col(kind).cast("double").alias("value")
        some = windows.where((f.col("requests") >= MIN_REQUESTS) & (f.col(kind) > limit)).select(
            "url", "window", f.lit(kind).alias("kind"), "requests", value
        )
        alarms = some if alarms is None else alarms.unionByName(some)
    alarms.coalesce(1).write.mode("overwrite").parquet(str(base / "expected/alarms"))


if __name__ == "__main__":
    from arguments import Arguments, base_with

    parser = Arguments(description="Compute what monitor.py must find, where squall prepare made the feed.")
    base = base_with(parser, "squall prepare", "feed/rows")
    from spark_session import session

    expect(session("expect"), base)
    print(f"what monitor.py must find is in {base}/expected")
