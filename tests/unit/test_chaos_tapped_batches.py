"""Taps around spouts and bolts of batches: rows of columns are messages and tuples like all others."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Config,
    Failure,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall.chaos.checker import Run, judge, learn, read_run
from squall.chaos.tapping import Tapping
from squall.chaos.taps import tap
from squall.engine.core.executor import TaskCrashed
from squall.testing import SimulatedCluster, complete_topology

ROWS = 60


class Numbers(BatchSpout):
    """In columns of several kinds; those that failed come again."""

    outputs = ("number", "square")

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next = collector, 0
        self.again: list[int] = []
        self.unanswered: set[int] = set()

    def next_batch(self, rows: int) -> None:
        numbers, self.again = self.again[:rows], self.again[rows:]
        if not numbers:
            numbers = list(range(self.next, min(self.next + min(rows, 7), ROWS)))
            self.next += len(numbers)
        if numbers:
            self.unanswered.update(numbers)
            squares = array("q", [number * number for number in numbers])
            self.collector.emit_batch((numbers, squares), message_ids=numbers)

    def ack_batch(self, message_ids: list[int]) -> None:
        self.unanswered.difference_update(message_ids)

    def fail_batch(self, message_ids: list[int], failures: list[Failure]) -> None:
        self.again += message_ids

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self.next == ROWS and not self.unanswered


class Divisors(BatchBolt):
    """Rows by counts, by parents, and one for each."""

    outputs = {"default": ("number", "divisor"), "odd": ("number",), "same": ("number", "square")}  # noqa: RUF012

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if batch.is_tick:
            return
        assert batch.fields == ("number", "square")
        assert len(batch.columns) == 2
        divisors = [[d for d in (2, 3, 5) if number % d == 0] for number in batch["number"]]
        flat = [(number, d) for number, ds in zip(batch["number"], divisors, strict=True) for d in ds]
        collector.emit_batch([[n for n, _ in flat], [d for _, d in flat]], counts=list(map(len, divisors)))
        odd = [row for row, number in enumerate(batch["number"]) if number % 2]
        collector.emit_batch(([batch["number"][row] for row in odd],), parents=odd, stream="odd")
        collector.emit_batch(batch.columns, stream="same")


class BatchSink(BatchBolt):
    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        assert all(len(row) == len(batch.fields) for row in batch.to_rows())


class RowSink(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        assert tup.fields == ("number",)


def topology(divisors: BatchBolt | None = None, sink: type[BatchBolt] = BatchSink) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("divisors", divisors or Divisors(), parallelism=2).shuffle_grouping("numbers").set_config(
        tick_tuple_freq_secs=1
    )
    ends = builder.set_bolt("ends", sink(), parallelism=2).fields_grouping("divisors", "divisor")
    ends.shuffle_grouping("divisors", stream="same")
    builder.set_bolt("odd", RowSink()).shuffle_grouping("divisors", stream="odd")
    return builder.build()


def run(
    directory: Path, name: str, workers: int = 1, fail_every: int = 0, kills: Sequence[int] = (),
    of: Topology | None = None, **settings: Any,
) -> Run:
    path = directory / name
    path.mkdir()
    tapped = tap(of or topology(), Tapping(str(path), ("ends", "odd"), fail_every=fail_every))
    with SimulatedCluster(tapped, Config(workers=workers, **settings)) as cluster:
        for turn in range(max(kills, default=-1) + 1):
            cluster.step()
            if turn in kills:
                cluster.kill(turn % workers)
                cluster.step()
                cluster.restart(turn % workers)
        cluster.run()
    return read_run(path)


def test_batches_are_what_they_are_without_taps(tmp_path: Path) -> None:
    plain = complete_topology(topology())
    tapped = complete_topology(tap(topology(), Tapping(str(tmp_path), ("ends",))))
    for stream in ("numbers", "divisors", "divisors/odd", "divisors/same"):
        assert plain[stream]
        assert sorted(row[:-1] for row in tapped[stream]) == sorted(plain[stream])


def test_every_row_is_a_message_and_is_followed_to_the_sinks(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", workers=3, fail_every=4)])
    assert {law.label: law.asks for law in laws} == {
        "ends from divisors/default": "values", "ends from divisors/same": "values",
        "odd from divisors/odd": "values",
    }  # fmt: skip
    killed = run(tmp_path, "killed", workers=3, kills=(1, 2, 3, 5, 8))
    verdict = judge(killed, laws)
    assert verdict.findings == []
    assert (verdict.messages, verdict.ok) == (ROWS, ROWS)
    assert verdict.recovered > 0


def test_rows_that_are_told_to_have_failed_come_again(tmp_path: Path) -> None:
    again = run(tmp_path, "again", fail_every=3)
    twice = [message for message in again.messages.values() if message.emits == 2]
    assert 0 < len(twice) < ROWS
    assert all(message.fails == 1 and message.acked_ns is not None for message in twice)


class LosesOdd(Divisors):
    """Takes one row for another: what it emits for odd numbers is anchored to the first of the batch."""

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        if not batch.is_tick:
            collector.emit_batch(([number for number in batch["number"] if number % 2 == 0],), parents=[
                row for row, number in enumerate(batch["number"]) if number % 2 == 0
            ], stream="odd")
            super().execute_batch(batch, collector)


def test_other_rows_than_without_faults_are_found(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", fail_every=4)])
    verdict = judge(run(tmp_path, "third", of=topology(LosesOdd())), laws)
    assert {finding.kind for finding in verdict.findings} == {"invented", "repeated"}


def test_without_ackers_rows_are_acked_early(tmp_path: Path) -> None:
    laws = learn([run(tmp_path, "first"), run(tmp_path, "second", fail_every=4)])
    verdict = judge(run(tmp_path, "untracked", workers=2, ackers=0), laws)
    assert "early" in verdict.counts


class Wrong(Divisors):
    def __init__(self, **how: Any) -> None:
        self.how = how

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        collector.emit_batch((batch["number"],), stream="odd", **self.how)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"counts": [10**12] * 7}, "the counts add up to"),
        ({"counts": [1]}, "1 count"),
        ({"counts": "x"}, "allowed: one from 0 up"),
        ({"parents": [0]}, "1 parent for 7 rows"),
        ({"parents": [99] * 7}, "parents from 99 to 99"),
        ({"parents": 5}, "an input row's number for each"),
    ],
)
def test_the_engine_says_what_is_wrong_with_a_batch(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    tapped = tap(topology(Wrong(**how)), Tapping(str(tmp_path), ("odd",)))
    with SimulatedCluster(tapped, Config(workers=1)) as cluster, pytest.raises(TaskCrashed, match=said):
        cluster.run()


class Uneven(Numbers):
    def next_batch(self, rows: int) -> None:
        self.collector.emit_batch(([1, 2], [3]), message_ids=[1, 2])


def test_the_engine_says_what_is_wrong_with_the_columns_of_a_spout(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.set_spout("numbers", Uneven())
    builder.set_bolt("odd", BatchSink()).shuffle_grouping("numbers")
    with SimulatedCluster(
        tap(builder.build(), Tapping(str(tmp_path), ("odd",))), Config(workers=1)
    ) as cluster, pytest.raises(TaskCrashed, match="numbers"):
        cluster.run()
