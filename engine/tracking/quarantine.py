"""The messages that one spout task holds back: suspects that wait for their trial, and dead letters given back; and the
permit to try suspects, of which the workers of a topology share one.

Guarantees
    * Suspects of a group that killed go before those that were never tried, and are not mixed with others: each death
      at least halves the group.
    * A letter waits longer after each failure.

Only queues: `engine.tracking.fate` decides which message may go, and its outcome. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from squall.engine.clock import NS_PER_MS
from squall.engine.tracking.attempts import SUSPECT_STRIKES
from squall.engine.tracking.instruction import Held, Letter


class TrialPermit(Protocol):
    """One worker's share of it, for all of its spout tasks."""

    def begin(self) -> bool:
        """Take the permit; whether this worker has it now. Asks for it if another one has it: call again."""

    def end(self) -> None:
        """Return the permit: the suspects on trial are acked or have failed."""

    def leave(self) -> None:
        """Withdraw the request: nothing is left to try."""

    def turned_since(self, at_ns: int) -> bool:
        """Whether every worker has taken a turn since then, so that none hangs on an earlier tuple."""


class OwnPermit:
    """The permit of a topology's only worker."""

    def __init__(self) -> None:
        self._taken = False

    def begin(self) -> bool:
        taken, self._taken = self._taken, True
        return not taken

    def end(self) -> None:
        self._taken = False

    def leave(self) -> None:
        """Do nothing: no other worker waits."""

    def turned_since(self, at_ns: int) -> bool:
        """True: the asking worker is the only one."""
        return True


_SLOW_NS, _MAX_GROUP = 10 * NS_PER_MS, 1024
"""A group is one suspect while trees take less than `_SLOW_NS`. If they take longer (bolts that ack in bulk), thousands
of innocents would wait for hours: so each acked group doubles the next one, up to `_MAX_GROUP` messages. After a death
or a timeout groups begin with one again."""
PATIENCE_NS = 120_000 * NS_PER_MS
"""Longest that other suspects wait for a worker that neither finishes its turn nor dies."""
_FIRST_DELAY_NS, _MAX_DELAY_NS = 10 * NS_PER_MS, 5_000 * NS_PER_MS
"""Delays before a letter that was given back is emitted again: the defaults of `ReplayingSpout`."""


class Quarantine:
    """The queues of one spout task."""

    __slots__ = ("_uncleared", "asked", "group_size", "held", "letters", "overdue_ns", "tried_ns", "waiting")

    def __init__(self) -> None:
        self.held: deque[Held] = deque()
        """The same object for life, like `waiting`: the executor counts them."""
        self.waiting: list[Letter] = []
        """Letters given back that are not due yet, or not taken up yet."""
        self.letters: dict[int, Letter] = {}
        """Letters given back that are under way, by root."""
        self.group_size = 1
        """How many suspects may go on trial together."""
        self.tried_ns = 0
        """When a group went on trial last."""
        self._uncleared = False
        """Whether a suspect of that group has killed, or timed out."""
        self.overdue_ns = 0
        """When a suspect timed out. Its worker may hang: the trial goes on until that worker is dead, or all workers
        have taken a turn."""
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
        """Keep a letter whose attempt has failed, to emit it again later."""
        letter.due_ns = now_ns + min(_MAX_DELAY_NS, _FIRST_DELAY_NS << min(attempt - 1, 30))
        self.waiting.append(letter)

    def take_up(self, now_ns: int) -> None:
        """Hold the letters whose wait is over until they go out."""
        due = [letter for letter in self.waiting if letter.due_ns <= now_ns]
        if due:
            self.waiting[:] = [letter for letter in self.waiting if letter.due_ns > now_ns]
            self.held.extend(Held(letter.message_id, letter.values, letter) for letter in due)

    def somebody_killed(self) -> None:
        """Note that a suspect's tree has failed because a worker died, or a batch raised that it was part of."""
        self._uncleared = True

    def somebody_is_late(self, now_ns: int) -> None:
        """Note that a suspect's tree has timed out."""
        self._uncleared, self.overdue_ns = True, now_ns

    def trial_over(self, now_ns: int) -> None:
        """End the trial of a group: every suspect in it has been answered."""
        if self._uncleared:
            self.group_size = 1
        elif now_ns - self.tried_ns > _SLOW_NS:
            self.group_size = min(2 * self.group_size, _MAX_GROUP)
        self._uncleared = False
