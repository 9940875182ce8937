"""Runs a bolt with windows in one task: gathers tuples, and executes windows that are complete.

::

    batch ─► fresh tuples ─► panes ─► commit, ack
    tick  ─► watermark or clock ─► windows that are complete ─► execute_window ─► results ─► commit
                                                                                     └─► the spout of the results

Inputs are acked when they are committed, not when their window is: it may be open for hours. So what a window emits
belongs to no input's tree. It is committed as a result, together with the end of its window, and a spout of its own
emits it as a message (`engine.state.windowing.results`).

Guarantees: a window is executed with exactly the tuples that belong to it, and what it emits is committed once.

Thread: the worker's loop.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from squall.engine.api.collectors import BatchCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM, Declared
from squall.engine.clock import NS_PER_SEC, wall_ns
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.methods import Returned, checked
from squall.engine.state.commits import ExactTask, TaskPlace
from squall.engine.state.input_rows import Inputs
from squall.engine.state.keys import mistakes_in
from squall.engine.state.records.lineage import NUMBER_BITS, RESULTS, Partition, is_ordered
from squall.engine.state.records.ranges import Ranges
from squall.engine.state.records.record_store import BUSY, ENDED, QUIET, RECORDS_FILE, SHARED
from squall.engine.state.task_store import ACTIVITY, Reader, TaskStore, pickled
from squall.engine.state.times import kept_clock, times_of
from squall.engine.state.windowing.event_time import END, STANDS, TIME_KEY, EventTime, Heard, SharedTimes
from squall.engine.state.windowing.panes import Panes
from squall.engine.state.windowing.windows import COUNT, WINDOWS, Declaration, Window, WindowedBolt, Windowing

TICK_SECS = 0.05
_AT_ONCE, _TURN_NS = 500, 20_000_000
"""Windows that are committed together, and the time that a tick may take."""
_KEPT_KEYS = 1_000
"""Of the state, which `Panes` has in memory as well."""
_OWN_SETTLED = "SELECT name, settled FROM partitions"
_ADD_RESULT = """
    INSERT INTO results SELECT 1 + last, ?, 1 + last, ? FROM (
        SELECT ifnull(max(seq), 0) AS last FROM sqlite_sequence WHERE name = 'results')
