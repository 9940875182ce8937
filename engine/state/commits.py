"""Commits: what makes a bolt with state exact. A task with state, with windows or with a sink has one.

::

    batch ─► known or fresh? ─► task.execute the fresh ─► commit: identities, changes of the state, emits,
                  │                                         │     and what the task has to write
                  └── known: what they emitted ─────────────┴──► emit, task.committed, and the engine acks the batch

For example, of a batch of 100 words 98 are new: these are executed, and one commit holds 98 identities, the counts that
they changed and the 98 rows that were emitted. Then the 98 rows leave, with 2 that were emitted in an earlier life.

Guarantees: a commit holds all of that or nothing; nothing is emitted or acked before it. An exception leaves no change.

Thread: the task's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from squall.engine.api.around import HiddenField
from squall.engine.api.collectors import BatchCollector
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BatchBolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import Stream
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import ClusterError, UnstorableError
from squall.engine.foreign.text import line_of_error, plural, where_of
from squall.engine.state.dealing import deal
from squall.engine.state.held_emits import HeldEmits
from squall.engine.state.input_rows import Read
from squall.engine.state.keyed import CheckedState, State
from squall.engine.state.records.absorbed import AGAIN, FRESH, Absorbed, Group
from squall.engine.state.records.floors import Floors
from squall.engine.state.records.lineage import FIELD, RESULTS, Children, Lineage, PartitionNumbers
from squall.engine.state.task_store import TaskStore, pickled, unpickled
from squall.engine.state.times import KeptClock
from squall.engine.state.windowing.windows import Declaration


class TaskPlace(NamedTuple):
    """Where a task with state stands in its topology."""

    lineage: Lineage
    streams: Mapping[str, Stream]
    """Its outputs as the user declared them."""
    read: frozenset[str]
    """Those that a bolt reads."""
    spouts: Mapping[str, PartitionNumbers]
    """Where its messages come from."""
    shape: int
    """A number of the topology around it, which tells whether identities agree."""
    reads: Sequence[Read] = ()
    """How it reads its inputs, by number."""


class ExactTask(BatchBolt):
    """Stands for a component of the user's: says what is done with a batch, and written beside the state (nothing, if a
    subclass does not define it)."""

    commits: Commits

    def __init__(self, inner: Any, place: TaskPlace) -> None:
        self.inner, self._place = inner, place

    def open(
        self, context: TopologyContext, kept_keys: int, declaration: Declaration | None = None, drops: bool = False
    ) -> int:
        """Open the store, once it belongs to as many tasks as there are, and its windows are as declared. Returns how
        many of these were dropped."""
        is_full = self.inner.durability == "full"
        dropped = deal(context, self._place.reads, declaration, drops=drops, full=is_full)
        self.commits = Commits(self, self._place, context, is_full, kept_keys)
        return dropped

    def cleanup(self) -> None:
        self.inner.cleanup()
        self.commits.close()

    def execute(self, batch: Any, rows: Sequence[int]) -> tuple[int, str] | None:
        """Execute rows of a batch; return the place in `rows`, and the reason, of one that fails alone."""
        raise TypeError(f"{type(self).__name__} must define execute")

    @property
    def has_more(self) -> bool:
        """Return True if there is something to write, whatever was executed."""
        return False

    def write(self, store: TaskStore) -> None:
        """Write it, in the commit."""

    def committed(self) -> None:
        """Do what follows the commit. If it raises, the batch fails although it is absorbed, so it must be done before
        the batch can be acked."""

    def undone(self) -> None:
        """Take back what was executed: it is not committed."""


class Commits:
    """The store of a task, what it has absorbed, and its state."""

    def __init__(
        self, task: ExactTask, place: TaskPlace, context: TopologyContext, is_full: bool, kept_keys: int
    ) -> None:
        """`is_full`: a commit survives power loss. `kept_keys`: keys of the state that are kept in memory. ClusterError
        if the store was made by another topology."""
        self._task, self._place, self._index, self.now_ns = task, place, context.task_index, context.now_ns
        self.who = f"{context.component_id}[{context.task_id}]"
        directory = None if context.state_root is None else context.state_dir
        self.store = TaskStore(directory, self.who, is_full)
        self.floors = Floors(context, place.spouts)
        self.absorbed = self._loaded(context)
        self.state = State(self.store, kept_keys)
        self.clock: KeptClock | None = None
        """Set it if something is kept for a time by the clock."""
        self.ages = False
        """True if state has a time to live."""
        self.check: Callable[[Iterable[Any]], None] | None = None
        """Refuses changes of keys."""
        self.hidden = HiddenField(FIELD, RESULTS)
        self.out = HeldEmits(self.who, place.lineage, place.streams, place.read)
        self.identities: Sequence[int] = ()
        """Those of the batch at hand."""

    def _loaded(self, context: TopologyContext) -> Absorbed:
        """Return what was absorbed in earlier lives. ClusterError if that is under way and its identities mean
        others now."""
        store, tasks, component = self.store, len(context.component_tasks(context.component_id)), context.component_id
        path_bits, shape = self._place.lineage.path_bits, self._place.shape
        absorbed = Absorbed(store.meta("path_bits") or path_bits, self.floors.settled)
        for number, packed in store.read("SELECT number, content FROM absorbed ORDER BY number"):
            absorbed.load(number, unpickled(packed, store.where))
        self.is_renumbered = store.meta("shape") not in (None, shape)
        """True if partitions have other numbers than in the life before."""
        if self.is_renumbered:
            # The same partitions had other numbers then.
            numbers = {name: PartitionNumbers(*pair) for name, pair in json.loads(store.meta("spouts") or "{}").items()}
            before = Floors(context, numbers)
            before.changed(self.now_ns())
            before.close()
            if unsettled := absorbed.unsettled_count(before.settled):
                raise ClusterError(
                    f"the state of {component} in {store.path} has absorbed {plural(unsettled, 'tuple')} that are "
                    "under way, and the topology around it has changed, so they would count twice; let the earlier "
                    "one end what it has begun, or begin anew (--fresh)"
                )
            absorbed = Absorbed(path_bits, self.floors.settled)
        numbering = json.dumps(self._place.spouts)
        with store.changing():
            if self.is_renumbered:
                store.write("DELETE FROM absorbed", [()])
            for name, value in (("tasks", tasks), ("shape", shape), ("path_bits", path_bits), ("spouts", numbering)):
                store.put_meta(name, value)
        return absorbed

    def close(self) -> None:
        """Commit what is not committed, and close the store."""
        self.commit((), ())
        self.floors.close()
        self.store.close()

    # ---- a batch ----

    def run(self, batch: ColumnBatch, collector: BatchCollector) -> None:
        """Execute what is fresh of a batch, commit it, and emit."""
        batch, identities = self.hidden.off_batch(batch)
        children = Children.of_batch(self._place.lineage, batch, identities, self._index)
        self.run_plain(batch, identities or (), children, collector)

    def run_plain(self, batch: Any, identities: Sequence[int], children: Children, collector: BatchCollector) -> None:
        """Do the same with a batch of which the identities were taken off. `children`: those of its emits."""
        self.floors.changed(self.now_ns())
        if self.clock is not None and (jump := self.clock.jump()):
            collector.report_error(ClusterError(jump))
        out = self.out
        out.begin(collector, children)
        self.identities = identities
        known = self.absorbed.known(identities)
        if known is None:
            self._absorb(batch, identities, range(len(batch)))
        else:
            fresh = [row for row, group in enumerate(known) if group is FRESH]
            if fresh:
                self._absorb(batch, identities, fresh)
            groups = [self._known_again(row, identities[row], group) for row, group in enumerate(known)]
            out.repeat(identities, groups)
        out.send()

    def _known_again(self, row: int, identity: int, known: Group) -> Group:
        """The group of a tuple that was in the batch twice, if it was absorbed; else it fails as the first one."""
        if known is not AGAIN:
            return known
        group = self.absorbed.group_of(identity)
        if group is FRESH:
            self.out.refuse(row, "the same tuple failed in this batch")
        return group

    def _absorb(self, batch: Any, identities: Sequence[int], rows: Sequence[int]) -> None:
        """Execute rows of a batch and commit. Rows that the bolt fails are left out, and failed."""
        execute = self._task.execute
        try:
            while (refused := execute(batch, rows)) is not None:
                # The failing row may have changed the state: take all back, execute the rows before it again, and go
                # on after it.
                place, why = refused
                self.undo()
                if place and execute(batch, rows[:place]) is None:
                    self.commit(identities, rows[:place])
                    rows = rows[place:]
                    place = 0
                else:
                    self.undo()
                self.out.refuse(rows[place], why)
                rows = [*rows[:place], *rows[place + 1 :]]
            failed = self.out.failed
            self.commit(identities, [row for row in rows if row not in failed] if failed else rows)
        except UnstorableError as error:
            # By halves, until the row is alone that set it; that one again, with a state that tells the line.
            is_checked = self.state.__class__ is CheckedState
            self.undo()
            if is_checked:
                self.out.refuse(rows[0], f"{line_of_error(error)} {where_of(error)}".rstrip())
            elif len(rows) == 1:
                self.state.__class__ = CheckedState  # the user's bolt has this very object
                self._absorb(batch, identities, rows)
            else:
                for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                    self._absorb(batch, identities, half)
        except BaseException:
            self.undo()
            raise

    def undo(self) -> None:
        """Take back what is not committed."""
        self.store.undo()
        self.state.roll_back()
        self.out.drop()
        self._task.undone()

    def commit(self, identities: Sequence[int], rows: Sequence[int]) -> None:
        """Commit the rows, what they changed and what they emitted."""
        absorbed = identities if len(rows) >= len(identities) else [identities[row] for row in rows]
        store, state, clock = self.store, self.state, self.clock
        changes = state.changes(all_used=self.ages)  # first: what cannot be stored leaves the emits alone
        if self.check is not None:
            self.check(changes)
        group = Group(self.absorbed.next, absorbed, self.out.take(rows))
        if self.ages:
            # With their ages, which a log would hide, such as that of an import.
            changes = state.in_log() | changes
        if not (absorbed or changes or self._task.has_more):
            state.committed({}, [], 0)
            return
        placed, forgotten = state.to_place(len(changes)), self.absorbed.forgettable()
        content = self._packed(group) if absorbed else b""
        log_bytes: int | None = 0
        store.begin()
        if clock is not None:
            clock.write()
        if self.ages and clock is not None:
            store.put(changes.items(), clock.now_ns() // NS_PER_SEC)
            store.cut_log(state.commits)
            placed, log_bytes = [], None
        elif changes:
            log_bytes = store.append(state.commits, changes)
        if forgotten.numbers:
            store.write("DELETE FROM absorbed WHERE number = ?", [(number,) for number in forgotten.numbers])
        groups = [(kept.number, kept.packed()) for kept in forgotten.kept]
        if absorbed:
            groups.append((group.number, content))
        if groups:
            store.write("INSERT INTO absorbed VALUES (?, ?)", groups)
        if placed:
            store.put(placed)
            store.cut_log(state.log_begins(placed))
        self._task.write(store)
        store.end()
        state.committed(changes, placed, log_bytes)
        self.absorbed.forget(forgotten)
        if absorbed:
            self.absorbed.add(group)
        self._task.committed()

    def _packed(self, group: Group) -> bytes:
        try:
            return group.packed()
        except BaseException:  # a value's own code
            for stream, _, _, columns in group.emitted:
                for field, column in zip(self._place.streams[stream].fields, columns, strict=False):
                    name = f"{self.who} stream {stream!r} field {field!r}"
                    for value in column:
                        pickled(value, lambda name=name: name)  # type: ignore[misc]
            raise
