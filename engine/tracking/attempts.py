"""How often each message of a spout task has failed, and what follows from it.

Three numbers are kept per message until it is acked:

    attempts    failures of any kind; what `Failure.attempt` says
    charged     those that were its own: refused, raised, timed out, or its worker died while it was on trial. The limit
                is `max_attempts`.
    crashes     exceptions and hangs that ended a worker; and, once it has killed on trial, every death in a row that it
                was under way at. The limit is `max_crashes`.

A worker that dies without a word takes up to `max_spout_pending` messages with it, and nobody knows whose fault it was:
each gets a *strike*, which accuses nobody. A message with two strikes in a row is a *suspect* and goes out only on
*trial*, in small groups (see `.quarantine`). An innocent one is acked and forgotten; one that kills again,
alone, and again, is guilty.

Guarantees: deaths alone never condemn a message that was not on trial at two of them. What earlier incarnations of the
task knew is taken over by `resume`.

Messages are named here by their keys (`engine.foreign.identity`), which take the place of ids that cannot be hashed.

Pure: the caller writes down what must survive (`Journal`). One thread: the spout's.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

from squall.engine.api.failure import ANOTHER_TUPLE, EXCEPTION, FRAME_LOST, HUNG, TIMEOUT, WORKER_DIED, Failure
from squall.engine.foreign.identity import digest_of, key_of

SUSPECT_STRIKES = 2
GUILTY_TRIALS = 2
"""A single death on trial may be a coincidence: someone killed the worker in that very millisecond."""
REMEMBERED = 1_500_000
"""Messages whose failures are remembered; some 100 bytes each beside their ids. A spout that never replays would let it
grow for ever: then the oldest are forgotten, and the operator is told. More than a `ReplayingSpout` keeps, and few
enough for `resume`, which the worker's start waits for: 0.5 to 7 s for a million, by ids and length of the journal."""
_WITH_TEXT = 10_000
"""So many of them are remembered with the whole text of their last failure, the others with its first word."""


class Tries(NamedTuple):
    """What is known against one message."""

    attempts: int = 0
    charged: int = 0
    exceptions: int = 0
    """Exceptions and hangs that ended a worker."""
    strikes: int = 0
    """Deaths in a row that it was under way at, timeouts between them aside."""
    trials: int = 0
    """How many of these it was on trial at, alone."""
    last: Failure | None = None
    dead: bytes = b""
    """Digest of its values when it became a dead letter."""
    inherited: bool = False
    """Only an earlier incarnation of the task saw it failing: it may have been acked since."""

    @property
    def is_open(self) -> bool:
        """This incarnation saw it failing, and it is no dead letter."""
        return not (self.dead or self.inherited)


class Changes(NamedTuple):
    """What the journal is told of one turn, or, as a snapshot, of everything."""

    out: list[tuple[int, Any]]
    """(root, message's key) of what was emitted."""
    answered: list[int]
    tries: dict[Any, Tries | None]
    """None: forgotten."""
    group: tuple[int, ...]
    """Roots of the messages on trial, also of those that have been acked since."""


@dataclass
class Remembered:
    """What an earlier incarnation of the task left."""

    tries: dict[Any, Tries] = field(default_factory=dict)
    under_way: dict[int, Any] = field(default_factory=dict)
    group: tuple[int, ...] = ()
    unclean: bool = False
    """It ended without saying why."""


class Journal(Protocol):
    """Where attempts outlive the worker."""

    def load(self) -> Remembered: ...

    def append(self, changes: Changes, snapshot: Callable[[], Changes]) -> None: ...

    def end(self) -> None:
        """The incarnation ends, and whose fault that is has been written down."""


class Verdict(enum.Enum):
    """What is to be done with a message that was held back."""

    FREE = "free"
    SUSPECT = "suspect"
    CONDEMNED = "condemned"
    DEAD = "dead"
    """It is in the ledger already; the source has read it again."""


