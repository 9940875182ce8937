"""Wraps spouts and bolts that emit and execute batches: the taps' field is a column of keys.

Guarantees: see `squall.chaos.taps`. All records of a batch are one write, before the component or the engine has it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import chain, compress, repeat
from typing import Any

from squall.chaos.tapped_bolts import TappedInput
from squall.chaos.tapped_spout import TappedSpout
from squall.chaos.tapping import BY_CLOCK, Keys, Tapping
from squall.engine.api.collectors import BatchCollector
from squall.engine.api.columns import ColumnBatch, Columns
from squall.engine.api.component import BatchBolt, BatchSpout
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.foreign.columns import values_of


class TappedBatchSpout(TappedSpout, BatchSpout):
    """Wraps a spout that emits batches."""

    def __init__(self, inner: BatchSpout, component: str, tapping: Tapping) -> None:
        super().__init__(inner, component, tapping)
        self._by_batch = inner

    def next_batch(self, rows: int) -> None:
        if self._rate is not None:
            rows = int(min(rows, self.allowed()))
        if rows > 0:
            self._by_batch.next_batch(rows)

    def ack_batch(self, message_ids: list[Any]) -> None:
        keys = list(map(self._ids.key, message_ids))
        fails = list(map(self.fails, keys))
        now_ns = time.monotonic_ns()
        self._log.write_all(
            f'["fail","{key}",{now_ns},"once more, on purpose"' if failed else f'["ack","{key}",{now_ns}'
            for key, failed in zip(keys, fails, strict=True)
        )
        if not any(fails):
            self._by_batch.ack_batch(message_ids)
            return
        if acked := [message_id for message_id, failed in zip(message_ids, fails, strict=True) if not failed]:
            self._by_batch.ack_batch(acked)
        again = list(compress(message_ids, fails))
        self._by_batch.fail_batch(again, [self.on_purpose() for _ in again])

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        for message_id, failure in zip(message_ids, failures, strict=True):
            self._log.append("fail", self._ids.key(message_id), time.monotonic_ns(), failure.reason)
        self._by_batch.fail_batch(message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        TappedSpout.on_dead_letter(self, message_id, failure)


class TappedBatchBolt(TappedInput[BatchBolt], BatchBolt):
    """Wraps a batch bolt, and passes keys from each input row to the rows made from it."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.open_inlet(context)
        self._out = _TappedBatchCollector()
        self._inner.prepare(conf, context)

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> Any:
        out, plain = self._out, self._inlet.plain(batch.source)
        out.collector = collector
        if plain is None:
            out.keys = [BY_CLOCK] * len(batch)
            return self._inner.execute_batch(batch, out)
        *columns, keys = batch.columns
        rows = Columns(tuple(columns), len(batch))
        out.keys = keys
        self._inlet.record_rows(plain, rows, keys)
        return self._inner.execute_batch(ColumnBatch(rows, plain), out)


class _TappedBatchCollector:
    collector: BatchCollector
    keys: list[Keys]
    """Of the input rows."""

    def emit_batch(
        self, columns: Sequence[Any], counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self.collector.emit_batch(self._with_keys(columns, counts, parents), counts, parents, stream)

    def emit_batch_direct(
        self, task: int, columns: Sequence[Any], counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        self.collector.emit_batch_direct(task, self._with_keys(columns, counts, parents), counts, parents, stream)

    def _with_keys(self, columns: Any, counts: Any, parents: Any) -> Any:
        """Add the keys of each new row. Invalid columns, counts and parents are left to the engine to refuse."""
        try:
            length = len(columns[0])
        except (IndexError, KeyError, TypeError):
            return columns
        keys = self._keys(length, counts, parents)
        # As long as the other columns, so that the engine tells what is wrong with the counts and not with this column.
        return (*columns, keys if len(keys) == length else [()] * length)

    def _keys(self, length: int, counts: Any, parents: Any) -> list[Keys]:
        try:
            if parents is not None:
                return list(map(self.keys.__getitem__, values_of(parents)))
            if counts is None:
                return list(self.keys)
            numbers = values_of(counts)
            return list(chain.from_iterable(map(repeat, self.keys, numbers))) if sum(numbers) == length else []
        except (AttributeError, IndexError, TypeError, OverflowError):
            return []

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        self.collector.fail(row, why)

    def reset_timeout(self, batch: ColumnBatch) -> None:
        self.collector.reset_timeout(batch)

    def report_error(self, error: BaseException) -> None:
        self.collector.report_error(error)
