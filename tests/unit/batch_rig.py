"""Spouts and bolts of batches whose behaviour a test writes down in place."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from squall import (
    BatchBolt,
    BatchCollector,
    BatchSpout,
    ColumnBatch,
    Failure,
    SpoutCollector,
    TaskHook,
    TopologyContext,
)
from squall.engine.api.stream import Outputs
from tests.unit.rig import Written


class BatchFeeder(BatchSpout):
    """Emits the batches that the test fed to it, and writes down what it is answered. `watched_by`: its hooks."""

    watched_by: Sequence[TaskHook] = ()

    def __init__(self, outputs: Outputs = ("value",)) -> None:
        self.outputs = outputs
        self.queue: deque[tuple[Any, dict[str, Any]]] = deque()
        self.acked: list[list[Any]] = []
        self.failed: list[tuple[list[Any], list[Failure]]] = []
        self.asked: list[int] = []
        self.exhausted = False

    def feed(self, *columns: Any, ids: Any = None, stream: str = "default") -> None:
        self.queue.append((columns, {"message_ids": ids, "stream": stream}))

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.context = collector, context
        for hook in self.watched_by:
            context.add_hook(hook)

    def next_batch(self, rows: int) -> None:
        self.asked.append(rows)
        if self.queue:
            columns, named = self.queue.popleft()
            self.collector.emit_batch(columns, **named)

    def ack_batch(self, message_ids: list[Any]) -> None:
        self.acked.append(message_ids)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        self.failed.append((message_ids, failures))

    @property
    def all_acked(self) -> list[Any]:
        return [message_id for ids in self.acked for message_id in ids]

    @property
    def reasons(self) -> dict[Any, str]:
        return {
            message_id: failure.reason
            for ids, failures in self.failed for message_id, failure in zip(ids, failures, strict=True)
        }


class DoesBatch(Written, BatchBolt):
    """A bolt whose `execute_batch` is a function of the bolt, the batch and the collector."""

    def __init__(self, execute: Callable[..., Any], outputs: Outputs = ()) -> None:
        super().__init__(execute, outputs)
        self.batches: list[ColumnBatch] = []

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.begin(conf, context)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        rows = batch.to_rows()
        self.batches.append(batch)
        self.seen += rows
        self.own += rows
        self._execute(self, batch, collector)


def nothing(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
    """Take the rows."""


def passes(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
    """Emit every row as it is."""
    collector.emit_batch(batch.columns)


def fails(*wrong: Any) -> Callable[[DoesBatch, ColumnBatch, BatchCollector], None]:
    """Pass rows on, and fail those with these values."""

    def execute(bolt: DoesBatch, batch: ColumnBatch, collector: BatchCollector) -> None:
        values: Sequence[Any] = list(batch["value"])
        collector.emit_batch((values,))
        for row, value in enumerate(values):
            if value in wrong:
                collector.fail(row, f"{value} is wrong")

    return execute
