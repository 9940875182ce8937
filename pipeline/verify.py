"""Checks with Spark that a topology's result follows from its feed: `squall verify`.

Guarantees that every line of the feed and every word in it is compared with the result, and that every difference is
counted and the first ones are named. Relies on nothing of the engine: the feed is counted again from its Parquet files,
so an error in the engine cannot hide itself.

::

    FEED/lines/*.parquet ──► words of each line, count of each word ──┐
    RESULT/ledger/*.jsonl ──────────► words of each line ─────────────┼─ group by line or word ─► ok, missing, ...
    RESULT/counts/*.jsonl ──────────► totals of each word ────────────┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.feed import Feed
from squall.pipeline.result_tables import check_readable, result_table
from squall.pipeline.results import find_results
from squall.pipeline.session import spark_session

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, Row, SparkSession

#: Differences of each kind that are named; the rest are only counted.
SHOWN = 10
#: Distinct words that a task counts before it passes the totals on: bounds its memory, whatever the feed.
HELD_WORDS = 1_000_000
#: Most characters of a word in messages; longer ones are cut.
SHOWN_WORD_CHARS = 60

KINDS = ("missing", "invented", "different")

#: Called with one line about the present step.
Progress = Callable[[str], None]
_Batches = Iterator["pyarrow.RecordBatch"]
_COUNTED = "partition bigint, `offset` bigint, word string, counted bigint"
_COUNTED_NAMES = ["partition", "offset", "word", "counted"]


@dataclass(frozen=True)
class Check:
    """One comparison: the number `checked` in the feed, the number right, and the numbers wrong by kind.

    `repeated` counts ledger rows beyond the first of a line: replays, which at-least-once allows. `offenders` names the
    first differences of each kind.
    """

    checked: int
    ok: int
    missing: int
    invented: int
    different: int
    repeated: int
    offenders: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not (self.missing or self.invented or self.different)


@dataclass(frozen=True)
class Verdict:
    """Both comparisons, and the places of last lines that were ignored because a worker's death tore them."""

    lines: Check
    words: Check
    torn: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.lines.passed and self.words.passed


def verify(feed: Path, result: Path, *, progress: Progress = lambda line: None) -> Verdict:
    """Compare `result` with `feed`. UsageError if one cannot be read or the result holds invalid rows."""
    opened = Feed.open(feed)
    results = {kind: find_results(result, kind) for kind in ("ledger", "counts")}
    files = sum(len(found) for found in results.values())
    progress(f"feed of {opened.rows:,} lines, {files} result files, starting Spark")
    with spark_session("squall verify") as spark:
        lines = _feed_table(spark, opened)
        tables = {kind: result_table(spark, kind, found) for kind, found in results.items()}
        progress("comparing every line and the count of every word")
        return _compare(opened, lines, _judged(lines, tables))


def _feed_table(spark: SparkSession, feed: Feed) -> DataFrame:
    names = [str(feed.path / file.name) for partition in feed.manifest.partitions for file in partition.files]
    if not names:
        raise UsageError(f"feed {feed.path} holds no lines: there is nothing to verify")
    schema = "partition int, `offset` bigint, path string, line_no int, text string"
    return spark.read.schema(schema).parquet(*names)


def _judged(lines: DataFrame, results: dict[str, DataFrame]) -> DataFrame:
    """A row for each line and each word, with the feed's number of it, the result's least and most, and the kind.

    Lines and words go through one grouping, so that the feed is read once. Rows that say what is wrong with a file of
    the result come through too, with the kind `unread`.
    """
    from pyspark.sql import functions as f

    counted = lines.select("partition", "offset", "text").mapInArrow(_count, _COUNTED)
    ledger = results["ledger"].withColumnRenamed("words", "told")
    counts = results["counts"].withColumnRenamed("count", "told")
    both = counted.unionByName(ledger, allowMissingColumns=True).unionByName(counts, allowMissingColumns=True)
    grouped = both.groupBy("partition", "offset", "word", "problem", "torn").agg(
        f.sum("counted").alias("words"), f.min("told").alias("least"), f.max("told").alias("most"),
        f.count("told").alias("times"),
    )
    # Totals of a word only grow, so older ones may be below the count; a line has one number of words.
    right = (f.col("most") == f.col("words")) & (f.col("word").isNotNull() | (f.col("least") == f.col("words")))
    # If a line was counted several times with different numbers, show a wrong one.
    wrong = f.when(f.col("word").isNull() & (f.col("least") != f.col("words")), f.col("least")).otherwise(f.col("most"))
    kind = (
        f.when(f.col("problem").isNotNull() | f.col("torn").isNotNull(), "unread")
        .when(f.col("words").isNull(), "invented").when(f.col("times") == 0, "missing")
        .when(right, "ok").otherwise("different")
    )
    about = f.when(f.col("word").isNull(), "lines").otherwise("words")
    return grouped.withColumns({"kind": kind, "about": about, "told": wrong})


