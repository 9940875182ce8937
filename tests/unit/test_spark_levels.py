"""A topology as Spark runs it, batch by batch, without Spark: state, acks, failures, lost and mixed executions."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    FeedSpout,
    ReplayingSpout,
    Spout,
    Topology,
    TopologyContext,
    Tuple,
    bolt,
    spout,
)
from squall.pipeline.on_spark.batch_control import leads_nowhere
from tests.process.state_parts import Texts, text_of
from tests.unit.levels import Levels, Mixed
from tests.unit.rig import Does
from tests.unit.wired import wired

TEXTS = [text_of(number) for number in range(200)]
COUNTS = Counter(" ".join(TEXTS).split())
EXPECTED = {f"{word} {count}" for word, count in COUNTS.items()}


@spout("text")
def lines() -> list[str]:
    return TEXTS


@bolt("word")
def split(tup: Tuple) -> Iterator[str]:
    yield from tup["text"].split()


class Count(BasicBolt):
    outputs = ("word", "count")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()
        self.index = context.task_index
        self.hits = context.counter("hits")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup["word"]] += 1
        self.hits.inc()
        collector.emit((tup["word"], self.counts[tup["word"]]))

    def cleanup(self) -> None:
        for word in sorted(self.counts):
            print(word, self.counts[word])


def words(source: Spout = lines, count: Any = None, middle: Any = split, tasks: int = 1) -> Topology:
    return wired(
        lines=(source, tasks), split=(middle, 2, "shuffle lines"), count=(count or Count(), 3, "fields split word")
    ).build()


@pytest.mark.parametrize("source", [lines, Texts(len(TEXTS))], ids=["replaying", "of its own kind"])
@pytest.mark.parametrize("batch_rows", [7, 64, 10_000])
def test_state_goes_on_over_batches(source: Spout, batch_rows: int) -> None:
    levels = Levels(words(source), batch_rows=batch_rows)
    report = levels.run()
    assert set(levels.said) == EXPECTED
    assert (report.emitted, report.acked, report.pending, report.failed) == (len(TEXTS), len(TEXTS), 0, 0)
    assert report.components["count"].executed == report.metrics["count"]["hits"] == COUNTS.total()
    assert report.drained


def test_rows_of_two_executions_do_not_count() -> None:
    levels = Levels(words(), batch_rows=50)
    levels.batch()
    before = levels.control
    for level, workers in enumerate(levels.layout.levels):
        for slot in range(len(workers)):
            levels.twice = lambda at, of, mine=(level, slot): (at, of) == mine  # type: ignore[misc]
            with pytest.raises(Mixed):
                levels.batch()
            assert levels.control is before
    levels.twice = lambda level, slot: False
    levels.run()
    assert set(levels.said) == EXPECTED


class Poisoned(Count):
    """Cannot count one word the first times; what it did before it raised must be undone."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.counts[tup["word"]] += 1
        if tup["word"] == "bad":
            raise ValueError("a bad word")
        self.counts[tup["word"]] -= 1
        super().execute(tup, collector)


@pytest.mark.parametrize(
    ("on_error", "limit"), [("crash", "max_attempts"), ("crash", "max_crashes"), ("fail", "max_attempts")]
)
def test_an_exception_undoes_the_batch_until_the_message_is_a_dead_letter(on_error: str, limit: str) -> None:
    config = Config(on_error=on_error, **{limit: 3})
    poisoned = spout("text")(lambda: [*TEXTS[:100], "bad", *TEXTS[100:]])
    levels = Levels(words(poisoned, Poisoned()), config, batch_rows=60)
    undone = 0
    letters = []
    while not levels.control.closed:
        undone += levels.batch().undone
        letters += [letter for report in levels.reports.values() for letter in report.letters]
    assert [(letter[3], letter[4], letter[5].reason) for letter in letters] == [(100, ("bad",), "exception")]
    assert undone == (3 if on_error == "crash" else 0)
    said = {line for line in levels.said if not line.startswith("bad")}
    assert said == EXPECTED
    # With "fail", as on our own engine, what the bolt did before it raised stays.
    assert any(line.startswith("bad") for line in levels.said) == (on_error == "fail")


def acks_at_ticks(bolt: Does, tup: Tuple) -> None:
    bolt.kept.append(tup)
    if tup.is_tick:
        for kept in bolt.kept:
            for word in () if kept.is_tick else kept["text"].split():
                bolt.collector.emit((word,), anchors=kept)
            bolt.collector.ack(kept)
        bolt.kept = []


@pytest.mark.parametrize("batch_secs", [0.1, 53.0])
def test_held_tuples_are_acked_in_a_later_batch(batch_secs: float) -> None:
    holds = Does(acks_at_ticks, ("word",))
    holds.component_config = {"tick_tuple_freq_secs": 0.15}
    levels = Levels(words(middle=holds), batch_rows=50)
    levels.batch_secs = batch_secs
    levels.batch()
    assert levels.control.reports[0].reading.counters["acked"] == 0
    report = levels.run()
    assert set(levels.said) == EXPECTED
    assert (report.acked, report.failed) == (len(TEXTS), 0)


def slowly(texts: list[str]) -> Iterator[str]:
    for text in texts:
        time.sleep(0.001)
        yield text