"""


class WindowTask(ExactTask):
    """Stands for a bolt with windows in a topology."""

    def __init__(self, inner: WindowedBolt, place: TaskPlace) -> None:
        """`place.streams`: those of its results."""
        super().__init__(inner, place)
        self._inputs = Inputs(place.reads)
        assert inner.windowing is not None
        self._windowing: Windowing = inner.windowing
        self.declaration = Declaration.of(inner.windowing, inner.fold is not None)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._results: list[bytes] = []
        self._errors: list[BaseException] = []
        self._crashes = conf["on_error"] == "crash"
        self._late, self._ahead = context.counter("late tuples"), context.counter("ahead tuples")
        self._dropped = context.counter("dropped late tuples")
        self.now_ns = context.now_ns
        declaration = self.declaration
        if dropped := self.open(context, _KEPT_KEYS, declaration, drops=conf["drop_windows"]):
            context.counter("dropped windows").inc(dropped)
        commits, component = self.commits, context.component_id
        store = commits.store
        self._clock = kept_clock(store, context)
        if self._windowing.timestamp_field is None and self._windowing.kind != COUNT:
            commits.clock = self._clock
        self._emitter = None if context.state_root is None else Reader(
            context.directory_of(component + RESULTS, SHARED), RECORDS_FILE
        )
        self._emitted: list[tuple[str, int, int]] = []
        """Results that are processed, and can be removed: origin, first number, and the one after the last."""
        self._shared_times = None
        if context.state_root is not None and len(context.component_tasks(component)) > 1:
            self._shared_times = SharedTimes(context.shared_state_dir, context.task_index, self._place.shape)
        self._told = store.meta(ACTIVITY) or QUIET
        """The activity that is stored."""
        self._is_closed, self._more = self._told == ENDED, False
        self._results_out = _ResultsOut(Declared(commits.who, self._place.streams), self)
        fold = self.inner.fold
        fold_row = None if fold is None else lambda so_far, row: fold(so_far, self._inputs.tuple(row))
        self._panes = Panes(self._windowing, commits.state, fold_row, self.inner.merge)
        self._read_time()
        self._stands_ns = self.now_ns()
        for index, name in enumerate(STANDS if self._windowing.timestamp_field is not None else ()):
            context.gauge(name, partial(self._stands, context, index))
        if store.meta(WINDOWS) != declaration.packed:
            with store.changing():
                store.put_meta(WINDOWS, declaration.packed)
        self.inner.prepare(conf, context)
        returned = Returned(context.component_id, context.task_id, "execute_window", context.warn)
        self._execute_window = checked(self.inner.execute_window, returned)

    def cleanup(self) -> None:
        super().cleanup()
        if self._emitter is not None:
            self._emitter.close()
        if self._shared_times is not None:
            self._shared_times.close()

    def _read_time(self) -> None:
        kept = self.commits.state.get(TIME_KEY, {})
        if self.commits.is_renumbered:
            kept = {"watermark": kept["watermark"]} if kept else kept
        self._event_time = EventTime(self._windowing.lag, self._windowing.idle, kept)

    def _stands(self, context: TopologyContext, index: int) -> float:
        source, place = self._event_time.waits_for
        spout, (_, step) = [*self._place.spouts.items(), ("", (0, 1))][source]
        waits_for = next(iter(context.component_tasks(spout)), 0), place // step if place > 0 else place
        return (self._event_time.watermark / NS_PER_SEC, self._stands_ns / NS_PER_SEC, *waits_for)[index]

    # ---- tuples and ticks ----

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        ends_ns, self.collector = self.now_ns() + _TURN_NS, collector
        self._panes.retry(self.now_ns())
        self.commits.run(batch, collector)
        while batch.is_tick and self._more and self.now_ns() < ends_ns:
            self.commits.run(batch, collector)
        if self._errors:
            self._tell_errors()

    def execute(self, batch: ColumnBatch, rows: Sequence[int]) -> None:
        """Put rows into their windows; with a tick, execute windows that are complete."""
        if batch.is_tick:
            self._more = self._fire(self._complete_until())
            return
        values = batch.to_rows()
        its, (times, mistakes) = self._windowing, self._times_of(batch)
        at = [values_of(batch[field]) for field in its.key]
        if mistakes := mistakes | mistakes_in(dict(zip(its.key, at, strict=True))):
            rows = self._without(rows, mistakes)
        number = self._inputs.number(batch._source)
        watermark, added, late = self._event_time.watermark, [], []
        for row in rows:
            if times[row] < watermark and its.timestamp_field is not None:
                late.append(values[row])
                continue
            key = None if not at else at[0][row] if len(at) == 1 else tuple(column[row] for column in at)
            added.append((key, times[row], (number, values[row])))
        self._panes.add(added)
        self._late.inc(len(late))
        if its.late_stream is None:
            self._dropped.inc(len(late))
        else:
            for row_values in late:
                self.add_result(row_values, its.late_stream, None)
        if its.timestamp_field is not None:
            self._note_times(rows, times)
        self._is_closed = False
        if its.kind == COUNT:
            while self._fire(0):
                pass
            self._is_closed = False

    def _without(self, rows: Sequence[int], mistakes: Mapping[int, str]) -> list[int]:
        """Fail rows with mistakes; return the others."""
        for row in rows:
            if row in mistakes:
                self.commits.out.refuse(row, f"{self.commits.who}: {mistakes[row]}")
        return [row for row in rows if row not in mistakes]

    def _times_of(self, batch: ColumnBatch) -> tuple[list[int], dict[int, str]]:
        field = self._windowing.timestamp_field
        if field is None:
            return [self._clock.now_ns()] * len(batch), {}
        return times_of(batch[field], field)

    def _note_times(self, rows: Sequence[int], times: Sequence[int]) -> None:
        """Note how far the records of each partition have come."""
        shift, newest = self._place.lineage.path_bits, dict[int, tuple[int, int]]()
        identities, most = self.commits.identities, wall_ns() + self._windowing.max_ahead
        for row in rows:
            message, time_ns = identities[row] >> shift, times[row]
            if time_ns > most:
                # A date in the future, such as that of a device that is set wrong, must not close everyone's windows.
                self._ahead.inc()
                time_ns = -END
            partition = message >> NUMBER_BITS
            number, before = newest.get(partition, (0, -END))
            newest[partition] = max(number, message & (1 << NUMBER_BITS) - 1), max(before, time_ns)
        for partition, (number, time_ns) in newest.items():
            if not is_ordered(partition):
                raise ComponentError(
                    f"{self.commits.who} has windows by event time, for which message ids must be positions: expected "
                    "whole numbers, or tuples that end with one, as (file, line)"
                )
            self._event_time.saw(partition, number, time_ns)
        self.commits.state[TIME_KEY] = self._event_time.to_keep()

    # ---- windows ----

    def _complete_until(self) -> int | None:
        """The time up to which windows are complete; None: all are."""
        sources = self.commits.floors.spouts
        if sources and all(source.ended for source in sources):
            self._stands_ns = 0
            return None
        if self._windowing.timestamp_field is None:
            return self._clock.now_ns()
        event_time, before = self._event_time, self._event_time.watermark
        event_time.settle(self.commits.floors.settled)
        heard: Mapping[Partition, Heard] = event_time.heard()
        if self._shared_times is not None:
            heard = self._shared_times.exchange(heard)
        watermark = event_time.look(sources, heard, self.now_ns())
        if watermark > before:
            self._stands_ns = self.now_ns()
            self.commits.state[TIME_KEY] = event_time.to_keep()
        return watermark

    def _fire(self, until: int | None) -> bool:
        """Execute windows that are complete, some of them; return True if there may be more."""
        unit = 1 if self._windowing.kind == COUNT else NS_PER_SEC
        for _ in range(_AT_ONCE):
            due = self._panes.due(until)
            if due is None:
                self._is_closed = until is None and not self._panes.has_failed
                return False
            before = len(self._results)
            try:
                window = Window(due, unit, self._inputs.tuple, self.inner.merge)
                self._execute_window(window, self._results_out)
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

    # ---- results ----

    def add_result(self, values: Any, stream: str, task: int | None) -> None:
        """Have a row emitted, once it is committed. ComponentError if it cannot be pickled."""
        self._results.append(
            pickled((values, stream, task), lambda: f"{self.commits.who}: an emit, with stream and task,")
        )

    @property
    def has_more(self) -> bool:
        changed = None if self._emitter is None else self._emitter.changed(_OWN_SETTLED)
        if changed is not None:
            self._emitted = [
                (ast.literal_eval(name)[0], *numbers) for name, settled in changed[0]
                for numbers in Ranges.unpacked(settled)
            ]
        return bool(self._results) or self._activity != self._told

    @property
    def _activity(self) -> str:
        return ENDED if self._is_closed else BUSY if self._panes.has_any else QUIET

    def write(self, store: TaskStore) -> None:
        """Write results, remove those that are processed, and say whether more will come."""
        store.write(_ADD_RESULT, [(store.id, result) for result in self._results])
        if self._emitted:
            store.write("DELETE FROM results WHERE origin = ? AND number >= ? AND number < ?", self._emitted)
        if self._activity != self._told:
            store.put_meta(ACTIVITY, self._activity)

    def committed(self) -> None:
        self._results, self._told, self._emitted = [], self._activity, []

    def undone(self) -> None:
        self._results = []
        self._panes.load()
        self._read_time()


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

    def reset_timeout(self, tup: Any) -> None:
        """Do nothing: the tuples of a window are acked."""

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
        self._task.collector.report_error(error)
