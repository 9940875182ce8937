"""Runs a sink that writes each tuple once in one task.

::

    batch ─► fresh tuples ─► commit in the store: identities, number, rows ─► sink.commit(number, rows) ─► ack

A sink that gathers rows is no batch bolt: it holds tuples, and does the same with all of them together.

Guarantees: rows that are in the store are written outside before any tuple is acked, in this life or the next one.
If `writes_late`, it is always the next one: for runners that keep the store with a batch, which may be lost as a whole.
A row that the sink refuses fails alone. A sink that gathers holds no tuple longer than `commit_secs`, a tick (a
twentieth of that) and the time of writing, and no more than `commit_rows`, or `commit_bytes` and one tuple.

Thread: the worker's loop; one of its own if the sink gathers, as a disk takes as long as it likes.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import Any

from squall.engine.api.collectors import BatchCollector, BoltCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import Bolt
from squall.engine.api.config import Config
from squall.engine.api.context import TopologyContext
from squall.engine.api.tuple import Tuple
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ComponentError, FailedTuple
from squall.engine.foreign.methods import Returned, checked
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import plural
from squall.engine.state.commits import ExactTask, TaskPlace
from squall.engine.state.dealing import DEALT
from squall.engine.state.input_rows import Inputs, Row
from squall.engine.state.records.lineage import Children, Lineage
from squall.engine.state.sinks import ExactSink
from squall.engine.state.task_store import OUTSIDE, TaskStore, pickled

_KEPT_KEYS = 1_000
"""A sink has no state of its own."""
_NO_EMITS = Children(Lineage("", 0, {}), (), 1)
_TICKS_PER_COMMIT, _LEAST_SECS = 20, 0.001
_SHOWN = 3
"""Most refused rows of a commit that are reported one by one."""


class SinkTask(ExactTask):
    """Stands for a sink in a topology."""

    def __init__(self, inner: ExactSink, place: TaskPlace) -> None:
        super().__init__(inner, place)
        self._inputs = Inputs(place.reads)
        self.writes_late = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._rows: list[Row] = []
        self._outside: tuple[int, Any, list[Row]] | None = None
        """The last number, its position and rows, until they are known to be outside."""
        self._prepared: tuple[int, Any, list[Row]] | None = None
        """The same of a commit that is being made: it may fail."""
        self._number = 0
        inner = self.inner
        pristine = copy(inner)
        self.open(context, _KEPT_KEYS)
        inner.store_id = self.commits.store.id
        inner.prepare(conf, context)
        self._returned = Returned(context.component_id, context.task_id, "commit", context.warn)
        kept = self.commits.store.meta(OUTSIDE)
        if kept is not None:
            self._number, position, rows = pickle.loads(kept)
            self._outside = self._number, position, pickle.loads(rows)
        self._others = [
            partial(self._write_of_other, pristine, conf, context, name, packed)
            for name, packed in self.commits.store.read(f"SELECT name, value FROM meta WHERE name LIKE '{OUTSIDE} %'")
        ]
        """Write the last rows of tasks that are no more."""
        if self.writes_late or self._others or self.commits.store.meta(DEALT) is not None:
            # Of state that was dealt, tuples may come to another task than their rows, which acks them.
            self._write_outside()

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        batch, identities = self.commits.hidden.off_batch(batch)
        number = None if batch.is_tick else self._inputs.number(batch._source)
        self.absorb([] if number is None else [(number, values) for values in batch.to_rows()], identities, collector)

    def absorb(self, rows: Sequence[Row], identities: Sequence[int], collector: Any) -> None:
        """Write what is fresh of rows, and what an earlier life may not have written; `collector` fails single ones."""
        try:
            if not self.writes_late:
                self._write_outside()
            if rows:
                self.commits.run_plain(rows, identities, _NO_EMITS, collector)
        except FailedTuple as error:
            collector.report_error(error)
            raise

    @property
    def is_behind(self) -> bool:
        """Return True if there are rows in the store that are not known to be outside."""
        return self._outside is not None

    def _write_of_other(
        self, pristine: ExactSink, conf: Mapping[str, Any], context: TopologyContext, name: str, packed: bytes
    ) -> None:
        """Live as a task that is no more, for a moment: it may have died before its last rows were outside."""
        sink, store = copy(pristine), self.commits.store
        index, sink.store_id, outside = pickle.loads(packed)
        number, position, rows = pickle.loads(outside)
        sink.prepare(conf, replace(context, task_index=index))
        try:
            tuples = [self._inputs.tuple(row) for row in pickle.loads(rows)]
            checked(sink.commit, self._returned)(number, tuples, position)
        finally:
            sink.cleanup()
        with store.changing():
            store.write("DELETE FROM meta WHERE name = ?", [(name,)])

    def _write_outside(self) -> None:
        while self._others:
            self._others[-1]()
            self._others.pop()
        if self._outside is not None:
            number, position, rows = self._outside
            checked(self.inner.commit, self._returned)(number, [self._inputs.tuple(row) for row in rows], position)
            self._outside = None

    def _take(self, rows: list[Row]) -> Mapping[int, str]:
        """Take rows for the next commit; return why some are refused, by their place."""
        reasons: dict[int, str] = {}
        try:
            self._packed_rows = pickle.dumps(rows, 5)
        except BaseException:  # a value's own code
            for place, (_, values) in enumerate(rows):
                try:
                    pickled(values, lambda: "a tuple")
                except ComponentError as error:
                    reasons[place] = str(error)
        places = [place for place in range(len(rows)) if place not in reasons]
        refused = self.inner.refused([self._inputs.tuple(rows[place]) for place in places])
        reasons |= {places[place]: why for place, why in refused.items()}
        self._rows = rows
        if reasons:
            self._rows = [row for place, row in enumerate(rows) if place not in reasons]
            self._packed_rows = pickle.dumps(self._rows, 5)
        return reasons

    def row(self, tup: Tuple) -> Row:
        """A tuple without its identity, to be kept."""
        source = self.commits.hidden.source(tup._source)
        assert source is not None, "a tick is not held"
        return self._inputs.number(source), tup.values[:-1]

    # ---- its work ----

    def execute(self, batch: Sequence[Row], rows: Sequence[int]) -> None:
        """Take rows; those that the sink refuses fail."""
        for place, why in self._take([batch[row] for row in rows]).items():
            self.commits.out.refuse(rows[place], why)

    @property
    def has_more(self) -> bool:
        return bool(self._rows)

    def write(self, store: TaskStore) -> None:
        """Write the rows that were taken: they are written outside after the commit, or in the next life."""
        rows, self._rows = self._rows, []
        if rows:
            number, position, packed = self._number + 1, None, self._packed_rows
            if self._outside is None:
                position = self.inner.position()
            else:  # of the same batch of the runner
                number, position, before = self._outside
                rows = before + rows
                packed = pickle.dumps(rows, 5)
            self._prepared = number, position, rows
            store.put_meta(OUTSIDE, pickle.dumps((number, position, packed), 5))

    def undone(self) -> None:
        self._rows, self._prepared = [], None

    def committed(self) -> None:
        if self._prepared is not None:
            self._number, self._outside, self._prepared = self._prepared[0], self._prepared, None
        if not self.writes_late:
            self._write_outside()


class GatheringTask(Bolt):
    """Stands for a sink that gathers rows."""

    blocking = True

    def __init__(self, task: SinkTask) -> None:
        self.task = task

    @property
    def config(self) -> dict[str, float]:
        """The setting for its ticks."""
        return {"tick_tuple_freq_secs": max(self.task.inner.commit_secs / _TICKS_PER_COMMIT, _LEAST_SECS)}

    def settings_mistake(self, config: Config) -> str | None:
        secs, most_secs = self.task.inner.commit_secs, config.message_timeout_secs / 2
        return None if secs <= most_secs else (
            f"has commit_secs {secs:g}; allowed: up to {most_secs:g}, half of message_timeout_secs, after which a "
            "message that is held comes again"
        )

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        sink = self.task.inner
        self._collector, self._now_ns, self._held = collector, context.now_ns, list[Tuple]()
        self._pace = _Pace(sink.commit_rows, sink.commit_bytes, round(sink.commit_secs * NS_PER_SEC))
        self._refused: dict[int, str] = {}
        """Why tuples of the commit at hand fail, by their place."""
        self._committing = RLock()
        self.task.prepare(conf, context)

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            if self._pace.tick(self._now_ns()) or self.task.is_behind:
                self._commit()
            self._collector.ack(tup)
            return
        self._held.append(tup)
        if self._pace.took(row_bytes(tup.values), self._now_ns()):
            self._commit()

    def cleanup(self) -> None:
        # A thread that sits in a commit for longer than the worker waits needs store and sink: two at once would
        # write the same rows, and the store be closed under it. What it holds comes again.
        if self._committing.acquire(blocking=False):
            self._commit()  # also for tuples without a tree, which are not emitted again
            self.task.cleanup()

    def _commit(self) -> None:
        """Write the tuples that are held, and ack them."""
        with self._committing:
            self._write_held()

    def _write_held(self) -> None:
        held, self._held, self._refused = self._held, [], {}
        self._pace.wrote()
        try:
            self.task.absorb(list(map(self.task.row, held)), [tup.values[-1] for tup in held], self)
        except FailedTuple:
            for tup in held:
                self._collector.fail(tup)
            return
        except BaseException:
            # To fail them would use up their attempts, and give up a source whose sink is set up wrong.
            self._held = held
            raise
        for place, tup in enumerate(held):
            if place in self._refused:
                self._collector.fail(tup)
            else:
                self._collector.ack(tup)
        shown = list(self._refused.values())[:_SHOWN]
        if len(self._refused) > _SHOWN:
            shown[-1] += f"; {plural(len(self._refused) - _SHOWN, 'more tuple')} of this commit did not fit either"
        for why in shown:
            self.report_error(FailedTuple(why))

    # ---- the collector of what it holds ----

    def fail(self, row: int, why: str) -> None:
        """Fail one of the tuples at hand, once the others are written."""
        self._refused[row] = why

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
        self._collector.report_error(error)


class _Pace:
    """Decides when the rows that a task holds are written.

    They are due when there are enough rows or bytes, or the first has been held long enough. Sources often wait for
    acks: with `max_spout_pending` rows held, nothing more comes, and each commit would take its full time. So when rows
    stop coming once again after as many as the last time, that is taken for such a stop, and they are due at the
    next tick. No row is held longer than `most_ns` and a tick.
    """

    def __init__(self, most_rows: int, most_bytes: int, most_ns: int) -> None:
        self._most_rows = most_rows
        self._most_bytes = most_bytes
        self._most_ns = most_ns
        self.rows = 0
        self._bytes = 0
        self._first_ns = 0
        self._rows_at_tick = 0
        self._stops_at = 0
        """Rows after which none came any more, the last time."""

    def took(self, size_bytes: int, now_ns: int) -> bool:
        """Note one more row; whether a commit is due."""
        if not self.rows:
            self._first_ns = now_ns
        self.rows += 1
        self._bytes += size_bytes
        return self.rows >= self._most_rows or self._bytes >= self._most_bytes or self._is_old(now_ns)

    def tick(self, now_ns: int) -> bool:
        """Note that time has passed; whether a commit is due."""
        stopped = self.rows == self._rows_at_tick
        self._rows_at_tick = self.rows
        if not self.rows:
            return False
        if self._is_old(now_ns):
            self._stops_at = self.rows
            return True
        return stopped and 0 < self._stops_at <= self.rows

    def _is_old(self, now_ns: int) -> bool:
        return now_ns - self._first_ns >= self._most_ns

    def wrote(self) -> None:
        """Note that the rows are held no longer."""
        self.rows = self._bytes = self._rows_at_tick = 0
