"""The quarantine beside a spout task's flow: suspects go out apart, dead letters that were given back go out again.

Guarantees
    * What is held back counts as pending, so nothing is drained, killed or forgotten over it.
    * One group of suspects is under way at a time per worker, and per topology where workers agree on turns
      (`TrialTurn`). Everything else flows on meanwhile.
    * A letter that was given back is emitted until it is acked or in the ledger again; the spout is not asked to replay
      it, because for the spout it was settled when it became a dead letter.

Relies on: the loop giving it a turn whenever it holds something. One thread: the spout's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from squall.engine.api.failure import FAILED, Failure
from squall.engine.clock import NS_PER_MS
from squall.engine.errors import ComponentError
from squall.engine.foreign.identity import key_of
from squall.engine.foreign.text import message_of
from squall.engine.tracking.attempts import SUSPECT_STRIKES, Attempts, Verdict

_SLOW_NS, _MAX_GROUP = 10 * NS_PER_MS, 1024
"""A group is one message; where trees take longer than this (bolts that ack in bulk), thousands of innocents would wait
for hours, so each group that is acked makes the next one twice as large. After a death or a timeout groups begin with
one again. Those that were in a group that killed go first, and are not mixed with others: each death at least halves
the circle."""
_PATIENCE_NS = 120_000 * NS_PER_MS
"""The others do not wait longer for a worker that neither comes round nor dies."""
_FIRST_DELAY_NS, _MAX_DELAY_NS = 10 * NS_PER_MS, 5_000 * NS_PER_MS
"""Before a letter that was given back is emitted again: as `ReplayingSpout` waits by default."""


@dataclass
class Letter:
    """A dead letter that was given back."""

    message_id: Any
    values: Any
    """A tuple, `Routed` if it is not for the default stream."""
    settled: Callable[[], None]
    """Called when it is acked, or in the ledger again."""
    due_ns: int = 0


class Held(NamedTuple):
    message_id: Any
    values: Any
    letter: Letter | None


class Table(Protocol):
    """The spout task's pending table, as far as its quarantine needs it."""

    attempts: Attempts

    def bury(self, message_id: Any, values: Any, failure: Failure, letter: Letter | None) -> None: ...
    def refuse_dead(self, message_id: Any, values: Any) -> None: ...


class TrialTurn(Protocol):
    """Whose turn it is to try a suspect."""

    def begin(self) -> bool:
        """Whether a suspect may go out now. Asks for the turn if it is somebody else's; call again."""

    def end(self) -> None:
        """The suspect is acked or has failed."""

    def leave(self) -> None:
        """Nothing more to try."""

    def turned_since(self, at_ns: int) -> bool:
        """Whether every worker has come round since then, so that none hangs on what it was sent before."""


class OwnTurn:
    """Turns in a worker that is alone."""

    def __init__(self) -> None:
        self._taken = False

    def begin(self) -> bool:
        taken, self._taken = self._taken, True
        return not taken

    def end(self) -> None:
        self._taken = False

    def leave(self) -> None:
        """Nobody waits."""

    def turned_since(self, at_ns: int) -> bool:
        """A worker that is alone and asks has."""
        return True


