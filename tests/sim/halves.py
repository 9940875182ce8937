"""A death replays exactly the messages that touched the dead: odd numbers go to a worker that is killed, no even one.

Guarantees: as in `tests.sim.cores`, whose cluster this runs: what happens depends on the seed alone (but for ids).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall.engine.api.collectors import BatchCollector, SpoutCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BatchSpout, CustomGrouping
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.build.builder import TopologyBuilder
from tests.sim.cores import Cluster, place
from tests.sim.invariants import FAILED_WITHOUT_CAUSE, WAITED_FOR_TIMEOUT, InvariantBrokenError, unwrapped
from tests.sim.parts import PARTS, Parts
from tests.unit.batch_rig import DoesBatch

NUMBERS = 60
SPOUT_WORKER, EVEN_WORKER, ODD_WORKER = range(3)
_TURNS, _MOST_TURNS = 150, 4000


class Numbers(BatchSpout):
    outputs = ("number",)

    def __init__(self, acked: set[int]) -> None:
        self.acked = acked

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.queue = list(range(NUMBERS))

    def next_batch(self, rows: int) -> None:
        numbers, self.queue = self.queue[: min(rows, 10)], self.queue[min(rows, 10) :]
        self.collector.emit_batch((numbers,), message_ids=numbers)

    def ack_batch(self, message_ids: list[int]) -> None:
        self.acked.update(message_ids)

    def fail_batch(self, message_ids: list[int], failures: list[Failure]) -> None:
        even = [number for number in message_ids if number % 2 == 0]
        if even:
            raise InvariantBrokenError(FAILED_WITHOUT_CAUSE, f"{even} never went to the worker that died")
        self.queue += message_ids

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.queue


def passes(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
    collector.emit_batch(batch.columns)


def ends(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
    assert len(batch)


class ByParity(CustomGrouping):
    def prepare(self, context: Any, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self.targets = target_tasks

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return [self.targets[values[0] % 2]]


@unwrapped()
def run_halves(seed: int, parts: Parts = PARTS) -> None:
    """One case. Raises InvariantBrokenError."""
    acked: set[int] = set()
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(acked))
    builder.set_bolt("pass", DoesBatch(passes, ("number",))).shuffle_grouping("numbers")
    builder.set_bolt("end", DoesBatch(ends), 2).custom_grouping("pass", ByParity())
    topology, ends_on = builder.build(), iter([EVEN_WORKER, ODD_WORKER])
    plan = place(topology, 3, lambda component: next(ends_on) if component == "end" else SPOUT_WORKER)
    cluster = Cluster(seed, deaths=False, made=(topology, plan), parts=parts)
    for _ in range(_TURNS):
        cluster.turn()
        if cluster.rng.random() < 0.05:
            cluster.kill(ODD_WORKER)
        elif cluster.rng.random() < 0.2:
            cluster.restart(ODD_WORKER)
    cluster.restart(ODD_WORKER)
    for turn in range(_MOST_TURNS):
        if turn % 16 == 0 and len(acked) == NUMBERS and cluster.quiet:
            return
        cluster.turn()
    raise InvariantBrokenError(WAITED_FOR_TIMEOUT, f"not acked: {sorted(set(range(NUMBERS)) - acked)}")
