"""The collector of a spout.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and fields; see `engine.flow.emitter`.
Every tracked tuple that is emitted is part of its tree before the emit returns.

Its methods define an emit, for every stream and grouping; `engine.core.emit_paths` chooses the functions that a
component really calls when its task is set up. The trees that are begun in one turn are entered together, as a block.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, compress, islice
from typing import Any, Protocol

from squall.engine.api.columns import Columns
from squall.engine.api.failure import FAILED, Failure, reason_of
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.errors import ComponentError
from squall.engine.flow.anchoring import Anchoring, BlockAnchoring, Owned
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.emitter import UNNAMED, Emitter, Report, StreamOut
from squall.engine.flow.ids import MIN_MEMBERS, Block, block_of
from squall.engine.flow.member_columns import Flags, RowCounts, Words
from squall.engine.foreign.given_columns import ids_of
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.sizes import row_bytes
from squall.engine.foreign.text import plural, repr_of, text_of_error


class Routed(tuple[Any, ...]):  # noqa: SLOT001 - a tuple's subclass cannot have any
    """Values that were emitted on another stream than the default one, or directly to a task: with both, so that they
    can be emitted again."""

    stream: str
    direct: int | None

    @classmethod
    def on(cls, stream: str, direct: int | None, values: Any) -> Routed:
        routed = cls(values)
        routed.stream, routed.direct = stream, direct
        return routed


LONG_ROWS = 512
"""Rows of a batch to which nothing is joined: in a longer one, a row costs little less."""
_LISTS = {list}


class Gathered:
    """Short batches of one stream that a spout emits one after the other, joined: each batch has a price of its own on
    its whole way, in routing, tracking, frames and the calls of bolts.

    Guarantees: rows, their message ids and their order are those that were emitted; a batch that comes alone, or is
    long, or has a column that is no list, stays what it is."""

    __slots__ = ("_batches", "_ids", "_stream", "rows")

    def __init__(self) -> None:
        self._batches: list[Columns] = []
        self._ids: list[Sequence[Any]] = []
        self._stream = ""
        self.rows = 0

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def is_long(self) -> bool:
        """True if nothing more is to be joined."""
        return self.rows >= LONG_ROWS

    def fits(self, rows: Columns, stream: str) -> bool:
        """Return True if rows can be joined to what there is."""
        if not self._batches:
            return True
        return stream == self._stream and len(rows) < LONG_ROWS and all(
            set(map(type, batch.columns)) == _LISTS for batch in (self._batches[-1], rows)
        )

    def add(self, rows: Columns, ids: Sequence[Any], stream: str) -> None:
        """Take up tracked rows, which fit."""
        self._batches.append(rows)
        self._ids.append(ids)
        self._stream = stream
        self.rows += len(rows)

    def take(self) -> tuple[Columns, Sequence[Any], str]:
        """Take out all rows, their message ids and their stream."""
        batches, ids, count = self._batches, self._ids, self.rows
        self._batches, self._ids, self.rows = [], [], 0
        if len(batches) == 1:
            return batches[0], ids[0], self._stream
        columns = zip(*(batch.columns for batch in batches), strict=True)
        joined = Columns(tuple(list(chain.from_iterable(parts)) for parts in columns), count)
        return joined, list(chain.from_iterable(ids)), self._stream


AddBlock = Callable[[Block, Sequence[Any], Sequence[Any], str, Words, dict[int, Flags], int], None]
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

    def __init__(
        self, emitter: Emitter, pending: OpenTrees, roots: Iterator[int] | None, report: Report,
        least_block: int = MIN_MEMBERS,
    ) -> None:
        self.emitter, self.pending, self.least_block = emitter, pending, least_block
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
        """True if trees are gathered, to be entered together by `put_new`; else each is entered at once. The same for
        batches and `put_gathered`."""
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
        """Takes up short batches of a batch spout while it `gathers`; None: each is put where it goes at once."""
        self.report_error = report
        """Tells the operator of an error; nothing else happens."""

    def give_up(
        self, values: Any, message_id: Any, why: str, *misplaced: Any, stream: str = DEFAULT_STREAM
    ) -> None:
        """Make a message a dead letter instead of emitting it."""
        emitter = self.emitter
        if misplaced:
            raise emitter.misplaced("give_up(values, message_id, why", misplaced, "stream")
        out = emitter.stream(stream)
        if message_id is None:
            raise ComponentError(f"{out.who} gave up a message without an id; allowed: any id but None")
        values = out.check(values)
        # In the account it is an emit as any other, with an answer.
        self.emitted += 1
        routed = values if stream == DEFAULT_STREAM else Routed.on(stream, None, values)
        self.pending.bury(message_id, routed, Failure(FAILED, emitter.component, emitter.task, error=why))

    def emit(
        self, values: Any, *misplaced: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit one tuple; with a message id, its tree is tracked and answered by `ack` or `fail`.

        Returns the ids of the tasks it goes to; none if it waits, because workers died over this message before.
        """
        if misplaced:
            raise self.emitter.misplaced("emit(values", misplaced, "message_id", "stream", message_id=message_id)
        return self.emit_to(UNNAMED, values, message_id, stream)

    def emit_direct(
        self, task: int, values: Any, *misplaced: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        if misplaced:
            raise self.emitter.misplaced(
                "emit_direct(task, values", misplaced, "message_id", "stream", message_id=message_id,
            )
        return self.emit_to(task, values, message_id, stream)

    def emit_to(self, task: Any, values: Any, message_id: Any, stream: str) -> list[int]:
        """Emit one tuple to `task`, or, if that is UNNAMED, where the groupings say."""
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
        number = self._add_new(message_id, routed)
        try:
            return out.append(values, number, self._note, task)
        except BaseException as error:
            self.refuse(number, error)
            raise
        finally:
            if not self.gathers:
                self.put_new()

    def _add_new(self, message_id: Any, routed: Any) -> int:
        """Take up a message whose tree begins; returns its place among those since `put_new`."""
        number = len(self.new_ids)
        if not number:
            self.begin_new()
        self.new_ids.append(message_id)
        self.new_values.append(routed)
        return number

    def begin_new(self) -> None:
        """Prepare for the first tree since `put_new`. Called before it."""
        if self.noted:
            self.put_new()  # tuples of no tree
        self._since_ns = self.pending.now_ns()

    def refuse(self, number: int, error: BaseException) -> None:
        """Fail a tree at hand because a key's own code, or a grouping, raised when it was begun: that counts against
        its message."""
        emitter = self.emitter
        failure = Failure(reason_of(error), emitter.component, emitter.task, error=text_of_error(error))
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
            outbox.fail_roots((roots[number],), failure)
        return roots

    def emit_batch(
        self, columns: Sequence[Any], *misplaced: Any, message_ids: Sequence[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Emit rows, one column for each field; with message ids, one for each row, the tree of each row is tracked and
        answered on its own."""
        if misplaced:
            raise self.emitter.misplaced("emit_batch(columns", misplaced, "message_ids", "stream")
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
        self.emitted += len(rows)
        gathered = self.gathered
        if gathered is None or not self.gathers:
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
        """Put rows where they go, each the first of a new tree."""
        out = self.emitter.stream(stream)
        try:
            places = out.spread(rows)
        except BaseException as error:
            # Row by row: it fails the message whose key it was, and no other. Each is counted once more.
            self.emitted -= len(rows)
            for row, message_id in zip(rows, ids, strict=True):
                self.emit_to(UNNAMED, row, message_id, stream)
            if isinstance(error, Exception):
                return
            raise
        count = len(rows)
        anchoring = self._new_trees(list(islice(source, count)))
        out.append_batch(rows, places, Owned(range(count), RowCounts.single(count)), anchoring)
        self._enter(anchoring, ids, rows, stream, self.pending.now_ns())

    def _new_trees(self, roots: list[int]) -> Anchoring:
        """The anchoring of the first tuples of new trees: as a block where these can be one."""
        block = None if self.pending.add_block is None else block_of(roots, self.least_block)
        return Anchoring(roots) if block is None else BlockAnchoring(block, range(len(roots)))

    def _enter(self, trees: Anchoring, ids: Sequence[Any], rows: Sequence[Any], stream: str, since_ns: int) -> None:
        """Enter new trees, whose first tuples are in their batches. `stream`: of rows, or the default one if they are
        `Routed`."""
        add_block, add = self.pending.add_block, self.pending.add
        if isinstance(trees, BlockAnchoring) and add_block is not None:
            add_block(trees.block, ids, rows, stream, trees.new_edges(), trees.flags(), since_ns)
            return
        values: Iterable[Any] = rows
        if stream != DEFAULT_STREAM:
            values = (Routed.on(stream, None, row) for row in rows)
        for tree in zip(trees.roots, ids, values, *trees.of_runs(), strict=True):
            add(*tree)

    def _ids(self, who: str, message_ids: Any, rows: int) -> Sequence[Any]:
        try:
            ids = ids_of(message_ids)
        except TypeError:
            raise ComponentError(f"{who} got {repr_of(message_ids)} as message ids; allowed: a list of them") from None
        if len(ids) != rows or (type(ids) is list and type(None) in map(type, ids)):
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
                self.pending.hold(message_id, row if stream == DEFAULT_STREAM else Routed.on(stream, None, row))
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
        task = UNNAMED if task is None else task
        out = self.emitter.stream(stream)
        row = out.check(tuple(values), task)
        number = self._add_new(message_id, values)
        try:
            out.append(row, number, self._note, task)
        except BaseException as error:
            self.refuse(number, error)
        return self.put_new()[number]

    @property
    def pending_count(self) -> int:
        """Trees that are not answered yet, with those of the call at hand: `while pending_count < 3: emit()` ends."""
        return len(self.pending) + len(self.new_ids) + (self.gathered.rows if self.gathered else 0)
