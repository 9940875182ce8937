"""The measured topology in batches of columns: lines, split, count; every line tracked on its own.

    python -m benchmarks.batch_word_count FILE [WORKERS [REPEAT]]
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    TopologyBuilder,
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
        lines = Path(self.path).read_text(encoding="utf-8").split("\n")
        self.lines = lines[context.task_index :: tasks] * self.repeat
        self.next = 0

    def next_batch(self, rows: int) -> None:
        begin = self.next
        lines = self.lines[begin : begin + rows]
        if not lines:
            self.exhausted = True
            return
        self.next = begin + len(lines)
        self.collector.emit_batch((lines,), range(begin, self.next))

    def ack_batch(self, message_ids: list[Any]) -> None:
        pass


class Split(BatchBolt):
    outputs = ("word",)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        words: list[str] = []
        counts = []
        for line in batch["line"]:
            found = line.split()
            words += found
            counts.append(len(found))
        collector.emit_batch((words,), counts)


class Count(BatchBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        self.counts.update(batch["word"])


def batch_word_count(spout: Lines, parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", spout, parallelism=parallelism)
    builder.set_bolt("split", Split(), parallelism=parallelism).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=parallelism).fields_grouping("split", "word")
    return builder.build()


def batch_run(path: Path | str, workers: int, repeat: int) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report."""
    with LocalCluster(slots_per_node=workers) as cluster:
        topology = batch_word_count(Lines(str(path), repeat), parallelism=workers)
        config = Config(workers=workers, max_spout_pending=PENDING)
        job = cluster.submit("bench-batch", topology, config, active=False)
        job.wait_until_ready(timeout=30)
        began = time.perf_counter()
        job.activate()
        report = job.wait_until_drained(timeout=300)
        secs = time.perf_counter() - began
        if report.acked != report.emitted or report.failed:
            raise SystemExit(f"not a valid run: {report.to_json()}")
        return secs, report


def topology(args: list[str]) -> Topology:
    """For `squall run benchmarks/batch_word_count.py -- FILE`."""
    return batch_word_count(Lines(args[0]), parallelism=2)


if __name__ == "__main__":
    path = sys.argv[1]
    workers, repeat = (int(sys.argv[at]) if len(sys.argv) > at else default for at, default in ((2, 2), (3, 1)))
    words = len(Path(path).read_text(encoding="utf-8").split()) * repeat
    secs, _ = batch_run(path, workers, repeat)
    print(f"{workers} workers: {words / secs / 1e6:.2f} M words/s")
