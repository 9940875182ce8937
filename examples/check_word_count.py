"""Checks with Spark that a result of word_count.py follows from its feed: every line once, and every count right.

    squall run examples/word_count.py --workers 2 -- --feed FEED --out RESULT
    python examples/check_word_count.py FEED RESULT

Spark counts the feed's words again, and compares every line with the ledger and every word with the counts:

* missing: the feed has it, and the result does not: something was lost
* invented: the result has it, and the feed does not
* different: another number of words in the line, or another count of the word

The ledger may name a line twice, as at-least-once allows; the largest total of a word is its count; a last row that the
death of its writer has torn does not count. Exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, Row, SparkSession

WRONG = ("missing", "invented", "different")
SHOWN = 10
"""Lines and words of each kind that are named."""


def check(spark: SparkSession, feed: Path, result: Path) -> bool:
    """Print what is right and what is wrong; whether everything is right."""
    from pyspark.sql import functions as f

    def written(folder: str, schema: str) -> DataFrame:
        return spark.read.schema(schema).option("mode", "DROPMALFORMED").json(str(result / folder))

    manifest = json.loads((feed / "_feed.json").read_text())
    files = [str(feed / file["name"]) for partition in manifest["partitions"] for file in partition["files"]]
    rows = spark.read.parquet(*files).select("partition", "offset", "text")
    expected = rows.mapInPandas(tally, "partition int, offset bigint, word string, expected bigint")
    lines = written("ledger", "partition int, offset bigint, words bigint").withColumnRenamed("words", "found")
    words = written("counts", "word string, count bigint").withColumnRenamed("count", "found")
    # All in one pass: a line has no word, and a word is of no line.
    keys = expected.unionByName(lines, True).unionByName(words.selectExpr("0 partition", "0L offset", "*"), True)
    is_line = f.isnull("word")
    found = keys.groupBy("partition", "offset", "word").agg(
        f.sum("expected").alias("expected"), f.max("found").alias("found"),
        f.when(is_line, f.min("found")).otherwise(f.max("found")).alias("least"),
        f.when(is_line, f.greatest(f.count("found") - 1, f.lit(0))).otherwise(0).alias("repeated"),
    )
    wrong = f.when(f.isnull("found"), "missing").when(f.isnull("expected"), "invented").when(
        (f.col("least") != f.col("expected")) | (f.col("found") != f.col("expected")), "different"
    )
    judged = found.withColumns({"kind": f.coalesce(wrong, f.lit("ok")), "is_line": is_line})
    totals = judged.groupBy("is_line", "kind").agg(f.count("*").alias("number"), f.sum("repeated").alias("repeated"))
    return told(judged, totals.collect(), manifest["rows"])


def tally(frames: Iterable[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
    """Each line with its number of words, then each word with its count: in Python, as only its str.split separates
    words exactly as the topology does."""
    import pandas

    counts = Counter[str]()
    for frame in frames:
        words = frame["text"].map(str.split)
        for some in words:
            counts.update(some)
        yield frame[["partition", "offset"]].assign(word=None, expected=words.map(len))
    yield pandas.DataFrame({"partition": 0, "offset": 0, "word": counts.keys(), "expected": counts.values()})


def told(judged: DataFrame, totals: list[Row], rows: int) -> bool:
    """Print the table, and the first lines and words that are wrong; whether none is. `rows`: of the feed."""
    from pyspark.sql import functions as f

    print(f"{'':5} {'checked':>13} {'ok':>13} {'missing':>9} {'invented':>9} {'different':>9} {'repeated':>9}")
    for what, is_line in (("lines", True), ("words", False)):
        numbers = {row.kind: row.number for row in totals if row.is_line == is_line}
        ok, missing, invented, different = (numbers.get(kind, 0) for kind in ("ok", *WRONG))
        checked, repeated = ok + missing + different, sum(row.repeated for row in totals if row.is_line == is_line)
        print(f"{what} {checked:13,} {ok:13,} {missing:9,} {invented:9,} {different:9,} {repeated:9,}")
        if is_line and rows != checked:
            sys.exit(f"the feed is damaged: it holds {checked:,} lines where its manifest says {rows:,}")
        key = ["partition", "offset"] if is_line else ["word"]
        for kind in WRONG:
            if kind in numbers:
                some = judged.where((f.col("kind") == kind) & (f.col("is_line") == is_line))
                for row in some.orderBy(*key).limit(SHOWN).collect():
                    place = ", ".join(f"{name} {row[name]!r}" for name in key)
                    print(f"{kind}: {place}: feed {row.expected}, result {row.found}")
    is_right = {row.kind for row in totals} <= {"ok"}
    print("every line and every count is right" if is_right else "the result is wrong")
    return is_right


def session() -> SparkSession:
    """A quiet one, on this machine."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = len(os.sched_getaffinity(0))
    conf = SparkConf().setAppName("check_word_count").setMaster(f"local[{cores}]").setAll([
        ("spark.driver.bindAddress", "127.0.0.1"), ("spark.driver.host", "127.0.0.1"),
        # No optimising compiler: a short program ends before it pays off.
        ("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
        ("spark.ui.enabled", "false"), ("spark.ui.showConsoleProgress", "false"),
        ("spark.sql.shuffle.partitions", str(cores)),
    ])
    # Java's log is not for the terminal: errors come here as exceptions.
    gateway = launch_gateway(conf, {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check with Spark what word_count.py counted.")
    parser.add_argument("feed", type=Path, help="a feed made by squall prepare")
    parser.add_argument("result", type=Path, help="the directory that word_count.py --out wrote")
    arguments = parser.parse_args()
    for path in (arguments.feed / "_feed.json", arguments.result / "ledger", arguments.result / "counts"):
        if not path.exists():
            parser.error(f"there is no {path}")
    sys.exit(0 if check(session(), arguments.feed, arguments.result) else 1)
