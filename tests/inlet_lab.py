"""A simulated topology with a LiveSpout, whose bolt acks when the test says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from squall import Bolt, BoltCollector, Config, LiveSpout, TopologyBuilder, Tuple
from squall.testing.simulated import SimulatedCluster


class Keeps(Bolt):
    """Keeps its tuples until it is told to ack them."""

    def prepare(self, conf: Any, context: Any, collector: BoltCollector) -> None:
        self.collector, self.kept, self.seen = collector, list[Tuple](), list[Any]()

    def execute(self, tup: Tuple) -> None:
        self.kept.append(tup)
        self.seen.append(tup[0])

    def ack(self, count: int | None = None) -> None:
        for tup in self.kept[:count]:
            self.collector.ack(tup)
        del self.kept[:count]


class Lab(SimulatedCluster):
    """A topology that an inlet feeds."""

    def __init__(self, path: Path, field: str) -> None:
        builder = TopologyBuilder()
        builder.set_spout("spout", LiveSpout(path, [field], range_rows=10))
        builder.set_bolt("bolt", Keeps()).shuffle_grouping("spout")
        super().__init__(builder.build(), Config(message_timeout_secs=3600), record=False)

    def __enter__(self) -> Lab:
        return self

    @property
    def bolt(self) -> Keeps:
        found: Keeps = self.user("bolt")
        return found

    def go(self) -> None:
        """Let time pass, so that batches are looked for and positions stored."""
        self.advance(1.0)
        self.settle()
