"""Topologies with a planted fault each, for `squall chaos`: numbers -> middle -> end, by rows or by batches.

ARGS: "rows" or "batches", the fault, or "none", and a directory in which `end` writes each number that it receives, and
the counts of `middle`.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    BatchBolt,
    BatchCollector,
    BatchSpout,
    Bolt,
    BoltCollector,
    ColumnBatch,
    ReplayingSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

MESSAGES = 600
ROWS, BATCHES = "rows", "batches"


class Numbers(ReplayingSpout):
    """Begins anew after each death."""

    outputs = ("n",)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in range(MESSAGES):
            yield (uuid.uuid4().hex if self.fault == "new ids" else n), (n,)

    def on_failure(self, message_id: Any, failure: Any) -> None:
        if self.fault == "forgets failures":
            super().ack(message_id)
        else:
            super().on_failure(message_id, failure)


class BatchNumbers(BatchSpout):
    outputs = ("n",)

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.collector, self.left, self.open_ids = collector, list(range(MESSAGES)), set[int]()

    def next_batch(self, rows: int) -> None:
        now, self.left = self.left[:rows], self.left[rows:]
        if now:
            self.open_ids.update(now)
            self.collector.emit_batch((now,), message_ids=now)

    def ack_batch(self, message_ids: list[Any]) -> None:
        self.open_ids.difference_update(message_ids)

    def fail_batch(self, message_ids: list[Any], failures: list[Any]) -> None:
        self.left += message_ids if self.fault != "forgets failures" else []

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.left and not self.open_ids


class Middle(Bolt):
    """Hands each number on, once and anchored."""

    outputs = {"default": ("n", "text"), "other": ("n", "text")}  # noqa: RUF012

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector, self.seen, self.chance = collector, set[int](), random.Random()

    def execute(self, tup: Tuple) -> None:
        n, fault, collector = tup["n"], self.fault, self.collector
        odd = self.chance.random() < 0.05
        if fault == "acks first":
            collector.ack(tup)
            collector.emit((n, f"#{n}"))
            return
        if fault == "loose":
            collector.emit((n, f"#{n}"), anchors=() if n % 25 == 0 else tup)
        elif not (odd and fault in ("drops", "swallows")) and not (n in self.seen and fault == "drops the seen"):
            try:
                text = f"#{n // (fault != 'swallows' or not odd)}"
                stream = "other" if odd and fault == "wrong stream" else "default"
                for _ in range(1 + (odd and fault == "doubles")):
                    collector.emit((n, text + "!" * (odd and fault == "alters")), anchors=tup, stream=stream)
            except ZeroDivisionError:
                pass
        self.seen.add(n)
        collector.ack(tup)


class BatchMiddle(BatchBolt):
    outputs = ("n", "text")

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        numbers, fault, last = list(batch["n"]), self.fault, len(batch) - 1
        texts, counts = [f"#{n}" for n in numbers], [1] * len(batch)
        if fault == "drops":
            numbers, texts, counts[last] = numbers[:-1], texts[:-1], 0
        elif fault == "doubles":
            numbers, texts, counts[last] = numbers + numbers[-1:], texts + texts[-1:], 2
        elif fault == "alters":
            texts[last] += "!"
        if fault == "anchors to row 0":
            collector.emit_batch((numbers, texts), parents=[0] * len(numbers))
        elif fault == "anchors to its neighbour":
            collector.emit_batch((numbers, texts), parents=[(row + 1) % len(numbers) for row in range(len(numbers))])
        else:
            collector.emit_batch((numbers, texts), counts=counts)


class End(Bolt):
    """Writes each number before it acks it; or late; or counts in memory, and writes at its end."""

    def __init__(self, fault: str, directory: str) -> None:
        self.fault, self.directory = fault, directory

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.begin()

    def begin(self) -> None:
        self.numbers: list[int] = []

    def execute(self, tup: Tuple) -> None:
        self.take([tup["n"]])
        self.collector.ack(tup)

    def take(self, numbers: list[int]) -> None:
        self.numbers += numbers
        if self.fault != "memory" and (self.fault != "writes late" or len(self.numbers) >= 100):
            self.write()

    def write(self) -> None:
        with Path(self.directory, f"numbers-{os.getpid()}").open("a") as file:
            file.writelines(f"{n}\n" for n in self.numbers)
        self.numbers = []

    def cleanup(self) -> None:
        self.write()


class BatchEnd(BatchBolt):
    def __init__(self, fault: str, directory: str) -> None:
        self.inner = End(fault, directory)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.inner.begin()

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        self.inner.take(list(batch["n"]))

    def cleanup(self) -> None:
        self.inner.cleanup()


def topology(args: list[str]) -> Topology:
    by, fault, directory = args
    rows = by == ROWS
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(fault) if rows else BatchNumbers(fault))
    builder.set_bolt("middle", Middle(fault) if rows else BatchMiddle(fault)).shuffle_grouping("numbers")
    end = builder.set_bolt("end", End(fault, directory) if rows else BatchEnd(fault, directory))
    end.shuffle_grouping("middle")
    if rows:
        end.shuffle_grouping("middle", stream="other")
    return builder.build()


def numbers(args: list[str]) -> set[int]:
    """What `end` has written."""
    return {int(line) for path in Path(args[2]).glob("numbers-*") for line in path.read_text().splitlines()}


def nowhere(args: list[str]) -> Topology:
    """Its sink receives nothing."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers("none"))
    builder.set_bolt("middle", Middle("none")).shuffle_grouping("numbers")
    builder.set_bolt("end", End("none", args[2])).shuffle_grouping("middle", stream="other")
    return builder.build()


