"""Every kind of component as Spark runs it, batch by batch, without Spark: the answers are those of our own engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as parquet
import pytest

from squall import (
    AsyncBolt,
    BasicCollector,
    BatchBolt,
    FailedTuple,
    FeedSpout,
    FileSink,
    ParquetSink,
    Spout,
    SpoutCollector,
    Topology,
    TopologyContext,
    Tuple,
    spout,
)
from squall.engine.state.records.ranges import Ranges
from squall.pipeline.on_spark.batch_control import next_turn
from tests.process.state_parts import Count, CountBatch, Split, Texts, text_of
from tests.unit.levels import Levels
from tests.unit.test_chaos_taps import Batches
from tests.unit.wired import wired

ROWS = 1_000


class Numbers(Batches):
    """Emits 0 to ROWS - 1, and again what fails."""

    outputs = ("number",)
    rows = range(ROWS)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        super().open(conf, context, collector)
        self.acked = context.counter("acked")

    def ack_batch(self, message_ids: list[Any]) -> None:
        self.acked.inc(len(message_ids))


each = spout("number")(lambda: range(ROWS))


class Digits(BatchBolt):
    """Emits the digits of each number; fails each seventh of them once."""

    outputs = ("digit",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.failed: set[int] = set()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        digits: list[str] = []
        counts = []
        for row, number in enumerate(batch["number"]):
            first = number % 7 == 0 and number not in self.failed
            if first:
                self.failed.add(number)
                collector.fail(row, "the first time")
            counts.append(0 if first else len(str(number)))
            digits += "" if first else str(number)
        collector.emit_batch((digits,), counts=counts)


class Sum(BatchBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        self.counts.update(batch["digit"])

    def cleanup(self) -> None:
        for digit, count in self.counts.items():
            print(digit, count)


EXPECTED = {f"{digit} {count}" for digit, count in Counter("".join(map(str, range(ROWS)))).items()}


def digits(source: Any, first: Any = None, last: Any = None) -> Topology:
    # One task of the first: what has failed comes to it again.
    return wired(
        numbers=(source, 1), digits=(first or Digits(), 1, "shuffle numbers"),
        sum=(last or Sum(), 3, "fields digits digit"),
    ).build()


@pytest.mark.parametrize("source", [Numbers(), each])
@pytest.mark.parametrize("batch_rows", [10, 100_000])
def test_batches_of_columns_are_tracked_row_by_row(source: Any, batch_rows: int) -> None:
    levels = Levels(digits(source), batch_rows=batch_rows)
    report = levels.run()
    assert set(levels.said) == EXPECTED
    assert (report.acked, report.failed, report.pending) == (ROWS, len(range(0, ROWS, 7)), 0)
    if isinstance(source, Numbers):
        assert report.metrics["numbers"]["acked"] == ROWS


class Waits(AsyncBolt):
    """Counts; what `setup` makes is made anew in each life, and must not replace what was kept."""

    outputs = ("digit",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.collector = collector

    async def setup(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        with self.lock:
            self.counts[tup[0]] += 1
        self.collector.ack(tup)

    async def teardown(self) -> None:
        print("end", json.dumps(self.counts))


def test_an_async_bolt_keeps_its_state_and_ends_each_life_in_order() -> None:
    levels = Levels(digits(each, None, Waits()), batch_rows=100)
    report = levels.run()
    counts: Counter[str] = Counter()
    assert len(levels.said) >= 3 * (levels.control.number - 1)
    for line in levels.said[-3:]:
        counts += Counter(json.loads(line.removeprefix("end ")))
    assert {f"{digit} {count}" for digit, count in counts.items()} == EXPECTED
    assert report.acked == ROWS


# ---- bolts with state: lost and undone batches count nothing twice ----

LINES = [text_of(number) for number in range(200)]
COUNTS = Counter(word for text in LINES for word in text.split()[::2])
"""Of the words in the default stream."""
CHANCE = Random(5)
"""Not an attribute: it would be undone with a batch."""


class MoodySplit(Split):
    """Raises after some of the lines."""

    def __init__(self, chance: float, error: type[Exception]) -> None:
        self.chance, self.error = chance, error

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        super().execute(tup, collector)
        if CHANCE.random() < self.chance:
            raise self.error("not yet")


class MoodyCount(Count):
    """Fails some words after it has counted them."""

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        super().execute(tup, collector)
        if CHANCE.random() < 0.05:
            raise FailedTuple("not yet")


def counting(
    source: Spout, count: Any, out: Path, chance: float = 0, error: type[Exception] = FailedTuple
) -> Topology:
    sink = ParquetSink(out) if isinstance(count, CountBatch) else FileSink(out)
    return wired(
        lines=(source, 2 if isinstance(source, FeedSpout) else 1),
        split=(MoodySplit(chance, error), 2, "shuffle lines"),
        count=(count, 2, "fields split word"), sink=(sink, 2, "fields count word"),
    ).build()


def run_with_losses(levels: Levels, chance: float) -> None:
    """Run, and lose some batches after they have run, as when a driver dies before it has stored what they did."""
    random = Random(7)
    for _ in range(200):
        before = levels.control, dict(levels.stored)
        levels.batch()
        if random.random() < chance:
            levels.control, levels.stored = before
        elif levels.control.closed:
            return
    raise AssertionError(f"not done after batch {levels.control.number}")


def written(out: Path) -> Counter[str]:
    lines = [line for path in out.glob("*.jsonl") for line in path.read_text().splitlines()]
    counts = Counter[str]()
    for row in [json.loads(line) for line in lines] or parquet.read_table(out).to_pylist():
        counts[row["word"]] += row["more"]
    return counts


@pytest.mark.parametrize(("source", "count", "error"), [
    (Texts(len(LINES)), CountBatch(), ValueError),
    (Texts(len(LINES), named=True), MoodyCount(), FailedTuple),
    (None, CountBatch(), FailedTuple),
], ids=["numbers", "text", "feed"])
def test_each_word_counts_once_though_batches_are_lost_or_undone(
    source: Spout | None, count: Any, error: type[Exception], tmp_path: Path
) -> None:
    if source is None:
        (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
        source = FeedSpout([tmp_path / "lines.txt"], range_rows=30)
    chance = 0.1 if error is FailedTuple else 0.01
    levels = Levels(counting(source, count, tmp_path / "out", chance, error), batch_rows=50)
    run_with_losses(levels, 0.3)
    assert written(tmp_path / "out") == COUNTS


def test_bolts_hear_what_is_settled_in_the_batch_after(tmp_path: Path) -> None:
    levels = Levels(counting(Texts(len(LINES)), CountBatch(), tmp_path / "out"), batch_rows=50)
    floors = []
    while not levels.batch().closed:
        turn = next_turn(levels.control, 0, True, None)
        with contextlib.closing(sqlite3.connect(":memory:")) as records:
            records.deserialize(turn.settled["lines", "0"])
            floors += [Ranges.unpacked(settled).end for (settled,) in records.execute("SELECT settled FROM partitions")]
    # What a batch emits is acked in the next one.
    assert floors[:5] == [0, 50, 100, 150, 200]
