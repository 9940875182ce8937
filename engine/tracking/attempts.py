"""Counts the failures of each message of a spout task, and judges it by them.

Three numbers are kept per message until it is acked:

    attempts    failures of any kind, shown as `Failure.attempt`
    charged     those that were its own: refused, raised, timed out, or its worker died while it was on trial. The limit
                is `max_attempts`.
    crashes     exceptions and hangs that ended a worker; and, once it has killed on trial, every death in a row that it
                was under way at. The limit is `max_crashes`.

An exception in a bolt that takes batches has one cause among many messages, and is counted like a death without a word.
A worker that dies without a word takes up to `max_spout_pending` messages with it, and any of them may be the cause:
each gets a *strike*, which does not accuse it yet. A message with two strikes in a row is a *suspect* and goes out only
on *trial*, in small groups (see `.quarantine`). An innocent one is acked and forgotten; one that kills twice more while
on trial alone is guilty.

Guarantees: deaths alone never condemn a message that was not on trial at two of them. `resume` takes over the counts of
earlier incarnations of the task.

Messages are named here by their keys (`engine.foreign.identity`), because ids may not be hashable.

Pure: the caller stores the changes (`Journal`). Thread: the worker's loop.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple, Protocol

from squall.engine.api.failure import (
    ANOTHER_TUPLE,
    EXCEPTION,
    FRAME_DAMAGED,
    FRAME_LOST,
    HUNG,
    TIMEOUT,
    WORKER_DIED,
    Failure,
)
from squall.engine.foreign.identity import digest_of, key_of
from squall.engine.tracking.open_blocks import OpenBlock

SUSPECT_STRIKES = 2
GUILTY_TRIALS = 2
"""Deaths on trial, alone, that make a suspect guilty. A single one may be a coincidence: a kill at that very moment."""
REMEMBERED = 1_500_000
"""Messages whose failures are remembered; some 100 bytes each beside their ids. A spout that never replays would let
the table grow for ever: then the oldest are forgotten, and the operator is told. More than a `ReplayingSpout` keeps,
and few enough for `resume`, which delays the worker's start: 0.5 to 7 s for a million, by ids and length of the
journal."""
_WITH_TEXT = 10_000
"""Messages remembered with the whole text of their last failure, the others with its first word: bounds memory."""


class Tries(NamedTuple):
    """The failures of one message."""

    attempts: int = 0
    charged: int = 0
    exceptions: int = 0
    """Exceptions and hangs that ended a worker."""
    strikes: int = 0
    """Deaths in a row at which it was under way, ignoring timeouts between them."""
    trials: int = 0
    """Those of them at which it was on trial, alone."""
    last: Failure | None = None
    dead: bytes = b""
    """Digest of its values when it became a dead letter."""
    inherited: bool = False
    """Whether only an earlier incarnation of the task saw it fail: it may have been acked since."""

    @property
    def is_open(self) -> bool:
        """Whether this incarnation saw it fail, and it is no dead letter."""
        return not (self.dead or self.inherited)


class Changes(NamedTuple):
    """The changes of one turn for the journal, or, as a snapshot, everything."""

    out: list[tuple[int, Any]]
    """(root, message's key) of emits."""
    answered: list[int]
    tries: dict[Any, Tries | None]
    """None: forgotten."""
    group: tuple[int, ...]
    """Roots of the messages on trial, also of those that have been acked since."""
    blocks_out: Sequence[tuple[int, Sequence[Any]]] = ()
    """(first root, key of each member) of emits in blocks (`engine.flow.blocks`)."""
    blocks_answered: Sequence[tuple[int, Sequence[int]]] = ()
    """(first root, members) of messages of blocks; others of theirs may be in `answered`."""


@dataclass
class Remembered:
    """The counts that an earlier incarnation of the task left."""

    tries: dict[Any, Tries] = field(default_factory=dict)
    under_way: dict[int, Any] = field(default_factory=dict)
    group: tuple[int, ...] = ()
    unclean: bool = False
    """Whether it ended without a recorded cause."""


class Journal(Protocol):
    """Storage in which attempts outlive the worker."""

    def load(self) -> Remembered: ...

    def append(self, changes: Changes, snapshot: Callable[[], Changes]) -> None: ...

    def end(self) -> None:
        """Note that the incarnation ends with its cause recorded."""


class Verdict(enum.Enum):
    """The judgement of a message that was held back."""

    FREE = "free"
    SUSPECT = "suspect"
    CONDEMNED = "condemned"
    DEAD = "dead"
    """It is in the ledger already; the source has read it again."""


class Limits(NamedTuple):
    """The limits at which a message is given up; None = never."""

    max_attempts: int | None = None
    max_crashes: int | None = None
    exceptions_crash: bool = True
    """`on_error` is "crash"."""
    spout: str | None = None
    """The component of the messages: its own exceptions end its worker whatever `on_error` says."""

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
    """Return one shared object for equal counts, which many messages have."""
    return tries


class Attempts:
    """The messages of one spout task that have failed and are not acked yet."""

    __slots__ = (
        "_answered", "_blocks_answered", "_blocks_out", "_changes", "_limits", "_out", "_overdue", "_tried",
        "alert", "crashes", "failed_here", "forgot", "group", "held_back", "on_trial", "pins", "tries", "watching",
    )

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self.tries: dict[Any, Tries] = {}
        self.held_back: set[Any] = set()
        """Messages that must not be emitted at once. The same object for life, because the collector reads it."""
        self.group: tuple[int, ...] = ()
        """Roots of the messages that were emitted for trial together; empty when all of them have been answered."""
        self.on_trial: set[int] = set()
        """Those of them that have not been answered."""
        self._tried = 0
        """How many went on trial together last."""
        self._overdue: dict[int, Any] = {}
        """root -> message id of those of them that have timed out, while a worker may hang by them."""
        self.watching = False
        """Whether all emits are written down: after a death without a word, to know what is under way at the next."""
        self.pins = 0
        """Letters whose answers `engine.tracking.fate` needs."""
        self.alert = False
        """Whether emits and acks must be reported here at all. False on the healthy path."""
        self.crashes = 0
        """Ends of workers caused by a known message, if they bring a dead letter nearer."""
        self.failed_here = 0
        """Messages that this incarnation of the task saw fail, and that are neither acked nor dead letters."""
        self.forgot: Callable[[str], None] | None = None
        """Called once, when there are too many messages to remember."""
        self._changes: dict[Any, Tries | None] = {}
        self._out: list[tuple[int, Any]] = []
        self._answered: list[int] = []
        self._blocks_out: list[tuple[int, Sequence[Any]]] = []
        self._blocks_answered: list[tuple[int, Sequence[int]]] = []

    # ---- events of trees ----

    def emitted(self, root: int, message_id: Any) -> bool:
        """Note an emitted tree (called while `alert`); whether it is a replay."""
        if self.watching:
            self._out.append((root, message_id))
        tries = self.tries.get(message_id)
        if tries is not None and tries.dead:
            self.forget(message_id)
            return False
        return tries is not None

    def answered(self, root: int) -> None:
        """Note that a tree is no longer under way (called while `alert`)."""
        if root in self.on_trial:
            self.on_trial.remove(root)
            if not self.on_trial:
                self.group = ()
        elif not self.watching:
            return
        self._answered.append(root)

    def emitted_block(self, base: int, keys: Sequence[Hashable]) -> int:
        """Note the emitted trees of a block (called while `alert`); how many are replays."""
        if self.watching:
            self._blocks_out.append((base, keys))
        again = self._known(keys)
        dead = [key for key in again if self.tries[key].dead]
        self.forget_all(dead)
        return len(again) - len(dead)

    def answered_block(self, base: int, members: Sequence[int]) -> None:
        """Note that trees of a block are no longer under way (called while `alert`). None of them is on trial: suspects
        go out one by one."""
        if self.watching:
            self._blocks_answered.append((base, members))

    def _known(self, keys: Iterable[Hashable]) -> list[Hashable]:
        """Those of the messages that have failed."""
        tries = self.tries
        return [key for key in keys if key in tries] if tries else []

    def begin_trial(self, group: Mapping[int, Any]) -> None:
        """Note that suspects have been emitted, while no others are under way; message id by root."""
        self.group, self.on_trial = tuple(group), set(group)
        self._tried, self._overdue = len(group), {}
        if not self.watching:
            self._out.extend(group.items())

    def failed(self, message_id: Any, failure: Failure, alone: bool = False) -> Failure:
        """Count a failure; returns it with its attempt. `alone`: it was the only one on trial."""
        tries, failure, blamed = self._after(self.tries.get(message_id, _NONE), failure, alone)
        if blamed:
            self._count_crash()
        self._remember(message_id, tries)
        return failure

    def failed_first(
        self, message_ids: Sequence[Hashable], failure: Failure, inherited: bool = False
    ) -> Failure | None:
        """Count a failure of messages that fail together, if it is the first of each, and accuses none; returns it with
        its attempt. None, and nothing is counted, if it is not so. None of them is on trial."""
        tries, failure, blamed = self._after(_NONE, failure, alone=False)
        first = self._compact(tries._replace(inherited=inherited))
        new = dict.fromkeys(message_ids, first)
        if blamed or self._limits.condemn(first) or first.strikes >= SUSPECT_STRIKES or len(new) < len(message_ids):
            return None
        if self.tries and not self.tries.keys().isdisjoint(new):
            return None
        self.tries.update(new)
        self._changes.update(new)
        self.failed_here += 0 if inherited else len(new)
        self.alert = True
        while len(self.tries) > REMEMBERED:
            self._forget_oldest()
        return failure

    def _after(self, tries: Tries, failure: Failure, alone: bool) -> tuple[Tries, Failure, bool]:
        """The failures of a message after one more; that failure with its attempt; whether the message is blamed."""
        strikes, trials, exceptions, charged = tries.strikes, tries.trials, tries.exceptions, tries.charged
        blamed = False
        if failure.reason == WORKER_DIED:
            blamed = alone and failure.error != ANOTHER_TUPLE
            trials += blamed
            charged += blamed
            strikes += failure.error != ANOTHER_TUPLE
        elif failure.among > 1:
            # One of a batch is the cause, and nobody knows which: a strike, as at a death without a word.
            strikes += 1
        elif failure.reason != FRAME_LOST:
            blamed = self._limits.is_crash(failure)
            if failure.reason not in (TIMEOUT, FRAME_DAMAGED):
                # A timeout does not clear a message: one that hangs a worker times out before the hang is noticed. Nor
                # does a damaged frame, whose tuples nobody has executed.
                strikes = trials = 0
            exceptions += blamed
            charged += 1
        failure = failure.as_attempt(tries.attempts + 1)
        # The ledger shows the failure that a message was condemned for.
        last = tries.last if failure.error == ANOTHER_TUPLE and tries.last is not None else failure
        return Tries(tries.attempts + 1, charged, exceptions, strikes, trials, last), failure, blamed

    def charge_late(self, message_id: Any, failure: Failure) -> Failure | None:
        """Count a crash by an attempt that has timed out, and was counted then. None if it no longer counts against the
        message."""
        tries = self.tries.get(message_id)
        if tries is None or tries.dead or not self._limits.is_crash(failure):
            return None
        self._count_crash()
        failure = failure.as_attempt(tries.attempts)
        self._remember(message_id, tries._replace(exceptions=tries.exceptions + 1, last=failure))
        return failure

    def overdue(self, root: int, message_id: Any) -> None:
        """Note that a suspect on trial has timed out: it may have hung a worker."""
        self._overdue[root] = message_id

    def end_overdue(self, cleared: bool) -> None:
        """End the trial of suspects that timed out and killed no worker. `cleared`: they have hung none either."""
        late, self._overdue = self._overdue, {}
        for message_id in late.values() if cleared else ():
            tries = self.tries.get(message_id)
            if tries is not None and not tries.dead:
                self._remember(message_id, tries._replace(strikes=0, trials=0))

    def died_late(self, root: int, message_id: Any, failure: Failure) -> None:
        """Count a death without a word of a worker that held an attempt which had timed out, and was counted then."""
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
        """Note that the message is in the ledger. Later incarnations of the source may read it again."""
        last = self.tries.get(message_id, _NONE).last
        self._remember(message_id, Tries(last=last, dead=digest_of(values)))

    def forget(self, message_id: Any) -> None:
        """Forget all failures of the message."""
        if message_id in self.tries:
            self._forget(message_id)
            self._look()

    def forget_all(self, message_ids: Iterable[Hashable]) -> None:
        """The same of many messages."""
        for message_id in self._known(message_ids):
            self._forget(message_id)
        self._look()

    def _forget(self, message_id: Any) -> None:
        if (former := self.tries.pop(message_id, None)) is not None:
            self.failed_here -= former.is_open
            self._changes[message_id] = None
            self.held_back.discard(message_id)

    def verdict(self, message_id: Any, values: Any) -> Verdict:
        """Judge a message that was held back."""
        tries = self.tries.get(message_id)
        if tries is None or message_id not in self.held_back:
            return Verdict.FREE
        if tries.dead:
            return Verdict.DEAD if tries.dead == digest_of(values) else Verdict.FREE
        return Verdict.CONDEMNED if self._limits.condemn(tries) else Verdict.SUSPECT

    def told_dead(self, message_id: Any) -> None:
        """Note that the source has been told: if it emits the message once more, it does so on purpose."""
        self.held_back.discard(message_id)

    def strikes(self, message_id: Any) -> int:
        """Deaths in a row at which the message was under way."""
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
        """Return equal counts as one shared object, without long texts if there are many."""
        last = tries.last
        if last is not None and last.error and len(self.tries) >= _WITH_TEXT:
            tries = tries._replace(last=replace(last, error=last.error.partition(":")[0]))
        return _shared(tries)

    def _forget_oldest(self) -> None:
        # Many at once: finding the first entry of a table has to pass all gaps before it.
        for message_id in list(islice(self.tries, REMEMBERED // 10 or 1)):
            self.forget(message_id)
        if self.forgot is not None:
            tell, self.forgot = self.forgot, None
            tell(
                f"more than {REMEMBERED:,} messages have failed and are not acked: the oldest failures are forgotten, "
                "and count neither for max_attempts nor for max_crashes; does the spout emit again what has failed?"
            )

    def pin(self, change: int) -> None:
        """Count `change` more (or fewer) letters whose answers are needed."""
        self.pins += change
        self._look()

    def _look(self) -> None:
        self.alert = bool(self.tries) or self.watching or self.pins > 0

    # ---- the journal ----

    def resume(self, left: Remembered, worker: str = "") -> Changes:
        """Take over the counts of the task's earlier incarnation before anything is emitted; returns all counts."""
        self._inherit(left.tries)
        if left.unclean:
            self.watching = True
            died = Failure(WORKER_DIED, worker=worker)
            failed_before = {
                root: message_id
                for root, message_id in left.under_way.items() if left.group == (root,) or message_id in self.tries
            }
            for root, message_id in failed_before.items():
                self._inherit_failure(message_id, died, alone=left.group == (root,))
            first = [message_id for root, message_id in left.under_way.items() if root not in failed_before]
            if self.failed_first(first, died, inherited=True) is None:
                for message_id in first:
                    self._inherit_failure(message_id, died, alone=False)
        self.failed_here = 0
        self._changes.clear()
        self._look()
        return self.snapshot({})

    def _inherit_failure(self, message_id: Any, died: Failure, alone: bool) -> None:
        self.failed(message_id, died, alone)
        self.tries[message_id] = _shared(self.tries[message_id]._replace(inherited=True))

    def _inherit(self, left: dict[Any, Tries]) -> None:
        """Take over up to `REMEMBERED` entries, before the worker is ready: quick, because equal counts are one object,
        also as they come from the journal, and are judged once."""
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
        """Take the changes since the last call, None if there are none."""
        if not (self._changes or self._out or self._answered or self._blocks_out or self._blocks_answered):
            return None
        changes = Changes(
            self._out, self._answered, self._changes, self.group, self._blocks_out, self._blocks_answered
        )
        self._out, self._answered, self._changes = [], [], {}
        self._blocks_out, self._blocks_answered = [], []
        return changes

    def snapshot(self, trees: Mapping[int, tuple[Any, ...]], blocks: Iterable[OpenBlock] = ()) -> Changes:
        """All counts, with the messages under way: single ones, and in blocks."""
        told = trees.items() if self.watching else [(root, trees[root]) for root in self.on_trial if root in trees]
        out = [(root, key_of(tree[0], tree[3])) for root, tree in told]
        watched = list(blocks) if self.watching else []
        return Changes(
            out, [], dict(self.tries), self.group, [(opened.block.base, opened.keys) for opened in watched],
            [(opened.block.base, members) for opened in watched if (members := opened.answered())],
        )
