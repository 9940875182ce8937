"""Shares a feed among the tasks of a spout: which range a task takes next, and up to where its rows are done.

::

    part     0 ──────────────────────────────► rows        a file of the feed, which never changes
    ranges   │ 0: task 1 │ 1: task 0 │ 2: nobody's │       each has one claim on disk, made once
    position       ▲ all rows of the range below are acked

Guarantees, whichever tasks die whenever:
    * A range belongs to one task for ever; a task that comes back resumes its ranges at their positions. So each row is
      emitted until it is acked, and after a death only rows at or above a position are emitted again.
    * A position never passes a row that is not acked, whatever was acked beyond it.
    * A task takes the ranges of a partition in ascending order, over all its lives, if parts are handed in so.
      It takes them of its share of the partitions in turn, then of the others': event time, which waits for each
      partition, moves on evenly.

Relies on claims being made atomically (`pipeline.feed.feed_spout`: one of several tasks succeeds), and a dead task
being replaced by one with the same index. Two lives of one task at the same time do no harm: each stores only what was
acked. Decides only: no file, no clock. Thread: the task's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

#: Partitions that a task reads in turn; the others wait until one of these is done.
AT_ONCE = 32

#: (partition, offset): the message id of a row.
RowId = tuple[int | str, int]


class Part(NamedTuple):
    """A feed part, which is a file: rows of one partition, from offset `first` on."""

    name: str
    """Unique in the feed."""
    partition: int | str
    first: int
    rows: int


class Range(NamedTuple):
    """Consecutive rows of a part, counted from its first: what a task takes."""

    part: Part
    start: int
    stop: int

    def holds(self, row: RowId) -> bool:
        return row[0] == self.part.partition and self.start <= row[1] - self.part.first < self.stop


class Claim(NamedTuple):
    """A range claim: what is kept of a range that a task has taken."""

    part: str
    start: int
    stop: int
    task: int
    position: int
    """Row of the part below which all is acked."""


class _Open:
    """A range of this task's that is not done."""

    __slots__ = ("claim", "range", "read")

    def __init__(self, part: Part, claim: Claim) -> None:
        self.range = Range(part, claim.start, claim.stop)
        self.claim = claim
        self.read = claim.position


