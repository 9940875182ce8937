"""Checks with Spark that a topology's result follows from its feed: `squall verify`.

Guarantees that every line of the feed and every word in it is compared with the result, and that every difference is
counted and the first ones are named. Relies on nothing of the engine: the feed is counted again from its Parquet files,
so an error in the engine cannot hide itself.

::

    FEED/lines/*.parquet ──┬─ words of each line ─┐
    RESULT/ledger/*.jsonl ─┼──────────────────────┴─ full outer join on (partition, offset) ─► lines: ok, missing, ...
                           ├─ count of each word ─┐
    RESULT/counts/*.jsonl ─┴──────────────────────┴─ full outer join on word ────────────────► words: ok, missing, ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.corpus import InputFile, balance
from squall.pipeline.feed import Feed
from squall.pipeline.results import SCHEMAS, find_results, row_batches
from squall.pipeline.session import spark_session, usable_cores

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, Row, SparkSession

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
        tables = {kind: _result_table(spark, kind, found).persist() for kind, found in results.items()}
        try:
            return _compare(spark, opened, tables["ledger"], tables["counts"], progress)
        finally:
            for table in tables.values():
                table.unpersist()


def _compare(spark: SparkSession, feed: Feed, ledger: DataFrame, counts: DataFrame, progress: Progress) -> Verdict:
    progress("reading the result")
    torn = _check_readable(ledger.unionByName(counts, allowMissingColumns=True))
    lines = _feed_table(spark, feed)
    progress("comparing the words of every line")
    line_check = _check(_join_lines(lines, ledger.where("partition is not null")), _line_offender(feed))
    if line_check.checked != feed.rows:
        wrong = f"it holds {line_check.checked:,} lines where its manifest says {feed.rows:,}"
        raise UsageError(f"feed {feed.path} is damaged: {wrong}; run squall prepare again")
    progress("comparing the count of every word")
    word_check = _check(_join_words(lines, counts.where("word is not null")), _word_offender)
    return Verdict(line_check, word_check, torn)


def _feed_table(spark: SparkSession, feed: Feed) -> DataFrame:
    names = [str(feed.path / file.name) for partition in feed.manifest.partitions for file in partition.files]
    if not names:
        raise UsageError(f"feed {feed.path} holds no lines: there is nothing to verify")
    schema = "partition int, `offset` bigint, path string, line_no int, text string"
    return spark.read.schema(schema).parquet(*names)


def _result_table(spark: SparkSession, kind: str, files: list[InputFile]) -> DataFrame:
    tasks = max(1, min(len(files), 2 * usable_cores()))
    plan = balance(files, tasks)

    def read(batches: _Batches) -> _Batches:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from row_batches(kind, plan[task])

    return spark.range(0, tasks, 1, tasks).mapInArrow(read, SCHEMAS[kind])


def _check_readable(rows: DataFrame) -> tuple[str, ...]:
    """The places of torn lines; UsageError for the first invalid row."""
    found = rows.where("problem is not null or torn is not null").select("problem", "torn").collect()
    problems = sorted(row.problem for row in found if row.problem)
    if problems:
        more = f" (and {len(problems) - 1} more files have such lines)" if len(problems) > 1 else ""
        raise UsageError(f"the result cannot be read: {problems[0]}{more}")
    return tuple(sorted(row.torn for row in found if row.torn))


def _join_lines(lines: DataFrame, ledger: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    schema = "partition bigint, `offset` bigint, path string, line_no int, words bigint"
    feed = lines.mapInArrow(_count_words_of_lines, schema)
    told = ledger.groupBy("partition", "offset").agg(
        f.min("words").alias("least"), f.max("words").alias("most"), f.count("words").alias("times")
    )
    joined = feed.join(told, ["partition", "offset"], "full_outer")
    right = (f.col("least") == f.col("words")) & (f.col("most") == f.col("words"))
    # If a line was counted several times with different numbers, show a wrong one.
    wrong = f.when(f.col("least") != f.col("words"), f.col("least")).otherwise(f.col("most"))
    return joined.withColumns(
        {
            "kind": _kind(f.col("words").isNull(), f.col("times").isNull(), right),
            "repeats": f.greatest(f.coalesce("times", f.lit(0)) - 1, f.lit(0)),
            "told": wrong,
            "rank": f.struct("partition", "offset"),
        }
    )


def _join_words(lines: DataFrame, counts: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    partial = lines.select("text").mapInArrow(_count_words, "word string, partial bigint")
    feed = partial.groupBy("word").agg(f.sum("partial").alias("words"))
    told = counts.groupBy("word").agg(f.max("count").alias("told"))
    joined = feed.join(told, "word", "full_outer")
    return joined.withColumns(
        {
            "kind": _kind(f.col("words").isNull(), f.col("told").isNull(), f.col("words") == f.col("told")),
            "repeats": f.lit(0),
            "rank": f.struct("word"),
        }
    )


def _kind(not_in_feed: Column, not_in_result: Column, right: Column) -> Column:
    from pyspark.sql import functions as f

    return f.when(not_in_feed, "invented").when(not_in_result, "missing").when(right, "ok").otherwise("different")


def _check(joined: DataFrame, offender: Callable[[str, Row], str]) -> Check:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    totals = joined.groupBy("kind").agg(f.count("kind").alias("things"), f.sum("repeats").alias("repeats")).collect()
    counted = Counter({row.kind: int(row.things) for row in totals})
    offenders: dict[str, list[str]] = {}
    if counted.keys() - {"ok"}:
        position = f.row_number().over(Window.partitionBy("kind").orderBy("rank"))
        first = joined.where("kind != 'ok'").withColumn("position", position).where(f.col("position") <= SHOWN)
        for row in first.orderBy("kind", "position").collect():
            offenders.setdefault(row.kind, []).append(offender(row.kind, row))
    return Check(
        checked=counted["ok"] + counted["missing"] + counted["different"],
        ok=counted["ok"],
        missing=counted["missing"],
        invented=counted["invented"],
        different=counted["different"],
        repeated=sum(int(row.repeats) for row in totals),
        offenders={kind: tuple(offenders.get(kind, ())) for kind in KINDS},
    )


def _line_offender(feed: Feed) -> Callable[[str, Row], str]:
    def say(kind: str, row: Row) -> str:
        line = f"line partition {row.partition} offset {row.offset}"
        if kind == "missing":
            return f"{line} ({row.path}:{row.line_no}) is missing from the ledger"
        if kind == "different":
            return f"{line} ({row.path}:{row.line_no}): feed {row.words} words, ledger {row.told}"
        if row.partition in feed.partitions:
            return f"{line} is in the ledger, but the feed has only {feed.partition_rows(row.partition)} lines there"
        return f"{line} is in the ledger, but the feed has no such partition"

    return say


def _word_offender(kind: str, row: Row) -> str:
    word = repr(row.word if len(row.word) <= SHOWN_WORD_CHARS else row.word[:SHOWN_WORD_CHARS] + "...")
    if kind == "missing":
        return f"word {word}: feed {row.words}, not in the result"
    if kind == "invented":
        return f"word {word}: not in the feed, result {row.told}"
    return f"word {word}: feed {row.words}, result {row.told}"


def _count_words_of_lines(batches: _Batches) -> _Batches:
    """Count words in Spark's Python workers: only Python's str.split separates words exactly as a topology does."""
    import pyarrow

    for batch in batches:
        words = [len(text.split()) for text in batch.column("text").to_pylist()]
        yield pyarrow.RecordBatch.from_arrays(
            [
                batch.column("partition").cast(pyarrow.int64()),
                *(batch.column(name) for name in ("offset", "path", "line_no")),
                pyarrow.array(words, pyarrow.int64()),
            ],
            ["partition", "offset", "path", "line_no", "words"],
        )


def _count_words(batches: _Batches) -> _Batches:
    counts: Counter[str] = Counter()
    for batch in batches:
        for text in batch.column("text").to_pylist():
            counts.update(text.split())
        if len(counts) >= HELD_WORDS:
            yield _count_batch(counts)
            counts.clear()
    if counts:
        yield _count_batch(counts)


def _count_batch(counts: Counter[str]) -> pyarrow.RecordBatch:
    import pyarrow

    words, totals = pyarrow.array(list(counts), pyarrow.string()), pyarrow.array(list(counts.values()), pyarrow.int64())
    return pyarrow.RecordBatch.from_arrays([words, totals], ["word", "partial"])
