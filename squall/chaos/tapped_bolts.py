"""Wraps bolts: takes the keys of messages off their input, adds them to their output, writes the sink ledger.

Guarantees: see `squall.chaos.taps`. What runs for every tuple is a function made in `prepare`: with it a tuple costs a
quarter of what it costs without taps, with methods a half.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, Generic, TypeVar

from squall.chaos.line_log import LineLog, digest, quoted
from squall.chaos.tapping import ACKED_BY, BY_CLOCK, STEMS_FROM, Keys, Tapping, new_log, with_keys
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.collectors import BasicCollector, BoltCollector
from squall.engine.api.component import BasicBolt, BatchBolt, Bolt
from squall.engine.api.context import TopologyContext
from squall.engine.api.stream import DEFAULT_STREAM, Stream
from squall.engine.api.tuple import Anchors, Source, Tuple


def label_of(component: str, source: str, stream: str) -> str:
    """The name of a way into a sink."""
    return f"{component} from {source}/{stream}"


class Inlet:
    """Takes the taps' field off a bolt's input; records the input if the bolt is a sink."""

    def __init__(self, component: str, tapping: Tapping, index: int, placed: Sequence[str]) -> None:
        """`index`: of the task. `placed`: ways into it whose grouping decides which task receives a tuple."""
        self._component = component
        self._plain: dict[Source, Source | None] = {}
        """A tuple's source -> the same without the taps' field: itself if the field is off already (a basic bolt's next
        tuple is the same object), None for ticks."""
        self._labels: dict[Source, tuple[str, bool]] = {}
        """The way into the sink, as JSON, and whether values are compared."""
        self._only_seen = tapping.only_seen
        self._log: LineLog | None = None
        if component in tapping.sinks:
            self._log = new_log(tapping, "sink")
            self._log.append("task", index, placed)

    def taking(self) -> Callable[[Tuple], Keys]:
        """A function that takes the keys off a tuple and returns them."""
        plain_of, learn, but_last = self._plain.get, self.plain, slice(-1)
        record = None if self._log is None else self._record

        def take(tup: Tuple) -> Keys:
            # Nearly always known; None also stands for ticks.
            plain = plain_of(tup._source) or learn(tup._source)
            if plain is None:
                return BY_CLOCK
            values = tup.values
            keys: Keys = values[-1]
            tup.values, tup._source = values[but_last], plain
            if record is not None:
                record(plain, tup.values, keys)
            return keys

        return take

    def plain(self, source: Source) -> Source | None:
        """The source without the taps' field; None for ticks."""
        if source in self._plain:
            return self._plain[source]
        plain = None
        if source.fields[-1:] == (STEMS_FROM,):
            plain = Source(source.component, source.task, source.stream, Stream(*source.fields[:-1]))
            self._plain[plain] = plain
            label = label_of(self._component, source.component, source.stream)
            self._labels[plain] = quoted(label), label not in self._only_seen
        self._plain[source] = plain
        return plain

    def record_rows(self, source: Source, rows: Iterable[tuple[Any, ...]], keys: Iterable[Keys]) -> None:
        """Record a batch, if the bolt is a sink."""
        if self._log is not None:
            self._log.write_all(self._line(source, row, of) for row, of in zip(rows, keys, strict=True))

    def _record(self, source: Source, values: tuple[Any, ...], keys: Keys) -> None:
        if self._log is not None:
            self._log.write(self._line(source, values, keys))

    def _line(self, source: Source, values: tuple[Any, ...], keys: Keys) -> str:
        several = keys if isinstance(keys, str) else '","'.join(keys)
        label, is_compared = self._labels[source]
        seen = digest(values) if is_compared or not several else ""
        keys_text = f'["{several}"]' if several else "[]"
        return f'["in",{label},{keys_text},"{seen}",{time.monotonic_ns()}'

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


AnyBolt = TypeVar("AnyBolt", Bolt, BasicBolt, BatchBolt)


class TappedInput(Generic[AnyBolt]):
    """What the taps of all kinds of bolts have in common: the bolt, and the inlet by which its input comes."""

    def __init__(self, inner: AnyBolt, component: str, tapping: Tapping, placed: Sequence[str]) -> None:
        self._inner: AnyBolt = inner
        self._component = component
        self._tapping = tapping
        self._placed = placed
        self.blocking = inner.blocking
        self.zero_copy = inner.zero_copy

    def open_inlet(self, context: TopologyContext) -> None:
        self._inlet = Inlet(self._component, self._tapping, context.task_index, self._placed)

    def cleanup(self) -> None:
        self._inner.cleanup()
        self._inlet.close()