class Shares:
    """The decisions of one task."""

    def __init__(self, task: int, tasks: int, range_rows: int) -> None:
        """`task`: its index, below `tasks`."""
        self.task = task
        self._tasks = tasks
        self._range_rows = range_rows
        self._resumed: deque[_Open] = deque()
        self._known: dict[tuple[str, int], int] = {}
        """Ranges that were claimed when this life began: part and start -> stop, until it passes them."""
        self._parts: dict[int | str, deque[Part]] = {}
        """Of the partitions that are read in turn, those of which some rows are in no range known to be taken. The
        first partition is next."""
        self._tried: dict[str, int] = {}
        """Rows of the part of that name that are in ranges known to be taken."""
        self._waiting: dict[int | str, deque[Part]] = {}
        """The same of the partitions that are read in turn when these are done."""
        self._open: list[_Open] = []
        """In the order of reading."""

    def learn(self, parts: Iterable[Part], spread: bool = True) -> None:
        """Note new parts. `spread`: tasks begin with different partitions, so that they seldom meet; otherwise with the
        first."""
        found: dict[int | str, list[Part]] = {}
        for part in parts:
            if part.rows:
                found.setdefault(part.partition, []).append(part)
        order = list(found)
        begin = len(order) * self.task // self._tasks if spread else 0
        own = max(1, len(order) * (self.task + 1) // self._tasks - begin) if spread else len(order)
        for place, partition in enumerate(order[begin:] + order[:begin]):
            is_new = partition not in self._parts and partition not in self._waiting
            is_next = is_new and place < own and len(self._parts) < AT_ONCE
            known = self._parts if is_next or partition in self._parts else self._waiting
            known.setdefault(partition, deque()).extend(found[partition])

    @property
    def unread(self) -> dict[int | str, None]:
        """The partitions of which rows are left that this task has not read, or may claim still, as far as it knows."""
        mine = [open_.range.part.partition for open_ in self._resumed]
        mine += [open_.range.part.partition for open_ in self._open if open_.read < open_.range.stop]
        return dict.fromkeys([*mine, *self._parts, *self._waiting])

    def resume(self, claims: Iterable[Claim], parts: Iterable[Part]) -> list[Claim]:
        """Take up what an earlier life of this task left. Returns claims that are not done and whose part is not in
        `parts`: their rows cannot be read any more."""
        by_name = {part.name: part for part in parts}
        places = {name: place for place, name in enumerate(by_name)}
        gone = []
        for claim in sorted(claims, key=lambda claim: (places.get(claim.part, -1), claim.start)):
            self._known[claim.part, claim.start] = claim.stop
            if self._is_mine(claim):
                if claim.part in by_name:
                    self._resumed.append(_Open(by_name[claim.part], claim))
                else:
                    gone.append(claim)
        return gone

    def _is_mine(self, claim: Claim) -> bool:
        """Return True if this task must finish it. An index beyond the number of tasks is from a topology with more."""
        return claim.task % self._tasks == self.task and claim.position < claim.stop

    def to_resume(self) -> tuple[Range, int] | None:
        """The next range of an earlier life, now open, and the row to read from."""
        if not self._resumed:
            return None
        self._open.append(self._resumed.popleft())
        return self._open[-1].range, self._open[-1].claim.position

    def to_claim(self) -> tuple[Range, Claim] | None:
        """The range to claim next, and the claim to make; None if all that are known are taken. Each life of a task
        tries every range."""
        while self._parts or self._waiting:
            if not self._parts:
                self._parts = {one: self._waiting.pop(one) for one in list(self._waiting)[:AT_ONCE]}
            part = next(iter(self._parts.values()))[0]
            start = self._tried.get(part.name, 0)
            if (stop := self._known.pop((part.name, start), None)) is not None:
                self._pass(part, stop)
            else:
                stop = min(start + self._range_rows, part.rows)
                claim = Claim(part.name, start, stop, self.task, start)
                return Range(part, start, stop), claim
        return None

    def claimed(self, range_: Range, claim: Claim) -> tuple[Range, int] | None:
        """Note the claim that is now on the range which `to_claim` gave. The range, now open, and the row to read from;
        None if it is another task's, or done."""
        self._pass(range_.part, claim.stop)
        if not self._is_mine(claim):
            return None
        if (parts := self._parts.pop(range_.part.partition, None)) is not None:
            # The next partition's turn.
            self._parts[range_.part.partition] = parts
        # Mostly just made; or by another life of this task, which may be dead before it has read it.
        self._open.append(_Open(range_.part, claim))
        return self._open[-1].range, claim.position

    def _pass(self, part: Part, stop: int) -> None:
        """Note that the rows of a part below `stop` are in ranges that are taken."""
        parts = self._parts[part.partition]
        self._tried[part.name] = stop
        if stop >= part.rows:
            parts.popleft()
            del self._tried[part.name]
        if not parts:
            del self._parts[part.partition]

    def read(self, range_: Range, row: int) -> None:
        """Note that the rows of a range below `row` have been emitted, if it is open still."""
        for open_ in self._open:
            if open_.range is range_:
                open_.read = row

    def read_of(self, range_: Range) -> int | None:
        """Up to which row an open range has been read; None if it is not open."""
        return next((open_.read for open_ in self._open if open_.range is range_), None)

    def risen(self, unacked: Iterable[RowId]) -> list[Claim]:
        """What to store: the claims whose position has risen. `unacked`: rows that were emitted and not acked, in the
        order of reading."""
        if not self._open:
            return []
        reached: dict[int, int] = {}
        at, last = 0, len(self._open) - 1
        for row in unacked:
            while not self._open[at].range.holds(row):
                at += 1
            if at not in reached:
                reached[at] = row[1] - self._open[at].range.part.first
                if at == last:
                    break
        risen = []
        for index, open_ in enumerate(self._open):
            position = reached.get(index, open_.read)
            if position > open_.claim.position:
                risen.append(open_.claim._replace(position=position))
        return risen

    def stored(self, claim: Claim) -> None:
        """Note that a claim has been stored; a range that is done is forgotten."""
        for index, open_ in enumerate(self._open):
            if (open_.claim.part, open_.claim.start) == (claim.part, claim.start):
                open_.claim = claim
                if claim.position == claim.stop:
                    del self._open[index]
                return
