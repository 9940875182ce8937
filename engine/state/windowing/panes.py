"""What windows hold: tuples, or values that stand for them, in parts that are state.

::

    windows by time or count, length 3 slides    │ pane │ pane │ pane │ pane │ ...      each tuple lies in one pane
                                                 └──── window ────┘
                                                        └──── window ────┘
    sessions                                     one part each, joined when a tuple closes the gap between two

Guarantees: what was added is in the state's next commit, and is found again after a death. A window is due once.

Decides only: the state is handed in, and so is the time. Thread: the task's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall.engine.state.input_rows import Row
from squall.engine.state.windowing.windows import COUNT, SESSION, Windowing

Fold = Callable[[Any, Row], Any]
Merge = Callable[[Any, Any], Any]
_FIRST_DELAY_NS, _MOST_DELAY_NS = 25_000_000, 5_000_000_000
PART, KEY = "part", "key"
"""Begin the keys of the state: of parts, and of what is known of a user's key."""


@dataclass(slots=True)
class Pane:
    """A pane of windows by time or count, or a session."""

    start: int
    last: int = 0
    """Of a session: when its last tuple came."""
    number: int = 0
    """In the state's keys: the start of a pane; of a session, that of its first tuple at the time."""
    rows: list[Row] = field(default_factory=list)
    chunks: int = 0
    """Entries of the state with its rows."""
    value: Any = None


@dataclass(slots=True)
class _Keyed:
    """The parts of one user's key."""

    parts: dict[int, Pane] = field(default_factory=dict)
    """By number, and so by their start for panes."""
    fired: int | None = None
    """End of its newest window."""
    count: int = 0
    """Tuples so far, of windows by count."""
    due: int | None = None
    """When its next window is complete."""


_NO_KEY = _Keyed()


class Due(NamedTuple):
    """A window that is complete."""

    key: Any
    start: int
    end: int
    parts: Sequence[Pane]
    new: Sequence[Pane]
    expired: Sequence[Pane]


