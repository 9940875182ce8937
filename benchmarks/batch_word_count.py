"""The measured topology in batches of columns: lines, split, count; every line tracked on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.corpus import share_of_lines
from benchmarks.drained import run_until_drained
from benchmarks.paced import Due, Pace
from benchmarks.word_count import word_count
from squall import (
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Config,
    LocalCluster,
    RunReport,
    SpoutCollector,
    Topology,
    TopologyContext,
)

PENDING = 8192
"""Lines under way per spout task: two to eight batches."""


class Lines(BatchSpout):
    """Emits every n-th line of a file, `repeat` times over, with its number as message id."""

    outputs = ("line",)

    def __init__(self, path: str, repeat: int = 1) -> None:
        self.path = path
        self.repeat = repeat

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        tasks = len(context.component_tasks(context.component_id))
        self.lines: Any = share_of_lines(self.path, self.repeat, context.task_index, tasks)
        self.next = 0

    def next_batch(self, rows: int) -> None:
        begin = self.next
        lines = self.lines[begin : begin + rows]
        if not len(lines):
            self.exhausted = True
            return
        self.next = begin + len(lines)
        self.collector.emit_batch((lines,), message_ids=range(begin, self.next))

    def ack_batch(self, message_ids: list[Any]) -> None:
        pass


class PacedLines(Lines):
    """Emits lines when they are due, at most `rows` in a batch; writes how long after that they were acked."""

    def __init__(self, path: str, repeat: int, pace: Pace, rows: int) -> None:
        super().__init__(path, repeat)
        self.pace = pace
        self.rows = rows

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        super().open(conf, context, collector)
        self.due = Due(self.pace, context)
        self.left = len(self.lines)

    def next_batch(self, rows: int) -> None:
        due = self.due.count() - self.next
        if due > 0:
            super().next_batch(min(rows, due, self.rows))

    def ack_batch(self, message_ids: list[Any]) -> None:
        self.due.acked(message_ids)
        self.left -= len(message_ids)
        if not self.left:
            self.due.write()


class Split(BatchBolt):
    outputs = ("word",)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words: list[str] = []
        counts = []
        for line in batch["line"]:
            found = line.split()
            words += found
            counts.append(len(found))
        collector.emit_batch((words,), counts=counts)


class Count(BatchBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        self.counts.update(batch["word"])


def batch_word_count(
    spout: Lines, parallelism: int, split: type[BatchBolt] = Split, count: type[BatchBolt] = Count
) -> Topology:
    return word_count(spout, parallelism, split, count)


def batch_run(
    path: Path | str, workers: int, repeat: int, tracked: bool = True, cluster: LocalCluster | None = None
) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report."""
    config = Config(workers=workers, max_spout_pending=PENDING, ackers=None if tracked else 0)
    return run_until_drained(batch_word_count(Lines(str(path), repeat), workers), config, cluster=cluster)
