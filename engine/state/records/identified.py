"""Components before state that counts exactly once: what stands around them, so that tuples carry identities.

Identities travel as a last field of each stream that leads to such state (`engine.state.records.lineage`); users'
components do not see it. A spout's task also tells what is settled, for the tasks with state
(`engine.state.records.record_store`).

Guarantees: the user's components see the same as without: values, fields, anchors, answers.

Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import get_ident
from typing import Any

from squall.engine.api.around import AnchoringOut, Around, HiddenField, HidingOut
from squall.engine.api.columns import ColumnBatch
from squall.engine.api.component import BatchBolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import Failure
from squall.engine.api.stream import DEFAULT_STREAM, Declared
from squall.engine.api.tuple import Tuple
from squall.engine.foreign.given_columns import ids_of, parents_of, values_of
from squall.engine.state.records.floors import LOOK_NS
from squall.engine.state.records.lineage import (
    DIGIT,
    FIELD,
    RESULTS,
    Children,
    Lineage,
    PartitionNumbers,
    origin_of,
)
from squall.engine.state.records.record_store import BUSY, ENDED, QUIET, PartitionProgress, Reading, RecordStore
from squall.engine.state.records.settled import Settling


class IdentifiedSpout(Around):
    """Numbers each record, follows it to its answer, and tells what is settled."""

    def __init__(self, inner: Any, lineage: Lineage, numbers: PartitionNumbers, full: bool = False) -> None:
        """`numbers`: of its partitions. `full`: state behind it is to survive power loss."""
        super().__init__(inner)
        self.lineage, self._numbers, self._full = lineage, numbers, full
        self.kept: Settling | None = None
        """For runners that keep a spout as a whole, open records and all, before `open`: those of its last life, or
        `new_kept`. Then nothing is written to a file here."""

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        who = f"{context.component_id}[{context.task_id}]"
        directory = None if context.state_root is None else context.shared_state_dir
        self.settling = self.kept or self._new(context, directory)
        """What became of its records."""
        self.store = self.settling.records
        self._now_ns, self._tell_at_ns, self._emits = context.now_ns, 0, -1
        self._asker: int | None = None
        """The thread that asks for records."""
        self._rests = True
        """True if it has told that nothing is open: the first record after that is told before it leaves, or event time
        would not wait for it while the worker is busy."""
        self._told: tuple[str, Mapping[int, Reading] | None] = BUSY, None
        self._floors: dict[tuple[Any, ...], int] = {}
        self.store.tell(BUSY)
        self._inner.feeds_state = True
        self._inner.open(conf, context, _SpoutOut(collector, self.lineage, who, self.settling))
        if self._inner.counts_at_least_once:
            context.gauge("counts at least once", lambda: 1)  # the report says so

    def _new(self, context: TopologyContext, directory: str | None) -> Settling:
        who, index = f"{context.component_id}[{context.task_id}]", context.task_index
        tasks = len(context.component_tasks(context.component_id))
        records = RecordStore(directory, who, index, tasks, self._full)
        return Settling(who, self._inner.record_identity, index, self._numbers, records)

    def new_kept(self, context: TopologyContext) -> Settling:
        """Return what is `kept` of the first life of a task."""
        return self._new(context, None)

    def next_tuple(self) -> Any:
        if self._now_ns() >= self._tell_at_ns:
            self._tell(is_asked=True)
        value = self._inner.next_tuple()
        if self._rests and self.settling.has_open:
            self._tell()
        return value

    def next_batch(self, rows: int) -> Any:
        if self._now_ns() >= self._tell_at_ns:
            self._tell(is_asked=True)
        value = self._inner.next_batch(rows)
        if self._rests and self.settling.has_open:
            self._tell()
        return value

    def ack(self, message_id: Any) -> None:
        self.settling.answered(message_id)
        self._inner.ack(message_id)
        if self._now_ns() >= self._tell_at_ns:
            self._tell()

    def ack_batch(self, message_ids: list[Any]) -> None:
        for message_id in message_ids:
            self.settling.answered(message_id)
        self._inner.ack_batch(message_ids)
        if self._now_ns() >= self._tell_at_ns:
            self._tell()

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self.settling.failed([message_id])
        self._inner.on_failure(message_id, failure)

    def fail_batch(self, message_ids: list[Any], failures: list[Failure]) -> None:
        self.settling.failed(message_ids)
        self._inner.fail_batch(message_ids, failures)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.settling.answered(message_id, buried=True)
        self._inner.on_dead_letter(message_id, failure)

    def close(self) -> None:
        self._inner.close()
        # Else the spout's thread sits in a call, and may emit once more, which needs the store: two at once crash it.
        if self._asker in (None, get_ident()):
            self._tell()
            self.store.close()

    @property
    def exhausted(self) -> bool:
        done: bool = self._inner.exhausted
        if done and self._told[0] != ENDED and not self.settling.has_open:
            self._tell()
        return done

    def told(self) -> bytes:
        """Tell what there is to tell, and return the records as a file. For runners that keep the spout."""
        self._tell()
        return self.store.serialized()

    def _tell(self, is_asked: bool = False) -> None:
        """Tell what is settled, what is read, and whether anything is left. `is_asked`: the spout was asked for records
        since the last time that this was so."""
        now, settling = self._now_ns(), self.settling
        self._tell_at_ns = now + LOOK_NS
        activity, self._rests = BUSY, not settling.has_open
        if self._rests:
            if self._inner.exhausted:
                activity = ENDED
            elif not self._inner.blocking and settling.emits == self._emits:
                # A thread that waits in `next_tuple` does not say whether there is anything to wait for.
                activity = QUIET
        if is_asked:
            self._emits, self._asker = settling.emits, get_ident()
        progress = [*settling.progress(now), *self._confirmed_below()]
        told = activity, {} if activity == ENDED else self._readings(activity == QUIET)
        names = self._inner.confirmed()
        if progress or names or told != self._told:
            self.store.tell(*told, progress, names)
            self._told = told

    def _readings(self, is_quiet: bool) -> dict[int, Reading] | None:
        """How far it is in each partition that it reads; None if that is not known."""
        settling, declared = self.settling, self._inner.partitions()
        if declared is None:
            return settling.readings(dict.fromkeys(settling.partitions, is_quiet)) if settling.partitions else None
        return settling.readings(declared)

    def _confirmed_below(self) -> Iterator[PartitionProgress]:
        """What others have done, of a source that tells below which number no record comes any more."""
        floors = self._inner.floor() if hasattr(self._inner, "floor") else {}
        for prefix, floor in floors.items():
            if floor > self._floors.get(prefix, 0):
                self._floors[prefix] = floor
                yield PartitionProgress(self.settling.number_of(prefix), [(0, floor)], (), 0, -1)


def in_place_of(spout: Any, other: Any) -> Any:
    """Another spout, with around it what stands around the one in whose place it is."""
    if type(spout) is IdentifiedSpout:
        return IdentifiedSpout(other, spout.lineage, spout._numbers)
    return other


class _Out(HidingOut):
    """Adds the identities of what a component emits, on the streams that carry them."""

    def __init__(self, collector: Any, lineage: Lineage, who: str) -> None:
        super().__init__(collector)
        self.lineage, self._carried = lineage, lineage.carried
        self._declared = Declared(who, lineage.carried)
        default = lineage.carried.get(DEFAULT_STREAM)
        self._width = -1 if default is None or default.direct else len(default.fields)
        """Of a row that needs no check, on the default stream; -1 if it carries no identities."""

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        if (stream := named.get("stream", DEFAULT_STREAM)) not in self._carried:
            return values
        row = self._declared.row(values, stream, task)
        return *row, self._identity(row, named)

    def _identity(self, row: tuple[Any, ...], named: dict[str, Any]) -> int:
        """Make the identity of an emit with these arguments."""
        return self.lineage.loose()


class _SpoutOut(_Out):
    def __init__(self, collector: Any, lineage: Lineage, who: str, settling: Settling) -> None:
        super().__init__(collector, lineage, who)
        self._bits, self._emitted, self._settling = lineage.path_bits, settling.emitted, settling

    def emit(self, values: Any, *misplaced: Any, **named: Any) -> Any:
        if (
            len(named) == 1 and (message_id := named.get("message_id")) is not None
            and values.__class__ is tuple and len(values) == self._width and not misplaced
        ):  # as most are: in half the time
            identity = self._emitted(message_id, values, DEFAULT_STREAM) << self._bits
            return self._inner.emit((*values, identity), message_id=message_id)
        return super().emit(values, *misplaced, **named)

    def _row(self, values: Any, task: int | None, named: dict[str, Any]) -> Any:
        if named.get("message_id") is not None and named.get("stream", DEFAULT_STREAM) not in self._carried:
            self._identity((), named)  # it is followed all the same
        return super()._row(values, task, named)

    def _identity(self, row: tuple[Any, ...], named: dict[str, Any]) -> int:
        if (message_id := named.get("message_id")) is None:
            return self.lineage.loose()
        return self._emitted(message_id, row, named.get("stream", DEFAULT_STREAM)) << self._bits

    def _columns(self, columns: Any, task: int | None, named: dict[str, Any]) -> Any:
        stream, message_ids = named.get("stream", DEFAULT_STREAM), named.get("message_ids")
        carried = stream in self._carried
        if carried:
            self._declared.check_columns(columns, stream, task)
        if message_ids is not None:
            bits, ids = self._bits, ids_of(message_ids)
            named["message_ids"] = ids  # an iterator is read once
            rows = zip(*map(values_of, columns), strict=True) if carried else [()] * len(ids)
            self._settling.expect(ids)
            identities = [self._emitted(one, row, stream) << bits for one, row in zip(ids, rows, strict=False)]
        elif carried:
            identities = [self.lineage.loose() for _ in range(len(columns[0]))]
        return (*columns, identities) if carried else columns


class IdentifiedBolt(Around):
    """Takes identities off the input of a bolt, and gives its output theirs."""

    def __init__(self, inner: Any, lineage: Lineage) -> None:
        super().__init__(inner)
        self.lineage = lineage

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, *collector: Any) -> None:
        self._index, self._hidden = context.task_index, HiddenField(FIELD, RESULTS)
        inner, lineage, who = self._inner, self.lineage, f"{context.component_id}[{context.task_id}]"
        if collector:
            out = _AnchoredOut(collector[0], lineage, who, context.counter("emits_with_several_anchors"))
            inner.prepare(conf, context, out)
            self.execute = self._anchored(inner.execute, out)
            return
        inner.prepare(conf, context)
        if isinstance(inner, BatchBolt):
            self.execute_batch = self._batched(inner.execute_batch, _BatchOut(None, lineage, who))
        else:
            self.execute = self._basic(inner.execute, _BasicOut(None, lineage, who))

    def _basic(self, execute: Any, out: _BasicOut) -> Any:
        plain, lineage, index = self._hidden.source, self.lineage, self._index
        mask, most = lineage.path_mask, lineage.most * lineage.step
        firsts: dict[Any, int] = {}

        def run(tup: Tuple, collector: Any) -> Any:
            if out._inner is not collector:
                out.use(collector)
            source = plain(tup._source)
            if source is None:
                out.next[0] = lineage.loose()
                return execute(tup, out)
            if (first := firsts.get(source)) is None:
                first = firsts[source] = lineage.first(source, index)
            values = tup.values
            identity = values[-1]
            out.next[0] = begin = identity + (identity & mask) * DIGIT + first
            # Another object: the engine uses this one again for the next tuple, with its source.
            value = execute(Tuple(values[:-1], source, tup._run), out)
            if out.next[0] - begin > most:
                raise lineage.too_many((out.next[0] - begin) // lineage.step)
            return value

        return run

    def _batched(self, execute: Any, out: _BatchOut) -> Any:
        off, lineage = self._hidden.off_batch, self.lineage

        def run(batch: ColumnBatch, collector: Any) -> Any:
            batch, identities = off(batch)
            out.begin(collector, Children.of_batch(lineage, batch, identities, self._index))
            return execute(batch, out)

        return run

    def _anchored(self, execute: Any, out: _AnchoredOut) -> Any:
        off, lineage = self._hidden.off, self.lineage

        def run(tup: Tuple) -> Any:
            identity = off(tup)
            if identity is not None:
                [base] = lineage.bases_of([identity], lineage.first(tup._source, self._index))
                out.known[id(tup)] = base, 0
            return execute(tup)

        return run


class _BasicOut(_Out):
    def __init__(self, collector: Any, lineage: Lineage, who: str) -> None:
        super().__init__(collector, lineage, who)
        self.next = [0]
        """The identity of the next emit."""

    def use(self, collector: Any) -> None:
        """Emit through this collector from now on. The function for it is made once, for speed."""
        self._inner = collector
        other_emit, plain_emit, step, following = super().emit, collector.emit, self.lineage.step, self.next
        width = self._width

        def emit(values: Any, misplaced: Any = None, stream: str = DEFAULT_STREAM) -> Any:
            if (
                stream is DEFAULT_STREAM and values.__class__ is tuple and len(values) == width and misplaced is None
            ):
                identity = following[0]
                following[0] = identity + step
                return plain_emit(values + (identity,))  # noqa: RUF005 - a tenth faster
            return other_emit(values, *(() if misplaced is None else (misplaced,)), stream=stream)

        self.emit = emit  # type: ignore[method-assign]

    def _identity(self, row: tuple[Any, ...], named: dict[str, Any]) -> int:
        identity = self.next[0]
        self.next[0] = identity + self.lineage.step
        return identity


class _BatchOut(_Out):
    def begin(self, collector: Any, children: Children) -> None:
        """Begin with a batch."""
        self._inner, self._children = collector, children

    def _columns(self, columns: Any, task: int | None, named: dict[str, Any]) -> Any:
        if (stream := named.get("stream", DEFAULT_STREAM)) not in self._carried:
            return columns
        self._declared.check_columns(columns, stream, task)
        parents = named.get("parents")
        made = parents_of(len(columns[0]), named.get("counts"), parents)
        return (*columns, self._children.of(made, parents is None))


class _AnchoredOut(_Out, AnchoringOut):
    """Of a bolt that anchors by itself: what it emits descends from its first anchor. Of each tuple at hand, the
    identity of its next emit is known, and how many there were."""

    def __init__(self, collector: Any, lineage: Lineage, who: str, several: Any) -> None:
        """`several`: counts emits with several anchors."""
        super().__init__(collector, lineage, who)
        self._several = several

    def _identity(self, row: tuple[Any, ...], named: dict[str, Any]) -> int:
        lineage, known = self.lineage, self.known
        identity: int
        anchors = [anchor for anchor in self._ids_of_anchors(named) if anchor in known]
        if not anchors:
            return lineage.loose()
        first, *others = anchors
        identity, made = known[first]
        if made >= lineage.most:
            raise lineage.too_many(made + 1)
        known[first] = identity + lineage.step, made + 1
        if others:
            # A replay may gather others: then it counts as another tuple.
            self._several.inc()
            identity = origin_of((identity, *(known[other][0] for other in others)), ()) << lineage.path_bits
        return identity
