"""What runs while daemons die at their steps: numbers with an exact account, and small topologies that come and go."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    ReplayingSpout,
    Spout,
    SpoutCollector,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)

LIMIT = "limit"
"""File with the number at which the source ends; without it there is no end."""
RAISE = "raise"


def note(directory: str, name: str, n: int) -> None:
    """Append a line in one write."""
    with Path(directory, name).open("ab", buffering=0) as file:
        file.write(b"%d\n" % n)


class Source(ReplayingSpout):
    """0, 1, 2 ...; what was acked is noted, and not read again by the next incarnation."""

    outputs = ("n",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def read(self) -> Iterator[tuple[Any, Any]]:
        acked = Path(self.directory, "acked")
        done = set(map(int, acked.read_text().split())) if acked.exists() else set()
        limit = Path(self.directory, LIMIT)
        for n in itertools.count():
            if limit.exists() and n >= int(limit.read_text()):
                return
            if n not in done:
                yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        note(self.directory, "acked", message_id)


class Slow(BasicBolt):
    """Passes numbers on; a file in its directory makes one of them raise."""

    outputs = ("n",)

    def __init__(self, directory: str = "/nowhere") -> None:
        self.raises = Path(directory, RAISE)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        time.sleep(0.002)
        if self.raises.exists():
            self.raises.unlink()
            raise ValueError("as ordered")
        collector.emit((tup["n"],))


class Seen(BasicBolt):
    def __init__(self, directory: str) -> None:
        self.directory = directory

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        note(self.directory, "seen", tup["n"])


class Forever(Spout):
    outputs = ("n",)

    def open(self, conf: Any, context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.n = collector, 0

    def next_tuple(self) -> None:
        self.n += 1
        self.collector.emit((self.n,), self.n)
        time.sleep(0.001)


def numbers(directory: str) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("source", Source(directory)).set_config(max_spout_pending=20)
    builder.set_bolt("slow", Slow(directory)).shuffle_grouping("source")
    builder.set_bolt("seen", Seen(directory)).shuffle_grouping("slow")
    return builder.build()


def small() -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("forever", Forever()).set_config(max_spout_pending=20)
    builder.set_bolt("slow", Slow()).shuffle_grouping("forever")
    return builder.build()
