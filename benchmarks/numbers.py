"""Topologies of numbers, whose bolts do nothing: what passing on and fanning out cost by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)


class Numbers(Spout):
    """Emits so many numbers, each with itself as message id."""

    outputs = ("n",)

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.next = 0

    def next_tuple(self) -> None:
        if self.next == self.count:
            self.exhausted = True
            return
        self.collector.emit((self.next,), message_id=self.next)
        self.next += 1

    def ack(self, message_id: Any) -> None:
        pass


class NumberBatches(BatchSpout):
    """The same by batches."""

    outputs = ("n",)

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.next = 0

    def next_batch(self, rows: int) -> None:
        begin, self.next = self.next, min(self.next + rows, self.count)
        if begin == self.next:
            self.exhausted = True
            return
        self.collector.emit_batch((list(range(begin, self.next)),), message_ids=range(begin, self.next))

    def ack_batch(self, message_ids: list[Any]) -> None:
        pass


class Pass(BasicBolt):
    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup[0],))


class PassBatch(BatchBolt):
    outputs = ("n",)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        collector.emit_batch((batch["n"],))


class Drop(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        """End the tree."""


class DropBatch(BatchBolt):
    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        """End the trees."""


def three_stages(count: int, parallelism: int, batches: bool) -> Topology:
    """Spout, a bolt that passes on, a bolt that drops; each shuffled to the next. `count` numbers a spout task."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberBatches(count) if batches else Numbers(count), parallelism)
    builder.set_bolt("pass", PassBatch() if batches else Pass(), parallelism).shuffle_grouping("numbers")
    builder.set_bolt("drop", DropBatch() if batches else Drop(), parallelism).shuffle_grouping("pass")
    return builder.build()


def fan_out(count: int, parallelism: int, batches: bool) -> Topology:
    """A spout, and each of its tuples to every task of a bolt that drops."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", NumberBatches(count) if batches else Numbers(count), 1)
    builder.set_bolt("drop", DropBatch() if batches else Drop(), parallelism).all_grouping("numbers")
    return builder.build()
