"""Components before state that counts exactly once: what stands around them, so that tuples carry identities.

Identities travel as a last field of each stream that leads to such state (`engine.state.lineage`); users' components
do not see it. A spout's task also stores what is settled, for the tasks with state (`engine.state.settled`).

Guarantees: the user's components see the same as without: values, fields, anchors, answers.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from squall.engine.api.columns import ColumnBatch, Columns
from squall.engine.api.component import BasicBolt, BatchBolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.stream import DEFAULT_STREAM
from squall.engine.api.tuple import Anchors, Tuple
from squall.engine.foreign.around import Around
from squall.engine.foreign.given_columns import values_of
from squall.engine.state.children import Children
from squall.engine.state.emits import check_columns, checked_values
from squall.engine.state.floors import LOOK_NS
from squall.engine.state.lineage import Lineage, PlainSources, Slots, loose_identity, origin_of
from squall.engine.state.settled import Settling, StoredFloor
from squall.engine.state.task_store import ACTIVITY, BUSY, ENDED, QUIET, TaskStore


class IdentifiedSpout(Around):
    """Numbers each message, and follows it to its answer."""

    def __init__(self, inner: Any, lineage: Lineage, slots: Slots) -> None:
        """`slots`: of its first task."""
        super().__init__(inner)
        self.lineage, self._slots = lineage, slots
        self.kept: Settling | None = None
        """For runners that keep a spout as a whole, open messages and all, before `open`: the `settling` of its last
        life, or a new one. Then nothing is stored here."""

    def __reduce__(self) -> Any:
        return IdentifiedSpout, (self._inner, self.lineage, self._slots)

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        who = f"{context.component_id}[{context.task_id}]"
        self.store = TaskStore(None if context.state_root is None or self.kept else context.state_dir, who)
        self.settling = self.kept or self.new_settling(context, self.store.floors())
        """What became of its messages."""
        self.settling.store = self._put
        self._now_ns, self._store_at_ns, self._activity = context.now_ns, 0, ""
        self._put([], BUSY)
        self._inner.open(conf, context, _SpoutOut(collector, self.lineage, self.settling, who))

    def new_settling(self, context: TopologyContext, stored: Iterable[StoredFloor] = ()) -> Settling:
        """Return one for `kept`, of the first life of a task."""
        who = f"{context.component_id}[{context.task_id}]"
        return Settling(who, self._slots.of(context.task_index), stored)

    def next_tuple(self) -> Any:
        if self._now_ns() >= self._store_at_ns:
            self._note()
        return self._inner.next_tuple()

    def next_batch(self, rows: int) -> Any:
        if self._now_ns() >= self._store_at_ns:
            self._note()
        return self._inner.next_batch(rows)

    def ack(self, message_id: Any) -> None:
        self.settling.answered(message_id)
        self._inner.ack(message_id)
        if self._now_ns() >= self._store_at_ns:
            self._note()

    def ack_batch(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            self.settling.answered(message_id)
        self._inner.ack_batch(message_ids)
        if self._now_ns() >= self._store_at_ns:
            self._note()

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.settling.answered(message_id, buried=True)
        self._inner.on_dead_letter(message_id, failure)

    def close(self) -> None:
        self._inner.close()
        self._note()
        self.store.close()

    @property
    def exhausted(self) -> bool:
        done: bool = self._inner.exhausted
        if done and self._activity != ENDED and not self.settling.has_open:
            self._note()
        return done

    def _note(self) -> None:
        """Store what is settled, and whether everything is."""
        self._store_at_ns = self._now_ns() + LOOK_NS
        activity = BUSY if self.settling.has_open else ENDED if self._inner.exhausted else QUIET
        risen = list(self.settling.risen())
        if risen or activity != self._activity:
            self._put(risen, activity)

    def _put(self, floors: Iterable[StoredFloor], activity: str = BUSY) -> None:
        self.store.begin()
        self.store.put_floors(floors)
        self.store.put_meta(ACTIVITY, activity)
        self.store.end()
        self._activity = activity


def in_place_of(spout: Any, other: Any) -> Any:
    """Another spout, with around it what stands around the one in whose place it is."""
    if type(spout) is IdentifiedSpout:
        return IdentifiedSpout(other, spout.lineage, spout._slots)
    return other


class _SpoutOut(Around):
    def __init__(self, collector: Any, lineage: Lineage, settling: Settling, who: str) -> None:
        super().__init__(collector)
        self.lineage, self._bits, self._carried = lineage, lineage.path_bits, lineage.carried
        self._emitted, self._who = settling.emitted, who

    def _row(self, values: Any, message_id: Any, stream: str, task: int | None = None) -> Any:
        """The values with their identity, if the stream carries it."""
        if stream not in self._carried:
            if message_id is not None:
                self._emitted(message_id, (), stream)
            return values
        values = checked_values(self._who, self._carried, values, stream, task)
        if message_id is None:
            return *values, loose_identity(self.lineage)
        return *values, self._emitted(message_id, values, stream) << self._bits

    def emit(
        self, values: Any, *misplaced: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Any:
        if not misplaced:
            values = self._row(values, message_id, stream)
        return self._inner.emit(values, *misplaced, message_id=message_id, stream=stream)

    def emit_direct(
        self, task: int, values: Any, *misplaced: Any, message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Any:
        if not misplaced:
            values = self._row(values, message_id, stream, task)
        return self._inner.emit_direct(task, values, *misplaced, message_id=message_id, stream=stream)

    def give_up(
        self, values: Any, message_id: Any, why: str, *misplaced: Any, stream: str = DEFAULT_STREAM
    ) -> None:
        if not misplaced and message_id is not None:
            values = self._row(values, message_id, stream)
        self._inner.give_up(values, message_id, why, *misplaced, stream=stream)

    def emit_batch(
        self, columns: Any, *misplaced: Any, message_ids: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        if not misplaced:
            columns = self._columns(columns, message_ids, stream)
        self._inner.emit_batch(columns, *misplaced, message_ids=message_ids, stream=stream)

    def _columns(self, columns: Any, message_ids: Any, stream: str) -> Any:
        carried = stream in self._carried
        if carried:
            check_columns(self._who, self._carried, columns, stream, None)
        rows = len(columns[0]) if columns else 0
        if message_ids is None:
            identities = [loose_identity(self.lineage) for _ in range(rows)] if carried else []
        else:
            bits, ids = self._bits, list(values_of(message_ids))
            texts = zip(*map(values_of, columns), strict=True) if carried else [()] * len(ids)
            identities = [self._emitted(one, row, stream) << bits for one, row in zip(ids, texts, strict=False)]
        return (*columns, identities) if carried else columns


class IdentifiedBolt(Around):
    """Takes identities off the input of a bolt, and gives its output theirs."""

    def __init__(self, inner: Any, lineage: Lineage) -> None:
        super().__init__(inner)
        self.lineage = lineage

    def __reduce__(self) -> Any:
        return IdentifiedBolt, (self._inner, self.lineage)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, *collector: Any) -> None:
        self._index = context.task_index
        inner = self._inner
        if collector:
            self._out: Any = _AnchoredOut(collector[0], self.lineage, context)
            inner.prepare(conf, context, self._out)
            self.execute = self._anchored(inner.execute)
            return
        inner.prepare(conf, context)
        if isinstance(inner, BatchBolt):
            self.execute_batch = self._batched(inner.execute_batch)
        elif isinstance(inner, BasicBolt):
            self.execute = self._basic(inner.execute)

    def _basic(self, execute: Any) -> Any:
        plain, lineage, out = PlainSources(), self.lineage, _BasicOut(self.lineage)
        multiplied, base_of, index = lineage.multiplied, lineage.base_of, self._index
        most = lineage.most * lineage.step
        firsts: dict[Any, int] = {}

        def run(tup: Tuple, collector: Any) -> Any:
            if out.inner is not collector:
                out.use(collector)
            source = plain(tup._source)
            if source is None:
                out.next[0] = loose_identity(lineage)
                return execute(tup, out)
            values = tup.values
            identity = values[-1]
            if (first := firsts.get(source)) is None:
                first = firsts[source] = lineage.first(source, index)
            if multiplied:
                identity = base_of(identity)
            out.next[0] = begin = identity + first
            # Another object: the engine uses this one again for the next tuple, with its source.
            value = execute(Tuple(values[:-1], source, tup._run), out)
            if out.next[0] - begin > most:
                raise lineage.too_many((out.next[0] - begin) // lineage.step)
            return value

        return run

    def _batched(self, execute: Any) -> Any:
        plain, lineage, out = PlainSources(), self.lineage, _BatchOut(self.lineage)

        def run(batch: ColumnBatch, collector: Any) -> Any:
            source = plain(batch._source)
            if source is None:
                out.begin(collector, Children(lineage, [loose_identity(lineage) for _ in range(len(batch))], 1))
                return execute(batch, out)
            *columns, identities = batch.columns
            out.begin(collector, Children(lineage, identities, lineage.first(source, self._index)))
            return execute(ColumnBatch(Columns(tuple(columns), len(batch)), source), out)

        return run

    def _anchored(self, execute: Any) -> Any:
        plain, lineage, out = PlainSources(), self.lineage, self._out

        def run(tup: Tuple) -> Any:
            source = plain(tup._source)
            if source is not None:
                identity = tup.values[-1]
                tup.values, tup._source = tup.values[:-1], source
                [base] = lineage.bases_of([identity], lineage.first(source, self._index))
                out.next[id(tup)] = base, 0
            return execute(tup)

        return run


class _BasicOut:
    """What a basic bolt emits through. Its emit is made once, for speed."""

    def __init__(self, lineage: Lineage) -> None:
        self._step, self._carried = lineage.step, lineage.carried
        self.next = [0]
        """The identity of the next emit."""
        self.inner: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def use(self, collector: Any) -> None:
        """Emit through this collector from now on."""
        self.inner = collector
        plain_emit, step, carried, following = collector.emit, self._step, self._carried, self.next
        default = carried.get(DEFAULT_STREAM)
        width = -1 if default is None or default.direct else len(default.fields)
        who = f"{collector.emitter.component}[{collector.emitter.task}]"

        def emit(values: Any, misplaced: Any = None, stream: str = DEFAULT_STREAM) -> Any:
            if (
                stream is DEFAULT_STREAM and values.__class__ is tuple and len(values) == width and misplaced is None
            ):
                identity = following[0]
                following[0] = identity + step
                return plain_emit((*values, identity))
            if misplaced is not None:
                return plain_emit(values, misplaced)
            if stream in carried:
                values = (*checked_values(who, carried, values, stream, None), following[0])
                following[0] += step
            return plain_emit(values, stream=stream)

        def emit_direct(task: int, values: Any, *misplaced: Any, stream: str = DEFAULT_STREAM) -> Any:
            if stream in carried and not misplaced:
                values = (*checked_values(who, carried, values, stream, task), following[0])
                following[0] += step
            return collector.emit_direct(task, values, *misplaced, stream=stream)

        self.emit, self.emit_direct = emit, emit_direct


class _BatchOut(Around):
    def __init__(self, lineage: Lineage) -> None:
        super().__init__(None)
        self._carried = lineage.carried

    def begin(self, collector: Any, children: Children) -> None:
        """Begin with a batch."""
        self._inner, self._children = collector, children

    def emit_batch(
        self, columns: Any, *misplaced: Any, counts: Any = None, parents: Any = None, stream: str = DEFAULT_STREAM
    ) -> None:
        if not misplaced:
            columns = self._identified(columns, counts, parents, stream, None)
        self._inner.emit_batch(columns, *misplaced, counts=counts, parents=parents, stream=stream)

    def emit_batch_direct(
        self, task: int, columns: Any, *misplaced: Any, counts: Any = None, parents: Any = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        if not misplaced:
            columns = self._identified(columns, counts, parents, stream, task)
        self._inner.emit_batch_direct(task, columns, *misplaced, counts=counts, parents=parents, stream=stream)

    def _identified(self, columns: Any, counts: Any, parents: Any, stream: str, task: int | None) -> Any:
        if stream not in self._carried:
            return columns
        emitter = self._inner.emitter
        check_columns(f"{emitter.component}[{emitter.task}]", self._carried, columns, stream, task)
        made = self._children.rows(counts, parents, (), len(columns[0]) if columns else 0)
        return (*columns, self._children.of(made, parents is None))


class _AnchoredOut(Around):
    """Of a bolt that anchors by itself: what it emits descends from its first anchor."""

    def __init__(self, collector: Any, lineage: Lineage, context: TopologyContext) -> None:
        super().__init__(collector)
        self.lineage, self._carried, self._step = lineage, lineage.carried, lineage.step
        self.next: dict[int, tuple[int, int]] = {}
        """Of each tuple at hand, by its `id`: the identity of its next emit, and how many there were."""
        self._who = f"{context.component_id}[{context.task_id}]"
        self._several = context.counter("emits_with_several_anchors")

    def emit(self, values: Any, *misplaced: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> Any:
        if not misplaced:
            values, anchors = self._identified(values, anchors, stream, None)
        return self._inner.emit(values, *misplaced, anchors=anchors, stream=stream)

    def emit_direct(
        self, task: int, values: Any, *misplaced: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM
    ) -> Any:
        if not misplaced:
            values, anchors = self._identified(values, anchors, stream, task)
        return self._inner.emit_direct(task, values, *misplaced, anchors=anchors, stream=stream)

    def ack(self, tup: Tuple) -> None:
        self._inner.ack(tup)
        self.next.pop(id(tup), None)

    def fail(self, tup: Tuple) -> None:
        self._inner.fail(tup)
        self.next.pop(id(tup), None)

    def _identified(self, values: Any, anchors: Any, stream: str, task: int | None) -> tuple[Any, Any]:
        if stream not in self._carried:
            return values, anchors
        values = checked_values(self._who, self._carried, values, stream, task)
        if anchors.__class__ is not Tuple and not isinstance(anchors, Sequence):
            anchors = list(anchors or ())
        several = [anchors] if isinstance(anchors, Tuple) else anchors
        known = [id(tup) for tup in several if id(tup) in self.next]
        if not known:
            return (*values, loose_identity(self.lineage)), anchors
        identity, made = self.next[known[0]]
        if made >= self.lineage.most:
            raise self.lineage.too_many(made + 1)
        self.next[known[0]] = identity + self._step, made + 1
        if len(known) > 1:
            # A replay may gather others: then it counts as another tuple.
            self._several.inc()
            identity = origin_of((identity, *(self.next[one][0] for one in known[1:])), ()) << self.lineage.path_bits
        return (*values, identity), anchors


