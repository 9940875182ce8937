"""The session that this example's Spark programs share: small, quiet, on this machine."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def session(name: str) -> SparkSession:
    return (
        SparkSession.builder.appName(name).master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        # No optimising compiler: a short program ends before it pays off.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.pyspark.python", sys.executable)
        .getOrCreate()
    )
