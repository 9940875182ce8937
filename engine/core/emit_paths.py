"""Chooses the functions that a component calls to emit, ack and fail, once, when its task is set up.

The collectors (`engine.flow.spout_collector`, `engine.flow.bolt_collectors`) define an emit. If each tuple of the
default stream goes to one task of one bolt, as most tuples do, `fast_emit` makes a function that does the same
without calls in between: a call costs as much as its work. A line of eight words (spout, split, count in one worker)
takes 14 us of processor time; without the fast paths of bolts 19 to 25, without those of spouts 14.2 to 17. Either
may be wrapped by the executor of a task with a thread of its own, and by the hooks of the task.

Guarantees: a component cannot tell a fast path from the plain one: same batches, rows, edges, masks, counts, answers
and errors (`tests/unit/test_emit_paths.py`). Without hooks nothing is wrapped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.topology import FIELDS
from squall.engine.api.tuple import Anchors, Tuple
from squall.engine.flow.bolt_collectors import BasicCollector, BoltCollector
from squall.engine.flow.emitter import UNNAMED, BatchFor, Route, StreamOut
from squall.engine.flow.spout_collector import SpoutCollector

AnyCollector = SpoutCollector | BoltCollector | BasicCollector
Emit = Callable[..., list[int]]
NOTHING = object()
"""In place of a second argument by position, which is a mistake: all but the values have names. The fast functions are
not declared so, with `*`, because Python calls them 7 to 20 % more slowly then."""
FastEmit = Callable[[AnyCollector], Emit | None]


def wrap(
    collector: AnyCollector, wrapper: Callable[[str, Callable[..., Any]], Callable[..., Any]], *names: str
) -> None:
    """Have the component call `wrapper(name, method)` in place of each of these methods of its collector."""
    for name in names:
        # Not by its `__dict__`: an object whose dictionary was once asked for reads all its attributes more slowly.
        setattr(collector, name, wrapper(name, getattr(collector, name)))


# ---- the fast paths ----


def use_fast_emit(collector: AnyCollector, fast: FastEmit) -> None:
    """Have the component call the fast emit, if there is one."""
    emit = fast(collector)
    if emit is not None:
        emit.__qualname__ = collector.emit.__qualname__  # Python names it in errors
        collector.emit = emit  # type: ignore[method-assign]


def fast_emit(collector: AnyCollector) -> Emit | None:
    """Inline `emit` of a collector for its default stream; None if that may go several ways."""
    out = collector.emitter.streams.get(DEFAULT_STREAM)
    route = None if out is None else out.only_route()
    if out is None or route is None or route.one is None:
        return None
    if isinstance(collector, SpoutCollector):
        return _fast_spout(collector, out, route.one)
    out.counted_by_batch = True
    at = _text_key_at(out, route)
    if isinstance(collector, BoltCollector):
        return _fast_bolt(collector, out, route, route.one, at)
    return _fast_basic(collector, out, route, route.one, at)


def _text_key_at(out: StreamOut, route: Route) -> int | None:
    """The place of the key in a tuple, where the hash of a text alone decides among several tasks; else None."""
    fields = route.subscription.fields
    if route.subscription.grouping != FIELDS or len(fields) != 1 or len(route.targets) == 1:
        return None
    return out.shape.index[fields[0]]


def _fast_spout(collector: SpoutCollector, out: StreamOut, batch_for: BatchFor) -> Emit:
    """Emit a spout's rows: each with a message id begins a tree; those without one are one run in each turn."""
    plain, emit_to, refuse, begin_new = collector.emit, collector.emit_to, collector.refuse, collector.begin_new
    put_new, answer, tracks = collector.put_new, collector.pending.answer_untracked, collector.roots is not None
    held_back, noted, untracked_run = collector.held_back, collector.noted, 0
    check, width, note = out.check, len(out.shape.fields), out.outbox.note
    ids, add_id, add_values = collector.new_ids, collector.new_ids.append, collector.new_values.append

    def emit(
        values: Any, misplaced: Any = NOTHING, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> list[int]:
        if (
            held_back or not collector.gathers or misplaced is not NOTHING
            or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM)
        ):
            if misplaced is not NOTHING:
                return plain(values, misplaced, message_id=message_id)
            return emit_to(UNNAMED, values, message_id, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        if message_id is None or not tracks:
            collector.emitted += 1
            collector.untracked += 1
            if ids:
                put_new()
            batch = batch_for(values)
            if batch.last is not untracked_run:
                note(batch, untracked_run, values, noted)
            batch.rows.append(values)
            if message_id is not None:
                answer(message_id)
            return [batch.target]
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
            else:  # `note` without the call; each tree is a run of its own, so nobody asks for the last one
                batch.starts.append(len(batch.rows))
                batch.owners.append(number)
        except BaseException as error:
            refuse(number, error)
            raise
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_bolt(collector: BoltCollector, out: StreamOut, route: Route, batch_for: BatchFor, at: int | None) -> Emit:
    plain, emit_to, check, width = collector.emit, collector.emit_to, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted
    batches, n_batches, text_hash = route.batches, len(route.targets), out.text_hash

    def emit(
        values: Any, misplaced: Any = NOTHING, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> list[int]:
        if (
            anchors.__class__ is not Tuple or anchors._done or anchors._run is not collector.run
            or misplaced is not NOTHING or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM)
        ):
            if misplaced is not NOTHING:
                return plain(values, misplaced)
            return emit_to(UNNAMED, values, anchors, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        if at is not None and (key := values[at]).__class__ is str:
            batch = batches[text_hash(key) % n_batches]
        else:
            batch = batch_for(values)
        number = collector.run.number
        if batch.last is not number:
            note(batch, number, values, noted)
        batch.rows.append(values)
        return [batch.target]

    return emit


def _fast_basic(collector: BasicCollector, out: StreamOut, route: Route, batch_for: BatchFor, at: int | None) -> Emit:
    plain, emit_to, check, width = collector.emit, collector.emit_to, out.check, len(out.shape.fields)
    note, noted = out.outbox.note, collector.noted
    batches, n_batches, text_hash = route.batches, len(route.targets), out.text_hash

    def emit(values: Any, misplaced: Any = NOTHING, stream: str = DEFAULT_STREAM) -> list[int]:
        if misplaced is not NOTHING or (stream is not DEFAULT_STREAM and stream != DEFAULT_STREAM):
            if misplaced is not NOTHING:
                return plain(values, misplaced)
            return emit_to(UNNAMED, values, stream)
        if values.__class__ is not tuple or len(values) != width:
            values = check(values)
        if at is not None and (key := values[at]).__class__ is str:
            batch = batches[text_hash(key) % n_batches]
        else:
            batch = batch_for(values)
        number = collector.key
        if batch.last is not number:
            if not batch.owners:
                note(batch, number, values, noted)
            else:  # `note` without the call
                batch.last = number
                batch.starts.append(len(batch.rows))
                batch.owners.append(number)
        batch.rows.append(values)
        return [batch.target]

    return emit
