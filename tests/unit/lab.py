"""One bolt under a magnifying glass: batches are put in front of it by hand, as another worker would send them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import xor
from typing import Any

from squall import BasicCollector, Spout, Tuple
from squall.engine.flow.batch import Batch
from squall.engine.report.metrics import TaskStats
from tests.parcels import parcel_of
from tests.unit.rig import Does, DoesBasic, Feeder, Rig, chain, emits, keeps


def forwards(bolt: DoesBasic, tup: Tuple, collector: BasicCollector) -> None:
    collector.emit(tup.values)


forwards_plain = emits(1)


def batch_of(
    rows: Sequence[tuple[Any, ...]], runs: Sequence[tuple[int, int, int]], target: int, source: int,
    stream: str = "default",
) -> Batch:
    """A batch as another worker sends it; `runs` are (root, edge, rows in it)."""
    batch = Batch(source, stream, target)
    batch.rows = list(rows)
    at = 0
    for root, edge, length in runs:
        batch.starts.append(at)
        batch.roots.append(root)
        batch.edges.append(edge)
        at += length
    return batch


class Lab(Rig):
    """spout -> bolt-1 -> a sink that keeps everything; batches are put in front of bolt-1 by hand. `last`: no sink."""

    def __init__(self, bolt: Does | DoesBasic, last: bool = False, **settings: Any) -> None:
        self.spout = Feeder(("value",))
        self.sink = Does(keeps)
        bolt.outputs = () if last else ("value",)
        super().__init__(chain(self.spout, bolt, *(() if last else (self.sink,))), **settings)
        self.bolt = self.user("bolt-1")
        self.at = self.plan.tasks_of("bolt-1")[0]
        self.source = self.plan.tasks_of("spout")[0]
        self.acker = self.core.ackers[0]
        self.pending_table = self.core.spout_tasks[self.source].pending

    def tree(self, root: int, *edges: int) -> None:
        """A tree that the spout emitted under the message id `root`."""
        self.pending_table.add(root, root, (), reduce(xor, edges), 0)

    def receive(self, values: str, *runs: tuple[int, int, int], others: dict[int, Any] | None = None) -> Batch:
        batch = batch_of([(value,) for value in values], runs, self.at, self.source)
        batch.others = others
        self.core.receive(parcel_of(batch), lambda: None)
        self.settle()
        return batch

    def finish(self) -> None:
        """Ack what the sink keeps."""
        for tup in self.sink.kept:
            self.user("bolt-2").collector.ack(tup)
        self.settle()

    def stats(self, component: str = "bolt-1") -> TaskStats:
        self.core.refresh_gauges()
        return self.core.stats[self.plan.tasks_of(component)[0]]


class Kept(Rig):
    """spout -> a bolt that keeps everything, or does what it is told, on streams of every kind."""

    def __init__(self, spout: Spout, bolt: Does | None = None, **settings: Any) -> None:
        self.bolt = bolt or Does(keeps)
        builder = chain(spout)
        inputs = builder.set_bolt("bolt", self.bolt).shuffle_grouping("spout")
        inputs.shuffle_grouping("spout", stream="pair").direct_grouping("spout", stream="to")
        super().__init__(builder, **settings)
        self.end = self.user("bolt").collector

    def ack(self, *values: Any) -> None:
        """Ack what is kept of these values."""
        for tup in [tup for tup in self.bolt.kept if tup[0] in values]:
            self.bolt.kept.remove(tup)
            self.end.ack(tup)
        self.settle()

    def fail(self, index: int = -1) -> None:
        self.end.fail(self.bolt.kept.pop(index))
        self.settle()
