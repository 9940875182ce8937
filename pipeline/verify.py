"""Checks with Spark that a topology's result follows from its feed: `squall verify`.

Guarantees that every line of the feed and every word in it is compared with the result, and that every difference is
counted and the first ones are named. Relies on nothing of the engine: the feed is counted again from its Parquet files,
so an error in the engine cannot hide itself.

::

    FEED/rows/*.parquet ──► words of each line, count of each word ──┐
    RESULT/ledger/*.jsonl ─────────► words of each line ─────────────┼─ group by bucket ─► ok, missing, ... ─► sums
    RESULT/counts/*.jsonl ─────────► totals of each word ────────────┘

It is one job of two stages, `pipeline.tally` and `pipeline.judging`; of each task a few findings come back.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from squall.engine.errors import UsageError
from squall.pipeline.feed import Feed
from squall.pipeline.feed.manifest import check_content
from squall.pipeline.result_tables import check_readable
from squall.pipeline.results import find_results, pieces_of
from squall.pipeline.session import spark_session, usable_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from squall.pipeline.judging import Finding
    from squall.pipeline.tally import Buckets, Piece

#: Most characters of a word in messages; longer ones are cut.
SHOWN_WORD_CHARS = 60
#: Tasks for each core: enough that all cores end at about the same time, few enough that words are seldom told twice.
TASKS_PER_CORE = 4

#: Called with one line about the present step.
Progress = Callable[[str], None]


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
    from squall.pipeline.tally import Buckets, ResultPiece, feed_pieces

    results = {kind: find_results(result, kind) for kind in ("ledger", "counts")}
    pieces: list[Piece] = [*feed_pieces(opened)]
    if not opened.rows:
        raise UsageError(f"feed {opened.path} holds no lines: there is nothing to verify")
    check_content(opened.path, opened.manifest)
    for kind, found in results.items():
        pieces += (ResultPiece(kind, piece) for piece in pieces_of(found))
    rows = {partition: opened.partition_rows(partition) for partition in opened.partitions}
    buckets = Buckets.of(rows, sum(piece.bytes for piece in pieces))
    files = sum(len(found) for found in results.values())
    progress(f"feed of {opened.rows:,} lines, {files} result files, starting Spark")
    with spark_session("squall verify") as spark:
        progress("comparing every line and the count of every word")
        return _verdict(spark, opened, _findings(spark, pieces, buckets))


def _findings(spark: SparkSession, pieces: list[Piece], buckets: Buckets) -> list[Finding]:
    from squall.pipeline.judging import fold, judge
    from squall.pipeline.tally import Tally

    tasks = min(len(pieces), TASKS_PER_CORE * usable_cores())
    plan = dealt(pieces, tasks)
    # Not a table of SQL: what passes through Java are bytes, and to load those classes takes 2.5 s of processor time.
    tallied = spark.sparkContext.parallelize(range(tasks), tasks).flatMap(lambda task: Tally(buckets).rows(plan[task]))
    judged = tallied.groupByKey(usable_cores()).flatMap(lambda bucket: judge(bucket[1]))
    return fold(judged.mapPartitions(fold).collect())


def dealt(pieces: list[Piece], tasks: int) -> list[list[Piece]]:
    """Deal the pieces out so that tasks have about the same number of bytes."""
    plan: list[list[Piece]] = [[] for _ in range(tasks)]
    loads = [(0, task) for task in range(tasks)]
    for piece in sorted(pieces, key=lambda piece: -piece.bytes):
        load_bytes, task = loads[0]
        plan[task].append(piece)
        heapq.heapreplace(loads, (load_bytes + piece.bytes + 1, task))
    return plan


def _verdict(spark: SparkSession, feed: Feed, findings: list[Finding]) -> Verdict:
    from squall.pipeline.judging import KINDS, OK
    from squall.pipeline.tally import DAMAGED, TORN, UNREAD

    unread: dict[str, list[str]] = {DAMAGED: [], UNREAD: [], TORN: []}
    numbers: dict[tuple[str, str], Finding] = {}
    examples: dict[tuple[str, str], list[Finding]] = {}
    for found in findings:
        key = found.about, found.kind
        if found.kind in unread:
            unread[found.kind].append(found.word or "")
        elif found.things is not None:
            numbers[key] = found
        else:
            examples.setdefault(key, []).append(found)
    if unread[DAMAGED]:
        raise UsageError(min(unread[DAMAGED]))
    check_readable(unread[UNREAD])
    named = [found for found in findings if found.about == "lines" and found.offset is not None]
    places = _places(spark, feed, named)
    checks = {}
    for about in ("lines", "words"):
        things = {kind: (numbers[about, kind].things or 0) if (about, kind) in numbers else 0 for kind in (OK, *KINDS)}
        checks[about] = Check(
            checked=things[OK] + things["missing"] + things["different"],
            ok=things[OK],
            missing=things["missing"],
            invented=things["invented"],
            different=things["different"],
            repeated=sum(found.repeats or 0 for found in numbers.values() if found.about == about),
            offenders={
                kind: tuple(_offender(feed, found, places) for found in examples.get((about, kind), ()))
                for kind in KINDS
            },
        )
    if checks["lines"].checked != feed.rows:
        wrong = f"it holds {checks['lines'].checked:,} lines where its manifest says {feed.rows:,}"
        raise UsageError(f"feed {feed.path} is damaged: {wrong}; run squall prepare again")
    return Verdict(checks["lines"], checks["words"], tuple(sorted(unread[TORN])))


def _places(spark: SparkSession, feed: Feed, lines: list[Finding]) -> dict[tuple[int | None, int | None], str]:
    """Where in the source of the feed lines are from."""
    known = [line for line in lines if line.kind != "invented"]
    if not known:
        return {}
    wanted = " or ".join(f"(partition = {line.partition} and offset = {line.offset})" for line in known)
    rows = _feed_table(spark, feed).where(wanted).collect()
    return {(row.partition, row.offset): f"{row.path}:{row.line_no}" for row in rows}


def _feed_table(spark: SparkSession, feed: Feed) -> DataFrame:
    names = [str(feed.path / file.name) for partition in feed.manifest.partitions for file in partition.files]
    # Of text and nothing else has the rows' own columns.
    schema = "partition int, `offset` bigint, path string, line_no int"
    return spark.read.schema(schema).option("__globPaths__", "false").parquet(*names)


def _offender(feed: Feed, found: Finding, places: dict[tuple[int | None, int | None], str]) -> str:
    """A difference, as a sentence."""
    if found.about == "words":
        return _word_offender(found)
    line = f"line partition {found.partition} offset {found.offset}"
    if found.kind != "invented":
        line += f" ({places[found.partition, found.offset]})"
        if found.kind == "missing":
            return f"{line} is missing from the ledger"
        return f"{line}: feed {found.expected} words, ledger {found.told}"
    if found.partition in feed.partitions:
        return f"{line} is in the ledger, but the feed has only {feed.partition_rows(found.partition)} lines there"
    return f"{line} is in the ledger, but the feed has no such partition"


def _word_offender(found: Finding) -> str:
    text = found.word or ""
    word = repr(text if len(text) <= SHOWN_WORD_CHARS else text[:SHOWN_WORD_CHARS] + "...")
    if found.kind == "missing":
        return f"word {word}: feed {found.expected}, not in the result"
    if found.kind == "invented":
        return f"word {word}: not in the feed, result {found.told}"
    return f"word {word}: feed {found.expected}, result {found.told}"
