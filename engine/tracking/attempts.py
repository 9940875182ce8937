"""Counts the failures of each message of a spout task, and judges it by them.

Four numbers are kept per message until it is acked:

    attempts    failures of any kind, shown as `Failure.attempt`
    charged     its own failures: refused, raised, timed out, or its worker died while it was tried alone. The limit is
                `max_attempts`.
    crashes     workers that it ended: by an exception, by a hang, or by a death while it was tried alone. The limit is
                `max_crashes`.
    strikes     deaths without a word that it was under way at, in a row

A worker that dies without a word takes up to `max_spout_pending` messages with it, and any of them may be the cause. So
such a death accuses nobody yet. A message with two strikes is a *suspect*: it goes out only on trial, apart from the
others (`engine.tracking.fate`), in the end alone. An innocent suspect is acked and forgotten. An exception in a bolt
that takes batches has one cause among many messages, and counts as such a death.

Guarantees: a death without a word is counted as a crash only of a message that was on trial alone. `resume` takes over
the counts of earlier incarnations of the task.

Messages are named here by their keys (`engine.foreign.identity`), because ids may not be hashable.

Pure: the caller stores the changes (`Journal`). Thread: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

from squall.engine.api.failure import (
    EXCEPTION,
    FRAME_DAMAGED,
    HUNG,
    TIMEOUT,
    WORKER_DIED,
    Failure,
)
from squall.engine.flow.ids import ALONE
from squall.engine.foreign.identity import digest_of, key_of
from squall.engine.tracking.doubt import PASSING, Doubt, cause_of
from squall.engine.tracking.pending_table import OpenBlock

SUSPECT_STRIKES = 2
REMEMBERED = 1_500_000
"""Messages whose failures are remembered; some 100 bytes each beside their ids. A spout that never replays would let
the table grow for ever: then the oldest are forgotten, and the operator is told. More than a `ReplayingSpout` keeps,
and few enough for `resume`, which delays the worker's start by seconds for a million."""
_WITH_TEXT = 10_000
"""Messages remembered with the whole text of their last failure, the others with its first word: bounds memory."""


class Tries(NamedTuple):
    """The failures of one message."""

    attempts: int = 0
    charged: int = 0
    crashes: int = 0
    strikes: int = 0
    """Timeouts in between do not end the row: a message that hangs a worker times out before the hang is noticed."""
    last: Failure | None = None
    dead: bytes = b""
    """Digest of its values when it became a dead letter."""
    cause: str = ""
    """Why it is in doubt (`engine.tracking.doubt`); "" if it is not."""


class Changes(NamedTuple):
    """The changes of one turn for the journal, or, as a snapshot, everything."""

    out: Sequence[tuple[int, Sequence[Hashable]]]
    """(first root, key of each member) of emits in blocks, or of one alone (`engine.flow.ids`)."""
    answered: Sequence[tuple[int, Sequence[int]]]
    """(first root, members); one alone may have been emitted in a block."""
    tries: dict[Any, Tries | None]
    """None: forgotten."""
    group: tuple[int, ...]
    """Roots of the messages on trial, including those already answered."""


@dataclass
class Remembered:
    """The counts that an earlier incarnation of the task left."""

    tries: dict[Any, Tries] = field(default_factory=dict)
    under_way: dict[int, Any] = field(default_factory=dict)
    group: tuple[int, ...] = ()
    unclean: bool = False
    """True if it ended without a recorded cause."""
    explanation: str = ""
    """What else is known of its end; "" if any message may have caused it."""


class Journal(Protocol):
    """Storage in which attempts outlive the worker."""

    def load(self) -> Remembered: ...

    def append(self, changes: Changes, snapshot: Callable[[], Changes]) -> None: ...

    def end(self) -> None:
        """Note that the incarnation ends with its cause recorded."""


class Limits(NamedTuple):
    """The limits at which a message is given up; None = never."""

    max_attempts: int | None = None
    max_crashes: int | None = None
    exceptions_crash: bool = True
    """`on_error` is "crash"."""
    fail_fast: bool = False
    """The run stops at a fault of the set-up."""
    spout: str | None = None
    """The component of the messages: its own exceptions end its worker whatever `on_error` says."""

    def is_crash(self, failure: Failure, alone: bool) -> bool:
        """Return True if this very message ended a worker. `alone`: it was on trial alone."""
        if failure.reason == WORKER_DIED:
            return alone and failure.accuses
        ends = self.exceptions_crash or failure.component == self.spout
        return failure.among == 1 and (failure.reason == HUNG or (failure.reason == EXCEPTION and ends))

    def condemn(self, tries: Tries) -> bool:
        """Return True if the message has failed too often."""
        return (self.max_attempts is not None and tries.charged >= self.max_attempts) or (
            self.max_crashes is not None and tries.crashes >= self.max_crashes
        )


