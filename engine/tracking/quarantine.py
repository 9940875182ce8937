"""What one spout task holds back: suspects that wait for their trial, and dead letters that were given back.

Guarantees
    * Suspects of a group that killed go before those that were never tried, and are not mixed with others: each death
      at least halves the circle.
    * A letter waits longer after each failure.

Only the waiting: who may go, and what becomes of it, is decided in `engine.tracking.fate`. One thread: the spout's.
"""

from __future__ import annotations

from collections import deque

from squall.engine.clock import NS_PER_MS
from squall.engine.tracking.attempts import SUSPECT_STRIKES
from squall.engine.tracking.instruction import Held, Letter

_SLOW_NS, _MAX_GROUP = 10 * NS_PER_MS, 1024
"""A group is one message; where trees take longer than this (bolts that ack in bulk), thousands of innocents would wait
for hours, so each group that is acked makes the next one twice as large. After a death or a timeout groups begin with
one again."""
PATIENCE_NS = 120_000 * NS_PER_MS
"""The others do not wait longer for a worker that neither comes round nor dies."""
_FIRST_DELAY_NS, _MAX_DELAY_NS = 10 * NS_PER_MS, 5_000 * NS_PER_MS
"""Before a letter that was given back is emitted again: as `ReplayingSpout` waits by default."""


class Quarantine:
    """The queues of one spout task."""

    __slots__ = ("_uncleared", "asked", "group_size", "held", "letters", "overdue_ns", "tried_ns", "waiting")

    def __init__(self) -> None:
        self.held: deque[Held] = deque()
        """The same object for life, like `waiting`: the executor counts them."""
        self.waiting: list[Letter] = []
        """Given back, and not due yet or not taken up yet."""
        self.letters: dict[int, Letter] = {}
        """Given back and under way, by root."""
        self.group_size = 1
        """How many suspects may go on trial together."""
        self.tried_ns = 0
        """When a group went on trial last."""
        self._uncleared = False
        """Something of that group has killed, or timed out."""
        self.overdue_ns = 0
        """When a suspect timed out. What it was sent to may hang: its trial goes on until that one is dead, or all
        workers have come round."""
        self.asked = False
        """Whether this task asked for the permit and has not left. Other spout tasks of the worker may have asked too:
        only a task that has asked may leave."""

    def hold(self, held: Held, strikes: int) -> None:
        """Keep a message until it goes on trial."""
        if strikes > SUSPECT_STRIKES:
            self.held.appendleft(held)
        else:
            self.held.append(held)

    def wait(self, letter: Letter, attempt: int, now_ns: int) -> None:
        """A letter that was given back has failed: once more, later."""
        letter.due_ns = now_ns + min(_MAX_DELAY_NS, _FIRST_DELAY_NS << min(attempt - 1, 30))
        self.waiting.append(letter)

    def take_up(self, now_ns: int) -> None:
        """Letters whose wait is over are held until they go out."""
        due = [letter for letter in self.waiting if letter.due_ns <= now_ns]
        if due:
            self.waiting[:] = [letter for letter in self.waiting if letter.due_ns > now_ns]
            self.held.extend(Held(letter.message_id, letter.values, letter) for letter in due)

    def somebody_killed(self) -> None:
        """A suspect's tree has failed because a worker died."""
        self._uncleared = True

    def somebody_is_late(self, now_ns: int) -> None:
        """A suspect's tree has timed out."""
        self._uncleared, self.overdue_ns = True, now_ns

    def trial_over(self, now_ns: int) -> None:
        """Every suspect on trial has been answered."""
        if self._uncleared:
            self.group_size = 1
        elif now_ns - self.tried_ns > _SLOW_NS:
            self.group_size = min(2 * self.group_size, _MAX_GROUP)
        self._uncleared = False
