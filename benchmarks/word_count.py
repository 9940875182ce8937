"""The measured topology: lines, split, count; every line tracked. Counts are in memory, as in the peers measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, Spout, SpoutCollector, Topology, TopologyBuilder, TopologyContext, Tuple


class TextSpout(Spout):
    """Emits every n-th line of a file, `repeat` times over, with its number as message id.

    With `lines_per_sec` it emits on schedule; a message that could not be emitted in time is emitted late, and its
    latency is counted from its emit.
    """

    outputs = ("line",)

    def __init__(self, path: str, repeat: int = 1, lines_per_sec: float | None = None, mark: str | None = None) -> None:
        self.path = path
        self.repeat = repeat
        self.lines_per_sec = lines_per_sec
        self.mark = mark

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        tasks = len(context.component_tasks(context.component_id))
        lines = Path(self.path).read_text(encoding="utf-8").split("\n")
        self.lines = lines[context.task_index :: tasks] * self.repeat
        self.next = 0
        self.acked = 0
        self.period_secs = tasks / self.lines_per_sec if self.lines_per_sec else 0.0
        self.began = 0.0

    def next_tuple(self) -> None:
        number = self.next
        if number == len(self.lines):
            self.exhausted = True
            return
        if self.period_secs:
            now = time.perf_counter()
            if not self.began:
                self.began = now
            if now < self.began + number * self.period_secs:
                return
        if self.mark is not None:
            Path(self.mark).write_text(str(time.monotonic()))
            self.mark = None
        self.collector.emit((self.lines[number],), number)
        self.next = number + 1

    def ack(self, message_id: Any) -> None:
        self.acked += 1


class Split(BasicBolt):
    outputs = ("word",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        emit = collector.emit
        for word in tup[0].split():
            emit((word,))


class Count(BasicBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        word = tup[0]
        self.counts[word] = self.counts.get(word, 0) + 1


def word_count(spout: TextSpout, parallelism: int) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("lines", spout, parallelism=parallelism)
    builder.set_bolt("split", Split(), parallelism=parallelism).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", Count(), parallelism=parallelism).fields_grouping("split", "word")
    return builder.build()


def topology(args: list[str]) -> Topology:
    """For `squall run benchmarks/word_count.py -- FILE [MARK]`: writes the time of the first tuple to MARK."""
    return word_count(TextSpout(args[0], mark=args[1] if len(args) > 1 else None), parallelism=2)
