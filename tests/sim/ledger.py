"""A topology whose outcome is known outside of it: fan-out, cycles, joins, all-grouping, failures, and a ledger of all.

The ledger outlives every worker, so that what truly happened can be compared with what the spouts were told.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from copy import copy
from typing import Any

from squall.engine.api.collectors import BasicCollector, BatchCollector, BoltCollector, SpoutCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import FailedTuple

N_SPOUTS = 2


class Ledger:
    """What the outside world knows: it outlives every worker."""

    def __init__(self, messages: int, rng: random.Random, failing: float) -> None:
        self.messages = messages
        self.rng = rng
        self.failing = failing
        self.attempts: dict[int, int] = {}
        self.done: set[tuple[Any, ...]] = set()
        self.acked: set[int] = set()
        self.reasons: list[str] = []
        self.refused: set[Any] = set()
        self.too_early: list[tuple[int, int]] = []

    def __deepcopy__(self, memo: Any) -> Ledger:
        return self

    def tell(self, message_id: Any) -> None:
        """A spout is told of an attempt."""

    def fails(self, message_id: Any, reason: str) -> None:
        """A spout is told that an attempt failed."""

    def executes(self, message_id: Any) -> None:
        """A bolt has got the tuple that a spout emitted."""

    def refuses(self, message_id: Any) -> bool:
        """Whether the bolt that has got it is to fail it."""
        if self.rng.random() >= self.failing:
            return False
        self.refused.add(message_id)
        return True

    def leaves(self, number: int, attempt: int) -> set[tuple[Any, ...]]:
        """Everything that must have been executed before an attempt may be acked."""
        found: set[tuple[Any, ...]] = set()
        for child in range(number % 5):
            path = f"{number}.{attempt}.{child}"
            if child % 2:
                found |= {("loop", path), ("all", path, 0), ("all", path, 1)}
            else:
                found.add(("end", path))
        return found


class Numbers(Spout):
    outputs = ("id", "attempt")

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        mine = range(context.task_index, self.ledger.messages, N_SPOUTS)
        self.queue = [number for number in mine if number not in self.ledger.acked]

    def next_tuple(self) -> None:
        if self.queue:
            number = self.queue.pop(0)
            attempt = self.ledger.attempts[number] = self.ledger.attempts.get(number, 0) + 1
            self.collector.emit((number, attempt), message_id=(number, attempt))

    def ack(self, message_id: tuple[int, int]) -> None:
        if not self.ledger.leaves(*message_id) <= self.ledger.done:
            self.ledger.too_early.append(message_id)
        self.ledger.acked.add(message_id[0])
        self.ledger.tell(message_id)

    def on_failure(self, message_id: tuple[int, int], failure: Failure) -> None:
        self.ledger.reasons.append(failure.reason)
        self.ledger.fails(message_id, failure.reason)
        self.ledger.tell(message_id)
        self.queue.append(message_id[0])

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.queue


class Fan(BasicBolt):
    outputs = {"default": ("path",), "side": ("path", "left")}  # noqa: RUF012

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.ledger.executes((tup["id"], tup["attempt"]))
        for child in range(tup["id"] % 5):
            path = f"{tup['id']}.{tup['attempt']}.{child}"
            if child % 2:
                collector.emit((path, 3), stream="side")
            else:
                collector.emit((path,))
        if self.ledger.refuses((tup["id"], tup["attempt"])):
            raise FailedTuple("as told")


class Loop(BasicBolt):
    """Feeds itself a few times."""

    outputs = {"side": ("path", "left")}  # noqa: RUF012

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["left"]:
            collector.emit((tup["path"], tup["left"] - 1), stream="side")
        else:
            self.ledger.done.add(("loop", tup["path"]))


class Every(BasicBolt):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.index = context.task_index

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.ledger.done.add(("all", tup["path"], self.index))


class Join(Bolt):
    """Keeps tuples, then emits some of them joined and some alone, and acks in any order."""

    outputs = ("paths",)

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.kept: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        if not tup.is_tick:
            self.kept.append(tup)
        else:
            self.collector.ack(tup)
        if len(self.kept) >= 4 or (tup.is_tick and self.kept):
            kept, self.kept = self.kept, []
            if len(kept) > 1 and self.ledger.rng.random() < 0.3:
                self.kept.append(kept.pop(0))  # what came first is not always done first
            self.ledger.rng.shuffle(kept)
            alone, joined = kept[:1], kept[1:]
            for each in alone:
                self.collector.emit(((each["path"],),), anchors=each)
            if joined:
                self.collector.emit((tuple(each["path"] for each in joined),), anchors=joined)
            self.ledger.rng.shuffle(kept)
            for each in kept:
                self.collector.ack(each)


class Pass(BasicBolt):
    outputs = ("paths",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["paths"],))


class End(BasicBolt):
    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.ledger.done.update(("end", path) for path in tup["paths"])


class BatchNumbers(BatchSpout):
    """Numbers, in batches of any size."""

    outputs = Numbers.outputs

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    open = Numbers.open

    def next_batch(self, rows: int) -> None:
        numbers, self.queue = self.queue[:rows], self.queue[rows:]
        attempts = self.ledger.attempts
        for number in numbers:
            attempts[number] = attempts.get(number, 0) + 1
        ids = [(number, attempts[number]) for number in numbers]
        self.collector.emit_batch((numbers, [attempt for _, attempt in ids]), message_ids=ids)

    def ack_batch(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            Numbers.ack(self, message_id)  # type: ignore[arg-type]

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        for message_id, failure in zip(message_ids, failures, strict=True):
            Numbers.on_failure(self, message_id, failure)  # type: ignore[arg-type]

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.queue


class InBatches(BatchBolt):
    """Takes and emits in batches what a bolt does row by row; single rows fail."""

    def __init__(self, bolt: BasicBolt) -> None:
        self.bolt: Any = bolt
        self.outputs = bolt.outputs

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.bolt = copy(self.bolt)  # each task has its own
        self.bolt.prepare(conf, context)

    def emit(self, values: tuple[Any, ...], stream: str = "default") -> None:
        """What the bolt emits from the row at hand."""
        self.made.setdefault(stream, []).append((self.row, values))

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        self.made: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
        for self.row, values in enumerate(batch.to_rows()):
            try:
                self.bolt.execute(dict(zip(batch.fields, values, strict=True)), self)
            except FailedTuple as failed:
                collector.fail(self.row, str(failed))
        for stream, made in self.made.items():
            parents, rows = zip(*made, strict=True)
            columns = [[*column] for column in zip(*rows, strict=True)]
            if stream == "side":
                collector.emit_batch(columns, parents=[*parents], stream=stream)
            else:
                collector.emit_batch(columns, counts=[*map(parents.count, range(len(batch)))])


IN_BATCHES = ("numbers", "fan", "loop", "every", "pass")
"""Components that can take batches as well as rows."""


def topology_of(ledger: Ledger, in_batches: Collection[str] = ()) -> Topology:
    """`in_batches`: which components take and emit batches."""

    def either(name: str, bolt: BasicBolt) -> Any:
        return InBatches(bolt) if name in in_batches else bolt

    builder = TopologyBuilder()
    builder.set_spout("numbers", (BatchNumbers if "numbers" in in_batches else Numbers)(ledger), N_SPOUTS)
    builder.set_bolt("fan", either("fan", Fan(ledger)), 3).fields_grouping("numbers", "id")
    loop = builder.set_bolt("loop", either("loop", Loop(ledger)), 2)
    loop.shuffle_grouping("fan", "side").shuffle_grouping("loop", "side")
    builder.set_bolt("every", either("every", Every(ledger)), 2).all_grouping("fan", "side")
    join = builder.set_bolt("join", Join(ledger), 2).partial_key_grouping("fan", "path")
    join.set_config(tick_tuple_freq_secs=0.01)
    builder.set_bolt("pass", either("pass", Pass()), 1, 2).local_or_shuffle_grouping("join")
    builder.set_bolt("end", End(ledger), 2).none_grouping("pass")
    return builder.build()
