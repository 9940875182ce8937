"""Every kind of component as Spark runs it, batch by batch, without Spark: the answers are those of our own engine."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from squall import (
    AsyncBolt,
    BatchBolt,
    SpoutCollector,
    Topology,
    TopologyContext,
    Tuple,
    spout,
)
from tests.unit.levels import Levels
from tests.unit.test_chaos_taps import Batches
from tests.unit.wired import wired

ROWS = 1_000


class Numbers(Batches):
    """Emits 0 to ROWS - 1, and again what fails."""

    outputs = ("number",)
    rows = range(ROWS)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        super().open(conf, context, collector)
        self.acked = context.counter("acked")

    def ack_batch(self, message_ids: list[Any]) -> None:
        self.acked.inc(len(message_ids))


each = spout("number")(lambda: range(ROWS))


class Digits(BatchBolt):
    """Emits the digits of each number; fails each seventh of them once."""

    outputs = ("digit",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.failed: set[int] = set()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        digits: list[str] = []
        counts = []
        for row, number in enumerate(batch["number"]):
            first = number % 7 == 0 and number not in self.failed
            if first:
                self.failed.add(number)
                collector.fail(row, "the first time")
            counts.append(0 if first else len(str(number)))
            digits += "" if first else str(number)
        collector.emit_batch((digits,), counts=counts)


class Sum(BatchBolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_batch(self, batch: Any, collector: Any) -> None:
        self.counts.update(batch["digit"])

    def cleanup(self) -> None:
        for digit, count in self.counts.items():
            print(digit, count)


EXPECTED = {f"{digit} {count}" for digit, count in Counter("".join(map(str, range(ROWS)))).items()}


def digits(source: Any, first: Any = None, last: Any = None) -> Topology:
    # One task of the first: what has failed comes to it again.
    return wired(
        numbers=(source, 1), digits=(first or Digits(), 1, "shuffle numbers"),
        sum=(last or Sum(), 3, "fields digits digit"),
    ).build()


@pytest.mark.parametrize("source", [Numbers(), each])
@pytest.mark.parametrize("batch_rows", [10, 100_000])
def test_batches_of_columns_are_tracked_row_by_row(source: Any, batch_rows: int) -> None:
    levels = Levels(digits(source), batch_rows=batch_rows)
    report = levels.run()
    assert set(levels.said) == EXPECTED
    assert (report.acked, report.failed, report.pending) == (ROWS, len(range(0, ROWS, 7)), 0)
    if isinstance(source, Numbers):
        assert report.metrics["numbers"]["acked"] == ROWS


class Waits(AsyncBolt):
    """Counts; what `setup` makes is made anew in each life, and must not replace what was kept."""

    outputs = ("digit",)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        self.collector = collector

    async def setup(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(0)
        with self.lock:
            self.counts[tup[0]] += 1
        self.collector.ack(tup)

    async def teardown(self) -> None:
        print("end", json.dumps(self.counts))


def test_an_async_bolt_keeps_its_state_and_ends_each_life_in_order() -> None:
    levels = Levels(digits(each, None, Waits()), batch_rows=100)
    report = levels.run()
    counts: Counter[str] = Counter()
    assert len(levels.said) >= 3 * (levels.control.number - 1)
    for line in levels.said[-3:]:
        counts += Counter(json.loads(line.removeprefix("end ")))
    assert {f"{digit} {count}" for digit, count in counts.items()} == EXPECTED
    assert report.acked == ROWS
