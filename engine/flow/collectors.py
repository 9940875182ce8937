"""Collectors: what components emit, ack and fail through.

Guarantees: wrong use is a `ComponentError` at once, naming component, stream and fields; see `engine.flow.emitter` and
`engine.api.tuple`. Every tracked tuple that is emitted is part of its tree before the emit returns.

A collector belongs to one task and is used by that task's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from squall.engine.api.failure import EXCEPTION, FAILED, Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Run, Tuple
from squall.engine.errors import ComponentError
from squall.engine.flow.emitter import Emitter, PlaceOne, StreamOut
from squall.engine.flow.routed import Routed
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import repr_of, text_of_error
from squall.engine.report.metrics import TaskStats

UNTRACKED = Run(0, 0, 0)
"""The anchor of everything that is not tracked. Shared: a run with root 0 is never written to."""

Report = Callable[[BaseException], None]


class HeldBack(Protocol):
    """What is known of earlier attempts: see `engine.tracking.attempts`."""

    held_back: set[Any]
    """Keys of the messages that must not go out at once. The same object all the time."""


class OpenTrees(Protocol):
    """Where a spout's collector enters the trees that it begins: see `engine.tracking.open_messages`."""

    @property
    def attempts(self) -> HeldBack: ...

    def __len__(self) -> int: ...
    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None: ...
    def hold(self, message_id: Any, values: Any) -> None: ...
    def answer_untracked(self, message_id: Any) -> None: ...