_NONE = Tries()


@lru_cache(maxsize=4096)
def _shared(tries: Tries) -> Tries:
    """Return one shared object for equal counts, which many messages have."""
    return tries


class Attempts:
    """The messages of one spout task that have failed and are not acked yet."""

    __slots__ = (
        "_answered", "_changes", "_limits", "_out", "alert", "crashes", "doubt",
        "failed_here", "forgot", "group", "held_back", "letters", "on_trial", "owed", "tries", "watching",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.tries: dict[Any, Tries] = {}
        self.held_back: set[Any] = set()
        """Messages that must not be emitted at once. The same object for life, because the collector reads it."""
        self.group: tuple[int, ...] = ()
        """Roots of the messages that were emitted for trial together; empty when their trial is over."""
        self.on_trial: set[int] = set()
        """Roots of the group that have not been answered."""
        self.watching = False
        """True if all emits are written down: after a death without a word, to know what is under way at the next."""
        self.letters = 0
        """Dead letters that were given back, and whose answers `engine.tracking.fate` needs."""
        self.owed = 0
        """Messages that earlier incarnations of the task left unanswered, less the emits of this one."""
        self.doubt = Doubt(waits=not self._limits.exceptions_crash)
        self.alert = False
        """True if emits and acks must be reported here at all. False on the healthy path."""
        self.crashes = 0
        """Ends of workers caused by a known message, if they bring a dead letter nearer."""
        self.failed_here: set[Any] = set()
        """Messages that this incarnation of the task saw fail, and that are neither acked nor dead letters."""
        self.forgot: Callable[[str], None] | None = None
        """Called once, when there are too many messages to remember."""
        self._changes: dict[Any, Tries | None] = {}
        self._out: list[tuple[int, Sequence[Hashable]]] = []
        self._answered: list[tuple[int, Sequence[int]]] = []

    # ---- emits and answers (called while `alert`) ----

    def emitted(self, base: int, keys: Sequence[Hashable]) -> int:
        """Note the emitted trees of a block; return how many are replays."""
        if self.watching:
            self._out.append((base, keys))
        return self.again(keys)

    def again(self, keys: Sequence[Hashable]) -> int:
        """Count the replays among messages that are emitted now. What earlier incarnations left open is known by its
        number alone, so the first emits are taken for it."""
        again = [key for key in keys if key in self.tries] if self.tries else []
        dead = [key for key in again if self.tries[key].dead]
        self.forget(dead)
        known = len(again) - len(dead)
        if not self.owed:
            return known
        here = sum(key in self.failed_here for key in again)
        left = min(self.owed, len(keys) - len(dead) - here)
        self.owe(-left)
        return here + max(known - here, left)

    def owe(self, messages: int) -> None:
        """Add to the messages that earlier incarnations left unanswered."""
        self.owed += messages
        self.look()

    def answered(self, base: int, members: Sequence[int] = ALONE) -> None:
        """Note that trees of a block are no longer under way. One on trial is alone: suspects go out one by one."""
        if self.watching or base in self.on_trial:
            self.on_trial.discard(base)
            self._answered.append((base, members))

    def begin_trial(self, group: Mapping[int, Any]) -> None:
        """Note that suspects have been emitted, while no others are under way; message's key by root."""
        self.group, self.on_trial = tuple(group), set(group)
        if not self.watching:
            self._out += [(root, (key,)) for root, key in group.items()]

    # ---- failures ----

    def failed(self, message_id: Any, failure: Failure, alone: bool = False) -> Failure:
        """Count a failure and return it with its attempt. `alone`: the message was on trial alone."""
        before = self.tries.get(message_id, _NONE)
        tries, failure = self._after(before, failure, alone)
        # One that failed while others got through is bad itself.
        if self._limits.fail_fast and (before.cause or not before.charged):
            found = cause_of(failure)
            if found and (before.cause or self.doubt.takes()):
                tries = tries._replace(cause=found, last=failure)
            else:
                tries = tries._replace(cause=before.cause)
        self._remember(message_id, tries)
        self._count_crash(tries.crashes - before.crashes)
        self.failed_here.add(message_id)
        return failure

    def failed_together(self, message_ids: Sequence[Hashable], failure: Failure) -> Failure | None:
        """Count the first failure of messages that fail together, and return it; return None, and count nothing, if it
        is not the first of each, or accuses them. None of them is on trial. A death fails thousands of messages."""
        tries, failure = self._after(_NONE, failure, alone=False)
        first = self._compact(tries)
        new = dict.fromkeys(message_ids, first)
        doubtful = self._limits.fail_fast and cause_of(failure)
        known = bool(self.tries) and not self.tries.keys().isdisjoint(new)
        if known or doubtful or tries.crashes or self._limits.condemn(tries) or len(new) < len(message_ids):
            return None
        self.tries.update(new)
        self._changes.update(new)
        self.failed_here.update(new)
        self.alert = True
        self._forget_oldest()
        return failure

    def _after(self, tries: Tries, failure: Failure, alone: bool) -> tuple[Tries, Failure]:
        """The failures of a message after one more, and that failure with its attempt."""
        attempts, charged, crashes, strikes, last = tries[:5]
        crash = self._limits.is_crash(failure, alone)
        if not failure.accuses:
            own = strike = False
        else:
            # Of a batch that raised one row is the cause, and nobody knows which.
            strike = failure.reason == WORKER_DIED or failure.among > 1
            own = crash or not strike
        if own and not strike and failure.reason not in (TIMEOUT, FRAME_DAMAGED):
            strikes = 0
        failure = failure.as_attempt(attempts + 1)
        # The ledger shows the failure that a message was condemned for.
        last = failure if failure.accuses or last is None else last
        return Tries(attempts + 1, charged + own, crashes + crash, strikes + strike, last), failure

    def ended_late(self, message_id: Any, failure: Failure, alone: bool) -> Failure | None:
        """Count the end of a worker by an attempt that has timed out, and was counted then. Return None if it does not
        count against the message."""
        tries = self.tries.get(message_id)
        crash, strike = self._limits.is_crash(failure, alone), failure.reason == WORKER_DIED
        if tries is None or tries.dead or not (crash or strike):
            return None
        self._count_crash(crash)
        failure = failure.as_attempt(tries.attempts)
        crashes, strikes = tries.crashes + crash, tries.strikes + strike
        self._remember(message_id, tries._replace(crashes=crashes, strikes=strikes, last=failure))
        return failure

    def clear(self, message_id: Any) -> None:
        """Forget the strikes of a suspect that timed out on trial and hung no worker."""
        tries = self.tries.get(message_id)
        if tries is not None and not tries.dead:
            self._remember(message_id, tries._replace(strikes=0))

    def _count_crash(self, crashes: int) -> None:
        if (self._limits.max_attempts, self._limits.max_crashes) != (None, None):
            self.crashes += crashes

    def buried(self, message_id: Any, values: Any) -> None:
        """Note that the message is in the ledger. Later incarnations of the source may read it again."""
        self._remember(message_id, Tries(last=self.last_failure(message_id), dead=digest_of(values)))
        self.failed_here.discard(message_id)

    def forget(self, message_ids: Iterable[Hashable]) -> None:
        """Forget all failures of messages."""
        for message_id in message_ids:
            if self.tries.pop(message_id, None) is not None:
                self._changes[message_id] = None
                self.held_back.discard(message_id)
                self.failed_here.discard(message_id)
                self.doubt.causes.pop(message_id, None)
        self.look()

    def acked(self, keys: Sequence[Hashable], emitted_ns: int) -> None:
        """Forget messages that were acked; if others are in doubt, it may be their own fault after all."""
        self.forget(keys)
        enough = self.doubt.is_enough
        cleared = self.doubt.acked(emitted_ns, len(keys)) if self.doubt.causes else []
        passed = {cause for key in cleared if enough and (cause := self.tries[key].cause).startswith(PASSING)}
        for key in cleared:
            self._remember(key, self.tries[key]._replace(cause=""))
        if passed:
            # Also those that there was no room for. They have failed before, so they are not in doubt again.
            for key, tries in list(self.tries.items()):
                if tries.last is not None and not tries.dead and cause_of(tries.last) in passed:
                    self._remember(key, tries._replace(charged=min(1, tries.charged), crashes=0))

    def _remember(self, message_id: Any, tries: Tries) -> None:
        # Taken out first, so that the order of the table is that of the failures.
        self.tries.pop(message_id, None)
        self._changes[message_id] = tries = self._compact(tries)
        self._enter(message_id, tries)
        self._forget_oldest()

    def _enter(self, message_id: Any, tries: Tries) -> None:
        self.tries[message_id] = tries
        if tries.cause:
            self.doubt.causes[message_id] = tries.cause
        else:
            self.doubt.causes.pop(message_id, None)
        if tries.cause or tries.strikes >= SUSPECT_STRIKES or self._limits.condemn(tries):
            self.held_back.add(message_id)
        else:
            self.held_back.discard(message_id)
        self.alert = True

    def _compact(self, tries: Tries) -> Tries:
        """Return equal counts as one shared object, without long texts if there are many."""
        last = tries.last
        if last is not None and last.error and len(self.tries) >= _WITH_TEXT:
            tries = tries._replace(last=replace(last, error=last.error.partition(":")[0]))
        return _shared(tries)

    def _forget_oldest(self) -> None:
        if len(self.tries) <= REMEMBERED:
            return
        # Many at once: finding the first entry of a table has to pass all gaps before it.
        oldest = list(islice(self.tries, len(self.tries) - REMEMBERED + (REMEMBERED // 10 or 1)))
        self.owe(sum(key in self.failed_here for key in oldest))
        self.forget(oldest)
        if self.forgot is not None:
            tell, self.forgot = self.forgot, None
            tell(
                f"more than {REMEMBERED:,} messages have failed and are not acked: the oldest failures are forgotten, "
                "and count neither for max_attempts nor for max_crashes; does the spout emit again what has failed?"
            )

    def look(self) -> None:
        """Set `alert` again after something was forgotten."""
        self.alert = bool(self.tries) or self.watching or self.letters > 0 or self.owed > 0

    # ---- the judgement ----

    def condemned(self, message_id: Any) -> bool:
        """Return True if the message has failed too often."""
        return self._limits.condemn(self.tries.get(message_id, _NONE))

    def is_buried(self, message_id: Any, values: Any) -> bool:
        """Return True if the message is in the ledger, its spout was not told by this incarnation, and this is not
        another message under the same id."""
        dead = self.tries.get(message_id, _NONE).dead
        return bool(dead) and message_id in self.held_back and dead == digest_of(values)

    def told_dead(self, message_id: Any) -> None:
        """Note that the source has been told: if it emits the message once more, it does so on purpose."""
        self.held_back.discard(message_id)

    def strikes(self, message_id: Any) -> int:
        """The strikes of a suspect; 0 for every other message."""
        strikes = self.tries.get(message_id, _NONE).strikes
        return strikes if strikes >= SUSPECT_STRIKES else 0

    def last_failure(self, message_id: Any) -> Failure:
        """The failure that the ledger shows."""
        return self.tries.get(message_id, _NONE).last or Failure(WORKER_DIED)

    # ---- the journal ----

    def resume(self, left: Remembered, worker: str = "") -> Changes:
        """Take over the counts of the task's earlier incarnation before anything is emitted; return all counts."""
        for message_id, tries in left.tries.items():
            self._enter(message_id, _shared(tries))
            if tries.dead:
                self.held_back.add(message_id)
        if left.unclean:
            self.watching = True
            died = Failure(WORKER_DIED, worker=worker, error=left.explanation)
            new = {root: key for root, key in left.under_way.items() if left.group != (root,) and key not in self.tries}
            if self.failed_together(list(new.values()), died) is None:
                new = {}
            for root, message_id in left.under_way.items():
                if root not in new:
                    self.failed(message_id, died, alone=left.group == (root,))
        self.failed_here.clear()
        self._changes.clear()
        self.look()
        return self.snapshot({})

    def take_changes(self) -> Changes | None:
        """Take the changes since the last call, None if there are none."""
        if not (self._changes or self._out or self._answered):
            return None
        changes = Changes(self._out, self._answered, self._changes, self.group)
        self._out, self._answered, self._changes = [], [], {}
        return changes

    def snapshot(self, trees: Mapping[int, tuple[Any, ...]], blocks: Iterable[OpenBlock] = ()) -> Changes:
        """All counts, with the messages under way: single ones, and in blocks."""
        told = trees.items() if self.watching else [(root, trees[root]) for root in self.on_trial if root in trees]
        out: list[tuple[int, Sequence[Hashable]]] = [(root, (key_of(tree[0], tree[3]),)) for root, tree in told]
        watched = list(blocks) if self.watching else []
        out += [(opened.block.base, opened.keys) for opened in watched]
        answered = [(opened.block.base, opened.answered()) for opened in watched]
        return Changes(out, answered, dict(self.tries), self.group)