class Quarantine:
    """What one spout task holds back."""

    __slots__ = ("_asked", "_size", "_tried_ns", "_turn", "_uncleared", "held", "letters", "overdue_ns", "waiting")

    def __init__(self, turn: TrialTurn) -> None:
        self._turn = turn
        self.held: deque[Held] = deque()
        self.waiting: list[Letter] = []
        """Given back, and not due yet or not taken up yet."""
        self.letters: dict[int, Letter] = {}
        """Given back and under way, by root."""
        self._size = 1
        self._tried_ns = 0
        self._uncleared = False
        self.overdue_ns = 0
        """When a suspect timed out. What it was sent to may hang: its trial goes on until that one is dead, or all
        workers have come round."""
        self._asked = False
        """For a turn, which was not left since."""

    def __len__(self) -> int:
        return len(self.held) + len(self.waiting)

    def hold(self, held: Held, strikes: int) -> None:
        """Keep a message until its turn comes. Those of a group that killed go before those that were never tried."""
        if strikes > SUSPECT_STRIKES:
            self.held.appendleft(held)
        else:
            self.held.append(held)

    def run(self, table: Table, send: Callable[[Any, Any], int], now_ns: int) -> bool:
        """Send what may go; whether anything happened. `send(message id, values)` emits and returns the root."""
        worked = bool(self.waiting) and self._take_up(now_ns)
        attempts = table.attempts
        self._end_overdue(attempts, now_ns)
        group: dict[int, Any] = {}
        began, strikes = False, 0
        while self.held:
            head = self.held[0]
            key = key_of(head.message_id, head.values)
            verdict = attempts.verdict(key, head.values)
            if verdict is Verdict.SUSPECT and not began:
                self._asked = True
                if attempts.on_trial or not self._turn.begin():
                    break
                began, strikes = True, attempts.strikes(key)
            elif verdict is Verdict.SUSPECT and attempts.strikes(key) != strikes:
                break
            if len(group) == self._size:
                break
            self.held.popleft()
            worked = True
            if verdict is Verdict.CONDEMNED:
                table.bury(head.message_id, head.values, attempts.last_failure(key), head.letter)
            elif verdict is Verdict.DEAD:
                table.refuse_dead(head.message_id, head.values)
            else:
                root = self._send(table, send, head)
                if verdict is Verdict.SUSPECT:
                    group[root] = key
        group.pop(0, None)
        if group:
            self._tried_ns = now_ns
            attempts.begin_trial(group)
        elif began:
            self._turn.end()
        if not attempts.on_trial and not self.overdue_ns:
            self._leave()
        return worked

    def _take_up(self, now_ns: int) -> bool:
        due = [letter for letter in self.waiting if letter.due_ns <= now_ns]
        if due:
            self.waiting = [letter for letter in self.waiting if letter.due_ns > now_ns]
            self.held.extend(Held(letter.message_id, letter.values, letter) for letter in due)
        return bool(due)

    def _send(self, table: Table, send: Callable[[Any, Any], int], held: Held) -> int:
        """The root of the tree; 0 if the message cannot be sent."""
        try:
            root = send(held.message_id, held.values)
        except ComponentError as error:
            if held.letter is None:
                raise
            # The topology is not the one the letter was written by: its stream or fields have gone.
            table.bury(held.message_id, held.values, Failure(FAILED, error=message_of(error)), held.letter)
            return 0
        if held.letter is not None:
            self.letters[root] = held.letter
        return root

    def somebody_killed(self) -> None:
        """A suspect's tree has failed because a worker died."""
        self._uncleared = True

    def somebody_is_late(self, now_ns: int) -> None:
        """A suspect's tree has timed out."""
        self._uncleared, self.overdue_ns = True, now_ns

    def trial_over(self, now_ns: int) -> None:
        """Every suspect on trial has been answered."""
        if self._uncleared:
            self._size = 1
        elif now_ns - self._tried_ns > _SLOW_NS:
            self._size = min(2 * self._size, _MAX_GROUP)
        self._uncleared = False
        if not self.overdue_ns:
            self._end_turn()

    def _end_overdue(self, attempts: Attempts, now_ns: int) -> None:
        if not self.overdue_ns or attempts.on_trial:
            return
        turned = self._turn.turned_since(self.overdue_ns)
        if turned or now_ns - self.overdue_ns > _PATIENCE_NS:
            self.overdue_ns = 0
            attempts.end_overdue(cleared=turned)
            self._end_turn()

    def _end_turn(self) -> None:
        self._turn.end()
        self._leave()

    def _leave(self) -> None:
        """The worker's other quarantines may have asked as well: who did not must not take that back."""
        if self._asked and not self.held:
            self._asked = False
            self._turn.leave()

    def wait(self, letter: Letter, attempt: int, now_ns: int) -> None:
        """A letter that was given back has failed: once more, later."""
        letter.due_ns = now_ns + min(_MAX_DELAY_NS, _FIRST_DELAY_NS << min(attempt - 1, 30))
        self.waiting.append(letter)
