"""The measured topology: lines, split, count; every line tracked. Counts are in memory, as in the peers measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.corpus import share_of_lines
from benchmarks.drained import run_until_drained
from benchmarks.paced import Due, Pace
from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchSpout,
    Config,
    Job,
    LocalCluster,
    RunReport,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)


class TextSpout(Spout):
    """Emits every n-th line of a file, `repeat` times over, with its number as message id."""

    outputs = ("line",)

    def __init__(self, path: str, repeat: int = 1, mark: str | None = None) -> None:
        self.path = path
        self.repeat = repeat
        self.mark = mark

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        tasks = len(context.component_tasks(context.component_id))
        self.lines = share_of_lines(self.path, self.repeat, context.task_index, tasks)
        self.next = 0

    def next_tuple(self) -> None:
        number = self.next
        if number == len(self.lines):
            self.exhausted = True
            return
        if self.mark is not None:
            Path(self.mark).write_text(str(time.monotonic()))
            self.mark = None
        self.collector.emit((self.lines[number],), message_id=number)
        self.next = number + 1

    def ack(self, message_id: Any) -> None:
        pass


class PacedSpout(TextSpout):
    """Emits lines when they are due, or late; writes how long after that they were acked."""

    def __init__(self, path: str, repeat: int, pace: Pace) -> None:
        super().__init__(path, repeat)
        self.pace = pace

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        super().open(conf, context, collector)
        self.due = Due(self.pace, context)
        self.open_to = 0
        self.left = len(self.lines)

    def next_tuple(self) -> None:
        if self.next >= self.open_to:
            self.open_to = self.due.count()
            if self.next >= self.open_to and self.next < len(self.lines):
                return
        super().next_tuple()

    def ack(self, message_id: Any) -> None:
        self.due.acked((message_id,))
        self.left -= 1
        if not self.left:
            self.due.write()


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


def word_count(
    spout: TextSpout | BatchSpout, parallelism: int, split: type[BasicBolt | BatchBolt] | None = None,
    count: type[BasicBolt | BatchBolt] | None = None,
) -> Topology:
    """Lines, split, count; by rows unless told otherwise."""
    split, count = split or Split, count or Count
    builder = TopologyBuilder()
    builder.set_spout("lines", spout, parallelism=parallelism)
    builder.set_bolt("split", split(), parallelism=parallelism).local_or_shuffle_grouping("lines")
    builder.set_bolt("count", count(), parallelism=parallelism).fields_grouping("split", "word")
    return builder.build()


def squall_run(
    path: Path | str, workers: int, repeat: int, tracked: bool = True, cluster: LocalCluster | None = None,
    around: Callable[[Job], AbstractContextManager[object]] = lambda job: nullcontext(),
) -> tuple[float, RunReport]:
    """Seconds from activation to drained, and the report."""
    config = Config(workers=workers, ackers=None if tracked else 0)
    counted = word_count(TextSpout(str(path), repeat), workers)
    return run_until_drained(counted, config, cluster=cluster, around=around)


def topology(args: list[str]) -> Topology:
    """For `squall run benchmarks.word_count -- FILE [MARK]`: writes the time of the first tuple to MARK."""
    return word_count(TextSpout(args[0], mark=args[1] if len(args) > 1 else None), parallelism=2)
