"""Windows: the base class that users derive from, what they declare with it, and the window that they are given.

What is promised is in docs/windows.md; `engine.state.windowing.window_task` keeps it.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from squall.engine.api.component import Component
from squall.engine.api.tuple import Tuple
from squall.engine.clock import NS_PER_SEC
from squall.engine.errors import UsageError
from squall.engine.foreign.text import name_mistake, plural, repr_of

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.state.input_rows import Row
    from squall.engine.state.windowing.panes import Due, Merge, Pane

TIME, COUNT, SESSION = "time", "count", "session"
_MAX_AHEAD_SECS = 300.0
WINDOWS = "windows"
"""The name of what is declared in a store."""
_UNITS = ((86_400 * NS_PER_SEC, "d"), (3_600 * NS_PER_SEC, "h"), (60 * NS_PER_SEC, "min"))


@dataclass(frozen=True)
class Windowing:
    """What a bolt has declared of its windows. Times are in nanoseconds, lengths by count in tuples."""

    kind: str
    length: int
    """For sessions, the gap that ends one."""
    slide: int
    timestamp_field: str | None = None
    lag: int = 0
    late_stream: str | None = None
    key: tuple[str, ...] = ()
    idle: int | None = None
    max_ahead: int = round(_MAX_AHEAD_SECS * NS_PER_SEC)

    @property
    def pane(self) -> int:
        """Width of the parts that windows are made of."""
        return math.gcd(self.length, self.slide)


class Declaration(NamedTuple):
    """All that open windows depend on: a store keeps it beside them. Lengths are in nanoseconds, by count in tuples."""

    kind: str
    length: int
    slide: int
    timestamp_field: str | None
    key: tuple[str, ...]
    keeps_tuples: bool

    @classmethod
    def of(cls, windowing: Windowing, folds: bool) -> Declaration:
        """What a bolt has declared, which `folds` or not."""
        its = windowing
        return cls(its.kind, its.length, its.slide, its.timestamp_field, its.key, not folds)

    @classmethod
    def unpacked(cls, packed: str) -> Declaration:
        """Reverse `packed`."""
        return cls(*ast.literal_eval(packed))

    @property
    def packed(self) -> str:
        return repr(tuple(self))

    def words(self) -> list[str]:
        """Say it: the windows, their time, their key, and what is kept."""
        size = f"session gap {self._length(self.length)}"
        if self.kind != SESSION:
            size = f"windows of {self._length(self.length)}"
            if self.slide != self.length:
                size += f" each {self._length(self.slide)}"
        time = "no timestamp field" if self.timestamp_field is None else f"timestamp field {self.timestamp_field!r}"
        key = f"key {', '.join(self.key)}" if self.key else "no key"
        return [size, time, key, "all tuples" if self.keeps_tuples else "a fold"]

    def _length(self, length: int) -> str:
        if self.kind == COUNT:
            return plural(length, "tuple")
        for unit, name in _UNITS:
            if length % unit == 0:
                return f"{length // unit} {name}"
        return f"{length / NS_PER_SEC:g} s"


def changed(component: str, now: Declaration, before: Declaration, count: int) -> str:
    """Say that so many open windows of a component were declared otherwise than now."""
    pairs = [(new, old) for new, old in zip(now.words(), before.words(), strict=True) if new != old]
    news, olds = (", ".join(words) for words in zip(*pairs, strict=True))
    opened = f"{plural(count, 'open window')} {'was' if count == 1 else 'were'}"
    return (
        f"{component} is declared with {news}; {opened} declared with {olds}: keep that until they have ended, or drop "
        "them (--drop-windows)"
    )


class Window:
    """The tuples of one window."""

    __slots__ = ("_due", "_merge", "_tuple_of", "end", "key", "start")

    def __init__(self, due: Due, unit: int, tuple_of: Callable[[Row], Tuple], merge: Merge | None) -> None:
        self.key = due.key
        """The values of the fields given to `with_key`, one alone as it is; None without them."""
        self.start = due.start / unit
        """Its first moment."""
        self.end = due.end / unit
        """It holds what is at or after its start, and before its end: seconds since 1970, of the timestamps or of the
        clock; by count, the number of the tuple. A session ends its gap after its last tuple."""
        self._due, self._tuple_of, self._merge = due, tuple_of, merge

    def _tuples(self, parts: Sequence[Pane]) -> list[Tuple]:
        return [self._tuple_of(row) for part in parts for row in part.rows]

    def get(self) -> list[Tuple]:
        """Return all tuples, in the order of their arrival within each slide. Empty if the bolt folds."""
        return self._tuples(self._due.parts)

    def new(self) -> list[Tuple]:
        """Return the tuples that were not in the window before this one."""
        return self._tuples(self._due.new)

    def expired(self) -> list[Tuple]:
        """Return the tuples of the window before this one that are not in it any more; none if the two share none."""
        return self._tuples(self._due.expired)

    @property
    def value(self) -> Any:
        """What `fold` has made of the tuples."""
        values = [part.value for part in self._due.parts]
        return values[0] if self._merge is None else reduce(self._merge, values)

    def __repr__(self) -> str:
        return f"<Window [{self.start:g}, {self.end:g}){'' if self.key is None else f' of {repr_of(self.key)}'}>"


class WindowedBolt(Component):
    """A bolt whose tuples are gathered in windows, which are state: a kill loses none and doubles none.

    Subclasses define `execute_window`, and are given to `set_bolt` with a window: `Top().with_tumbling_window(secs=1)`.
    A bolt that also defines `fold` (and `merge`, for windows that slide or sessions) keeps one value for each window
    and not its tuples."""

    blocking: bool = False
    """Must be False."""
    windowing: Windowing | None = None
    """What the methods below have declared."""
    durability: str = "process"
    """As of `StatefulBolt`."""
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """Called once in the worker, before anything else."""

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        """Process a window that is complete. What is emitted is tracked as a message of its own, and replayed until it
        is processed. An exception leaves the window as it was, for another attempt."""
        raise TypeError(f"{type(self).__name__} must define execute_window")

    fold: Callable[[Any, Tuple], Any] | None = None
    """`fold(so_far, tup)` returns a window's value, never None, with one tuple more; `so_far` is None at first."""
    merge: Callable[[Any, Any], Any] | None = None
    """`merge(one, other)` returns the value of two parts of a window together."""

    def cleanup(self) -> None:
        """Called at an orderly end, not when the worker is killed."""

    def input_mistake(self, inputs: Mapping[str, tuple[str, ...]]) -> str | None:
        """What is wrong with inputs of these components and fields; None if nothing is. For `build()`."""
        return None

    # ---- Storm's names ----

    def with_tumbling_window(self, *, secs: float | None = None, count: int | None = None) -> Self:
        """Windows of this length, one after the other."""
        return self._with_length("with_tumbling_window", secs, count, secs, count)

    def with_sliding_window(
        self, *, secs: float | None = None, slide_secs: float | None = None, count: int | None = None,
        slide_count: int | None = None,
    ) -> Self:
        """Windows of this length, a new one each `slide`; by default with each tuple."""
        if count is not None and slide_count is None:
            slide_count = 1
        return self._with_length("with_sliding_window", secs, count, slide_secs, slide_count)

    def with_session_window(self, *, gap_secs: float) -> Self:
        """A window for each series of tuples without a gap as long as this between them."""
        gap = _ns("with_session_window", "gap_secs", gap_secs)
        return self._declare("with_session_window", kind=SESSION, length=gap, slide=gap)

    def with_key(self, *fields: str) -> Self:
        """Windows of their own for each value of these fields, by which the bolt's input must be grouped."""
        if not fields:
            raise UsageError(f"with_key of {type(self).__name__}: name at least one field")
        return self._declare("with_key", key=fields)

    def with_timestamp_field(self, field: str) -> Self:
        """Event time: the time of a tuple is in this field, in seconds since 1970, or a date or datetime, which is UTC
        if it has no zone."""
        return self._declare("with_timestamp_field", timestamp_field=field)

    def with_lag(self, *, secs: float) -> Self:
        """How much older a tuple may be than the newest before it in its source without being late."""
        return self._declare("with_lag", lag=_ns("with_lag", "secs", secs, least=0))

    def with_late_stream(self, stream: str) -> Self:
        """Emit late tuples, with their values, on this stream, which needs no declaration; else they are counted and
        dropped."""
        if mistake := name_mistake(stream):
            raise UsageError(f"with_late_stream of {type(self).__name__}: a stream name {mistake}")
        return self._declare("with_late_stream", late_stream=stream)

    def with_idle_timeout(self, *, secs: float) -> Self:
        """Time after which a source without new tuples holds up event time no longer, also if there is more to read;
        without this call it does until everything there has been read for some seconds."""
        return self._declare("with_idle_timeout", idle=_ns("with_idle_timeout", "secs", secs))

    def with_max_ahead(self, *, secs: float = _MAX_AHEAD_SECS) -> Self:
        """How far ahead of the clock a timestamp may be and still move event time. Tuples further ahead are counted,
        and kept in their window."""
        return self._declare("with_max_ahead", max_ahead=_ns("with_max_ahead", "secs", secs))

    def _with_length(
        self, call: str, secs: float | None, count: int | None, slide_secs: float | None, slide_count: int | None
    ) -> Self:
        by_time, by_count = (secs, slide_secs), (count, slide_count)
        if None not in by_time and by_count == (None, None):
            length, slide, kind = _ns(call, "secs", secs), _ns(call, "slide_secs", slide_secs), TIME
        elif None not in by_count and by_time == (None, None):
            length, slide, kind = _count(call, "count", count), _count(call, "slide_count", slide_count), COUNT
        else:
            raise UsageError(f"{call} of {type(self).__name__}: give length and slide, both by time or both by count")
        if slide > length:
            raise UsageError(f"{call} of {type(self).__name__}: the slide is longer than the window; allowed: up to it")
        return self._declare(call, kind=kind, length=length, slide=slide)

    def _declare(self, call: str, **declared: Any) -> Self:
        before = self.windowing or Windowing("", 0, 0)
        if "kind" in declared and before.kind:
            raise UsageError(f"{type(self).__name__} has a window already; allowed: one")
        self.windowing = replace(before, **declared)
        return self


