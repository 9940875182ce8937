"""Times as nanoseconds since 1970: the clock by which state ages and windows by the clock end, which no jump moves; and
timestamps of users.

::

    first life          the wall clock's time when it begins, and from there on what passes
    a life, a boot      passes as the machine's uptime, suspended time included, whether or not a process lives
    after a reboot      passes as the wall clock has moved since, as nothing else is known; never back

Guarantees
    * The clock never goes below a time that was committed; within a boot it moves exactly as the uptime. So what a
      wrong clock showed in the first life stays: times of windows are off by as much.
    * A timestamp without a zone is UTC, of whatever type it is, and whatever zone the machine is in. numpy and Arrow
      are known by what their objects offer: importing them starts threads.

Relies on: `write` in each commit that depends on the clock. Thread: the task's.
"""

from __future__ import annotations

import datetime
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from squall.engine.api.context import TopologyContext
from squall.engine.clock import NS_PER_SEC
from squall.engine.foreign.given_columns import values_of
from squall.engine.foreign.text import repr_of
from squall.engine.state.task_store import TaskStore, unpickled

CLOCK = "clock"
"""In the store."""
_JUMP_NS = 2 * NS_PER_SEC
"""Less is no jump: leap seconds, and corrections that harm nothing."""
_EXPECTED = "seconds since 1970, a date or a datetime"
_MOST_SECS = 4_000_000_000
"""Timestamps are those of some hundred years."""
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (of what has no zone)
_EPOCH_UTC = _EPOCH.replace(tzinfo=datetime.UTC)
_NS_PER = {"s": NS_PER_SEC, "ms": 10**6, "us": 1_000, "ns": 1}
_FINER = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


def kept_clock(store: TaskStore, context: TopologyContext) -> KeptClock:
    """Return the clock of the task that has this store."""
    if context.now_ns is not time.monotonic_ns:
        return KeptClock(store, context.now_ns, context.wall_ns)
    # In place of the monotonic clock, which stops while the machine is suspended.
    up_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    return KeptClock(store, up_ns, context.wall_ns, Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))


class KeptClock:
    """The clock of one task, kept in its store."""

    def __init__(
        self, store: TaskStore, up_ns: Callable[[], int], wall_ns: Callable[[], int], boot: str = "simulated"
    ) -> None:
        """`up_ns`: the uptime; `boot`: an id of the boot since which it counts."""
        self._store, self._up_ns, self._wall_ns, self._boot = store, up_ns, wall_ns, boot
        self._ahead_ns, up, begins_ns = 0, up_ns(), wall_ns()
        """How far the wall clock is ahead, as far as that is reported."""
        if (packed := store.meta(CLOCK)) is not None:
            kept_ns, offset_ns, self._ahead_ns, of_boot = unpickled(packed, store.where)
            begins_ns = max(kept_ns, up + offset_ns if of_boot == boot else begins_ns - self._ahead_ns)
        self._offset_ns = begins_ns - up

    def now_ns(self) -> int:
        """The time."""
        return self._up_ns() + self._offset_ns

    def write(self) -> None:
        """Write the time with the commit that is open."""
        self._store.put_meta(CLOCK, pickle.dumps((self.now_ns(), self._offset_ns, self._ahead_ns, self._boot), 5))

    def jump(self) -> str:
        """Commit and describe a jump of the wall clock since the last call, in this life or an earlier one; "" if there
        was none."""
        moved_ns = self._wall_ns() - self.now_ns() - self._ahead_ns
        if abs(moved_ns) < _JUMP_NS:
            return ""
        self._ahead_ns += moved_ns
        with self._store.changing():
            self.write()
        way = "forward" if moved_ns > 0 else "back"
        return (
            f"the wall clock jumped {way} by {abs(moved_ns) / NS_PER_SEC:.0f} s; the time by which state ages and "
            f"windows end did not, and is {abs(self._ahead_ns) / NS_PER_SEC:.0f} s off now"
        )


def times_of(column: Any, field: str) -> tuple[list[int], dict[int, str]]:
    """The timestamps of a column in nanoseconds; and what is wrong, by row, with those that are none."""
    given, ns = _counted(column)
    mistakes: dict[int, str] = {}

    def time_at(row: int) -> int:
        timestamp = given[row]
        try:
            return ns_of(timestamp, ns)
        except (ValueError, TypeError, OverflowError) as error:
            shown = repr_of(timestamp if ns is None or timestamp is None else column[row])
            why = f", which {error}" if type(error) is ValueError else ""
            mistakes[row] = f"timestamp field {field!r} is {shown}{why}; expected {_EXPECTED}"
            return 0

    try:
        return [ns_of(timestamp, ns) for timestamp in given], {}
    except (ValueError, TypeError, OverflowError):
        return [time_at(row) for row in range(len(given))], mistakes


def _counted(column: Any) -> tuple[Any, Any]:
    """The values of a column, and the nanoseconds in one if it is of times, as numpy or Arrow counts them."""
    if getattr(getattr(column, "dtype", None), "kind", "") == "M":
        is_ns = str(column.dtype) == "datetime64[ns]"
        return (column if is_ns else column.astype("M8[us]")).astype("i8").tolist(), 1 if is_ns else 1_000
    kind: Any = getattr(column, "type", None)
    if str(kind).startswith("timestamp["):
        return column.cast("int64").to_pylist(), _NS_PER[kind.unit]
    return values_of(column), None


def ns_of(timestamp: Any, ns: Any = None) -> int:
    """A timestamp in nanoseconds, of so many each if it is a count. ValueError or TypeError if it is none."""
    if ns is not None:
        return _within(timestamp * ns)
    kind: Any = type(timestamp)
    if kind is int or isinstance(timestamp, float):
        if abs(timestamp) < _MOST_SECS:
            # In two parts: a product of 2**60 is off by 128 ns, and a session would begin after its first tuple.
            secs = int(timestamp)
            return secs * NS_PER_SEC + round((timestamp - secs) * NS_PER_SEC)  # type: ignore[no-any-return]
        like = [unit for unit, per_sec in _FINER.items() if abs(timestamp) < _MOST_SECS * per_sec]
        raise ValueError(f"looks like {like[0]}: divide by {_FINER[like[0]]}" if like else "is no time")
    if isinstance(timestamp, datetime.datetime):
        if kind is not datetime.datetime and kind.__module__.startswith("pandas."):
            return _within(timestamp.value)  # type: ignore[attr-defined]
        since = timestamp - (_EPOCH if timestamp.utcoffset() is None else _EPOCH_UTC)
        return _within((since.days * 86_400 + since.seconds) * NS_PER_SEC + since.microseconds * 1_000)
    if isinstance(timestamp, datetime.date):
        return _within((timestamp.toordinal() - _EPOCH.toordinal()) * 86_400 * NS_PER_SEC)
    if kind.__name__ == "datetime64":
        [at], ns = _counted(timestamp.reshape(1))
        return _within(at * ns)
    if kind.__name__ == "TimestampScalar":
        return _within(timestamp.value * _NS_PER[timestamp.type.unit])
    if kind.__module__ == "numpy":
        return ns_of(timestamp.tolist())
    raise TypeError(kind)


def _within(at: int) -> int:
    if abs(at) < _MOST_SECS * NS_PER_SEC:
        return at
    raise ValueError("is not in the years 1844 to 2095")
