"""Runs a bolt with windows in one task: gathers tuples, and executes windows that are complete.

::

    batch ─► fresh tuples ─► panes ─► commit, ack
    tick  ─► watermark or clock ─► windows that are complete ─► execute_window ─► results ─► commit
                                                                                     └─► the spout of the results

Inputs are acked when they are committed, not when their window is: it may be open for hours. So what a window emits
belongs to no input's tree. It is committed as a result, together with the end of its window, and a spout of its own
emits it as a message (`engine.state.results`).

Guarantees: a window is executed with exactly the tuples that belong to it, and what it emits is committed once.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from squall.engine.api.columns import ColumnBatch
from squall.engine.api.context import TopologyContext
from squall.engine.api.emit_checks import Declared
from squall.engine.api.stream import DEFAULT_STREAM, Stream
from squall.engine.api.tuple import Tuple
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, FailedTuple
from squall.engine.foreign.given_columns import values_of
from squall.engine.state.event_time import END, EventTime
from squall.engine.state.floors import FollowedSpout
from squall.engine.state.kept_rows import Input, Inputs
from squall.engine.state.lineage import NUMBER_BITS, RESULTS, Lineage, Slots
from squall.engine.state.panes import Due, Pane, Panes
from squall.engine.state.stateful_task import StatefulTask
from squall.engine.state.task_store import CLOSED, pickled
from squall.engine.state.windows import COUNT, Window, WindowedBolt, Windowing, ns_of

TICK_SECS = 0.05
_TIME = ("time",)
"""The key of event time in the state."""
_AT_ONCE, _TURN_NS = 500, 20_000_000
"""Windows that are committed together, and the time that a tick may take."""


class WindowTask(StatefulTask):
    """Stands for a bolt with windows in a topology."""

    def __init__(
        self, inner: WindowedBolt, lineage: Lineage, streams: Mapping[str, Stream], inputs: Sequence[Input],
        spouts: Mapping[str, Slots], shape: int,
    ) -> None:
        """`streams`: those of its results."""
        super().__init__(inner, lineage, streams, frozenset(streams), spouts, shape)
        self.outputs = ()
        self._inputs = Inputs(inputs)
        assert inner.windowing is not None
        self._windowing: Windowing = inner.windowing

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._results: list[bytes] = []
        self._errors: list[BaseException] = []
        self._crashes = conf["on_error"] == "crash"
        self._emitter_spout = None if context.state_root is None else FollowedSpout(
            context.directory_of(context.component_id + RESULTS, str(context.task_index)), Slots(0, 1)
        )
        self._emitted = 0
        """The result below which all are processed, if any is to be removed."""
        self._late = context.counter("late tuples")
        super().prepare(conf, context)
        self._closed = self._is_closed = bool(self.store.meta(CLOSED))
        """Whether nothing is left to emit, now and in the store."""
        self._by_batch, self._more = True, False
        self._results_out = _ResultsOut(Declared(self._who, self._streams), self)
        fold, merge = self.inner.fold, self.inner.merge
        fold_row = None if fold is None else lambda so_far, row: fold(so_far, self._inputs.tuple(row))
        self._panes = Panes(self._windowing, self.keyed, fold_row, merge)
        self._read_time()
        its, before = self._windowing, self.store.meta("windows")
        declared = repr((its.kind, its.length, its.slide, its.timestamp_field, its.key, fold is None))
        if self._panes.has_any and before not in (None, declared):
            self.store.close()
            raise ClusterError(
                f"windows of {context.component_id} are open in {self.store.path} that were declared as {before}, and "
                f"are {declared} now; allowed: to let them end first, or to begin anew (--fresh)"
            )
        self._declared: str | None = declared if before != declared else None
        """What the next commit is to say of the windows."""

    def _read_time(self) -> None:
        kept = self.keyed.get(_TIME, {})
        self._event_time = EventTime(self._windowing.lag, self._windowing.idle or END, kept, self.now_ns())

    def undo(self) -> None:
        super().undo()
        self._results = []
        self._panes.load()
        self._read_time()

    # ---- tuples and ticks ----

    def execute_batch(self, batch: ColumnBatch, collector: Any) -> None:
        ends_ns, self.collector = self.now_ns() + _TURN_NS, collector
        self._panes.retry(self.now_ns())
        super().execute_batch(batch, collector)
        while batch.is_tick and self._more and self.now_ns() < ends_ns:
            super().execute_batch(batch, collector)
        if self._errors:
            self._tell_errors()

    def _execute_batch(self, batch: ColumnBatch, rows: Sequence[int]) -> None:
        if batch.is_tick:
            self._more = self._fire(self._complete_until())
            return
        values = batch.to_rows()
        its, times = self._windowing, self._times_of(batch)
        at = [values_of(batch[field]) for field in its.key]
        number = self._inputs.number(batch._source)
        watermark, added, late = self._event_time.watermark, [], []
        for row in rows:
            if times[row] < watermark and its.timestamp_field is not None:
                late.append(values[row])
                continue
            key = None if not at else at[0][row] if len(at) == 1 else tuple(column[row] for column in at)
            added.append((key, times[row], (number, values[row])))
        self._panes.add(added)
        if its.late_stream is None:
            self._late.inc(len(late))
        else:
            for row_values in late:
                self.add_result(row_values, its.late_stream, None)
        if its.timestamp_field is not None:
            self._note_times(rows, times)
        self._closed = False
        if its.kind == COUNT:
            while self._fire(0):
                pass
            self._closed = False

    def _times_of(self, batch: ColumnBatch) -> Sequence[int]:
        field = self._windowing.timestamp_field
        if field is None:
            return [self.clock_ns()] * len(batch)
        return [ns_of(timestamp, self._who, field) for timestamp in values_of(batch[field])]

    def _note_times(self, rows: Sequence[int], times: Sequence[int]) -> None:
        """Note how far the messages of each partition have come."""
        shift, newest = self.lineage.path_bits, dict[int, tuple[int, int]]()
        identities = self._identities
        for row in rows:
            message = identities[row] >> shift
            partition = message >> NUMBER_BITS
            number, time_ns = newest.get(partition, (0, -END))
            newest[partition] = max(number, message & (1 << NUMBER_BITS) - 1), max(time_ns, times[row])
        for partition, (number, time_ns) in newest.items():
            self._event_time.saw(partition, number, time_ns, self.now_ns())
        self.keyed[_TIME] = self._event_time.to_keep()

    # ---- windows ----

    def _complete_until(self) -> int | None:
        """The time up to which windows are complete; None: all are."""
        sources = self._floors.sources
        if sources and all(source.ended for source in sources):
            return None
        if self._windowing.timestamp_field is None:
            return self.clock_ns()
        before = self._event_time.watermark
        watermark = self._event_time.look(self._floors.all, sources, self.now_ns())
        if watermark > before:
            self.keyed[_TIME] = self._event_time.to_keep()
        return watermark

    def _fire(self, until: int | None) -> bool:
        """Execute windows that are complete, some of them; return True if there may be more."""
        for _ in range(_AT_ONCE):
            due = self._panes.due(until)
            if due is None:
                self._closed = until is None and not self._panes.has_failed
                return False
            before = len(self._results)
            try:
                self.inner.execute_window(self._window(due), self._results_out)
            except BaseException as error:
                # The others are committed all the same.
                del self._results[before:]
                self._panes.put_off(due, self.now_ns())
                self._errors.append(error)
            else:
                self._panes.done(due)
        return True

    def _tell_errors(self) -> None:
        """Report the errors of windows; the first that is no FailedTuple ends the worker, if errors shall."""
        errors, self._errors = self._errors, []
        for error in errors:
            if self._crashes and not isinstance(error, FailedTuple):
                raise error
            self.collector.report_error(error)

    def _window(self, due: Due) -> Window:
        unit = 1 if self._windowing.kind == COUNT else NS_PER_SEC
        get, new, expired = (partial(self._tuples, parts) for parts in (due.parts, due.new, due.expired))
        value = partial(due.value, self.inner.merge)
        return Window(due.key, due.start / unit, due.end / unit, get, new, expired, value)

    def _tuples(self, parts: Sequence[Pane]) -> list[Tuple]:
        return [self._inputs.tuple(row) for part in parts for row in part.rows]

    # ---- results ----

    def add_result(self, values: Any, stream: str, task: int | None) -> None:
        """Have a row emitted, once it is committed. ComponentError if it cannot be pickled."""
        self._results.append(pickled((values, stream, task), lambda: f"{self._who}: an emit, with stream and task,"))

    def _has_more(self) -> bool:
        if self._emitter_spout is not None:
            for each in self._emitter_spout.look(self.now_ns()):
                self._emitted = max(self._emitted, each.floor.number)
        return bool(self._results) or self._closed != self._is_closed

    def _write_more(self) -> None:
        self.store.write("INSERT INTO results (content) VALUES (?)", [(result,) for result in self._results])
        if self._emitted:
            self.store.write("DELETE FROM results WHERE number < ?", [(self._emitted,)])
        if self._closed != self._is_closed:
            self.store.put_meta(CLOSED, self._closed)
        if self._declared is not None:
            self.store.put_meta("windows", self._declared)

    def _committed(self) -> None:
        self._results, self._is_closed, self._emitted, self._declared = [], self._closed, 0, None


class _ResultsOut:
    """The collector of `execute_window`."""

    def __init__(self, declared: Declared, task: WindowTask) -> None:
        self._declared, self._task = declared, task

    def emit(self, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit a tuple, once the end of the window is committed. Returns an empty list: the tasks are not known yet."""
        self._task.add_result(self._declared.row(values, stream, None), stream, None)
        return []

    def emit_direct(self, task: int, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit in the same way, to the task of this id."""
        self._task.add_result(self._declared.row(values, stream, task), stream, task)
        return []

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
        self._task.collector.report_error(error)
