"""The session that this example's Spark programs share: small, quiet, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession


def session(name: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name).setMaster("local[2]").setAll([
        ("spark.driver.bindAddress", "127.0.0.1"), ("spark.driver.host", "127.0.0.1"),
        # No optimising compiler: a short program ends before it pays off.
        ("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
        ("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
        ("spark.sql.session.timeZone", "UTC"), ("spark.sql.shuffle.partitions", "2"),
    ])
    # Java's log is not for the terminal: errors come here as exceptions.
    gateway = launch_gateway(conf, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
    return SparkSession(SparkContext(conf=conf, gateway=gateway))