class TappedBasicBolt(TappedInput[BasicBolt], BasicBolt):
    """Wraps a basic bolt, and passes keys from each input tuple to the tuples emitted for it."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.open_inlet(context)
        self._inner.prepare(conf, context)
        take, out, execute = self._inlet.taking(), _TappedBasicCollector(), self._inner.execute

        def tapped(tup: Tuple, collector: BasicCollector) -> Any:
            out.collector = collector
            out.keys = take(tup)
            return execute(tup, out)

        self.execute = tapped  # type: ignore[method-assign]


class _TappedBasicCollector:
    collector: BasicCollector
    keys: Keys = ()

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return self.collector.emit(
            (*values, self.keys) if values.__class__ is tuple else with_keys(values, self.keys), stream
        )

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return self.collector.emit_direct(task, with_keys(values, self.keys), stream)

    def reset_timeout(self, tup: Tuple) -> None:
        self.collector.reset_timeout(tup)

    def report_error(self, error: BaseException) -> None:
        self.collector.report_error(error)


class TappedBolt(TappedInput[Bolt], Bolt):
    """Wraps a bolt, and holds the keys of tuples not acked yet, for tuples anchored to them."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.open_inlet(context)
        # As a part of a JSON text, like keys.
        out = _TappedBoltCollector(collector, (quoted(ACKED_BY + self._component)[1:-1],))
        self._inner.prepare(conf, context, out)
        take, keys_of, execute = self._inlet.taking(), out.keys, self._inner.execute
        # Which of several tuples in flight an asynchronous bolt is about is not known.
        one_at_a_time = not isinstance(self, AsyncBolt)

        def tapped(tup: Tuple) -> Any:
            keys = keys_of[id(tup)] = take(tup)
            if keys is BY_CLOCK:
                out.unanchored, out.current = BY_CLOCK, None
            else:
                out.unanchored, out.current = (), tup if one_at_a_time else None
            return execute(tup)

        self.execute = tapped  # type: ignore[method-assign]


class TappedAsyncBolt(TappedBolt, AsyncBolt):
    """Wraps an asynchronous bolt, with as many tuples in flight. What it emits without anchors while a tick is in
    flight may count as the tick's."""

    def __init__(self, inner: AsyncBolt, component: str, tapping: Tapping, placed: Sequence[str]) -> None:
        super().__init__(inner, component, tapping, placed)
        self._asynchronous = inner
        self.max_in_flight = inner.max_in_flight

    async def setup(self) -> None:
        await self._asynchronous.setup()

    async def teardown(self) -> None:
        await self._asynchronous.teardown()

    def cleanup(self) -> None:
        TappedBolt.cleanup(self)
        AsyncBolt.cleanup(self)


class _TappedBoltCollector:
    def __init__(self, collector: BoltCollector, after_ack: Keys) -> None:
        """`after_ack`: the keys of a tuple without anchors that is emitted after the ack of the one being executed."""
        self._collector = collector
        self._after_ack = after_ack
        self.current: Tuple | None = None
        """The tuple being executed, if it is known."""
        self.keys: dict[int, Keys] = {}
        """Keys by the `id` of their tuple; an entry is overwritten when another tuple gets that `id`."""
        self.unanchored: Keys = ()
        """The keys of a tuple without anchors."""
        self.emit = self._emitting()
        self.ack = self._acking()

    def _emitting(self) -> Callable[..., list[int]]:
        collector, keys, keys_of = self._collector, self.keys.get, self._keys_of

        def emit(values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
            if anchors.__class__ is Tuple and values.__class__ is tuple:
                return collector.emit((*values, keys(id(anchors), ())), anchors, stream)
            anchors = _listed(anchors)
            return collector.emit(with_keys(values, keys_of(anchors)), anchors, stream)

        return emit

    def _acking(self) -> Callable[[Tuple], None]:
        collector, forget = self._collector, self.keys.pop

        def ack(tup: Tuple) -> None:
            collector.ack(tup)
            forget(id(tup), None)
            if tup is self.current:
                self.unanchored = self._after_ack

        return ack

    def emit_direct(self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        anchors = _listed(anchors)
        return self._collector.emit_direct(task, with_keys(values, self._keys_of(anchors)), anchors, stream)

    def _keys_of(self, anchors: Anchors) -> Keys:
        if isinstance(anchors, Tuple):
            return self.keys.get(id(anchors), ())
        if not anchors or not isinstance(anchors, Iterable):
            return self.unanchored
        several: dict[Keys, None] = dict.fromkeys(map(self.keys.get, map(id, anchors), repeat(())))
        if len(several) == 1:
            return next(iter(several))
        joined: dict[str, None] = {}
        for keys in several:
            if isinstance(keys, str):
                joined[keys] = None
            else:
                joined.update(dict.fromkeys(keys))
        return tuple(joined)

    def fail(self, tup: Tuple) -> None:
        self._collector.fail(tup)
        self.keys.pop(id(tup), None)

    def reset_timeout(self, tup: Tuple) -> None:
        self._collector.reset_timeout(tup)

    def report_error(self, error: BaseException) -> None:
        self._collector.report_error(error)


def _listed(anchors: Anchors) -> Anchors:
    """Anchors in a form that can be read twice, unlike a generator."""
    if isinstance(anchors, Tuple | list | tuple) or not isinstance(anchors, Iterable):
        return anchors
    return list(anchors)
