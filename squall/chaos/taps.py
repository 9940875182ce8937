"""Taps: wrap a topology's spouts and sinks, and record all messages that pass.

Guarantees
    * The user's components see the same as without taps: values, fields, anchors, answers.
    * An emit is in the source log before the engine has it; what a sink receives is in the sink ledger before the sink
      has it, and so before it can be acked; an answer is in the source log before the spout has it.
    * Each tuple carries the keys of its messages in its values, in the taps' own field, from the spout to the sinks.
      The taps use no root, edge or count of the engine.

Relies on: emits that are anchored (by a basic bolt, or by `anchors=`). A tuple without an anchor stems from no message.

Not hidden: in a component's own task hooks, and in dead letters, values end with the taps' field.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

from squall.chaos.line_log import LineLog, digest, is_plain, quoted
from squall.engine.api.async_component import AsyncBolt
from squall.engine.api.collectors import BasicCollector, BoltCollector, SpoutCollector
from squall.engine.api.component import BasicBolt, BatchBolt, BatchSpout, Bolt, CustomGrouping, Spout
from squall.engine.api.context import TopologyContext
from squall.engine.api.failure import FAILED, Failure
from squall.engine.api.stream import DEFAULT_STREAM, Stream
from squall.engine.api.topology import LOCAL_OR_SHUFFLE, NONE, PARTIAL_KEY, SHUFFLE, ComponentSpec, Topology
from squall.engine.api.tuple import Anchors, Source, Tuple
from squall.engine.errors import ComponentError, UsageError
from squall.engine.foreign.text import repr_of

STEMS_FROM = "squall_stems_from"
"""The taps' own field: keys of messages, one key alone or a tuple of several."""
Keys = str | tuple[str, ...]
BY_CLOCK = ("tick",)
"""In place of keys: the tuple stems from ticks, so how many there are depends on time."""
_NAME_CHARACTERS = 80
_ANY_TASK = frozenset({SHUFFLE, LOCAL_OR_SHUFFLE, PARTIAL_KEY, NONE})
"""Groupings that may give a tuple to another task each time."""
_LET_GO, _LOOK_SECS = "let-go", 0.05
"""A file in the taps' directory, and the time between a spout's checks for it."""


@dataclass(frozen=True)
class Tapping:
    """The options of one run's taps."""

    directory: str
    """The directory of their logs."""
    sinks: tuple[str, ...]
    rates: Mapping[str, float] | None = None
    """Spout -> most emits per second and task, until `let_go`; None: unlimited."""
    only_seen: frozenset[str] = frozenset()
    """Ways into a sink of which only the arrival of messages is compared: their records have no digest of values."""
    by_task: bool = False
    """Whether each task of a spout has message ids of its own, so that two may use the same id for two messages."""
    fail_every: int = 0
    """Turn the first ack of one message in this many into a failure, so that the spout emits it again; 0: never."""


def tap(topology: Topology, tapping: Tapping) -> Topology:
    """Copy a topology, with taps. UsageError for a sink that it does not have."""
    for sink in tapping.sinks:
        if sink not in topology.components or topology[sink].is_spout:
            bolts = ", ".join(spec.id for spec in topology.components.values() if not spec.is_spout)
            raise UsageError(f"sink {sink!r} is no bolt of this topology; its bolts: {bolts or 'none'}")
    return replace(topology, components={name: _tapped(spec, tapping) for name, spec in topology.components.items()})


def let_go(tapping: Tapping) -> None:
    """Let spouts emit at full speed from now on, without failures on purpose."""
    (Path(tapping.directory) / _LET_GO).touch()


def sinks_of(topology: Topology) -> tuple[str, ...]:
    """The bolts whose streams no bolt reads."""
    read = {subscription.source for spec in topology.components.values() for subscription in spec.subscriptions}
    return tuple(name for name, spec in topology.components.items() if not spec.is_spout and name not in read)


