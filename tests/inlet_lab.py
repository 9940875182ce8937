"""Batches in an inlet, and a simulated topology with a LiveSpout, whose bolt acks when the test says so."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from squall import Bolt, BoltCollector, Config, LiveSpout, TopologyBuilder, Tuple
from squall.pipeline.inlet import Batch, Inlet
from squall.testing.simulated import SimulatedCluster

QUERY = str(uuid.UUID(int=7))
OTHER = str(uuid.UUID(int=8))


def put(path: Path, number: int, rows: range, query: str = QUERY) -> Batch:
    """A batch of two files, as Spark writes them."""
    import pyarrow
    from pyarrow import parquet

    batch = Batch(Inlet(path), query, number)
    draft = batch.new_draft()
    draft.mkdir()
    half = len(rows) // 2
    for index, part in enumerate((rows[:half], rows[half:], rows[:0])):
        table = pyarrow.table({"n": pyarrow.array(list(part), "int64")})
        parquet.write_table(table, draft / f"{index}.parquet")
    (draft / "_SUCCESS").touch()
    batch.publish(draft)
    return batch


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
