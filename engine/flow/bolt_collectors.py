"""The collectors of bolts, through which they emit, ack and fail.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and fields; see `engine.flow.emitter` and
`engine.api.tuple`. Every tuple that is emitted belongs to the trees of what it is anchored to before the emit returns.

Their methods define an emit, an ack and a failure, for every stream and grouping; `engine.core.emit_paths` chooses the
functions that a component really calls when its task is set up.

Thread: the task's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from numbers import Integral
from operator import index, length_hint
from typing import Any

from squall.engine.api.columns import ColumnBatch, Row
from squall.engine.api.failure import FAILED, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import UNTRACKED, Anchors, Run, Tuple
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Anchoring, Owned, anchoring_of
from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.batch_groupings import series_of
from squall.engine.flow.emitter import UNNAMED, Emitter, Report
from squall.engine.flow.member_columns import RowCounts
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import plural, repr_of
from squall.engine.report.metrics import TaskStats


class BoltCollector:
    """For bolts that ack themselves."""

    def __init__(self, emitter: Emitter, worker: str, report: Report, stats: TaskStats) -> None:
        self.emitter = emitter
        self._outbox = emitter.outbox
        self._worker = worker
        self.report_error = report
        """Tells the operator of an error; nothing else happens."""
        self._stats = stats
        self._batch = Batch(0, "", 0)
        self._at_hand: list[Run] = []
        """The runs of the batch that is being executed, which ends with their acks."""
        self.run = UNTRACKED
        """The one whose tuple is being executed."""
        self.anchoring = Anchoring((0,))
        self.noted: list[OpenBatch] = []
        """The batches that hold emits anchored to runs at hand while these were executed."""

    def begin(self, batch: Batch) -> list[Run]:
        """Take up the batch that is about to be executed; returns its runs."""
        self._batch, self.anchoring, self._at_hand = batch, anchoring_of(batch), batch.runs()
        return self._at_hand

    def end(self) -> None:
        """Anchor what was emitted since `begin`, and ack the runs of which every tuple was acked; the others are on
        their own from now on."""
        outbox, anchoring = self._outbox, self.anchoring
        self.run = UNTRACKED
        outbox.anchor(self.noted, anchoring)
        left = [run for run in self._at_hand if run.remaining or run.children or run.failed]
        outbox.ack_batch(self._batch, anchoring, {run.number for run in left})
        if left:
            children, masks = anchoring.of_runs()
            for run in left:
                run.children ^= children[run.number]
                run.mask |= masks[run.number]
                run.number = -1
                if not run.remaining:
                    outbox.ack_run(run)
        self._at_hand = []

    def emit(
        self, values: Any, *misplaced: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit one tuple. `anchors` is one input tuple or several; without any it is not tracked. Returns the ids of
        the tasks it goes to."""
        if misplaced:
            raise self.emitter.misplaced("emit(values", misplaced, "anchors", "stream")
        return self.emit_to(UNNAMED, values, anchors, stream)

    def emit_direct(
        self, task: int, values: Any, *misplaced: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        if misplaced:
            raise self.emitter.misplaced("emit_direct(task, values", misplaced, "anchors", "stream")
        return self.emit_to(task, values, anchors, stream)

    def emit_to(self, task: Any, values: Any, anchors: Any, stream: str) -> list[int]:
        """Emit one tuple to `task`, or, if that is UNNAMED, where the groupings say."""
        out = self.emitter.stream(stream)
        values = out.check(values, task)
        runs = [anchors._run] if anchors.__class__ is Tuple and not anchors._done else self._runs(anchors)
        outbox, noted = self._outbox, self.noted
        if len(runs) == 1 and runs[0] is self.run and self.run.number >= 0:
            return out.append(values, self.run.number, partial(outbox.note, noted=noted), task)
        if noted:
            outbox.anchor(noted, self.anchoring)
        key = runs[0] if len(runs) == 1 else runs
        return out.append(values, key, lambda batch, _, row: outbox.start_run(batch, key, runs, row), task)

    def ack(self, tup: Tuple) -> None:
        """This tuple is processed; everything emitted with it as an anchor is now on its own."""
        if tup._done:
            raise self._done_twice(tup, "acked")
        tup._done = True
        self._stats.acked += 1
        run = tup._run
        run.remaining -= 1
        if not run.remaining:
            if not run.root and tup.is_tick:
                self._stats.acked -= 1  # Ticks are in no count; they come alone in their run.
            if run.number < 0:
                self._outbox.ack_run(run)

    def fail(self, tup: Tuple) -> None:
        """Fail every tree this tuple belongs to, at once."""
        if tup._done:
            raise self._done_twice(tup, "failed")
        tup._done = True
        self._stats.failed += not tup.is_tick
        run = tup._run
        run.remaining -= 1
        emitter = self.emitter
        self._outbox.fail_run(run, Failure(FAILED, emitter.component, emitter.task, self._worker))

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""
        self._outbox.reset_roots(tup._run.trees())

    def _runs(self, anchors: Any) -> list[Run]:
        if anchors is None:
            anchors = ()
        elif isinstance(anchors, Tuple) or not isinstance(anchors, Iterable):
            anchors = (anchors,)
        # A run with several of the anchors needs one edge, not one for each.
        runs: dict[int, Run] = {}
        for anchor in anchors:
            if not isinstance(anchor, Tuple):
                raise ComponentError(
                    f"{self.emitter.component}[{self.emitter.task}] gave {repr_of(anchor)} as an anchor; allowed: an "
                    "input tuple, or several"
                )
            if anchor._done:
                raise self._anchored_to_done(anchor)
            runs[id(anchor._run)] = anchor._run
        return list(runs.values()) or [UNTRACKED]

    def _done_twice(self, tup: Tuple, what: str) -> ComponentError:
        return ComponentError(
            f"{self.emitter.component}[{self.emitter.task}] {what} {tup!r}, which it had acked or failed before; "
            "each tuple is acked or failed once"
        )

    def _anchored_to_done(self, tup: Tuple) -> ComponentError:
        return ComponentError(
            f"{self.emitter.component}[{self.emitter.task}] anchored an emit to {tup!r}, which it had acked or "
            "failed before; emit first, ack afterwards"
        )


class BasicCollector:
    """For basic bolts: anchors every emit to the tuple at hand."""

    def __init__(self, emitter: Emitter, report: Report) -> None:
        self.emitter = emitter
        self.report_error = report
        """Tells the operator of an error; nothing else happens."""
        self.anchoring = Anchoring((0,))
        """Of the runs of the batch at hand."""
        self.key = 0
        """The run at hand, by its number. Set by the executor before each tuple, if the bolt has a stream."""
        self._rows_left: Iterator[Row] = iter(())
        self._batch: Batch | None = None
        """The batch at hand, if `key` is not set."""
        self.noted: list[OpenBatch] = []
        """The batches that hold emits since `begin`."""
        self._note = partial(emitter.outbox.note, noted=self.noted)

    def begin(self, batch: Batch) -> tuple[Iterator[Row], Iterator[int] | None]:
        """Take up the batch that is about to be executed; returns its rows and the run of each, which `key` is set to;
        None if all are of one, or if nothing is emitted, so that the run is asked for only after an error."""
        self.anchoring = anchoring_of(batch)
        self.key = 0
        self._rows_left = rows = iter(batch.rows)
        # What is left of columns cannot be counted.
        self._batch = batch if not self.emitter.streams and type(batch.rows) is list else None
        return rows, None if self._batch is not None or batch.run_count == 1 else iter(batch.run_rows.owners())

    def run_at_hand(self) -> int:
        """The number of the run of the tuple at hand."""
        if self._batch is None:
            return self.key
        row = len(self._batch.rows) - 1 - length_hint(self._rows_left)
        return bisect_right(self._batch.run_rows.ends, row)

    def end(self) -> None:
        """Anchor what was emitted since `begin`, and let go of the batch: its values may lie in shared memory."""
        self.emitter.outbox.anchor(self.noted, self.anchoring)
        self._batch = None

    def trees(self) -> Sequence[int]:
        """Roots of the trees of the tuple at hand; 0 stands for none."""
        return self.anchoring.trees_of(self.run_at_hand())

    def emit(self, values: Any, *misplaced: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple; returns the ids of the tasks it goes to."""
        if misplaced:
            raise self.emitter.misplaced("emit(values", misplaced, "stream")
        return self.emit_to(UNNAMED, values, stream)

    def emit_direct(self, task: int, values: Any, *misplaced: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        if misplaced:
            raise self.emitter.misplaced("emit_direct(task, values", misplaced, "stream")
        return self.emit_to(task, values, stream)

    def emit_to(self, task: Any, values: Any, stream: str) -> list[int]:
        """Emit one tuple to `task`, or, if that is UNNAMED, where the groupings say."""
        out = self.emitter.stream(stream)
        return out.append(out.check(values, task), self.key, self._note, task)

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""
        self.emitter.outbox.reset_roots(self.trees())


class BatchCollector:
    """For batch bolts: anchors every row to the input row it was made from."""

    def __init__(self, emitter: Emitter, report: Report) -> None:
        self.emitter = emitter
        self._who = f"{emitter.component}[{emitter.task}]"
        self.report_error = report
        """Tells the operator of an error; nothing else happens."""
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
        self, columns: Sequence[Any], *misplaced: Any, counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows: see `squall.engine.api.collectors.BatchCollector`."""
        if misplaced:
            raise self.emitter.misplaced("emit_batch(columns", misplaced, "counts", "parents", "stream")
        self._emit(UNNAMED, columns, counts, parents, stream)

    def emit_batch_direct(
        self, task: int, columns: Sequence[Any], *misplaced: Any, counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows to the one task that the caller names, on a stream declared direct."""
        if misplaced:
            raise self.emitter.misplaced("emit_batch_direct(task, columns", misplaced, "counts", "parents", "stream")
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
        self.emitter.outbox.reset_roots(self.trees())

    def trees(self) -> Sequence[int]:
        """The roots of the trees of the batch at hand."""
        return self._batch.trees

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
