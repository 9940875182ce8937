"""Bolts with state as Spark runs them, batch by batch, without Spark: lost and undone batches count nothing twice."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as parquet
import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    ColumnBatch,
    FailedTuple,
    FeedSpout,
    FileSink,
    ParquetSink,
    ReplayingSpout,
    Spout,
    StatefulBatchBolt,
    StatefulBolt,
    Topology,
    Tuple,
    spout,
)
from squall.engine.state.records.record_store import unpacked_ranges
from squall.pipeline.on_spark.batch_control import next_turn
from tests.unit.levels import Levels
from tests.unit.wired import wired

LINES = [f"w{number % 7} w{number % 3} w{number % 11}" for number in range(200)]
WORDS = Counter(" ".join(LINES).split())


CHANCE = Random(5)
"""Not an attribute: it would be undone with a batch."""


class TextIds(ReplayingSpout):
    outputs = ("text",)

    def read(self) -> Iterator[tuple[Any, Any]]:
        for number, line in enumerate(LINES):
            yield f"line {number}", (line,)


@spout("text")
def lines() -> list[str]:
    return LINES


class Split(BasicBolt):
    """Raises for some lines in their first attempts."""

    outputs = ("word",)

    def __init__(self, chance: float, error: type[Exception]) -> None:
        self.chance, self.error = chance, error

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for word in tup["text"].split():
            if CHANCE.random() < self.chance:
                raise self.error("not yet")
            collector.emit((word,))


class Count(StatefulBolt):
    """Fails some words after it has counted them."""

    outputs = ("word", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        count = self.state[tup["word"]] = self.state.get(tup["word"], 0) + 1
        if CHANCE.random() < 0.05:
            raise FailedTuple("not yet")
        collector.emit((tup["word"], count))


class CountBatches(StatefulBatchBolt):
    outputs = ("word", "count")

    def execute_batch(self, batch: ColumnBatch, collector: Any) -> None:
        counts = []
        for word in batch["word"]:
            self.state[word] = self.state.get(word, 0) + 1
            counts.append(self.state[word])
        collector.emit_batch((batch["word"], counts))


def counting(source: Spout, split: Split, count: Any, out: Path) -> Topology:
    sink = FileSink(out) if isinstance(count, Count) else ParquetSink(out)
    return wired(
        lines=(source, 2 if isinstance(source, FeedSpout) else 1), split=(split, 2, "shuffle lines"),
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


def rows(out: Path) -> list[tuple[str, int]]:
    lines = [line for path in sorted(out.glob("*.jsonl")) for line in path.read_text().splitlines()]
    found = [json.loads(line) for line in lines] or parquet.read_table(out).to_pylist()
    return sorted((row["word"], row["count"]) for row in found)


EACH_ONCE = sorted((word, number) for word, count in WORDS.items() for number in range(1, count + 1))


@pytest.mark.parametrize(("source", "count", "error"), [
    (lines, CountBatches(), ValueError),
    (TextIds(), Count(), FailedTuple),
    (None, CountBatches(), FailedTuple),
], ids=["numbers", "text", "feed"])
def test_each_word_counts_once_though_batches_are_lost_or_undone(
    source: Spout | None, count: Any, error: type[Exception], tmp_path: Path
) -> None:
    if source is None:
        (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in LINES))
        source = FeedSpout([tmp_path / "lines.txt"], range_rows=30)
    split = Split(0.05 if error is FailedTuple else 0.003, error)
    levels = Levels(counting(source, split, count, tmp_path / "out"), batch_rows=50)
    run_with_losses(levels, 0.3)
    assert rows(tmp_path / "out") == EACH_ONCE


def test_bolts_hear_what_is_settled_in_the_batch_after(tmp_path: Path) -> None:
    levels = Levels(counting(lines, Split(0, FailedTuple), CountBatches(), tmp_path / "out"), batch_rows=50)
    floors = []
    while not levels.batch().closed:
        turn = next_turn(levels.control, 0, True, None)
        with contextlib.closing(sqlite3.connect(":memory:")) as records:
            records.deserialize(turn.settled["lines", "0"])
            floors += [unpacked_ranges(settled).end for (settled,) in records.execute("SELECT settled FROM partitions")]
    # What a batch emits is acked in the next one.
    assert floors[:5] == [0, 50, 100, 150, 200]