def _tapped(spec: ComponentSpec, tapping: Tapping) -> ComponentSpec:
    outputs = {name: Stream(*shape.fields, STEMS_FROM, direct=shape.direct) for name, shape in spec.outputs.items()}
    subscriptions = tuple(
        one if one.custom is None else replace(one, custom=_TappedGrouping(one.custom)) for one in spec.subscriptions
    )
    component = spec.component
    tapped: Spout | Bolt | BasicBolt
    if isinstance(component, BatchSpout | BatchBolt):
        raise UsageError(
            f"component {spec.id!r} takes or emits batches, and squall chaos follows single tuples; allowed: Spout, "
            "Bolt and BasicBolt"
        )
    if isinstance(component, Spout):
        tapped = TappedSpout(component, spec.id, tapping)
    elif isinstance(component, BasicBolt):
        tapped = TappedBasicBolt(component, spec.id, tapping, _placed(spec))
    elif isinstance(component, AsyncBolt):
        tapped = TappedAsyncBolt(component, spec.id, tapping, _placed(spec))
    else:
        tapped = TappedBolt(component, spec.id, tapping, _placed(spec))
    return replace(spec, component=tapped, outputs=outputs, subscriptions=subscriptions)


def _placed(spec: ComponentSpec) -> list[str]:
    """The ways into a bolt of several tasks whose grouping decides which of them receives a tuple."""
    if spec.tasks == 1:
        return []
    return [_label(spec.id, one.source, one.stream) for one in spec.subscriptions if one.grouping not in _ANY_TASK]


def _label(component: str, source: str, stream: str) -> str:
    """The name of a way into a sink."""
    return f"{component} from {source}/{stream}"


def _new_log(tapping: Tapping, kind: str) -> LineLog:
    """Open a new file for each incarnation of a task, so that a line torn by a death stays the last of its file."""
    fd, path = tempfile.mkstemp(prefix=f"{kind}-", dir=tapping.directory)
    os.close(fd)
    return LineLog(path)


def _with_keys(values: Any, keys: Keys) -> Any:
    """Add keys to the values of an emit. Invalid values are left to the engine to refuse."""
    if values.__class__ is tuple:
        return (*values, keys)
    if isinstance(values, tuple | list) or (isinstance(values, Iterable) and not isinstance(values, str | bytes)):
        return (*values, keys)
    return values


class _TappedGrouping(CustomGrouping):
    """Wraps a user's grouping, and hides the taps' field from it."""

    def __init__(self, inner: CustomGrouping) -> None:
        self._inner = inner

    def prepare(self, context: TopologyContext, source: str, stream: str, target_tasks: Sequence[int]) -> None:
        self._inner.prepare(context, source, stream, target_tasks)

    def choose_tasks(self, source_task: int, values: Sequence[Any]) -> list[int]:
        return self._inner.choose_tasks(source_task, values[:-1])


# ---- spouts ----


class TappedSpout(Spout):
    """Wraps a spout, and writes the source log."""

    def __init__(self, inner: Spout, component: str, tapping: Tapping) -> None:
        self._inner = inner
        self._component = component
        self._tapping = tapping
        self.blocking = inner.blocking

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        index = context.task_index
        self._log = _new_log(self._tapping, "source")
        self._out = _TappedSpoutCollector(
            collector, self._log, self._component, index, by_task=self._tapping.by_task
        )
        rates = self._tapping.rates
        self._rate = None if rates is None else rates.get(self._component)
        self._began = self._look_secs = time.monotonic()
        self._failed: set[str] = set()
        self._let_go = False
        self._inner.open(conf, context, self._out)

    def next_tuple(self) -> None:
        if self._rate is not None and not self._let_go:
            now = time.monotonic()
            if self._out.emitted >= (now - self._began) * self._rate and not self._is_let_go(now):
                return
        self._inner.next_tuple()

    def _is_let_go(self, now: float) -> bool:
        if not self._let_go and now >= self._look_secs:
            self._look_secs = now + _LOOK_SECS
            self._let_go = os.path.exists(os.path.join(self._tapping.directory, _LET_GO))
        return self._let_go

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return self._inner.exhausted

    @property
    def waiting_count(self) -> int:
        return self._inner.waiting_count

    def ack(self, message_id: Any) -> None:
        key = self._out.key_of(message_id)
        if self._fails_this(key):
            self._log.append("fail", key, time.monotonic_ns(), "once more, on purpose")
            self._inner.on_failure(message_id, Failure(FAILED, self._component, 0))
            return
        self._log.write(f'["ack","{key}",{time.monotonic_ns()}')
        self._inner.ack(message_id)

    def _fails_this(self, key: str) -> bool:
        every = self._tapping.fail_every
        if not every or int(key, 16) % every or key in self._failed or self._is_let_go(time.monotonic()):
            return False
        self._failed.add(key)
        return True

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._log.append("fail", self._out.key_of(message_id), time.monotonic_ns(), failure.reason)
        self._inner.on_failure(message_id, failure)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self._log.append("dead", self._out.key_of(message_id), time.monotonic_ns(), failure.reason)
        self._inner.on_dead_letter(message_id, failure)

    def activate(self) -> None:
        self._inner.activate()

    def deactivate(self) -> None:
        self._inner.deactivate()

    def close(self) -> None:
        self._inner.close()
        self._log.close()


