"""Components that pass long values, and read them in place."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from squall import BasicBolt, BasicCollector, Bolt, BoltCollector, ReplayingSpout, TopologyContext, Tuple

SIZE = 1 << 20


def value_of(number: int) -> bytes:
    return number.to_bytes(8, "little") * (SIZE // 8)


class Long(ReplayingSpout):
    """Values that tell their number in every word."""

    outputs = ("number", "data")

    def __init__(self, count: int) -> None:
        self.count = count

    def read(self) -> Iterator[tuple[Any, Any]]:
        for number in range(self.count):
            yield number, (number, value_of(number))


class Relays(BasicBolt):
    """Passes on what it reads in place; dies once, in the middle."""

    outputs = ("number", "data")
    zero_copy = True

    def __init__(self, dies_at: int) -> None:
        self.dies_at = dies_at

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.first_life = context.attempt == 1

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.first_life and tup["number"] == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        collector.emit((tup["number"], tup.view("data")))


class Keeps(Bolt):
    """Keeps views long after their ack, and compares them then."""

    zero_copy = True

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.kept: deque[tuple[int, memoryview]] = deque()

    def execute(self, tup: Tuple) -> None:
        self.kept.append((tup["number"], tup.view("data")))
        self.collector.ack(tup)
        if len(self.kept) > 20:
            number, view = self.kept.popleft()
            if view != value_of(number):
                raise AssertionError(f"the view of {number} shows {bytes(view[:8])!r}")
