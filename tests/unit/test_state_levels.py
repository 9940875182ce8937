"""Bolts with state as Spark runs them, batch by batch, without Spark: lost and undone batches count nothing twice."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as parquet
import pytest

from squall import BasicCollector, FailedTuple, FeedSpout, FileSink, ParquetSink, Spout, Topology, Tuple
from squall.engine.state.records.record_store import unpacked_ranges
from squall.pipeline.on_spark.batch_control import next_turn
from tests.process.state_parts import Count, CountBatch, Split, Texts, text_of
from tests.unit.levels import Levels
from tests.unit.wired import wired

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
            floors += [unpacked_ranges(settled).end for (settled,) in records.execute("SELECT settled FROM partitions")]
    # What a batch emits is acked in the next one.
    assert floors[:5] == [0, 50, 100, 150, 200]
