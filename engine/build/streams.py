"""The short way to say a topology: operators on streams, as in Storm's Streams API.

::

    lines = StreamBuilder().source("lines", FeedSpout(["some.txt"]))
    lines.flat_map(lambda tup: tup["text"].split()).key_by("word").window(tumbling(secs=1)).count().to(FileSink("out"))
    topology = lines.build()

Each operator is a bolt of an ordinary topology. Functions get the tuple, and return values: a tuple is a row, anything
else the value of the only field. State is exact, as that of `StatefulBolt` and `WindowedBolt`.

Guarantees: wrong use is a UsageError where it is written, or a mistake that `build()` lists.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall.engine.api.component import BasicBolt, Bolt, Spout
from squall.engine.api.config import Config
from squall.engine.api.functions import bolt as bolt_of
from squall.engine.api.functions import name_of
from squall.engine.api.topology import Topology
from squall.engine.api.tuple import Tuple
from squall.engine.build.builder import BoltDeclarer, TopologyBuilder
from squall.engine.build.joins import JoinBolt
from squall.engine.errors import UsageError
from squall.engine.foreign.methods import deferred_kind
from squall.engine.foreign.text import repr_of
from squall.engine.state.keyed import StatefulBolt
from squall.engine.state.windowing.windows import Window, WindowedBolt, Windowing

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector

Function = Callable[..., Any]
UNNAMED = "value"
"""The field of a stream whose author has named none; `key_by` gives it its name."""


def tumbling(
    *, secs: float | None = None, count: int | None = None, by: str | None = None, lag_secs: float = 0,
    idle_timeout_secs: float | None = None, max_ahead_secs: float | None = None,
) -> Windowing:
    """Windows of this length, one after the other; `by`: the field with the time of a tuple. The others are those of
    `with_lag`, `with_idle_timeout` and `with_max_ahead`."""
    made = WindowedBolt().with_tumbling_window(secs=secs, count=count)
    return _declared(made, by, lag_secs, idle_timeout_secs, max_ahead_secs)


def sliding(
    *, secs: float | None = None, slide_secs: float | None = None, count: int | None = None,
    slide_count: int | None = None, by: str | None = None, lag_secs: float = 0,
    idle_timeout_secs: float | None = None, max_ahead_secs: float | None = None,
) -> Windowing:
    """Windows of this length, a new one each slide."""
    made = WindowedBolt().with_sliding_window(secs=secs, slide_secs=slide_secs, count=count, slide_count=slide_count)
    return _declared(made, by, lag_secs, idle_timeout_secs, max_ahead_secs)


def _checked(windowing: Any) -> Windowing:
    """UsageError unless it declares windows."""
    if not isinstance(windowing, Windowing):
        raise UsageError(f"window({repr_of(windowing)}); allowed: tumbling(...), sliding(...) or session(...)")
    return windowing


def session(
    *, gap_secs: float, by: str | None = None, lag_secs: float = 0, idle_timeout_secs: float | None = None,
    max_ahead_secs: float | None = None,
) -> Windowing:
    """A window for each series of tuples of a key without a gap as long as this."""
    made = WindowedBolt().with_session_window(gap_secs=gap_secs)
    return _declared(made, by, lag_secs, idle_timeout_secs, max_ahead_secs)


def _declared(
    bolt: WindowedBolt, by: str | None, lag_secs: float, idle_secs: float | None, ahead_secs: float | None
) -> Windowing:
    if by is not None:
        bolt.with_timestamp_field(by)
    if idle_secs is not None:
        bolt.with_idle_timeout(secs=idle_secs)
    if ahead_secs is not None:
        bolt.with_max_ahead(secs=ahead_secs)
    found = bolt.with_lag(secs=lag_secs).windowing
    assert found is not None
    return found


def _plain(operator: str, function: Function) -> Function:
    """UsageError if a call of the function would do nothing."""
    if kind := deferred_kind(function):
        raise UsageError(
            f"{operator}({name_of(function)}) is given {kind}: a call would do nothing; allowed: a plain def, and in "
            "flat_map one with yield"
        )
    return function


def _row(made: Any) -> Any:
    return made if isinstance(made, tuple) else (made,)


class _Map(BasicBolt):
    def __init__(self, function: Function) -> None:
        self.function = function

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit(_row(self.function(tup)))


class _FlatMap(_Map):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for made in self.function(tup):
            collector.emit(_row(made))


class _Branch(BasicBolt):
    def __init__(self, predicates: Sequence[Function]) -> None:
        self.predicates = predicates

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        for number, holds in enumerate(self.predicates):
            if holds(tup):
                collector.emit(tup.values, stream=f"branch-{number}")
                return


class _Aggregate(StatefulBolt):
    """Emits each key with its new value."""

    def __init__(self, key: Sequence[str], fold: Function) -> None:
        self.key, self.fold = key, fold

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        values = tup.select(*self.key)
        key = values[0] if len(values) == 1 else values
        self.state[key] = value = self.fold(tup, *((self.state[key],) if key in self.state else ()))
        collector.emit((*values, value))


class _Fold(WindowedBolt):
    """Emits each key with the value of a window, its start and its end."""

    def __init__(self, windowing: Windowing, fold: Function, merge: Function | None) -> None:
        # In a tuple, because None as `so_far` says that the window has no value yet.
        self.fold = lambda so_far, tup: (fold(tup, *(so_far or ())),)
        self.windowing, self.merge = windowing, merge and (lambda one, other: (merge(*one, *other),))

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        one = self.windowing is not None and len(self.windowing.key) == 1
        key = () if window.key is None else (window.key,) if one else window.key
        collector.emit((*key, *window.value, window.start, window.end))


class StreamBuilder:
    """Begins streams, and builds their topology."""

    def __init__(self, config: Config | None = None) -> None:
        self.topology = TopologyBuilder(config)
        """Builds it; components of other kinds may be added."""
        self._names: Counter[str] = Counter()

    def source(self, name: str, spout: Spout, parallelism: int = 1) -> StreamOf:
        """Begin a stream with a spout."""
        self.topology.set_spout(name, spout, parallelism)
        return StreamOf(self, name, spout, "default")

    def build(self) -> Topology:
        """Return the topology. Raises TopologyError."""
        return self.topology.build()

    def add(self, operator: str, bolt: Any, parallelism: int, name: str | None) -> tuple[str, BoltDeclarer]:
        """Add the bolt of an operator; return its name, and what declares its inputs."""
        self._names[operator] += 1
        count = self._names[operator]
        name = name or (operator if count == 1 else f"{operator}-{count}")
        return name, self.topology.set_bolt(name, bolt, parallelism)


class StreamOf:
    """A stream of tuples. Each operator has `parallelism`, and a `name` that reports show."""

    key: tuple[str, ...] = ()
    """The fields that it is grouped by."""

    def __init__(self, builder: StreamBuilder, component: str, origin: Any, stream: str) -> None:
        self._builder, self._component, self._origin, self._stream = builder, component, origin, stream

    @property
    def _fields(self) -> tuple[str, ...]:
        outputs = self._origin.outputs
        return tuple(outputs[self._stream] if isinstance(outputs, dict) else outputs)

    def _shuffled(self, operator: str, bolt: Any, outputs: Any, parallelism: int, name: str | None) -> StreamOf:
        bolt.outputs = outputs
        name, declarer = self._builder.add(operator, bolt, parallelism, name)
        declarer.local_or_shuffle_grouping(self._component, stream=self._stream)
        return StreamOf(self._builder, name, bolt, "default")

    def map(self, function: Function, *fields: str, parallelism: int = 1, name: str | None = None) -> StreamOf:
        """Replace each tuple by what the function returns; `fields` name its values."""
        return self._shuffled("map", _Map(_plain("map", function)), fields or (UNNAMED,), parallelism, name)

    def flat_map(self, function: Function, *fields: str, parallelism: int = 1, name: str | None = None) -> StreamOf:
        """Replace each tuple by all that the function returns or yields."""
        return self._shuffled("flat_map", _FlatMap(function), fields or (UNNAMED,), parallelism, name)

    def filter(self, predicate: Function, *, parallelism: int = 1, name: str | None = None) -> StreamOf:
        """Keep the tuples for which the function is true."""
        keeps = _plain("filter", predicate)
        bolt = _FlatMap(lambda tup: (tup.values,) if keeps(tup) else ())
        return self._shuffled("filter", bolt, self._fields, parallelism, name)

    def branch(self, *predicates: Function, parallelism: int = 1, name: str | None = None) -> list[StreamOf]:
        """Return a stream for each function: of the tuples for which it is the first that is true."""
        if not predicates:
            raise UsageError("branch() has no function; allowed: one or more")
        bolt = _Branch([_plain("branch", predicate) for predicate in predicates])
        outputs = {f"branch-{number}": self._fields for number in range(len(predicates))}
        branched = self._shuffled("branch", bolt, outputs, parallelism, name)
        return [StreamOf(self._builder, branched._component, bolt, stream) for stream in outputs]

    def key_by(self, *fields: str) -> KeyedStream:
        """Group by these fields. The only field of a stream whose function has named none gets this name."""
        if self._fields == (UNNAMED,) and len(fields) == 1:
            self._origin.outputs = fields
        if not fields or not set(fields) <= set(self._fields):
            raise UsageError(f"key_by({', '.join(map(repr, fields))}): the stream has {', '.join(self._fields)}")
        return KeyedStream(self._builder, self._component, self._origin, self._stream, fields)

    def window(self, windowing: Windowing) -> WindowedStream:
        """Gather the tuples in windows, those of each key if they are grouped."""
        return WindowedStream(self, windowing)

    def to(self, sink: Any, *, parallelism: int = 1, name: str | None = None) -> StreamBuilder:
        """Give the tuples to a bolt, or to a function of the tuple; return the builder."""
        if callable(sink) and not isinstance(sink, Bolt | BasicBolt):
            sink = bolt_of(sink)
        self._grouped("to", sink, parallelism, name)
        return self._builder

    def _grouped(self, operator: str, bolt: Any, parallelism: int, name: str | None, *others: StreamOf) -> StreamOf:
        """The stream of a bolt that reads this one, and others, by their keys."""
        name, declarer = self._builder.add(operator, bolt, parallelism, name)
        for each in (self, *others):
            if each.key or parallelism > 1:
                declarer.fields_grouping(each._component, *(each.key or each._fields), stream=each._stream)
            else:
                declarer.global_grouping(each._component, stream=each._stream)
        return StreamOf(self._builder, name, bolt, "default")

    def build(self) -> Topology:
        """Build the topology of the stream's builder."""
        return self._builder.build()


