"""Runs a sink that writes each tuple once in one task.

::

    batch ─► fresh tuples ─► commit in the store: identities, number, rows ─► sink.commit(number, rows) ─► ack

Guarantees: rows that are in the store are written outside before any tuple is acked, in this life or the next one.

Thread: the worker's loop.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.context import TopologyContext
from squall.engine.errors import FailedTuple
from squall.engine.state.kept_rows import Input, Inputs, Row
from squall.engine.state.lineage import Lineage, Slots
from squall.engine.state.sinks import ExactSink
from squall.engine.state.stateful_task import StatefulTask

_OUTSIDE = "outside"


class SinkTask(StatefulTask):
    """Stands for a sink in a topology."""

    def __init__(
        self, inner: ExactSink, lineage: Lineage, inputs: Sequence[Input], spouts: Mapping[str, Slots], shape: int
    ) -> None:
        super().__init__(inner, lineage, {}, frozenset(), spouts, shape)
        self._inputs = Inputs(inputs)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().prepare(conf, context)
        self._by_batch = True
        self._rows: list[Row] = []
        kept = self.store.meta(_OUTSIDE)
        self._outside: tuple[int, Any, list[Row]] | None = None if kept is None else pickle.loads(kept)
        """The last number, its position and rows, until they are known to be outside."""
        self._prepared: tuple[int, Any, list[Row]] | None = None
        """The same of a commit that is being made: it may fail."""
        self._number = 0 if self._outside is None else self._outside[0]
        self.inner.store_id = self.store.id

    def execute_batch(self, batch: ColumnBatch, collector: Any) -> None:
        try:
            self._write_outside()
            super().execute_batch(batch, collector)
        except FailedTuple as error:
            collector.report_error(error)
            raise

    def _write_outside(self) -> None:
        if self._outside is not None:
            number, position, rows = self._outside
            self.inner.commit(number, [self._inputs.tuple(row) for row in rows], position)
            self._outside = None

    def _execute_batch(self, batch: ColumnBatch, rows: Sequence[int]) -> None:
        if not batch.is_tick:
            number, values = self._inputs.number(batch._source), batch.to_rows()
            self._rows = [(number, values[row]) for row in rows]

    def _has_more(self) -> bool:
        return bool(self._rows)

    def _write_more(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._prepared = self._number + 1, self.inner.position(), rows
            self.store.put_meta(_OUTSIDE, pickle.dumps(self._prepared, 5))

    def undo(self) -> None:
        super().undo()
        self._rows, self._prepared = [], None

    def _committed(self) -> None:
        if self._prepared is not None:
            self._number, self._outside, self._prepared = self._prepared[0], self._prepared, None
        self._write_outside()