class _TappedSpoutCollector:
    def __init__(
        self, collector: SpoutCollector, log: LineLog, component: str, index: int, *, by_task: bool
    ) -> None:
        self._collector = collector
        self._log = log
        self._who = component, index
        self._owner = (component, index) if by_task else (component,)
        self.emitted = 0

    def key_of(self, message_id: Any) -> str:
        return digest((*self._owner, message_id))

    def emit(self, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        return self._collector.emit(self._noted(values, message_id), message_id, stream)

    def emit_direct(self, task: int, values: Any, message_id: Any = None, stream: str = DEFAULT_STREAM) -> list[int]:
        return self._collector.emit_direct(task, self._noted(values, message_id), message_id, stream)

    def emit_batch(
        self, columns: Sequence[Any], message_ids: Sequence[Any] | None = None, stream: str = DEFAULT_STREAM
    ) -> None:
        raise ComponentError(f"{self._who[0]}[{self._who[1]}] emitted a batch, and squall chaos follows single tuples")

    def _noted(self, values: Any, message_id: Any) -> Any:
        self.emitted += 1
        now_ns = time.monotonic_ns()
        if message_id is None:
            self._log.append("loose", self._who[0], now_ns)
            return _with_keys(values, ())
        row = values if isinstance(values, tuple) else tuple(values) if isinstance(values, list) else values
        key = self.key_of(message_id)
        component, index = self._who
        name = quoted(f"{component}[{index}] message {_name_of(message_id)}")
        self._log.write(f'["emit","{key}","{digest(row)}",{now_ns},{name}')
        return _with_keys(row, key)

    def report_error(self, error: BaseException) -> None:
        self._collector.report_error(error)

    @property
    def pending_count(self) -> int:
        return self._collector.pending_count


def _name_of(message_id: Any) -> str:
    """A text by which people know a message; calls no code of users."""
    try:
        known = is_plain(message_id)
    except RecursionError:
        known = False
    return repr(message_id)[:_NAME_CHARACTERS] if known else repr_of(message_id, _NAME_CHARACTERS)


# ---- bolts ----


_UNKNOWN = Source("", 0, "", Stream())


class _Inlet:
    """Takes the taps' field off a bolt's input; records the input if the bolt is a sink."""

    def __init__(self, component: str, tapping: Tapping, index: int, placed: Sequence[str]) -> None:
        """`index`: of the task. `placed`: ways into it whose grouping decides which task receives a tuple."""
        self._component = component
        self._sources: dict[Source, Source | None] = {}
        """A tuple's source -> the same without the taps' field: itself if the field is off already (a basic bolt's next
        tuple is the same object), None for ticks."""
        self._labels: dict[Source, tuple[str, bool]] = {}
        """The way into the sink, as JSON, and whether values are compared."""
        self._only_seen = tapping.only_seen
        self._log: LineLog | None = None
        if component in tapping.sinks:
            self._log = _new_log(tapping, "sink")
            self._log.append("task", index, placed)

    def take(self, tup: Tuple) -> Keys:
        """Take the keys off a tuple. Returns them."""
        source = tup._source
        plain = self._sources.get(source, _UNKNOWN)
        if plain is _UNKNOWN:
            plain = self._know(source)
        if plain is None:
            return BY_CLOCK
        values = tup.values
        keys: Keys = values[-1]
        tup.values, tup._source = values[:-1], plain
        if self._log is not None:
            several = keys if isinstance(keys, str) else '","'.join(keys)
            label, is_compared = self._labels[plain]
            seen = digest(tup.values) if is_compared or not several else ""
            keys_text = f'["{several}"]' if several else "[]"
            self._log.write(f'["in",{label},{keys_text},"{seen}",{time.monotonic_ns()}')
        return keys

    def _know(self, source: Source) -> Source | None:
        plain = None
        if source.fields[-1:] == (STEMS_FROM,):
            plain = Source(source.component, source.task, source.stream, Stream(*source.fields[:-1]))
            self._sources[plain] = plain
            label = _label(self._component, source.component, source.stream)
            self._labels[plain] = quoted(label), label not in self._only_seen
        self._sources[source] = plain
        return plain

    def close(self) -> None:
        if self._log is not None:
            self._log.close()


class TappedBasicBolt(BasicBolt):
    """Wraps a basic bolt, and passes keys from each input tuple to the tuples emitted for it."""

    def __init__(self, inner: BasicBolt, component: str, tapping: Tapping, placed: Sequence[str]) -> None:
        self._inner = inner
        self._component = component
        self._tapping = tapping
        self._placed = placed
        self.blocking = inner.blocking

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._inlet = _Inlet(self._component, self._tapping, context.task_index, self._placed)
        self._out = _TappedBasicCollector()
        self._inner.prepare(conf, context)
        self._execute = self._inner.execute

    def execute(self, tup: Tuple, collector: BasicCollector) -> Any:
        out = self._out
        out.collector = collector
        out.keys = self._inlet.take(tup)
        return self._execute(tup, out)

    def cleanup(self) -> None:
        self._inner.cleanup()
        self._inlet.close()


class _TappedBasicCollector:
    collector: BasicCollector
    keys: Keys = ()

    def emit(self, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return self.collector.emit(
            (*values, self.keys) if values.__class__ is tuple else _with_keys(values, self.keys), stream
        )

    def emit_direct(self, task: int, values: Any, stream: str = DEFAULT_STREAM) -> list[int]:
        return self.collector.emit_direct(task, _with_keys(values, self.keys), stream)

    def reset_timeout(self, tup: Tuple) -> None:
        self.collector.reset_timeout(tup)

    def report_error(self, error: BaseException) -> None:
        self.collector.report_error(error)


class TappedBolt(Bolt):
    """Wraps a bolt, and holds the keys of tuples not acked yet, for tuples anchored to them."""

    def __init__(self, inner: Bolt, component: str, tapping: Tapping, placed: Sequence[str]) -> None:
        self._inner = inner
        self._component = component
        self._tapping = tapping
        self._placed = placed
        self.blocking = inner.blocking

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self._inlet = _Inlet(self._component, self._tapping, context.task_index, self._placed)
        self._out = _TappedBoltCollector(collector)
        self._inner.prepare(conf, context, self._out)
        self._execute = self._inner.execute

    def execute(self, tup: Tuple) -> Any:
        out = self._out
        keys = out.keys[id(tup)] = self._inlet.take(tup)
        out.unanchored = BY_CLOCK if keys == BY_CLOCK else ()
        return self._execute(tup)

    def cleanup(self) -> None:
        self._inner.cleanup()
        self._inlet.close()


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

    async def execute(self, tup: Tuple) -> Any:  # type: ignore[override]
        # On an event loop, so the bolt gives a coroutine.
        return await TappedBolt.execute(self, tup)

    def cleanup(self) -> None:
        TappedBolt.cleanup(self)
        AsyncBolt.cleanup(self)


class _TappedBoltCollector:
    def __init__(self, collector: BoltCollector) -> None:
        self._collector = collector
        self.keys: dict[int, Keys] = {}
        """Keys by the `id` of their tuple; an entry is overwritten when another tuple gets that `id`."""
        self.unanchored: Keys = ()
        """The keys of a tuple without anchors."""
        self.ack = _acking(collector.ack, self.keys)

    def emit(self, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        anchors = _listed(anchors)
        return self._collector.emit(_with_keys(values, self._keys_of(anchors)), anchors, stream)

    def emit_direct(self, task: int, values: Any, anchors: Anchors = (), stream: str = DEFAULT_STREAM) -> list[int]:
        anchors = _listed(anchors)
        return self._collector.emit_direct(task, _with_keys(values, self._keys_of(anchors)), anchors, stream)

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


def _acking(ack: Callable[[Tuple], None], keys: dict[int, Keys]) -> Callable[[Tuple], None]:
    """The `ack` of a tapped collector: a function of its own, because it runs for every tuple."""
    forget = keys.pop

    def acked(tup: Tuple) -> None:
        ack(tup)
        forget(id(tup), None)

    return acked


def _listed(anchors: Anchors) -> Anchors:
    """Anchors in a form that can be read twice, unlike a generator."""
    if isinstance(anchors, Tuple | list | tuple) or not isinstance(anchors, Iterable):
        return anchors
    return list(anchors)