class KeyedStream(StreamOf):
    """A stream that is grouped by key."""

    def __init__(self, builder: StreamBuilder, component: str, origin: Any, stream: str, key: tuple[str, ...]) -> None:
        super().__init__(builder, component, origin, stream)
        self.key = key

    def count(self, *, parallelism: int = 1, name: str | None = None) -> StreamOf:
        """Count the tuples of each key: a stream of (key, count), with each change."""
        return self._stateful("count", "count", _counting, parallelism, name)

    def aggregate(
        self, initial: Any, add: Function, field: str = "value", *, parallelism: int = 1, name: str | None = None
    ) -> StreamOf:
        """Fold the tuples of each key: `add(so_far, tup)`, beginning with `initial`."""
        return self._stateful("aggregate", field, _from(initial, add), parallelism, name)

    def reduce(self, function: Function, field: str, *, parallelism: int = 1, name: str | None = None) -> StreamOf:
        """Fold a field of the tuples of each key: `function(so_far, value)`, beginning with the first value."""
        return self._stateful("reduce", field, _reducing(function, field), parallelism, name)

    def _stateful(self, operator: str, field: str, fold: Function, parallelism: int, name: str | None) -> StreamOf:
        bolt = _Aggregate(self.key, fold)
        bolt.outputs = (*self.key, field)
        return self._grouped(operator, bolt, parallelism, name)

    def join(
        self, other: KeyedStream, windowing: Windowing, *, left: bool = False, parallelism: int = 1,
        name: str | None = None,
    ) -> StreamOf:
        """Join the tuples of two streams with equal keys of one field in one window: a stream with the fields of both,
        the key and the time once. `left`: keep tuples of this stream without a partner."""
        rest = [field for field in other._fields if field not in (*other.key, _checked(windowing).timestamp_field)]
        if len(self.key) != 1 or len(other.key) != 1 or set(rest) & set(self._fields):
            raise UsageError(
                f"join of streams by {repr_of(self.key)} and {repr_of(other.key)} with fields {repr_of(self._fields)} "
                f"and {repr_of(other._fields)}; allowed: keys of one field, and other fields of different names"
            )
        bolt = JoinBolt(self._component, self.key[0])
        (bolt.left_join if left else bolt.join)(other._component, other.key[0], self._component)
        bolt.select(*(f"{self._component}:{field}" for field in self._fields), *rest)
        bolt.windowing = windowing
        return self._grouped("join", bolt, parallelism, name, other)


