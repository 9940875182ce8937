"""A topology with a component of each kind that Spark takes, and one number that a bolt cannot bear."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from squall import (
    AsyncBolt,
    BasicBolt,
    BasicCollector,
    BatchBolt,
    BatchSpout,
    BoltCollector,
    Config,
    Failure,
    ParquetSink,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

NUMBERS, POISON = 2_000, 1_313


class Numbers(BatchSpout):
    outputs = ("number",)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.left = list(range(NUMBERS))
        self.under_way: set[int] = set()

    def next_batch(self, rows: int) -> None:
        if numbers := self.left[:rows]:
            del self.left[:rows]
            self.under_way.update(numbers)
            self.collector.emit_batch((numbers,), message_ids=numbers)

    def ack_batch(self, message_ids: list[int]) -> None:
        self.under_way.difference_update(message_ids)

    def fail_batch(self, message_ids: list[int], failures: list[Failure]) -> None:
        self.left += message_ids

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.left and not self.under_way


class Square(BatchBolt):
    outputs = ("number", "square")

    def execute_batch(self, batch: Any, collector: Any) -> None:
        numbers = list(batch["number"])
        collector.emit_batch((numbers, [number * number for number in numbers]))


class Ask(AsyncBolt):
    """Counts what it has passed on."""

    outputs = ("number", "square", "count")

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector

    async def setup(self) -> None:
        self.count = 0

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        self.count += 1
        self.collector.emit((*tup, self.count), tup)
        self.collector.ack(tup)


class Refuse(BasicBolt):
    outputs = ("number", "square", "count")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["number"] == POISON:
            raise ValueError("an unlucky number")
        collector.emit(tup.values)


def topology(args: list[str]) -> Topology:
    builder = TopologyBuilder(Config(max_crashes=2))
    builder.set_spout("numbers", Numbers())
    builder.set_bolt("square", Square(), parallelism=2).shuffle_grouping("numbers")
    builder.set_bolt("ask", Ask()).shuffle_grouping("square")
    builder.set_bolt("refuse", Refuse(), parallelism=2).fields_grouping("ask", "number")
    builder.set_bolt("keep", ParquetSink(args[0], key="number")).shuffle_grouping("refuse")
    return builder.build()
