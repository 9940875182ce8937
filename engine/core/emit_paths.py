"""Chooses the functions that a component calls to emit, ack and fail, once, when its task is set up.

The plain methods of the collectors (`engine.flow.collectors`) define an emit. If each tuple of the default stream goes
to one task of one bolt, as most tuples do, `fast_emit` makes a function that does the same without calls in between: a
call costs as much as its work. Either may be wrapped by the gate of a spout with a thread of its own, and by the hooks
of the task.

Guarantees: a component cannot tell a fast path from the plain one: same batches, rows, edges, masks, counts, answers
and errors (`tests/unit/test_emit_paths.py`). Without hooks nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from squall.engine.api.hooks import BoltAckInfo, BoltFailInfo, Hooks
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Tuple
from squall.engine.core.spout_gate import BlockingSpoutTask
from squall.engine.flow.batch import OpenBatch
from squall.engine.flow.batch_collector import BatchCollector
from squall.engine.flow.collectors import (
    BasicCollector,
    BoltCollector,
    BoltPaths,
    Emit,
    EmitPaths,
    SpoutCollector,
)
from squall.engine.flow.emitter import BatchFor, StreamOut
from squall.engine.flow.groupings import Keys
from squall.engine.foreign.identity import key_of

AnyCollector = SpoutCollector | BoltCollector | BasicCollector
FastEmit = Callable[[AnyCollector], Emit | None]
Emitted = TypeVar("Emitted")


# ---- what a task calls ----


def spout_paths(
    collector: SpoutCollector, fast: FastEmit, task: BlockingSpoutTask | None = None, hooks: Hooks | None = None,
    began_ns: dict[Any, int] | None = None,
) -> EmitPaths:
    """`task`: of a spout with a thread of its own. `began_ns`: message's key -> time of its emit, for the hooks."""
    paths = EmitPaths(fast(collector) or collector.plain_emit, collector.plain_emit_direct)
    if task is not None:
        paths = EmitPaths(*(through_gate(task, emit) for emit in paths))
    if hooks is not None and began_ns is not None:
        paths = _watched_spout(paths, hooks, began_ns)
    return paths


def bolt_paths(collector: BoltCollector, fast: FastEmit, hooks: Hooks | None = None) -> BoltPaths:
    emit = fast(collector) or collector.plain_emit
    paths = BoltPaths(emit, collector.plain_emit_direct, collector.plain_ack, collector.plain_fail)
    return paths if hooks is None else _watched_bolt(paths, hooks)


def basic_paths(collector: BasicCollector, fast: FastEmit, hooks: Hooks | None = None) -> EmitPaths:
    paths = EmitPaths(fast(collector) or collector.plain_emit, collector.plain_emit_direct)
    return paths if hooks is None else _watched_basic(paths, hooks)


# ---- the fast paths ----


def no_fast_emit(collector: AnyCollector) -> Emit | None:
    """None: every emit takes the plain path."""
    return None


def fast_emit(collector: AnyCollector) -> Emit | None:
    """Inline `plain_emit` of a collector for its default stream; None if that may go several ways."""
    out = collector.emitter.streams.get(DEFAULT_STREAM)
    route = None if out is None else out.only_route()
    if out is None or route is None or route.one is None:
        return None
    if isinstance(collector, SpoutCollector):
        return None if collector.roots is None else _fast_spout(collector, out, route.one)
    out.counted_by_batch = True
    keyed = out.by_one_field(route)
    if isinstance(collector, BoltCollector):
        return _fast_bolt(collector, out, route.one) if keyed is None else _fast_bolt_by_field(collector, out, *keyed)
    return _fast_basic(collector, out, route.one) if keyed is None else _fast_basic_by_field(collector, out, *keyed)