class Panes:
    """The windows of one task."""

    def __init__(self, windowing: Windowing, state: Any, fold: Fold | None, merge: Merge | None) -> None:
        """`state`: a `State`, which is committed by whoever gave it."""
        self._windowing, self._state, self._fold, self._merge = windowing, state, fold, merge
        self._is_session, self._by_count = windowing.kind == SESSION, windowing.kind == COUNT
        self._keys: dict[Any, _Keyed] = {}
        self._queue: list[tuple[int, int, Any]] = []
        self._order = 0
        self._put_off: dict[Any, int] = {}
        """Keys whose window has failed -> when it is tried again."""
        self._failures: dict[Any, int] = {}
        self.load()

    @property
    def has_any(self) -> bool:
        """Return True if a window is open."""
        return bool(self._keys)

    def load(self) -> None:
        """Read everything from the state."""
        self._keys, self._queue = {}, []
        chunks: dict[tuple[Any, int], list[tuple[int, list[Row]]]] = {}
        for name, content in self._state.items():
            if name[0] == KEY:
                its = self._of(name[1])
                its.fired, its.count = content
            elif len(name) == 4:
                chunks.setdefault((name[1], name[2]), []).append((name[3], content))
            elif name[0] == PART:
                start, last, value = content
                self._of(name[1]).parts[name[2]] = Pane(start, last, name[2], value=value)
        for (key, number), found in chunks.items():
            part = self._of(key).parts[number]
            part.rows = [row for _, rows in sorted(found, key=lambda chunk: chunk[0]) for row in rows]
            part.chunks = 1 + max(chunk for chunk, _ in found)
        for key, its in self._keys.items():
            self._await(key, its)

    def _of(self, key: Any) -> _Keyed:
        its = self._keys.get(key)
        if its is None:
            its = self._keys[key] = _Keyed()
        return its

    # ---- tuples come in ----

    def add(self, rows: Sequence[tuple[Any, int, Row]]) -> None:
        """Add tuples, each with its key and its time in nanoseconds, which does not count by count."""
        touched: dict[tuple[Any, int], tuple[_Keyed, Pane, list[Row]]] = {}
        for key, time, row in rows:
            its = self._of(key)
            if self._by_count:
                time = its.count
                its.count += 1
            part = self._session(key, its, time, touched) if self._is_session else self._pane(its, time)
            at = key, part.number
            if at not in touched:
                touched[at] = its, part, []
            if self._fold is None:
                touched[at][2].append(row)
            else:
                part.value = self._fold(part.value, row)
        for (key, number), (its, part, its_rows) in touched.items():
            if number in its.parts:
                part.rows += its_rows
                self._store(key, part, its_rows)
            if self._by_count:
                self._state[KEY, key] = its.fired, its.count
            self._await(key, its)

    def _pane(self, its: _Keyed, time: int) -> Pane:
        start = time - time % self._windowing.pane
        part = its.parts.get(start)
        if part is None:
            part = its.parts[start] = Pane(start, number=start)
        return part

    def _session(self, key: Any, its: _Keyed, time: int, touched: dict[Any, tuple[_Keyed, Pane, list[Row]]]) -> Pane:
        """The session of a time; those that it connects become one."""
        gap = self._windowing.length
        near = [part for part in its.parts.values() if part.start - gap < time < part.last + gap]
        if not near:
            number = time
            while number in its.parts:
                number += 1
            part = its.parts[number] = Pane(time, time, number)
            return part
        first, *others = sorted(near, key=lambda part: part.start)
        for other in others:
            rows = other.rows + touched.pop((key, other.number), (its, other, []))[2]
            touched.setdefault((key, first.number), (its, first, []))[2].extend(rows)
            if self._merge is not None:
                first.value = self._merge(first.value, other.value)
            first.last = max(first.last, other.last)
            self._remove(key, its, other)
        first.start, first.last = min(first.start, time), max(first.last, time)
        return first

    def _store(self, key: Any, part: Pane, rows: list[Row]) -> None:
        self._state[PART, key, part.number] = part.start, part.last, part.value
        if rows:
            self._state[PART, key, part.number, part.chunks] = rows
            part.chunks += 1

    def _remove(self, key: Any, its: _Keyed, part: Pane) -> None:
        its.parts.pop(part.number)
        self._state.discard((PART, key, part.number))
        for chunk in range(part.chunks):
            self._state.discard((PART, key, part.number, chunk))

    # ---- windows become complete ----

    def _next_end(self, its: _Keyed) -> int | None:
        """When the next window of a key is complete; None if it has no tuples that wait for one."""
        length, slide = self._windowing.length, self._windowing.slide
        if self._is_session:
            return min((part.last + length for part in its.parts.values()), default=None)
        ends = []
        for start in its.parts:
            end = start + self._windowing.pane
            end += -end % slide
            if its.fired is not None:
                end = max(end, its.fired + slide)
            if end - length <= start:
                ends.append(end)
        return min(ends, default=None)

    def _await(self, key: Any, its: _Keyed) -> None:
        queued, its.due = None if self._by_count else its.due, self._next_end(its)
        if its.due not in (None, queued) and (not self._by_count or its.count >= its.due):
            self._push(key, its.due)

    def _push(self, key: Any, due: int) -> None:
        self._order += 1
        heapq.heappush(self._queue, (due, self._order, key))

    def due(self, until: int | None) -> Due | None:
        """The first window that is complete at a time; None as the time: any. By count, one that is full. It is due
        until `done`."""
        if self._by_count and until is None:
            for key, its in self._keys.items():
                # Only one with tuples that no window had.
                due, slide = its.due, self._windowing.slide
                if due is not None and its.count < due < its.count + slide and key not in self._put_off:
                    return self._taken(key, its, due)
        while self._queue and (until is None or self._by_count or self._queue[0][0] <= until):
            end, _, key = self._queue[0]
            its = self._keys.get(key, _NO_KEY)
            if its.due == end and key not in self._put_off:
                return self._taken(key, its, end)
            heapq.heappop(self._queue)
        return None

    def put_off(self, due: Due, now: int) -> None:
        """A window that was due has failed: have it due again after a delay, which doubles each time."""
        attempts = self._failures[due.key] = self._failures.get(due.key, 0) + 1
        self._put_off[due.key] = now + min(_MOST_DELAY_NS, _FIRST_DELAY_NS << min(attempts, 30))

    def retry(self, now: int) -> None:
        """Have those windows due again whose time has come."""
        for key in [key for key, at in self._put_off.items() if at <= now]:
            del self._put_off[key]
            if (its := self._keys.get(key)) is not None and its.due is not None:
                self._push(key, its.due)

    @property
    def has_failed(self) -> bool:
        """Return True if a window waits for another attempt."""
        return bool(self._put_off)

    def _taken(self, key: Any, its: _Keyed, end: int) -> Due:
        length = self._windowing.length
        if self._is_session:
            [part] = [part for part in its.parts.values() if part.last + length == end][:1]
            return Due(key, part.start, end, (part,), (part,), ())
        parts = [its.parts[start] for start in sorted(its.parts)]
        inside = [part for part in parts if end - length <= part.start < end]
        fired = its.fired
        new = [part for part in inside if fired is None or part.start >= fired]
        expired: list[Pane] = []
        if fired is not None and len(new) < len(inside):
            # If they share none, what is left of the one before depends on when that was executed.
            expired = [part for part in parts if fired - length <= part.start < end - length]
        return Due(key, end - length, end, inside, new, expired)

    def done(self, due: Due) -> None:
        """A window that was due has been executed."""
        key, its = due.key, self._keys[due.key]
        is_known = its.fired is not None
        self._failures.pop(key, None)
        if self._is_session:
            self._remove(key, its, due.parts[0])
        else:
            its.fired = due.end
            tumbles = self._windowing.length == self._windowing.slide
            before = due.end if tumbles else due.start
            for part in [part for part in its.parts.values() if part.start < before]:
                self._remove(key, its, part)
            if self._next_end(its) is None:
                for part in list(its.parts.values()):
                    self._remove(key, its, part)
            if its.parts or self._by_count:
                self._state[KEY, key] = its.fired, its.count
        self._await(key, its)
        if not its.parts and not self._by_count:
            del self._keys[key]
            if is_known:
                self._state.discard((KEY, key))
