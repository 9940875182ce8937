"""Collectors: the objects through which components emit, ack and fail.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and fields; see `engine.flow.emitter` and
`engine.api.tuple`. Every tracked tuple that is emitted is part of its tree before the emit returns.

The methods that begin with `plain_` define an emit, an ack and a failure, for every stream and grouping.
`engine.core.emit_paths` chooses the functions that a component really calls when its task is set up.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress, islice
from typing import Any, NamedTuple, Protocol

from squall.engine.api.columns import Columns
from squall.engine.api.failure import EXCEPTION, FAILED, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Run, Tuple
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Anchoring, BlockAnchoring, Owned, anchoring_of
from squall.engine.flow.batch import Batch, OpenBatch
from squall.engine.flow.blocks import Block, Flags, block_of
from squall.engine.flow.emitter import UNNAMED, Emitter, Places, StreamOut
from squall.engine.flow.gathered import Gathered
from squall.engine.flow.routed import Routed
from squall.engine.flow.row_counts import RowCounts
from squall.engine.foreign.columns import column_mistake, values_of
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import repr_of, text_of_error
from squall.engine.plural import plural
from squall.engine.report.metrics import TaskStats

UNTRACKED = Run(0, 0, 0)
"""The anchor of untracked tuples. Shared: a run with root 0 is never written to."""

Report = Callable[[BaseException], None]
Emit = Callable[..., list[int]]


class EmitPaths(NamedTuple):
    """The functions that a component calls to emit. Each takes the arguments of its collector's plain method."""

    emit: Emit
    emit_direct: Emit


class BoltPaths(NamedTuple):
    """The same for bolts that ack themselves."""

    emit: Emit
    emit_direct: Emit
    ack: Callable[[Tuple], None]
    fail: Callable[[Tuple], None]


AddBlock = Callable[[Block, Sequence[Any], Sequence[Any], str, int, dict[int, Flags], int], None]
"""(block, message ids, rows, stream, XOR of each tree's first edges, masks, time of the first emit) -> None."""


class HeldBack(Protocol):
    """The record of earlier attempts: see `engine.tracking.attempts`."""

    held_back: set[Any]
    """Keys of the messages that must not go out at once. The same object all the time."""


class OpenTrees(Protocol):
    """The table in which a spout's collector enters new trees: see `engine.tracking.open_messages`."""

    @property
    def attempts(self) -> HeldBack: ...
    @property
    def now_ns(self) -> Callable[[], int]: ...

    def __len__(self) -> int: ...
    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None: ...
    @property
    def add_block(self) -> AddBlock | None:
        """Enters the trees of a block; None where each must be entered alone."""

    def hold(self, message_id: Any, values: Any) -> None: ...
    def bury(self, message_id: Any, values: Any, failure: Failure) -> None: ...
    def answer_untracked(self, message_id: Any) -> None: ...


