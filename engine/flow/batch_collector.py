"""The collector of a batch bolt.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and field, before anything is emitted;
every row that is emitted belongs to the trees of the input row it was made from before the emit returns.

Thread: the task's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from numbers import Integral
from operator import index
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Owned, anchoring_of
from squall.engine.flow.batch import Batch
from squall.engine.flow.emitter import UNNAMED, Emitter
from squall.engine.flow.row_counts import RowCounts
from squall.engine.flow.spread import series_of
from squall.engine.foreign.columns import values_of
from squall.engine.foreign.text import repr_of
from squall.engine.plural import plural

Report = Callable[[BaseException], None]
Emitted = Callable[[str, Any, list[list[int]]], None]


class BatchCollector:
    """For batch bolts: anchors every row to the input row it was made from."""

    def __init__(self, emitter: Emitter, report: Report) -> None:
        self.emitter = emitter
        self._who = f"{emitter.component}[{emitter.task}]"
        self._report = report
        self.begin(Batch(0, "", 0))

    def begin(self, batch: Batch) -> None:
        """Take up the batch that is about to be executed."""
        self._batch = batch
        self._count = len(batch.rows)
        self._runs: RowCounts | None = None
        self.anchoring = anchoring_of(batch)
        """Of its runs."""
        self.failed: dict[int, str] = {}
        """The rows that the bolt failed, and why."""

    # ---- what the component calls ----

    def emit_batch(
        self, columns: Sequence[Any], counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows: see `squall.engine.api.collectors.BatchCollector`."""
        self._emit(UNNAMED, columns, counts, parents, stream)

    def emit_batch_direct(
        self, task: int, columns: Sequence[Any], counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows to the one task that the caller names, on a stream declared direct."""
        self._emit(task, columns, counts, parents, stream)

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        """Fail every tree that an input row, or each of several, belongs to; the others are not touched."""
        rows = _integers([row] if isinstance(row, Integral) else row)
        if rows is None:
            raise ComponentError(
                f"{self._who} failed row {repr_of(row)}; allowed: the number of an input row, or several"
            )
        for one in rows:
            if not 0 <= one < self._count:
                raise ComponentError(
                    f"{self._who} failed row {one} of a batch of {plural(self._count, 'row')}; allowed: 0 to "
                    f"{self._count - 1}"
                )
            self.failed.setdefault(one, why)

    def reset_timeout(self, batch: ColumnBatch) -> None:
        """Start the message timeout of the trees of the batch at hand afresh."""
        at_hand = self._batch
        others = (root for pairs in (at_hand.others or {}).values() for root, _ in pairs)
        self.emitter.outbox.reset_roots((*at_hand.roots, *others))

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)

    # ---- parts ----

    def _emit(self, task: Any, columns: Any, counts: Any, parents: Any, stream: str) -> None:
        out = self.emitter.stream(stream)
        rows = out.check_columns(columns, task)
        owned = self._owned(out.who, len(rows), counts, parents)
        if rows:
            out.append_batch(rows, out.spread(rows, task), owned, self.anchoring)

    @property
    def runs(self) -> RowCounts:
        """How many of the input rows each run of the anchoring has."""
        if self._runs is None:
            self._runs = self._batch.run_rows
        return self._runs

    def run_of(self, row: int) -> int:
        """The run that an input row belongs to."""
        return bisect_right(self.runs.ends, row)

    def _owned(self, who: str, rows: int, counts: Any, parents: Any) -> Owned:
        """The runs that `rows` new rows are anchored to. ComponentError if that is not said, or said twice."""
        if counts is not None and parents is not None:
            raise ComponentError(f"{who} got counts and parents; allowed: one of them")
        if parents is not None:
            return self._by_parents(who, rows, parents)
        if counts is None and rows != self._count:
            raise ComponentError(
                f"{who} emitted {plural(rows, 'row')} for a batch of {self._count}; say which row each was made from: "
                "counts= (how many of each input row) or parents= (the input row of each)"
            )
        runs = self.runs
        if counts is None:
            return Owned(range(len(runs)), runs)
        made = self._check_counts(who, rows, counts)
        if not runs.is_single:
            ends = [0, *made.ends]
            made = RowCounts(ends=list(map(ends.__getitem__, runs.ends)))
        return Owned(range(len(runs)), made)

    def _check_counts(self, who: str, rows: int, counts: Any) -> RowCounts:
        """How many rows were made of each input row."""
        counted = _integers(counts, truths=True)
        if counted is None or len(counted) != self._count or min(counted, default=0) < 0:
            got = repr_of(counts) if counted is None else plural(len(counted), "count")
            raise ComponentError(f"{who} got {got}; allowed: one from 0 up for each of {self._count} input rows")
        total = sum(counted)
        if total != rows:
            raise ComponentError(f"{who} emitted {plural(rows, 'row')}, but the counts add up to {total}")
        # The bolt may change its list.
        return RowCounts(list(counted))

    def _by_parents(self, who: str, rows: int, parents: Any) -> Owned:
        numbers = _integers(parents)
        if numbers is None or len(numbers) != rows:
            got = repr_of(parents) if numbers is None else plural(len(numbers), "parent")
            raise ComponentError(f"{who} got {got} for {plural(rows, 'row')}; allowed: an input row's number for each")
        if rows and not (min(numbers) >= 0 and max(numbers) < self._count):
            raise ComponentError(
                f"{who} got parents from {min(numbers)} to {max(numbers)}; allowed: 0 to {self._count - 1}"
            )
        runs = numbers if self.runs.is_single else list(map(list(self.runs.owners()).__getitem__, numbers))
        series = list(series_of(runs))
        return Owned([run for run, _ in series], RowCounts(ends=[end for _, end in series]))


def _integers(found: Any, truths: bool = False) -> Sequence[int] | None:
    """A column of integers as Python's; None if it is none. `truths`: of True and False too, as a filter has them."""
    try:
        numbers = found if found.__class__ is list else values_of(found)
        kinds = list(map(type, numbers))
        if kinds.count(int) == len(kinds):
            return numbers
        # A list of numpy's numbers comes from a loop over its arrays.
        return list(map(index, numbers)) if truths or bool not in kinds else None
    except (AttributeError, TypeError):
        return None