class Limits(NamedTuple):
    """When a message is given up; None = never."""

    max_attempts: int | None = None
    max_crashes: int | None = None
    exceptions_crash: bool = True
    """`on_error` is "crash"."""
    spout: str | None = None
    """The component whose messages these are: its own exceptions end its worker whatever `on_error` says."""

    def is_crash(self, failure: Failure) -> bool:
        """Whether the failure is known to have ended a worker by this very message."""
        ends = self.exceptions_crash or failure.component == self.spout
        return failure.reason == HUNG or (failure.reason == EXCEPTION and ends)

    def condemn(self, tries: Tries) -> bool:
        if self.max_attempts is not None and tries.charged >= self.max_attempts:
            return True
        crashes = tries.exceptions + (tries.strikes if tries.trials >= GUILTY_TRIALS else 0)
        return self.max_crashes is not None and crashes >= self.max_crashes


_NONE = Tries()
_NEVER = Tries(inherited=True)


@lru_cache(maxsize=4096)
def _shared(tries: Tries) -> Tries:
    """What is known against many messages is kept once."""
    return tries


class Attempts:
    """The messages of one spout task that have failed and are not acked yet."""

    __slots__ = (
        "_answered", "_changes", "_limits", "_out", "_overdue", "_tried",
        "alert", "crashes", "failed_here", "forgot", "group", "held_back", "on_trial", "pins", "tries", "watching",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.tries: dict[Any, Tries] = {}
        self.held_back: set[Any] = set()
        """Messages that must not be emitted at once. The same object for life: the collector looks at it."""
        self.group: tuple[int, ...] = ()
        """Roots of the messages that were emitted for trial together; empty when all of them have been answered."""
        self.on_trial: set[int] = set()
        """Those of them that have not been answered."""
        self._tried = 0
        """How many went on trial together last."""
        self._overdue: dict[int, Any] = {}
        """root -> message id of those of them that have timed out, while it is not known whether a worker hangs."""
        self.watching = False
        """Whether everything emitted is written down: after a death without a word, so that the next one is less of a
        riddle."""
        self.pins = 0
        """Trees that someone else wants to hear of."""
        self.alert = False
        """Whether emits and acks need a look at all. False on the healthy path."""
        self.crashes = 0
        """Ends of workers that are known to be some message's doing, as far as they bring a dead letter nearer."""
        self.failed_here = 0
        """Messages that this incarnation of the task saw failing, and that are neither acked nor dead letters."""
        self.forgot: Callable[[str], None] | None = None
        """Told, once, that there were too many to remember."""
        self._changes: dict[Any, Tries | None] = {}
        self._out: list[tuple[int, Any]] = []
        self._answered: list[int] = []

    # ---- what happens to trees ----

    def emitted(self, root: int, message_id: Any) -> bool:
        """A tree was emitted (called while `alert`); whether it is a replay."""
        if self.watching:
            self._out.append((root, message_id))
        tries = self.tries.get(message_id)
        if tries is not None and tries.dead:
            self.forget(message_id)
            return False
        return tries is not None

    def answered(self, root: int) -> None:
        """A tree is no longer under way (called while `alert`)."""
        if root in self.on_trial:
            self.on_trial.remove(root)
            if not self.on_trial:
                self.group = ()
        elif not self.watching:
            return
        self._answered.append(root)

    def begin_trial(self, group: Mapping[int, Any]) -> None:
        """Suspects have been emitted, and no others are under way; message id by root."""
        self.group, self.on_trial = tuple(group), set(group)
        self._tried, self._overdue = len(group), {}
        if not self.watching:
            self._out.extend(group.items())

    def failed(self, message_id: Any, failure: Failure, alone: bool = False) -> Failure:
        """Count a failure; returns it with its attempt. `alone`: it was the only one on trial."""
        tries = self.tries.get(message_id, _NONE)
        strikes, trials, exceptions, charged = tries.strikes, tries.trials, tries.exceptions, tries.charged
        blamed = False
        if failure.reason == WORKER_DIED:
            blamed = alone and failure.error != ANOTHER_TUPLE
            trials += blamed
            charged += blamed
            strikes += failure.error != ANOTHER_TUPLE
        elif failure.reason != FRAME_LOST:
            blamed = self._limits.is_crash(failure)
            if failure.reason != TIMEOUT:
                # Who timed out is not cleared yet: what hangs a worker does that before the worker is found to hang.
                strikes = trials = 0
            exceptions += blamed
            charged += 1
        if blamed:
            self._count_crash()
        failure = failure.as_attempt(tries.attempts + 1)
        # Of one that is condemned the ledger shows what it was condemned for.
        last = tries.last if failure.error == ANOTHER_TUPLE and tries.last is not None else failure
        self._remember(message_id, Tries(tries.attempts + 1, charged, exceptions, strikes, trials, last))
        return failure

    def charge_late(self, message_id: Any, failure: Failure) -> Failure | None:
        """An attempt that has timed out, and was counted, has ended a worker after all. None if that says nothing
        against the message any more."""
        tries = self.tries.get(message_id)
        if tries is None or tries.dead or not self._limits.is_crash(failure):
            return None
        self._count_crash()
        failure = failure.as_attempt(tries.attempts)
        self._remember(message_id, tries._replace(exceptions=tries.exceptions + 1, last=failure))
        return failure

    def overdue(self, root: int, message_id: Any) -> None:
        """A suspect on trial has timed out: it may have hung a worker."""
        self._overdue[root] = message_id

    def end_overdue(self, cleared: bool) -> None:
        """What timed out on trial has killed nobody. `cleared`: it has hung nobody either."""
        late, self._overdue = self._overdue, {}
        for message_id in late.values() if cleared else ():
            tries = self.tries.get(message_id)
            if tries is not None and not tries.dead:
                self._remember(message_id, tries._replace(strikes=0, trials=0))

    def died_late(self, root: int, message_id: Any, failure: Failure) -> None:
        """A worker has died without a word, and held an attempt that had timed out, and was counted, before."""
        alone = root in self._overdue and self._tried == 1
        self._overdue.pop(root, None)
        tries = self.tries.get(message_id)
        if tries is None or tries.dead:
            return
        if alone:
            self._count_crash()
        last = failure.as_attempt(tries.attempts)
        self._remember(message_id, tries._replace(strikes=tries.strikes + 1, trials=tries.trials + alone, last=last))

    def _count_crash(self) -> None:
        if (self._limits.max_attempts, self._limits.max_crashes) != (None, None):
            self.crashes += 1

    def condemned(self, message_id: Any) -> bool:
        """Whether the message has failed too often."""
        tries = self.tries.get(message_id)
        return tries is not None and self._limits.condemn(tries)

    def buried(self, message_id: Any, values: Any) -> None:
        """The message is in the ledger. Later incarnations of the source may read it again."""
        last = self.tries.get(message_id, _NONE).last
        self._remember(message_id, Tries(last=last, dead=digest_of(values)))

    def forget(self, message_id: Any) -> None:
        """Nothing is held against the message any more."""
        if (former := self.tries.pop(message_id, None)) is not None:
            self.failed_here -= former.is_open
            self._changes[message_id] = None
            self.held_back.discard(message_id)
            self._look()

    def verdict(self, message_id: Any, values: Any) -> Verdict:
        """What to do with a message that was held back."""
        tries = self.tries.get(message_id)
        if tries is None or message_id not in self.held_back:
            return Verdict.FREE
        if tries.dead:
            return Verdict.DEAD if tries.dead == digest_of(values) else Verdict.FREE
        return Verdict.CONDEMNED if self._limits.condemn(tries) else Verdict.SUSPECT

    def told_dead(self, message_id: Any) -> None:
        """The source knows. If it emits the message once more, it means it."""
        self.held_back.discard(message_id)

    def strikes(self, message_id: Any) -> int:
        """Deaths in a row that the message was under way at."""
        return self.tries.get(message_id, _NONE).strikes

    def last_failure(self, message_id: Any) -> Failure:
        """The failure that the ledger shows."""
        return self.tries.get(message_id, _NONE).last or Failure(WORKER_DIED)

    def _remember(self, message_id: Any, tries: Tries) -> None:
        # Taken out first, so that the order of the table is that of the failures.
        self.failed_here += tries.is_open - self.tries.pop(message_id, _NEVER).is_open
        self._changes[message_id] = tries = self._compact(tries)
        self._enter(message_id, tries)
        if len(self.tries) > REMEMBERED:
            self._forget_oldest()

    def _enter(self, message_id: Any, tries: Tries) -> None:
        self.tries[message_id] = tries
        if tries.strikes >= SUSPECT_STRIKES or self._limits.condemn(tries):
            self.held_back.add(message_id)
        else:
            self.held_back.discard(message_id)
        self.alert = True

    def _compact(self, tries: Tries) -> Tries:
        """The same, once for all messages of which the same is known."""
        last = tries.last
        if last is not None and last.error and len(self.tries) >= _WITH_TEXT:
            tries = tries._replace(last=replace(last, error=last.error.partition(":")[0]))
        return _shared(tries)

    def _forget_oldest(self) -> None:
        # Many at once: to find the first entry of a table takes as long as there are gaps before it.
        for message_id in list(islice(self.tries, REMEMBERED // 10 or 1)):
            self.forget(message_id)
        if self.forgot is not None:
            tell, self.forgot = self.forgot, None
            tell(
                f"more than {REMEMBERED:,} messages have failed and are not acked: the oldest failures are forgotten, "
                "and count neither for max_attempts nor for max_crashes; does the spout emit again what has failed?"
            )

    def pin(self, change: int) -> None:
        """Someone wants to hear of `change` more trees (or fewer)."""
        self.pins += change
        self._look()

    def _look(self) -> None:
        self.alert = bool(self.tries) or self.watching or self.pins > 0

    # ---- what survives ----

    def resume(self, left: Remembered, worker: str = "") -> Changes:
        """Take over what the task's earlier incarnation left, before anything is emitted; what is known now."""
        self._inherit(left.tries)
        if left.unclean:
            self.watching = True
            for root, message_id in left.under_way.items():
                self.failed(message_id, Failure(WORKER_DIED, worker=worker), alone=left.group == (root,))
                self.tries[message_id] = _shared(self.tries[message_id]._replace(inherited=True))
        self.failed_here = 0
        self._changes.clear()
        self._look()
        return self.snapshot({})

    def _inherit(self, left: dict[Any, Tries]) -> None:
        """Up to `REMEMBERED` entries, before the worker is ready: what is known against many of them is one object,
        also as it comes from the journal, and is looked at once."""
        told: dict[int, tuple[Tries, bool]] = {}
        mine, held_back = self.tries, self.held_back
        for message_id, tries in left.items():
            known = told.get(id(tries))
            if known is None:
                held = bool(tries.dead) or tries.strikes >= SUSPECT_STRIKES or self._limits.condemn(tries)
                known = told[id(tries)] = _shared(tries._replace(inherited=True)), held
            mine[message_id] = known[0]
            if known[1]:
                held_back.add(message_id)
        self.alert = self.alert or bool(mine)

    def take_changes(self) -> Changes | None:
        """What has changed since the last time, None if nothing has."""
        if not (self._changes or self._out or self._answered):
            return None
        changes = Changes(self._out, self._answered, self._changes, self.group)
        self._out, self._answered, self._changes = [], [], {}
        return changes

    def snapshot(self, trees: Mapping[int, tuple[Any, ...]]) -> Changes:
        """Everything, with what is under way."""
        told = trees.items() if self.watching else [(root, trees[root]) for root in self.on_trial if root in trees]
        out = [(root, key_of(tree[0], tree[3])) for root, tree in told]
        return Changes(out, [], dict(self.tries), self.group)
