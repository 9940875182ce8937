"""The failed messages of one spout task that do not simply go back to their spout: suspects on trial, dead letters that
were given back, and trees that timed out and may yet end a worker.

A suspect (`engine.tracking.attempts`) is held back when its spout emits it again. It goes out only on trial: first in a
group of up to 32, because thousands of innocents one by one would take hours where bolts ack in bulk; if the group
kills, each of it alone. One trial is under way at a time, of one spout task; all other messages flow on meanwhile.

    struck twice ─► held ─► on trial in a group ─► acked: forgotten
                     ▲              │ its worker dies
                     └──────────────┴─► held ─► on trial alone ─► its worker dies: a crash; too many: a dead letter

Guarantees
    * A suspect goes out only on trial, and one trial is under way in a topology if its workers share a permit.
    * Nothing is held for ever: a trial ends when all of its group have been answered, and, if one of them timed out,
      when its worker is dead or all workers have taken a turn.
    * A letter that was given back is emitted until it is acked or in the ledger again; the spout is not asked to replay
      it, because for the spout it ended as a dead letter. It waits longer after each failure.

State and decisions only: `engine.tracking.open_messages` carries them out. Thread: the worker's loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from squall.engine.api.failure import Failure
from squall.engine.clock import NS_PER_MS
from squall.engine.foreign.identity import key_of
from squall.engine.tracking.attempts import SUSPECT_STRIKES, Attempts, Limits

_GROUP = 32
"""How many suspects go on trial together before one of them has killed on trial."""
_LATE = 1_000_000
"""Most timed-out trees that are remembered because they may hang a worker, until that is killed."""
_FIRST_DELAY_NS, _MAX_DELAY_NS = 10 * NS_PER_MS, 5_000 * NS_PER_MS
"""Delays before a letter that was given back is emitted again: the defaults of `ReplayingSpout`."""


@dataclass
class Letter:
    """A dead letter that was given back."""

    message_id: Any
    values: Any
    """A tuple, `Routed` if it is not for the default stream."""
    closed: Callable[[], None]
    """Called when it is acked, or in the ledger again."""
    due_ns: int = 0


class Held(NamedTuple):
    """A message that waits to be emitted."""

    message_id: Any
    values: Any
    letter: Letter | None = None

    @property
    def key(self) -> Hashable:
        """The message's key."""
        return key_of(self.message_id, self.values)


class TrialPermit:
    """The permit to try suspects, of one worker for its spout tasks. This one is of a topology's only worker."""

    def __init__(self) -> None:
        self.owner: int | None = None
        """The spout task that has it."""

    def begin(self, task: int) -> bool:
        """Take the permit, or ask for it; return True if the task has it now."""
        if self.owner is None:
            self.owner = task
        return self.owner == task

    def end(self, task: int) -> None:
        """Return the permit, or stop asking for it."""
        if self.owner == task:
            self.owner = None

    def turned_since(self, at_ns: int) -> bool:
        """Return True if every other worker has taken a turn since then, so that none hangs on an earlier tuple."""
        return True


class Fate:
    """The queues of one spout task."""

    __slots__ = ("_late", "_overdue_ns", "attempts", "held", "letters", "waiting")

    def __init__(self, limits: Limits | None = None) -> None:
        self.attempts = Attempts(limits)
        self.held: deque[Held] = deque()
        """Suspects and letters that wait to be emitted."""
        self.waiting: list[Letter] = []
        """Letters given back that are not due yet."""
        self.letters: dict[int, Letter] = {}
        """Letters given back that are under way, by root."""
        self._late: dict[int, tuple[Any, Hashable, int]] = {}
        """root -> (message id, its key, workers that held a part) of trees that timed out: a worker may yet end by
        one."""
        self._overdue_ns = 0
        """When a suspect timed out on trial. Its worker may hang: nobody else is tried until that is known."""

    @property
    def is_busy(self) -> bool:
        """True if something is held, waits, or is on trial."""
        return bool(self.held or self.waiting or self.attempts.group)

    # ---- letters ----

    def given_back(self, letter: Letter) -> None:
        """Take back a dead letter, to emit it again as if it had never failed."""
        self.attempts.letters += 1
        self.attempts.forget([key_of(letter.message_id, letter.values)])
        self.waiting.append(letter)

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

    # ---- answers ----

    def answered(self, root: int) -> Letter | None:
        """Note that a tree is no longer under way (called while `attempts.alert`); return its letter, if it was one."""
        self.attempts.answered(root)
        return self.letters.pop(root, None)

    def failed(self, root: int, key: Hashable, failure: Failure) -> tuple[Failure, Letter | None]:
        """Count a failed attempt; return the failure with its attempt, and its letter, if it was one."""
        alone = self._is_alone(root)
        letter = self.answered(root) if self.attempts.alert else None
        return self.attempts.failed(key, failure, alone), letter

    def _is_alone(self, root: int) -> bool:
        return self.attempts.group == (root,)

    # ---- trees that timed out ----

    def timed_out(self, root: int, message_id: Any, key: Hashable, mask: int, now_ns: int) -> None:
        """Note that a tree is about to fail by a timeout; `mask`: the workers that hold a part of it."""
        self._late[root] = message_id, key, mask
        if len(self._late) > _LATE:
            del self._late[next(iter(self._late))]
        if root in self.attempts.on_trial:
            self._overdue_ns = now_ns

    def ended_late(self, root: int, failure: Failure) -> tuple[Any, Failure] | None:
        """Count an error by which a worker has ended, if it is of a tree that had timed out; return the message's id
        and the failure. Its spout was told of the timeout."""
        if root not in self._late:
            return None
        message_id, key, _ = self._late.pop(root)
        counted = self.attempts.ended_late(key, failure, self._is_alone(root))
        return None if counted is None else (message_id, counted)

    def worker_died(self, dead: int, failure: Failure) -> None:
        """Count the death of a worker, by its bit, without a word: a message that timed out may have hung it."""
        for root in [root for root, (_, _, mask) in self._late.items() if mask & dead]:
            self.ended_late(root, failure)

    # ---- trials ----

    def end_trial(self, permit: TrialPermit, task: int) -> None:
        """End the trial that is under way, if all of its group have been answered and none may hang a worker."""
        attempts = self.attempts
        if not attempts.group or attempts.on_trial:
            return
        if self._overdue_ns:
            if not permit.turned_since(self._overdue_ns):
                return
            for root in attempts.group:
                if root in self._late:
                    attempts.clear(self._late.pop(root)[1])
            self._overdue_ns = 0
        attempts.group = ()
        permit.end(task)

    def may_try(self, key: Hashable, group: Mapping[int, Hashable]) -> bool:
        """Return True if a suspect may go on trial with this group, by root, which may be empty still."""
        if self.attempts.group or not group:
            return not self.attempts.group
        first, strikes = next(iter(group.values())), self.attempts.strikes
        return len(group) < _GROUP and strikes(key) == strikes(first) == SUSPECT_STRIKES
