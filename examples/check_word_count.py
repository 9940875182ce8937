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
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame, SparkSession

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
    tallied = rows.mapInPandas(tally, "partition int, offset bigint, word string, expected bigint").persist()
    lines = tallied.where("word is null").drop("word")
    words = tallied.where("word is not null").groupBy("word").agg(f.sum("expected").alias("expected"))
    ledger = written("ledger", "partition int, offset bigint, words bigint").groupBy("partition", "offset").agg(
        f.min("words").alias("least"), f.max("words").alias("found"), (f.count("*") - 1).alias("repeated")
    )
    counts = written("counts", "word string, count bigint").groupBy("word").agg(
        f.max("count").alias("least"), f.max("count").alias("found"), f.lit(0).alias("repeated")
    )
    print(f"{'':5} {'checked':>13} {'ok':>13} {'missing':>9} {'invented':>9} {'different':>9} {'repeated':>9}")
    lines_right = compare("lines", lines.join(ledger, ["partition", "offset"], "full"), manifest["rows"])
    words_right = compare("words", words.join(counts, "word", "full"))
    print("every line and every count is right" if lines_right and words_right else "the result is wrong")
    return lines_right and words_right


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


def compare(what: str, both: DataFrame, rows: int | None = None) -> bool:
    """Print a row of the table, and the first lines or words that are wrong; whether none is. `rows`: of the feed."""
    from pyspark.sql import functions as f

    wrong = f.when(f.isnull("found"), "missing").when(f.isnull("expected"), "invented").when(
        (f.col("least") != f.col("expected")) | (f.col("found") != f.col("expected")), "different"
    )
    judged = both.withColumn("kind", f.coalesce(wrong, f.lit("ok")))
    totals = judged.groupBy("kind").agg(f.count("*").alias("number"), f.sum("repeated").alias("repeated")).collect()
    numbers = {row.kind: row.number for row in totals}
    ok, missing, invented, different = (numbers.get(kind, 0) for kind in ("ok", *WRONG))
    checked, repeated = ok + missing + different, sum(row.repeated or 0 for row in totals)
    print(f"{what} {checked:13,} {ok:13,} {missing:9,} {invented:9,} {different:9,} {repeated:9,}")
    if rows not in (None, checked):
        sys.exit(f"the feed is damaged: it holds {checked:,} lines where its manifest says {rows:,}")
    for kind in WRONG:
        if kind in numbers:
            key = [name for name in both.columns if name in ("partition", "offset", "word")]
            for row in judged.where(f.col("kind") == kind).orderBy(*key).limit(SHOWN).collect():
                place = ", ".join(f"{name} {row[name]!r}" for name in key)
                print(f"{kind}: {place}: feed {row.expected}, result {row.found}")
    return set(numbers) <= {"ok"}


def session() -> SparkSession:
    """A quiet one, on this machine."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = len(os.sched_getaffinity(0))
    return (
        SparkSession.builder.appName("check_word_count").master(f"local[{cores}]")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        # No optimising compiler: a short program ends before it pays off.
        .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
        .config("spark.log.level", "ERROR").config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false").config("spark.sql.shuffle.partitions", str(cores))
        .getOrCreate()
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Check with Spark what word_count.py counted.")
    parser.add_argument("feed", type=Path, help="a feed made by squall prepare")
    parser.add_argument("result", type=Path, help="the directory that word_count.py --out wrote")
    arguments = parser.parse_args()
    for path in (arguments.feed / "_feed.json", arguments.result / "ledger", arguments.result / "counts"):
        if not path.exists():
            parser.error(f"there is no {path}")
    sys.exit(0 if check(session(), arguments.feed, arguments.result) else 1)
