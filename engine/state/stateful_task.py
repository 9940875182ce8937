"""Runs a bolt with state in one task: absorbs each tuple once, and commits before anything leaves.

A batch at a time::

    batch ─► known or fresh? ─► execute the fresh ─► commit: changes of the state, identities, emits
                  │                                     │
                  └── known: what they emitted ─────────┴──► emit, and the engine acks the batch

It is a batch bolt for the engine, whatever the user's is: many tuples share a commit, and the engine chooses how many
by what a call costs.

Guarantees: a commit holds all three or nothing; nothing is emitted or acked before it. An exception leaves no change.

Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, compress
from sys import getrefcount
from typing import Any

from squall.engine.api.around import HiddenField
from squall.engine.api.collectors import BatchCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BatchBolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.emit_checks import Declared
from squall.engine.api.stream import DEFAULT_STREAM, Stream
from squall.engine.api.tuple import UNSHARED, UNTRACKED, Tuple
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, ComponentError, FailedTuple
from squall.engine.foreign.given_columns import parents_of, values_of
from squall.engine.foreign.text import line_of_error, repr_of
from squall.engine.plural import plural
from squall.engine.state.absorbed import AGAIN, FRESH, Absorbed, Emitted, Group
from squall.engine.state.children import Children
from squall.engine.state.floors import Floors
from squall.engine.state.kept_clock import kept_clock
from squall.engine.state.keyed import State
from squall.engine.state.lineage import FIELD, RESULTS, Lineage, Slots
from squall.engine.state.stateful import StatefulBatchBolt
from squall.engine.state.task_store import TaskStore, check_made_by, pickled, unpickled

_SWEEPS_PER_LIFE, _SWEPT = 10, 1_000
"""Looks for old values in their time to live, and most that are removed in one commit."""
_KEPT_KEYS = 1_000
"""Of a state that the engine itself keeps, for windows."""


class StatefulTask(BatchBolt):
    """Stands for a bolt with state in a topology."""

    def __init__(
        self, inner: Any, lineage: Lineage, streams: Mapping[str, Stream], read: frozenset[str],
        spouts: Mapping[str, Slots], shape: int,
    ) -> None:
        """`streams`: its outputs as the user declared them; `read`: those that a bolt reads. `spouts`: where the
        messages come from. `shape`: a number of the topology around it, which tells whether identities agree."""
        self.inner = inner
        self.outputs = inner.outputs
        self.lineage, self._streams, self._read, self._spouts, self._shape = lineage, streams, read, spouts, shape
        self.component_config = inner.component_config

    @property
    def _has_state(self) -> bool:
        """Return True if the user's object sees the state."""
        return hasattr(self.inner, "state_ttl_secs")

    @property
    def _keeps_time(self) -> bool:
        """Return True if something is kept for a time by the clock."""
        return self._has_state and self.inner.state_ttl_secs is not None

    # ---- life ----

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        inner, self._index = self.inner, context.task_index
        who = self._who = f"{context.component_id}[{context.task_id}]"
        directory = None if context.state_root is None else context.state_dir
        self.store = TaskStore(directory, who, inner.durability == "full")
        self._floors = Floors(context, self._spouts)
        self.absorbed = Absorbed(self.lineage.path_bits, self._floors.all)
        for number, packed in self.store.read("SELECT number, content FROM absorbed"):
            self.absorbed.load(number, unpickled(packed, self.store.where))
        self._check(context)
        self.keyed = State(self.store, inner.state_kept_keys if self._has_state else _KEPT_KEYS)
        if self._has_state:
            inner.state = self.keyed
        else:
            inner.store_id = self.store.id
        self.now_ns, self.sweep_at_ns = context.now_ns, 0
        self.clock = kept_clock(self.store, context)
        self._hidden = HiddenField(FIELD, RESULTS)
        self.out = HeldEmits(who, self.lineage, self._streams, self._read)
        self._by_batch = isinstance(inner, StatefulBatchBolt)
        inner.prepare(conf, context)
        if self._has_state:
            self.commit((), ())  # what it has set: a batch that fails takes back its own changes only

    def cleanup(self) -> None:
        self.inner.cleanup()
        self.commit((), ())
        self._floors.close()
        self.store.close()

    def _check(self, context: TopologyContext) -> None:
        """Refuse state that was made by another number of tasks, or whose identities mean others now."""
        store, tasks, who = self.store, len(context.component_tasks(context.component_id)), context.component_id
        check_made_by(store.meta("tasks"), tasks, who, store.path)
        absorbed = self.absorbed
        if store.meta("shape") not in (None, self._shape):
            self._floors.changed(context.now_ns())
            absorbed.forget(absorbed.forgettable())
            if len(absorbed):
                raise ClusterError(
                    f"the state of {who} in {store.path} has absorbed {plural(len(absorbed), 'tuple')} that are under "
                    "way, and the topology around it has changed, so they would count twice; allowed: to let the "
                    "earlier one end what it has begun, or to begin anew (--fresh)"
                )
        store.begin()
        store.put_meta("tasks", tasks)
        store.put_meta("shape", self._shape)
        store.end()

    # ---- a batch ----

    def execute_batch(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        self._floors.changed(self.now_ns())
        if self._keeps_time and (jump := self.clock.jump()):
            collector.report_error(ClusterError(jump))
        self.sweep()
        batch, identities = self._hidden.off_batch(batch)
        out = self.out
        out.begin(collector, Children.of_batch(self.lineage, batch, identities, self._index))
        self._identities = identities = identities or ()
        known = self.absorbed.known(identities)
        if known is None:
            self._absorb(batch, identities, range(len(batch)))
        else:
            fresh = [row for row, group in enumerate(known) if group is FRESH]
            if fresh:
                self._absorb(batch, identities, fresh)
            out.repeat(identities, [self._known_again(row, identities[row], its) for row, its in enumerate(known)])
        out.send()

    def _known_again(self, row: int, identity: int, known: Group) -> Group:
        """The group of a tuple that was in the batch twice, if it was absorbed; else it fails as the first one."""
        if known is not AGAIN:
            return known
        group = self.absorbed.group_of(identity)
        if group is FRESH:
            self.out.refuse(row, "the same tuple failed in this batch")
        return group

    def _absorb(self, batch: ColumnBatch, identities: Sequence[int], rows: Sequence[int]) -> None:
        """Execute rows of a batch and commit. Rows that the bolt fails are left out, and failed."""
        try:
            while (refused := self._execute(batch, rows)) is not None:
                # It may have changed the state: once more up to there, and then without it.
                place, why = refused
                self.undo()
                if place and self._execute(batch, rows[:place]) is None:
                    self.commit(identities, rows[:place])
                    rows = rows[place:]
                    place = 0
                else:
                    self.undo()
                self.out.refuse(rows[place], why)
                rows = [*rows[:place], *rows[place + 1 :]]
            failed = self.out.failed
            self.commit(identities, [row for row in rows if row not in failed] if failed else rows)
        except BaseException:
            self.undo()
            raise
        if self._has_state and self.inner.state is not self.keyed:
            raise ComponentError(f"{self._who} set self.state to {repr_of(self.inner.state)}; allowed: to change it")

    def _execute(self, batch: ColumnBatch, rows: Sequence[int]) -> tuple[int, str] | None:
        """Execute rows; return the place, and the reason, of one that raised FailedTuple."""
        if not self._by_batch:
            return self._execute_rows(batch, rows)
        self._execute_batch(batch, rows)
        return None

    def undo(self) -> None:
        """Take back what is not committed."""
        self.store.undo()
        self.keyed.roll_back()
        self.out.drop()

    def _execute_batch(self, batch: ColumnBatch, rows: Sequence[int]) -> None:
        out, inner = self.out, self.inner
        if len(rows) < len(batch):
            wanted = bytearray(len(batch))
            for row in rows:
                wanted[row] = 1
            batch = ColumnBatch(batch._rows.select(bytes(wanted)), batch._source)
            out.given = rows
        inner.execute_batch(batch, out)

    def _execute_rows(self, batch: ColumnBatch, rows: Sequence[int]) -> tuple[int, str] | None:
        """Execute rows; return the place, and the reason, of one that raised FailedTuple."""
        out, execute, source = self.out, self.inner.execute, batch._source
        values: Iterable[tuple[Any, ...]] = batch._rows
        if len(rows) < len(batch):
            values = map(batch.to_rows().__getitem__, rows)
        tup = Tuple((), source, UNTRACKED)
        try:
            for out.row, tup.values in zip(rows, values, strict=True):
                execute(tup, out)
                if getrefcount(tup) != UNSHARED:
                    tup = Tuple((), source, UNTRACKED)  # the bolt kept it
        except FailedTuple as error:
            return rows.index(out.row), line_of_error(error)
        return None

    def commit(self, identities: Sequence[int], rows: Sequence[int]) -> None:
        """Commit the rows, what they changed and what they emitted."""
        same = len(rows) >= len(identities)
        its = identities if same else [identities[row] for row in rows]
        group = self.absorbed.new_group(its, self.out.take(rows), same)
        store, state = self.store, self.keyed
        ttl_secs = self.inner.state_ttl_secs if self._has_state else None
        changes = state.changes(all_used=ttl_secs is not None)
        if ttl_secs is not None:
            # With their ages, which a log would hide, such as that of an import.
            changes = state.in_log() | changes
        if not (its or changes or self._has_more()):
            state.committed({}, [], 0)
            return
        placed, forgettable = state.to_place(len(changes)), self.absorbed.forgettable()
        content = self._packed(group) if its else b""
        log_bytes: int | None = 0
        store.begin()
        if self._keeps_time:
            self.clock.write()
        if ttl_secs is not None:
            store.put(changes.items(), self.clock.now_ns() // NS_PER_SEC)
            store.cut_log(state.commits)
            placed, log_bytes = [], None
        elif changes:
            log_bytes = store.append(state.commits, changes)
        if its:
            store.write("INSERT INTO absorbed VALUES (?, ?)", [(group.number, content)])
        if placed:
            store.put(placed)
            store.cut_log(state.log_begins(placed))
        if forgettable:
            store.write("DELETE FROM absorbed WHERE number = ?", [(number,) for number in forgettable])
        self._write_more()
        store.end()
        state.committed(changes, placed, log_bytes)
        self.absorbed.forget(forgettable)
        if its:
            self.absorbed.add(group)
        self._committed()

    def _packed(self, group: Group) -> bytes:
        try:
            return group.packed()
        except BaseException:  # a value's own code
            for stream, _, _, columns in group.emitted:
                for field, column in zip(self._streams[stream].fields, columns, strict=False):
                    what = f"{self._who} stream {stream!r} field {field!r}"
                    for value in column:
                        pickled(value, lambda what=what: what)  # type: ignore[misc]
            raise

    def _has_more(self) -> bool:
        """Return True if there is anything else to commit."""
        return False

    def _write_more(self) -> None:
        """Write it."""

    def _committed(self) -> None:
        """Do what follows a commit. What it raises fails the batch, which is absorbed: `execute_batch` must do it again
        before the batch can be acked."""

    def sweep(self) -> None:
        """Remove some values that are too old, if it is time."""
        ttl_secs, now_ns = self.inner.state_ttl_secs if self._has_state else None, self.clock.now_ns()
        if ttl_secs is None or now_ns < self.sweep_at_ns:
            return
        self.store.begin()
        old = self.store.remove_older(int(now_ns / NS_PER_SEC - ttl_secs), _SWEPT)
        self.store.end()
        self.keyed.forget(old)
        if len(old) < _SWEPT:
            self.sweep_at_ns = now_ns + round(ttl_secs * NS_PER_SEC / _SWEEPS_PER_LIFE)


class HeldEmits:
    """The collector of a bolt with state: keeps its emits until they are committed."""

    def __init__(self, who: str, lineage: Lineage, streams: Mapping[str, Stream], read: frozenset[str]) -> None:
        self._who, self._declared, self._carried, self._read = who, Declared(who, streams), lineage.carried, read
        self.failed: dict[int, str] = {}
        self._ready: list[Emitted] = []
        self._children = Children(lineage, (), 1)
        self.drop()

    def begin(self, collector: BatchCollector, children: Children) -> None:
        """Take up a batch."""
        self._collector, self._children = collector, children
        self.failed = {}
        self.given: Sequence[int] = ()
        """The rows of the batch that the bolt sees, if not all."""
        self.row = 0
        """The row at hand."""
        self._ready = []
        self.drop()

    def drop(self) -> None:
        """Drop what was emitted and is not committed."""
        self._rows: dict[tuple[str, int | None], tuple[list[int], list[tuple[Any, ...]], list[int]]] = {}
        """Stream and task -> the row and the values of each emit, and its place in the following, if the stream carries
        identities."""
        self._parents: list[int] = []
        """The row of each emit on such streams."""
        self._batches: list[Emitted] = []
        self._children.drop()

    # ---- what the component calls ----

    def emit(self, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit a tuple, once the state is committed. Returns an empty list: the tasks are not known yet."""
        return self.emit_direct(None, values, stream=stream)

    def emit_direct(self, task: int | None, values: Any, *, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit in the same way, to the task of this id."""
        values = self._declared.row(values, stream, task)
        if (its := self._rows.get((stream, task))) is None:
            its = self._rows[stream, task] = [], [], []
        row = self.row
        its[0].append(row)
        its[1].append(values)
        if stream in self._carried:
            its[2].append(len(self._parents))
            self._parents.append(row)
        return []

    def emit_batch(
        self, columns: Sequence[Any], *, counts: Sequence[int] | None = None, parents: Sequence[int] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows, once the state is committed."""
        self.emit_batch_direct(None, columns, counts=counts, parents=parents, stream=stream)

    def emit_batch_direct(
        self, task: int | None, columns: Sequence[Any], *, counts: Sequence[int] | None = None,
        parents: Sequence[int] | None = None, stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit in the same way, to the task of this id."""
        self._declared.check_columns(columns, stream, task)
        lists = tuple(list(values_of(column)) for column in columns)
        made, given = parents_of(len(lists[0]), counts, parents), self.given
        if any(len(column) != len(made) for column in lists):
            raise ComponentError(
                f"{self._who} stream {stream!r} emitted columns of {', '.join(str(len(column)) for column in lists)} "
                f"rows, and counts or parents for {len(made)}"
            )
        if given:
            made = [given[row] for row in made]
        if stream in self._carried:
            lists = (*lists, self._children.of(made, counts is not None or parents is None))
        self._batches.append(Emitted(stream, task, made, lists))

    def fail(self, row: int | Sequence[int], why: str = "") -> None:
        """Fail input rows, by their numbers in the batch that the bolt sees."""
        for one in [row] if isinstance(row, int) else row:
            self.refuse(self.given[one] if self.given else one, why)

    def refuse(self, row: int, why: str) -> None:
        """Fail a row of the whole batch."""
        self._collector.fail(row, why)
        self.failed[row] = why

    def reset_timeout(self, tup: Any) -> None:
        """Start the message timeout of the batch at hand afresh."""
        self._collector.reset_timeout(tup)

    def report_error(self, error: BaseException) -> None:
        """Show an error in report and status; nothing fails."""
        self._collector.report_error(error)

    # ---- what its task calls ----

    def take(self, rows: Sequence[int]) -> list[Emitted]:
        """Make what was emitted ready to be sent; return what a group keeps of it, with places in the group."""
        identities = self._children.of(self._parents, True) if self._parents else ()
        made = []
        for (stream, task), (parents, values, places) in self._rows.items():
            columns = tuple(map(list, zip(*values, strict=True)))
            if places:
                columns = *columns, [identities[place] for place in places]
            made.append(Emitted(stream, task, parents, columns))
        made += self._batches
        if self.failed:
            made = [_without(emitted, self.failed) for emitted in made]
        self.drop()
        self._ready += made
        kept = [emitted for emitted in made if emitted.stream in self._read]
        if not kept or (isinstance(rows, range) and rows == range(len(rows))):
            return kept
        place_of = {row: place for place, row in enumerate(rows)}
        return [each._replace(parents=[place_of[parent] for parent in each.parents]) for each in kept]

    def repeat(self, identities: Sequence[int], known: Sequence[Group]) -> None:
        """Emit again what known tuples have emitted."""
        for row, group in enumerate(known):
            if group.number >= 0 and group.emitted:
                for stream, task, values in group.emitted_for(identities[row]):
                    self._ready.append(Emitted(stream, task, (row,), tuple([value] for value in values)))

    def send(self) -> None:
        """Emit all that is ready."""
        ready, self._ready = self._ready, []
        together: dict[tuple[str, int | None], list[Emitted]] = {}
        for emitted in ready:
            together.setdefault((emitted.stream, emitted.task), []).append(emitted)
        for (stream, task), parts in together.items():
            parents = list(chain.from_iterable(part.parents for part in parts))
            by_column = zip(*(part.columns for part in parts), strict=True)
            columns = [list(chain.from_iterable(column)) for column in by_column]
            if task is None:
                self._collector.emit_batch(columns, parents=parents, stream=stream)
            else:
                self._collector.emit_batch_direct(task, columns, parents=parents, stream=stream)


def _without(emitted: Emitted, failed: Mapping[int, str]) -> Emitted:
    """The rows that were not made from failed ones."""
    wanted = [parent not in failed for parent in emitted.parents]
    columns = tuple(list(compress(column, wanted)) for column in emitted.columns)
    return emitted._replace(parents=list(compress(emitted.parents, wanted)), columns=columns)