class WindowedStream:
    """A stream in windows."""

    def __init__(self, stream: StreamOf, windowing: Windowing) -> None:
        self._of, self._windowing = stream, _checked(windowing)

    def count(self, *, parallelism: int = 1, name: str | None = None) -> WindowResults:
        """Count the tuples of each window: a stream of (key, count, start, end)."""
        return self._folded("count", "count", _counting, lambda one, other: one + other, parallelism, name)

    def aggregate(
        self, initial: Any, add: Function, merge: Function | None = None, field: str = "value", *,
        parallelism: int = 1, name: str | None = None,
    ) -> WindowResults:
        """Fold the tuples of each window; `merge(one, other)` is needed if windows slide, and for sessions."""
        fold, merge = _from(initial, add), merge and _plain("aggregate", merge)
        return self._folded("aggregate", field, fold, merge, parallelism, name)

    def reduce(self, function: Function, field: str, *, parallelism: int = 1, name: str | None = None) -> WindowResults:
        """Fold a field of the tuples of each window; the function takes two values in any order."""
        return self._folded("reduce", field, _reducing(function, field), function, parallelism, name)

    def _folded(
        self, operator: str, field: str, fold: Function, merge: Function | None, parallelism: int, name: str | None
    ) -> WindowResults:
        key = self._of.key
        bolt = _Fold(replace(self._windowing, key=key), fold, merge)
        bolt.outputs = (*key, field, "start", "end")
        return WindowResults(self._of, self._of._grouped(operator, bolt, parallelism, name))


class WindowResults(StreamOf):
    """A stream of what windows hold."""

    def __init__(self, input_: StreamOf, results: StreamOf) -> None:
        super().__init__(results._builder, results._component, results._origin, results._stream)
        self._input = input_

    def late(self) -> StreamOf:
        """Return the stream of the tuples that were late for these windows, as they came; without this call they are
        counted and dropped."""
        bolt = self._origin.with_late_stream("late")
        bolt.outputs = {self._stream: self._fields, "late": self._input._fields}
        return StreamOf(self._builder, self._component, bolt, "late")


def _counting(tup: Tuple, so_far: int = 0) -> int:
    return so_far + 1


def _from(initial: Any, add: Function) -> Function:
    _plain("aggregate", add)
    # Each key's own: `add` may change it in place.
    return lambda tup, *so_far: add(*(so_far or (copy.deepcopy(initial),)), tup)


def _reducing(function: Function, field: str) -> Function:
    _plain("reduce", function)
    return lambda tup, *so_far: function(*so_far, tup[field]) if so_far else tup[field]
