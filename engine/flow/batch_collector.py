"""The collector of a batch bolt.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and field, before anything is emitted;
every row that is emitted belongs to the trees of the input row it was made from before the emit returns.

Thread: the task's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Owned, anchoring_of
from squall.engine.flow.batch import Batch
from squall.engine.flow.emitter import UNNAMED, Emitter
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
        self._count = len(batch.rows)
        self._starts = batch.starts
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
        rows = (row,) if isinstance(row, int) and not isinstance(row, bool) else _integers(row)
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
        anchoring = self.anchoring
        others = (root for pairs in (anchoring.others or {}).values() for root, _ in pairs)
        self.emitter.outbox.reset_roots(root for root in (*anchoring.roots, *others) if root)

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

    def run_of(self, row: int) -> int:
        """The run that an input row belongs to."""
        return bisect_right(self._starts, row) - 1

    def _owned(self, who: str, rows: int, counts: Any, parents: Any) -> Owned:
        """The runs that `rows` new rows are anchored to. ComponentError if that is not said, or said twice."""
        if counts is not None and parents is not None:
            raise ComponentError(f"{who} got counts and parents; allowed: one of them")
        if parents is not None:
            return self._by_parents(who, rows, parents)
        ends = range(1, self._count + 1) if counts is None else self._ends_of(who, rows, counts)
        if counts is None and rows != self._count:
            raise ComponentError(
                f"{who} emitted {plural(rows, 'row')} for a batch of {self._count}; say which row each was made from: "
                "counts= (how many of each input row) or parents= (the input row of each)"
            )
        starts = self._starts
        if len(starts) == self._count:
            return Owned(range(self._count), ends)
        return Owned(range(len(starts)), [ends[start - 1] for start in (*starts[1:], self._count)])

    def _ends_of(self, who: str, rows: int, counts: Any) -> list[int]:
        counted = _integers(counts)
        if counted is None or len(counted) != self._count or min(counted, default=0) < 0:
            got = repr_of(counts) if counted is None else plural(len(counted), "count")
            raise ComponentError(f"{who} got {got}; allowed: one from 0 up for each of {self._count} input rows")
        ends = list(accumulate(counted))
        total = ends[-1] if ends else 0
        if total != rows:
            raise ComponentError(f"{who} emitted {plural(rows, 'row')}, but the counts add up to {total}")
        return ends

    def _by_parents(self, who: str, rows: int, parents: Any) -> Owned:
        numbers = _integers(parents)
        if numbers is None or len(numbers) != rows:
            got = repr_of(parents) if numbers is None else plural(len(numbers), "parent")
            raise ComponentError(f"{who} got {got} for {plural(rows, 'row')}; allowed: an input row's number for each")
        if rows and not (min(numbers) >= 0 and max(numbers) < self._count):
            raise ComponentError(
                f"{who} got parents from {min(numbers)} to {max(numbers)}; allowed: 0 to {self._count - 1}"
            )
        series = list(series_of(numbers if len(self._starts) == self._count else list(map(self.run_of, numbers))))
        return Owned([run for run, _ in series], [end for _, end in series])


def _integers(found: Any) -> Sequence[int] | None:
    """A column of integers as Python's; None if it is none."""
    try:
        numbers = found if found.__class__ is list else values_of(found)
        return numbers if set(map(type, numbers)) <= {int} else None
    except (AttributeError, TypeError):
        return None