def _fast_spout(collector: SpoutCollector, out: StreamOut, batch_for: BatchFor) -> Emit:
    plain, refuse, begin_new = collector.plain_emit, collector.refuse, collector.begin_new
    held_back = collector.held_back
    check, width, note, noted = out.check, len(out.shape.fields), out.outbox.note, collector.noted
    ids, add_id, add_values = collector.new_ids, collector.new_ids.append, collector.new_values.append

    def emit(values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        if (
            message_id is None or held_back or not collector.gathers
            or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM)
        ):
            return plain(values, message_id, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        number = len(ids)
        if not number:
            begin_new()
        collector.emitted += 1
        add_id(message_id)
        add_values(values)
        try:
            batch = batch_for(values)
            if not batch.owners:
                note(batch, number, values, noted)
            else:  # `note` without the call
                batch.starts.append(len(batch.rows))
                batch.owners.append(number)
        except BaseException as error:
            refuse(number, error)
            raise
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_bolt(collector: BoltCollector, out: StreamOut, batch_for: BatchFor) -> Emit:
    plain, check, width = collector.plain_emit, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted

    def emit(values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        if (
            anchors.__class__ is not Tuple or anchors._done or anchors._run is not collector.run
            or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM)
        ):
            return plain(values, anchors, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        batch = batch_for(values)
        number = collector.run.number
        if batch.last is not number:
            note(batch, number, values, noted)
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_bolt_by_field(collector: BoltCollector, out: StreamOut, keys: Keys[OpenBatch], at: int) -> Emit:
    plain, check, width = collector.plain_emit, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted
    only, batches, n_batches, text_hash, of = keys.only, keys.targets, keys.n_targets, keys.text_hash, keys.of

    def emit(values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        if (
            anchors.__class__ is not Tuple or anchors._done or anchors._run is not collector.run
            or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM)
        ):
            return plain(values, anchors, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        key = values[at]
        batch = (only or batches[text_hash(key) % n_batches]) if key.__class__ is str else of(key)
        number = collector.run.number
        if batch.last is not number:
            note(batch, number, values, noted)
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_basic(collector: BasicCollector, out: StreamOut, batch_for: BatchFor) -> Emit:
    plain, check, width = collector.plain_emit, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted

    def emit(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        if stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM:
            return plain(values, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        batch = batch_for(values)
        key = collector.key
        if batch.last is not key:
            note(batch, key, values, noted)
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_basic_by_field(collector: BasicCollector, out: StreamOut, keys: Keys[OpenBatch], at: int) -> Emit:
    plain, check, width = collector.plain_emit, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted
    only, batches, n_batches, text_hash, of = keys.only, keys.targets, keys.n_targets, keys.text_hash, keys.of

    def emit(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        if stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM:
            return plain(values, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        key = values[at]
        batch = (only or batches[text_hash(key) % n_batches]) if key.__class__ is str else of(key)
        run_key = collector.key
        if batch.last is not run_key:
            if not batch.owners:
                note(batch, run_key, values, noted)
            else:  # `note` without the call
                batch.last = run_key
                batch.starts.append(len(batch.rows))
                batch.owners.append(run_key)
        batch.rows.append(values)
        return [batch.target]

    return emit


# ---- wrappers ----


def watch_batches(
    collector: SpoutCollector | BatchCollector, hooks: Hooks, began_ns: dict[Any, int] | None = None
) -> None:
    """Have the hooks see each row of the batches that a component emits. `began_ns`: see `spout_paths`."""
    for name, out in collector.emitter.streams.items():
        out.watch = partial(hooks.emitted, name)
    if isinstance(collector, SpoutCollector) and began_ns is not None:
        began = began_ns

        def note(message_ids: Iterable[Any]) -> None:
            now_ns = hooks.now_ns()
            began.update((key_of(message_id), now_ns) for message_id in message_ids)

        collector.note_ids = note


def through_gate(task: BlockingSpoutTask, emit: Callable[..., Emitted]) -> Callable[..., Emitted]:
    """Make the spout's thread wait until the loop lets it emit."""
    gate, emits = task.gate, task.emits

    def emit_in_turn(*arguments: Any, **named: Any) -> Emitted:
        with gate:
            gate.wait_for_turn(task)
            emitted = emit(*arguments, **named)
            gate.emitted(task)
        emits.ack_untracked()
        return emitted

    return emit_in_turn


def _watched_spout(paths: EmitPaths, hooks: Hooks, began_ns: dict[Any, int]) -> EmitPaths:
    def note(message_id: Any) -> None:
        # Before the emit: without ackers it is answered before the emit returns.
        if message_id is not None:
            began_ns[key_of(message_id)] = hooks.now_ns()

    def emit(values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        note(message_id)
        return hooks.emitted(stream, values, paths.emit(values, message_id, stream))

    def emit_direct(task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        note(message_id)
        return hooks.emitted(stream, values, paths.emit_direct(task, values, message_id, stream))

    return EmitPaths(emit, emit_direct)


def _watched_bolt(paths: BoltPaths, hooks: Hooks) -> BoltPaths:
    def emit(values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        return hooks.emitted(stream, values, paths.emit(values, anchors, stream))

    def emit_direct(task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        return hooks.emitted(stream, values, paths.emit_direct(task, values, anchors, stream))

    def ack(tup: Tuple) -> None:
        paths.ack(tup)
        if not tup.is_tick:
            hooks.tell("bolt_ack", BoltAckInfo(hooks.task, tup))

    def fail(tup: Tuple) -> None:
        paths.fail(tup)
        if not tup.is_tick:
            hooks.tell("bolt_fail", BoltFailInfo(hooks.task, tup))

    return BoltPaths(emit, emit_direct, ack, fail)


def _watched_basic(paths: EmitPaths, hooks: Hooks) -> EmitPaths:
    def emit(values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return hooks.emitted(stream, values, paths.emit(values, stream))

    def emit_direct(task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return hooks.emitted(stream, values, paths.emit_direct(task, values, stream))

    return EmitPaths(emit, emit_direct)