class SpoutCollector:
    """For spouts."""

    emit: Emit
    """`emit(values, message_id=None, stream="default") -> list[int]`: emit one tuple; with a message id, its tree is
    tracked and answered by `ack` or `fail`. The ids of the tasks it goes to; none where it waits because workers died
    over this message before."""
    emit_direct: Emit
    """`emit_direct(task, values, message_id=None, stream="default") -> list[int]`: emit to the one task the caller
    names, on a stream declared direct."""
    give_up: Callable[..., None]
    """`give_up(values, message_id, why, stream="default")`: make a message a dead letter instead of emitting it."""

    def __init__(self, emitter: Emitter, pending: OpenTrees, roots: Iterator[int] | None, report: Report) -> None:
        self.emitter = emitter
        self.pending = pending
        self.roots = roots
        """The source of roots; None without ackers."""
        self.held_back = pending.attempts.held_back
        self.noted: list[OpenBatch] = []
        """The batches that hold tuples of the trees that are emitted and not entered, or tuples of no tree."""
        self.new_ids: list[Any] = []
        self.new_values: list[Any] = []
        """Message ids and values of these trees; the same lists for life."""
        self._refused: list[tuple[int, Failure]] = []
        """Those of them that fail at once, by their place in the lists."""
        self.gathers = False
        """Whether trees are gathered, to be entered together by `put_new`; else each is entered at once."""
        self._since_ns = 0
        """When the first of them was emitted."""
        self._note = partial(emitter.outbox.note, noted=self.noted)
        self.emitted = 0
        self.untracked = 0
        """The emits without a tree."""
        self.note_ids: Callable[[Iterable[Any]], None] | None = None
        """Told the message ids of a batch before it is emitted, for hooks."""
        self.refuses_batches = False
        """Of a spout with a thread of its own."""
        self.gathered: Gathered | None = None
        """Takes up short batches while the engine asks for several; None: each is put where it goes at once."""
        self._report = report
        self.give_up = self.plain_give_up
        self.use(EmitPaths(self.plain_emit, self.plain_emit_direct))

    def use(self, paths: EmitPaths) -> None:
        """Set the functions that the component calls, at set-up."""
        self.emit, self.emit_direct = paths

    def plain_give_up(self, values: Any, message_id: Any, why: str, stream: str = DEFAULT_STREAM) -> None:
        """See `give_up`."""
        emitter = self.emitter
        out = emitter.stream(stream)
        if message_id is None:
            raise ComponentError(f"{out.who} gave up a message without an id; allowed: any id but None")
        values = out.check(values)
        # In the account it is an emit as any other, with an answer.
        self.emitted += 1
        routed = values if stream == DEFAULT_STREAM else Routed.on(stream, None, values)
        self.pending.bury(message_id, routed, Failure(FAILED, emitter.component, emitter.task, error=why))

    def plain_emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        """See `emit`."""
        return self._emit_to(UNNAMED, values, message_id, stream)

    def plain_emit_direct(
        self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """See `emit_direct`."""
        return self._emit_to(task, values, message_id, stream)

    def _emit_to(self, task: Any, values: Any, message_id: Any, stream: str) -> list[int]:
        out = self.emitter.stream(stream)
        values = out.check(values, task)
        if self.gathered:
            self.put_gathered()
        self.emitted += 1
        if message_id is None or self.roots is None:
            self.untracked += 1
            if self.new_ids:
                self.put_new()
            tasks = out.append(values, 0, self._note, task)
            if not self.gathers:
                self.put_new()
            if message_id is not None:
                self.pending.answer_untracked(message_id)
            return tasks
        routed = values
        if task is not UNNAMED or stream != DEFAULT_STREAM:
            routed = Routed.on(stream, None if task is UNNAMED else task, values)
        if self.held_back and key_of(message_id, values) in self.held_back:
            self.pending.hold(message_id, routed)
            return []
        number = len(self.new_ids)
        if not number:
            self.begin_new()
        self.new_ids.append(message_id)
        self.new_values.append(routed)
        try:
            return out.append(values, number, self._note, task)
        except BaseException as error:
            self.refuse(number, error)
            raise
        finally:
            if not self.gathers:
                self.put_new()

    def begin_new(self) -> None:
        """The next tree is the first one since `put_new`."""
        if self.noted:
            self.put_new()  # tuples of no tree
        self._since_ns = self.pending.now_ns()

    def refuse(self, number: int, error: BaseException) -> None:
        """Fail a tree at hand because a key's own code, or a grouping, raised when it was begun: that counts against
        its message."""
        emitter = self.emitter
        failure = Failure(EXCEPTION, emitter.component, emitter.task, error=text_of_error(error))
        self._refused.append((number, failure))

    def put_new(self) -> list[int]:
        """Enter the trees that were emitted since the last time; returns their roots."""
        outbox, ids = self.emitter.outbox, self.new_ids
        if self.roots is None or not ids:
            outbox.anchor(self.noted, Anchoring((0,)))
            return []
        roots = list(islice(self.roots, len(ids)))
        anchoring = self._new_trees(roots)
        outbox.anchor(self.noted, anchoring)
        refused, self._refused = self._refused, []
        for number, _ in refused:
            anchoring.leave_open(number, outbox.edges)
        ids, values = ids[:], self.new_values[:]
        self.new_ids.clear()
        self.new_values.clear()
        self._enter(anchoring, ids, values, DEFAULT_STREAM, self._since_ns)
        for number, failure in refused:
            outbox.fail_root(roots[number], failure)
        return roots

    def emit_batch(
        self, columns: Sequence[Any], message_ids: Sequence[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit rows, one column for each field; with message ids, one for each row, the tree of each row is tracked and
        answered on its own."""
        if self.refuses_batches:
            raise ComponentError(
                f"{self.emitter.component}[{self.emitter.task}] has a thread of its own and emitted a batch; allowed: "
                "emit, or a spout with blocking = False"
            )
        out = self.emitter.stream(stream)
        rows = out.check_columns(columns)
        ids = None if message_ids is None else self._ids(out.who, message_ids, len(rows))
        if not rows:
            return
        self.put_new()
        out.newest_bytes = row_bytes(rows[-1])
        if ids is not None and self.note_ids is not None:
            self.note_ids(ids)
        if ids is None or self.roots is None:
            self.put_gathered()
            self._emit_untracked(out, rows, ids)
            return
        if self.held_back:
            rows, ids = self._hold_some(rows, ids, stream)
            if not rows:
                return
        gathered = self.gathered
        if gathered is None:
            self._emit_tracked(self.roots, rows, ids, stream)
            return
        if not gathered.fits(rows, stream):
            self.put_gathered()
        gathered.add(rows, ids, stream)
        if gathered.is_long:
            self.put_gathered()

    def put_gathered(self) -> None:
        """Put the rows that were gathered where they go: before anything else is emitted, and before others look."""
        if self.gathered and self.roots is not None:
            self._emit_tracked(self.roots, *self.gathered.take())

    def _emit_tracked(self, source: Iterator[int], rows: Columns, ids: Sequence[Any], stream: str) -> None:
        out = self.emitter.stream(stream)
        try:
            places = out.spread(rows)
        except BaseException as error:
            # Row by row: it fails the message whose key it was, and no other.
            for row, message_id in zip(rows, ids, strict=True):
                self._emit_to(UNNAMED, row, message_id, stream)
            if isinstance(error, Exception):
                return
            raise
        self._begin_trees(source, out, rows, ids, places, stream)

    def _begin_trees(
        self, source: Iterator[int], out: StreamOut, rows: Columns, ids: Sequence[Any], places: Places, stream: str
    ) -> None:
        """Put rows where they go, each the first of a new tree."""
        count = len(rows)
        self.emitted += count
        anchoring = self._new_trees(list(islice(source, count)))
        out.append_batch(rows, places, Owned(range(count), RowCounts.single(count)), anchoring)
        self._enter(anchoring, ids, rows, stream, self.pending.now_ns())

    def _new_trees(self, roots: list[int]) -> Anchoring:
        """The anchoring of the first tuples of new trees: as a block where these can be one."""
        block = None if self.pending.add_block is None else block_of(roots)
        return Anchoring(roots) if block is None else BlockAnchoring(block, 0, len(roots))

    def _enter(
        self, anchoring: Anchoring, ids: Sequence[Any], rows: Sequence[Any], stream: str, since_ns: int
    ) -> None:
        """Enter new trees, whose first tuples are in their batches. `stream`: of rows, or the default one if they are
        `Routed`."""
        add_block, add = self.pending.add_block, self.pending.add
        if isinstance(anchoring, BlockAnchoring) and add_block is not None:
            add_block(anchoring.block, ids, rows, stream, anchoring.new_edges(), anchoring.flags(), since_ns)
            return
        values: Iterable[Any] = rows
        if stream != DEFAULT_STREAM:
            values = (Routed.on(stream, None, row) for row in rows)
        for tree in zip(anchoring.roots, ids, values, *anchoring.of_runs(), strict=True):
            add(*tree)

    def _ids(self, who: str, message_ids: Any, rows: int) -> Sequence[Any]:
        if type(message_ids) is range and len(message_ids) == rows:
            return message_ids
        try:
            ids = list(values_of(message_ids)) if column_mistake(message_ids) is None else list(message_ids)
        except TypeError:
            raise ComponentError(f"{who} got {repr_of(message_ids)} as message ids; allowed: a list of them") from None
        if len(ids) != rows or type(None) in map(type, ids):
            got = "None among the ids" if len(ids) == rows else plural(len(ids), "message id")
            raise ComponentError(
                f"{who} emitted {plural(rows, 'row')} with {got}; allowed: an id for each row, or message_ids=None"
            )
        return ids

    def _emit_untracked(self, out: StreamOut, rows: Columns, ids: Sequence[Any] | None) -> None:
        count = len(rows)
        self.emitted += count
        self.untracked += count
        out.append_batch(rows, out.spread(rows), Owned((0,), RowCounts((count,))), Anchoring((0,)))
        for message_id in ids or ():
            self.pending.answer_untracked(message_id)

    def _hold_some(self, rows: Columns, ids: Sequence[Any], stream: str) -> tuple[Columns, Sequence[Any]]:
        """Hold the messages that must not go out at once; returns the others."""
        may_go = bytes(key_of(message_id, row) not in self.held_back for row, message_id in zip(rows, ids, strict=True))
        if all(may_go):
            return rows, ids
        for row, message_id, goes in zip(rows, ids, may_go, strict=True):
            if not goes:
                self.emitted += 1
                routed = row if stream == DEFAULT_STREAM else Routed.on(stream, None, row)
                self.pending.hold(message_id, routed)
        return rows.select(may_go), list(compress(ids, may_go))

    def send(self, message_id: Any, values: Any) -> int:
        """Emit held values, `Routed` or plain; returns the root of their tree. Called by the engine.

        An exception of a key's own code fails the message and not the worker: no code of the spout waits for this emit.
        Raises ComponentError if the stream, its fields or the task do not exist.
        """
        if self.roots is None:
            raise ComponentError(
                f"{self.emitter.component}[{self.emitter.task}] cannot emit message {repr_of(message_id)} again: the "
                "topology has no ackers"
            )
        stream, task = (values.stream, values.direct) if isinstance(values, Routed) else (DEFAULT_STREAM, None)
        if task is None:
            task = UNNAMED
        out = self.emitter.stream(stream)
        row = out.check(tuple(values), task)
        self.begin_new()
        self.new_ids.append(message_id)
        self.new_values.append(values)
        try:
            out.append(row, 0, self._note, task)
        except BaseException as error:
            self.refuse(0, error)
        return self.put_new()[0]

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)

    def newest_row_bytes(self) -> int:
        """See `Emitter.newest_row_bytes`."""
        return self.emitter.newest_row_bytes()

    @property
    def pending_count(self) -> int:
        """Trees of this task that are not answered yet."""
        return len(self.pending)


class BoltCollector:
    """For bolts that ack themselves."""

    emit: Emit
    """`emit(values, anchors=(), stream="default") -> list[int]`: emit one tuple. `anchors` is one input tuple or
    several; without any it is not tracked. The ids of the tasks it goes to."""
    emit_direct: Emit
    """`emit_direct(task, values, anchors=(), stream="default") -> list[int]`: emit to the one task the caller names, on
    a stream declared direct."""
    ack: Callable[[Tuple], None]
    """`ack(tup)`: this tuple is processed; everything emitted with it as an anchor is now on its own."""
    fail: Callable[[Tuple], None]
    """`fail(tup)`: fail every tree this tuple belongs to, at once."""

    def __init__(self, emitter: Emitter, worker: str, report: Report, stats: TaskStats) -> None:
        self.emitter = emitter
        self._outbox = emitter.outbox
        self._worker = worker
        self._report = report
        self._stats = stats
        self._batch = Batch(0, "", 0)
        self._at_hand: list[Run] = []
        """The runs of the batch that is being executed, which ends with their acks."""
        self.run = UNTRACKED
        """The one whose tuple is being executed."""
        self.anchoring = Anchoring((0,))
        self.noted: list[OpenBatch] = []
        """The batches that hold emits anchored to runs at hand while these were executed."""
        self.use(BoltPaths(self.plain_emit, self.plain_emit_direct, self.plain_ack, self.plain_fail))

    def use(self, paths: BoltPaths) -> None:
        """Set the functions that the component calls, at set-up."""
        self.emit, self.emit_direct, self.ack, self.fail = paths

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

    def plain_emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        """See `emit`."""
        return self._emit_to(UNNAMED, values, anchors, stream)

    def plain_emit_direct(
        self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """See `emit_direct`."""
        return self._emit_to(task, values, anchors, stream)

    def _emit_to(self, task: Any, values: Any, anchors: Any, stream: str) -> list[int]:
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

    def plain_ack(self, tup: Tuple) -> None:
        """See `ack`."""
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

    def plain_fail(self, tup: Tuple) -> None:
        """See `fail`."""
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
        self._outbox.reset_run(tup._run)

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)

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

    emit: Emit
    """`emit(values, stream="default") -> list[int]`: emit one tuple; the ids of the tasks it goes to."""
    emit_direct: Emit
    """`emit_direct(task, values, stream="default") -> list[int]`: emit to the one task the caller names, on a stream
    declared direct."""

    def __init__(self, emitter: Emitter, report: Report) -> None:
        self.emitter = emitter
        self._report = report
        self.anchoring = Anchoring((0,))
        """Of the runs of the batch at hand."""
        self.key = 0
        """The run at hand, by its number. Set by the executor before each tuple."""
        self.noted: list[OpenBatch] = []
        """The batches that hold emits since `begin`."""
        self._note = partial(emitter.outbox.note, noted=self.noted)
        self.use(EmitPaths(self.plain_emit, self.plain_emit_direct))

    def begin(self, batch: Batch) -> Iterator[int] | None:
        """Take up the batch that is about to be executed; returns the run of each row, None if all are of one."""
        self.anchoring = anchoring_of(batch)
        self.key = 0
        return None if batch.run_count == 1 else iter(batch.run_rows.owners())

    def end(self) -> None:
        """Anchor what was emitted since `begin`."""
        self.emitter.outbox.anchor(self.noted, self.anchoring)

    def trees(self) -> Sequence[int]:
        """Roots of the trees of the tuple at hand; 0 stands for none."""
        return self.anchoring.trees_of(self.key)

    def use(self, paths: EmitPaths) -> None:
        """Set the functions that the component calls, at set-up."""
        self.emit, self.emit_direct = paths

    def plain_emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """See `emit`."""
        out = self.emitter.stream(stream)
        return out.append(out.check(values), self.key, self._note)

    def plain_emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """See `emit_direct`."""
        out = self.emitter.stream(stream)
        return out.append(out.check(values, task), self.key, self._note, task)

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""
        self.emitter.outbox.reset_roots(self.trees())

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)