def _ns(call: str, what: str, secs: Any, least: float = 1e-9) -> int:
    if isinstance(secs, bool) or not isinstance(secs, int | float) or not least <= secs < math.inf:
        raise UsageError(f"{call}: {what} is {repr_of(secs)}; allowed: seconds{' above 0' if least else ', 0 or more'}")
    return round(secs * NS_PER_SEC)


def _count(call: str, what: str, count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UsageError(f"{call}: {what} is {repr_of(count)}; allowed: a number from 1 up")
    return count


def windowing_mistake(bolt: WindowedBolt, fields: Sequence[tuple[str, ...]]) -> str | None:
    """What is wrong with the windows of a bolt with inputs of these fields; None if nothing is."""
    its = bolt.windowing
    if its is None or not its.kind:
        return "has no window; call with_tumbling_window, with_sliding_window or with_session_window"
    if type(bolt).execute_window is WindowedBolt.execute_window:
        return "defines no execute_window"
    by_event = its.timestamp_field is not None
    if its.kind == COUNT and by_event:
        return "has windows by count and a timestamp field; allowed: windows by time, or no timestamp field"
    if not by_event and (its.lag or its.late_stream):
        return "has with_lag or with_late_stream without with_timestamp_field; allowed: both, or neither"
    wanted = {*its.key, *((its.timestamp_field,) if its.timestamp_field else ())}
    if lacking := next((name for name in sorted(wanted) for input_ in fields if name not in input_), None):
        return f"needs field {lacking!r} for its windows, which an input does not have"
    if its.late_stream is not None and len(set(fields)) > 1:
        return f"has inputs of different fields, so late tuples have no stream {its.late_stream!r}; allowed: one kind"
    if not by_event and (its.idle, its.max_ahead) != (Windowing.idle, Windowing.max_ahead):
        return "has with_idle_timeout or with_max_ahead without with_timestamp_field; allowed: both, or neither"
    if (bolt.fold is not None) and bolt.merge is None and (its.kind == SESSION or its.slide != its.length):
        return "defines fold and no merge, which windows that slide and sessions need"
    return None