class SpoutCollector:
    """For spouts."""

    def __init__(self, emitter: Emitter, pending: OpenTrees, roots: Iterator[int] | None, report: Report) -> None:
        self._emitter = emitter
        self._pending = pending
        self._roots = roots
        self._report = report
        self._start_run = emitter.outbox.start_run
        self._held_back = pending.attempts.held_back
        # The anchor of the tree being emitted; one object serves all, its fields are read before the next emit.
        self._run = Run(0, 0, 0)
        self.emitted = 0
        self.untracked = 0
        """Those of them that no tree was begun for."""
        default = emitter.streams.get(DEFAULT_STREAM)
        self._fast: PlaceOne | None = None
        """Where emits to the default stream go, if it has one subscriber and that one task for each."""
        if default is not None and roots is not None:
            self._fast, self._check, self._width = default.fast_place(), default.check, len(default.shape.fields)

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple; with a message id, its tree is tracked and answered by `ack` or `fail`.

        Returns the ids of the tasks it goes to; none where it waits because workers died over this message before.
        """
        place = self._fast
        if place is None or message_id is None or self._held_back or stream != DEFAULT_STREAM:
            return self._emit(values, message_id, stream)
        # What `_emit` and `StreamOut.place` do is written out here: a call costs as much as the work it does.
        if values.__class__ is not tuple or len(values) != self._width:
            values = self._check(values)
        self.emitted += 1
        run = self._run
        run.root = root = next(self._roots)  # type: ignore[arg-type]
        run.children = run.mask = 0
        try:
            batch = place(values)
        except BaseException as error:
            self._refused(root, message_id, values, error)
            raise
        self._start_run(batch, root, run, values)
        batch.rows.append(values)
        self._pending.add(root, message_id, values, run.children, run.mask)
        return [batch.target]

    def _emit(self, values: Any, message_id: Any, stream: str) -> list[int]:
        out = self._emitter.streams.get(stream) or self._emitter.stream(stream)
        values = out.check(values)
        self.emitted += 1
        roots = self._roots
        if message_id is None or roots is None:
            self.untracked += 1
            tasks = out.place(values, 0, UNTRACKED)
            if message_id is not None:
                self._pending.answer_untracked(message_id)
            return tasks
        if self._held_back and key_of(message_id, values) in self._held_back:
            self._pending.hold(message_id, values if stream == DEFAULT_STREAM else Routed.on(stream, None, values))
            return []
        run = self._run
        run.root = root = next(roots)
        run.children = run.mask = 0
        routed = values if stream == DEFAULT_STREAM else Routed.on(stream, None, values)
        try:
            tasks = out.place(values, root, run)
        except BaseException as error:
            if out.shape.direct:
                self.emitted -= 1  # the component is wrong, whatever it emits: nothing was begun
            else:
                self._refused(root, message_id, routed, error)
            raise
        self._pending.add(root, message_id, routed, run.children, run.mask)
        return tasks

    def _refused(self, root: int, message_id: Any, values: Any, error: BaseException) -> None:
        """A key's own code, or a grouping, raised: that is this message's failure, and counts against it."""
        emitter, run = self._emitter, self._run
        # With an edge that nobody has: a tree of which nothing was sent would be as good as processed.
        xor = run.children ^ emitter.outbox.edges.next()
        self._pending.add(root, message_id, values, xor, run.mask)
        failure = Failure(EXCEPTION, emitter.component, emitter.task, error=text_of_error(error))
        emitter.outbox.fail_root(root, failure)

    def emit_direct(
        self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        out = self._emitter.stream(stream)
        values = out.check(values)
        self.emitted += 1
        if message_id is None or self._roots is None:
            self.untracked += 1
            tasks = out.place_direct(task, values, [UNTRACKED])
            if message_id is not None:
                self._pending.answer_untracked(message_id)
            return tasks
        routed = Routed.on(stream, task, values)
        if self._held_back and key_of(message_id, values) in self._held_back:
            self._pending.hold(message_id, routed)
            return []
        run = self._run
        run.root = root = next(self._roots)
        run.children = run.mask = 0
        try:
            tasks = out.place_direct(task, values, [run])
        except BaseException as error:
            if out.takes(task):
                self._refused(root, message_id, routed, error)
            else:
                self.emitted -= 1
            raise
        self._pending.add(root, message_id, routed, run.children, run.mask)
        return tasks

    def send(self, message_id: Any, values: Any) -> int:
        """Emit what was held back, `Routed` or plain; the root of its tree. Called by the engine.

        What a key's own code raises fails the message, and ends nothing: no code of the spout's waits for this emit.
        Raises ComponentError if the stream, its fields or the task are not there.
        """
        if self._roots is None:
            raise ComponentError(
                f"{self._emitter.component}[{self._emitter.task}] cannot emit message {repr_of(message_id)} again: the "
                "topology has no ackers"
            )
        stream, direct = (values.stream, values.direct) if isinstance(values, Routed) else (DEFAULT_STREAM, None)
        out = self._emitter.stream(stream)
        row = out.check(tuple(values))
        run = self._run
        run.root = root = next(self._roots)
        run.children = run.mask = 0
        try:
            if direct is None:
                out.place(row, root, run)
            else:
                out.place_direct(direct, row, [run])
        except BaseException as error:
            if out.shape.direct if direct is None else not out.takes(direct):
                raise
            self._refused(root, message_id, values, error)
            return root
        self._pending.add(root, message_id, values, run.children, run.mask)
        return root

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)

    def newest_row_bytes(self) -> int:
        """See `Emitter.newest_row_bytes`."""
        return self._emitter.newest_row_bytes()

    @property
    def pending_count(self) -> int:
        """Trees of this task that are not answered yet."""
        return len(self._pending)


class BoltCollector:
    """For bolts that ack themselves."""

    def __init__(self, emitter: Emitter, worker: str, report: Report, stats: TaskStats) -> None:
        self._emitter = emitter
        self._outbox = emitter.outbox
        self._worker = worker
        self._report = report
        self._stats = stats

    def emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit one tuple. `anchors` is one input tuple or several; without any it is not tracked.

        Returns the ids of the tasks it goes to.
        """
        out = self._emitter.streams.get(stream) or self._emitter.stream(stream)
        values = out.check(values)
        if anchors.__class__ is Tuple:
            run = anchors._run
            if anchors._done:
                raise self._anchored_to_done(anchors)
            return out.place(values, run if run.others else run.root, run)
        if not anchors:
            return out.place(values, 0, UNTRACKED)
        return out.place_joined(values, self._runs(anchors))

    def emit_direct(
        self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        out = self._emitter.stream(stream)
        values = out.check(values)
        return out.place_direct(task, values, self._runs(anchors))

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
            self._outbox.ack_run(run)

    def fail(self, tup: Tuple) -> None:
        """Fail every tree this tuple belongs to, at once."""
        if tup._done:
            raise self._done_twice(tup, "failed")
        tup._done = True
        self._stats.failed += not tup.is_tick
        run = tup._run
        run.remaining -= 1
        emitter = self._emitter
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
        # A run that several of the anchors belong to needs one edge, not one for each.
        runs: dict[int, Run] = {}
        for anchor in anchors:
            if not isinstance(anchor, Tuple):
                raise ComponentError(
                    f"{self._emitter.component}[{self._emitter.task}] gave {repr_of(anchor)} as an anchor; allowed: an "
                    "input tuple, or several"
                )
            if anchor._done:
                raise self._anchored_to_done(anchor)
            runs[id(anchor._run)] = anchor._run
        return list(runs.values()) or [UNTRACKED]

    def _done_twice(self, tup: Tuple, what: str) -> ComponentError:
        return ComponentError(
            f"{self._emitter.component}[{self._emitter.task}] {what} {tup!r}, which it had acked or failed before; "
            "each tuple is acked or failed once"
        )

    def _anchored_to_done(self, tup: Tuple) -> ComponentError:
        return ComponentError(
            f"{self._emitter.component}[{self._emitter.task}] anchored an emit to {tup!r}, which it had acked or "
            "failed before; emit first, ack afterwards"
        )


class BasicCollector:
    """For basic bolts: anchors every emit to the tuple at hand."""

    emit: Callable[..., list[int]]
    """`emit(values, stream="default") -> list[int]`: emit one tuple; the ids of the tasks it goes to."""

    def __init__(self, emitter: Emitter, report: Report) -> None:
        self._emitter = emitter
        self._outbox = emitter.outbox
        self._report = report
        self.run = Run(0, 0, 0)
        """The run at hand, and the key that marks what is anchored to it. Set by the executor before each run."""
        self.key: object = 0
        default = emitter.streams.get(DEFAULT_STREAM)
        self.emit = (default and self._fast_emit(default)) or self._emit

    def _emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        out = self._emitter.streams.get(stream) or self._emitter.stream(stream)
        return out.place(out.check(values), self.key, self.run)

    def _fast_emit(self, default: StreamOut) -> Callable[..., list[int]] | None:
        """`_emit` for the default stream when it has one subscriber, one task each: most of the tuples there are.

        What `place` does is written out here: on this path a call costs as much as the work it does.
        """
        width = len(default.shape.fields)
        emit_any, check, start_run = self._emit, default.check, self._outbox.start_run
        memo_and_position = default.fast_memo()
        place = default.fast_place()

        def emit_by_field(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
            if stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM:
                return emit_any(values, stream)
            if values.__class__ is not tuple or len(values) != width:
                values = check(values)
            try:
                batch = memo[values[at]]
            except TypeError:
                batch = memo.of(values[at])
            key = self.key
            if batch.last is not key:
                start_run(batch, key, self.run, values)
            batch.rows.append(values)
            return [batch.target]

        def emit(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
            if stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM:
                return emit_any(values, stream)
            if values.__class__ is not tuple or len(values) != width:
                values = check(values)
            batch = place(values)  # type: ignore[misc]
            key = self.key
            if batch.last is not key:
                start_run(batch, key, self.run, values)
            batch.rows.append(values)
            return [batch.target]

        if place is None:
            return None
        default.counted_by_batch = True
        if memo_and_position is None:
            return emit
        memo, at = memo_and_position
        return emit_by_field

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        """Emit to the one task the caller names, on a stream declared direct."""
        out = self._emitter.stream(stream)
        return out.place_direct(task, out.check(values), [self.run])

    def reset_timeout(self, tup: Tuple) -> None:
        """Start the message timeout of this tuple's trees afresh."""
        self._outbox.reset_run(tup._run)

    def report_error(self, error: BaseException) -> None:
        """Tell the operator; nothing else happens."""
        self._report(error)