def test_no_message_times_out_within_its_batch() -> None:
    slow = spout("text")(lambda: slowly(TEXTS))
    report = Levels(words(slow), Config(message_timeout_secs=0.1), batch_rows=10_000).run()
    assert (report.acked, report.failed) == (len(TEXTS), 0)


def test_a_feed_is_dealt_to_the_tasks_and_read_once(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("\n".join(TEXTS))
    levels = Levels(words(FeedSpout(tmp_path.glob("*.txt"), ["text"], range_rows=64), tasks=2), batch_rows=100)
    report = levels.run()
    assert report.acked == report.emitted == 3 * len(TEXTS)
    assert set(levels.said) == {f"{word} {3 * count}" for word, count in COUNTS.items()}
    assert all(report.reading.counters["emitted"] for report in levels.control.reports.values() if report.is_spout)


class Moody(ReplayingSpout):
    """Reads other records each time."""

    outputs = ("text",)

    def read(self) -> Iterator[tuple[Any, Any]]:
        return ((f"{id(self)} {number}", ("a",)) for number in range(400))


def test_a_spout_that_reads_other_records_is_found_out() -> None:
    levels = Levels(words(Moody()), batch_rows=50)
    levels.batch()
    with pytest.raises(AssertionError, match="gave other records than before"):
        levels.batch()


class Total:
    """State that cannot be pickled."""

    def __init__(self) -> None:
        self.lock, self.count = threading.Lock(), 0


def numbers() -> Iterator[int]:
    yield from range(1000)


POOLS: list[ThreadPoolExecutor] = []
"""All that were made: of a run that ends by an error, nobody calls `cleanup`."""


class Odd(Count):
    """`kind`: which of its attributes it changes, besides its counts."""

    shared: ClassVar[list[str]] = []

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().prepare(conf, context)
        self.total, self.many, self.waiting = Total(), {"a": Total()}, queue.Queue[int]()
        self.pool = ThreadPoolExecutor(1)
        POOLS.append(self.pool)
        self.late: Any = numbers() if self.kind == "late" else None

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.pool.submit(super().execute, tup, collector).result()
        match self.kind:
            case "total":
                self.total.count += 1
            case "many":
                self.many["a"].count += 1
            case "waiting":
                self.waiting.put(1)
            case "Odd.shared":
                self.shared.append("")

    def cleanup(self) -> None:
        super().cleanup()
        self.pool.shutdown()


@pytest.mark.parametrize("kind", ["total", "many", "waiting", "late", "Odd.shared"])
def test_state_that_cannot_be_stored_is_an_error_and_not_lost(kind: str) -> None:
    before = list(Odd.shared)
    levels = Levels(words(lines, Odd(kind)), batch_rows=50)
    try:
        with pytest.raises(AssertionError, match=rf"count\[\d\] cannot be stored after a batch: .*{kind}"):
            levels.run()
    finally:
        Odd.shared[:] = before
        while POOLS:
            POOLS.pop().shutdown()


def test_what_prepare_makes_anew_is_left_out_and_told_and_its_counts_are_kept() -> None:
    levels = Levels(words(lines, Odd("")), batch_rows=50)
    levels.batch()
    told = {name.partition(" ")[0] for report in levels.reports.values() for name in report.left_out}
    assert told == {"total", "many", "waiting", "pool"}
    levels.run()
    # `cleanup` is called as often as `prepare`.
    assert len(levels.said) > len(EXPECTED)
    assert set(levels.said[-len(EXPECTED):]) == EXPECTED


@spout("text")
def raises() -> Iterator[str]:
    yield from TEXTS[:50]
    raise OSError("the disk of read()")


class NeverCounts(Count):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        raise ValueError("no word is good")


@pytest.mark.parametrize(("source", "count"), [(raises, Count()), (lines, NeverCounts())])
def test_a_run_that_leads_nowhere_is_ended(source: Spout, count: Count) -> None:
    """A spout that raises, or a bolt while messages are replayed for ever, would do so in each batch."""
    levels = Levels(words(source, count), Config(max_crashes=None, fail_fast=False), batch_rows=60)
    batches = 0
    while not (why := leads_nowhere(levels.control)):
        levels.batch()
        batches += 1
        assert batches < 50
    place = r"\(.*/test_spark_levels\.py, line \d+, in (raises|execute)\)$"
    said = r"^makes no progress: 20 batches in a row were undone, at last with: .*(the disk of read|no word is good).*"
    assert re.search(said + place, why)
    # Of a batch and a worker one, though each tuple raised.
    slots = Counter((one.slot, one.at_secs) for one in levels.control.restarts)
    assert set(slots.values()) == {1}


@pytest.mark.parametrize("on_error", ["crash", "fail"])
def test_a_wrong_line_stops_the_run_and_buries_nothing(on_error: str) -> None:
    levels = Levels(words(lines, NeverCounts()), Config(on_error=on_error, max_attempts=30), batch_rows=60)
    levels.batch_secs = 1.0
    for _ in range(30):
        levels.batch()
        if stopped := [report.stopped for report in levels.reports.values() if report.stopped]:
            break
    assert not any(report.letters for report in levels.reports.values())
    assert re.match(r"count raised ValueError: no word is good \(.*, line \d+, in execute\) with tuple \('", stopped[0])