def _compare(feed: Feed, lines: DataFrame, judged: DataFrame) -> Verdict:
    from pyspark.sql import functions as f

    repeats = f.sum(f.greatest(f.col("times") - 1, f.lit(0)))
    totals = judged.groupBy("about", "kind").agg(f.count("kind").alias("things"), repeats.alias("repeats")).collect()
    torn: tuple[str, ...] = ()
    if any(row.kind == "unread" for row in totals):
        torn = check_readable(judged.where("kind = 'unread'"))
    offenders = _offenders(feed, lines, judged) if {row.kind for row in totals} - {"ok", "unread"} else {}
    checks = {}
    for about in ("lines", "words"):
        things = Counter({row.kind: int(row.things) for row in totals if row.about == about})
        checks[about] = Check(
            checked=things["ok"] + things["missing"] + things["different"],
            ok=things["ok"],
            missing=things["missing"],
            invented=things["invented"],
            different=things["different"],
            # Totals are repeated by design.
            repeated=sum(int(row.repeats) for row in totals if row.about == about == "lines"),
            offenders={kind: tuple(offenders.get((about, kind), ())) for kind in KINDS},
        )
    if checks["lines"].checked != feed.rows:
        wrong = f"it holds {checks['lines'].checked:,} lines where its manifest says {feed.rows:,}"
        raise UsageError(f"feed {feed.path} is damaged: {wrong}; run squall prepare again")
    return Verdict(checks["lines"], checks["words"], torn)


def _offenders(feed: Feed, lines: DataFrame, judged: DataFrame) -> dict[tuple[str, str], list[str]]:
    """The first differences of each kind, as sentences."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.row_number().over(Window.partitionBy("about", "kind").orderBy("partition", "offset", "word"))
    first = judged.where(f.col("kind").isin(*KINDS)).withColumn("place", place).where(f.col("place") <= SHOWN)
    rows = first.orderBy("place").collect()
    of_lines = [f"(partition = {row.partition} and offset = {row.offset})" for row in rows if row.about == "lines"]
    found = lines.where(" or ".join(of_lines)).drop("text").collect() if of_lines else []
    places = {(row.partition, row.offset): f"{row.path}:{row.line_no}" for row in found}
    offenders: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        said = _word_offender(row) if row.about == "words" else _line_offender(feed, row, places)
        offenders.setdefault((row.about, row.kind), []).append(said)
    return offenders


def _line_offender(feed: Feed, row: Row, places: dict[tuple[int, int], str]) -> str:
    line = f"line partition {row.partition} offset {row.offset}"
    if row.kind == "missing":
        return f"{line} ({places[row.partition, row.offset]}) is missing from the ledger"
    if row.kind == "different":
        return f"{line} ({places[row.partition, row.offset]}): feed {row.words} words, ledger {row.told}"
    if row.partition in feed.partitions:
        return f"{line} is in the ledger, but the feed has only {feed.partition_rows(row.partition)} lines there"
    return f"{line} is in the ledger, but the feed has no such partition"


def _word_offender(row: Row) -> str:
    word = repr(row.word if len(row.word) <= SHOWN_WORD_CHARS else row.word[:SHOWN_WORD_CHARS] + "...")
    if row.kind == "missing":
        return f"word {word}: feed {row.words}, not in the result"
    if row.kind == "invented":
        return f"word {word}: not in the feed, result {row.told}"
    return f"word {word}: feed {row.words}, result {row.told}"


def _count(batches: _Batches) -> _Batches:
    """The number of words of each line, and how often each word occurs in a bulk of lines.

    Runs in Spark's Python workers: only Python's str.split separates words exactly as a topology does.
    """
    import pyarrow

    counts: Counter[str] = Counter()
    for batch in batches:
        lengths = []
        for text in batch.column("text").to_pylist():
            words = text.split()
            lengths.append(len(words))
            counts.update(words)
        yield pyarrow.RecordBatch.from_arrays(
            [
                batch.column("partition").cast(pyarrow.int64()),
                batch.column("offset"),
                pyarrow.nulls(batch.num_rows, pyarrow.string()),
                pyarrow.array(lengths, pyarrow.int64()),
            ],
            _COUNTED_NAMES,
        )
        if len(counts) >= HELD_WORDS:
            yield _count_batch(counts)
            counts.clear()
    if counts:
        yield _count_batch(counts)


def _count_batch(counts: Counter[str]) -> pyarrow.RecordBatch:
    import pyarrow

    nowhere = pyarrow.nulls(len(counts), pyarrow.int64())
    words, totals = pyarrow.array(list(counts), pyarrow.string()), pyarrow.array(list(counts.values()), pyarrow.int64())
    return pyarrow.RecordBatch.from_arrays([nowhere, nowhere, words, totals], _COUNTED_NAMES)
