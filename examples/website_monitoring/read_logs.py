"""Turns access logs into a feed with Spark, and puts lines that are none into quarantine with the reason.

    python examples/website_monitoring/read_logs.py build/logs build/web

writes build/web/feed (at, url, status, bytes, ms; in order of time) and build/web/quarantine (path, reason, line).
Every line is in one of them.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Common Log Format, and the microseconds: host ident user [time] "method target protocol" status bytes microseconds
LINE = (
    r'^(\S+) (\S+) (\S+) \[(\d\d/[A-Za-z]{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] '
    r'"([A-Z]+) ([^\s"]+) HTTP/[\d.]+" (\d+) (\d{1,15}|-) (\d{1,15})$'
)
FEED_FILES = 4
SHOWN_CHARS = 500
#: One URL for all that are not there, or bad clients would make up as many as they like.
NOT_FOUND = "(not found)"


def parsed(spark: SparkSession, logs: Path) -> DataFrame:
    """A row for each line, with what it says, or the reason why it says nothing."""
    from pyspark.sql import functions as f

    def group(number: int) -> Column:
        return f.regexp_extract("value", LINE, number)

    lines = spark.read.text(str(logs)).withColumn("path", f.input_file_name())
    at = f.unix_timestamp(f.try_to_timestamp(group(4), f.lit("dd/MMM/yyyy:HH:mm:ss Z")))
    found = lines.withColumns(
        {
            "matches": f.col("value").rlike(LINE),
            "at": at,
            "status": group(7).try_cast("int"),
            "target": f.substring_index(group(6), "?", 1),
            "bytes": f.coalesce(group(8).try_cast("bigint"), f.lit(0)),
            # Half a millisecond is rounded up, as everywhere.
            "ms": ((group(9).try_cast("bigint") + 500) / 1000).cast("bigint"),
        }
    )
    reason = (
        f.when(f.trim("value") == "", "empty")
        .when(~f.is_valid_utf8("value"), "not UTF-8")
        .when(~f.col("matches"), "not in Common Log Format with %D")
        .when(f.col("at").isNull(), "no such time")
        .when(~f.col("status").between(100, 599) | f.col("status").isNull(), "no such status")
    )
    url = f.when(f.col("status") == 404, NOT_FOUND).otherwise(f.col("target"))
    return found.withColumns({"reason": reason, "url": url})


def read_logs(spark: SparkSession, logs: Path, base: Path) -> tuple[int, dict[str, int]]:
    """Write the feed and the quarantine; the number of rows in the feed, and of lines in quarantine by reason."""
    from pyspark.sql import functions as f

    lines = parsed(spark, logs).persist()
    try:
        good = lines.where("reason is null").select("at", "url", "status", "bytes", "ms")
        good.repartitionByRange(FEED_FILES, "at").sortWithinPartitions("at").write.mode("overwrite").parquet(
            str(base / "feed")
        )
        line = f.substring(f.make_valid_utf8("value"), 1, SHOWN_CHARS).alias("line")
        bad = lines.where("reason is not null").select("path", "reason", line)
        bad.coalesce(1).write.mode("overwrite").parquet(str(base / "quarantine"))
        reasons = {row.reason: row["count"] for row in bad.groupBy("reason").count().orderBy("reason").collect()}
        return good.count(), reasons
    finally:
        lines.unpersist()


if __name__ == "__main__":
    from spark_session import session

    parser = argparse.ArgumentParser(description="Turn access logs into a feed.")
    parser.add_argument("logs", type=Path, help="a folder of access logs")
    parser.add_argument("base", type=Path, help="where to write feed and quarantine")
    options = parser.parse_args()
    rows, reasons = read_logs(session("read logs"), options.logs.resolve(), options.base.resolve())
    print(f"feed        {rows:,} requests in {options.base}/feed")
    print(f"quarantine  {sum(reasons.values()):,} lines in {options.base}/quarantine")
    for reason, count in reasons.items():
        print(f"            {count:,} {reason}")
