"""The pending table: trees a spout task has emitted and that are not answered yet.

Guarantees
    * Each tree is answered once: whoever removes it from the table first (ack, failure, timeout) wins, what comes later
      finds nothing. An attempt has a root of its own, so an answer to an earlier one cannot touch it.
    * A timeout is precise: the table is ordered by deadline, and the earliest is looked at on every turn of the loop.
    * A message that has failed too often (`engine.tracking.attempts`) goes to the ledger and the spout is told, once.

Pure but for calling the spout. One thread: the spout's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from itertools import islice
from typing import Any

from squall.engine.api.component import Spout
from squall.engine.api.failure import ANOTHER_TUPLE, TIMEOUT, WORKER_DIED, Failure
from squall.engine.foreign.identity import id_of, key_of
from squall.engine.report.account import ACKED, DEAD_LETTERS, FAILED
from squall.engine.report.metrics import SpoutStats
from squall.engine.tracking.attempts import Attempts
from squall.engine.tracking.quarantine import Held, Letter, OwnTurn, Quarantine

LATE = 1_000_000
"""Trees that timed out and that a worker may yet end by. Workers hang for `worker_timeout_secs`, and are gone."""

Init = Callable[[int, int, int, int], None]
"""(root, xor, spout task, mask) -> None: tells the acker of a new tree."""


class PendingTable:
    """Trees of one spout task."""

    __slots__ = (
        "_account",
        "_acked",
        "_init",
        "_late",
        "_stats",
        "_task",
        "_timeout_ns",
        "attempts",
        "due_ns",
        "emitted_again",
        "forget",
        "give_up",
        "note",
        "now_ns",
        "quarantine",
        "spout",
        "trees",
    )

    def __init__(
        self, task: int, spout: Spout, now_ns: Callable[[], int], timeout_ns: int, stats: SpoutStats, init: Init,
        forget: Callable[[int], int], give_up: Callable[[Any, Any, Failure], None],
        attempts: Attempts | None = None, quarantine: Quarantine | None = None,
        note: Callable[[Any, Failure], None] = lambda message_id, failure: None,
    ) -> None:
        self._task = task
        self.spout = spout
        """Who is told of answers: the user's object, or what stands before it (see `engine.core.watching`)."""
        self.now_ns = now_ns
        self._timeout_ns = timeout_ns
        self._stats = stats
        self._account = stats.account
        self._acked = stats.account[ACKED]
        """What is written there. To read it back costs more than everything else about an ack."""
        self.emitted_again = 0
        """Attempts that the engine began, not the spout: of dead letters that were given back."""
        self._init = init
        self.forget = forget
        """root -> mask of the workers that hold a part of the tree, -1 if nobody here knows: it is given up."""
        self._late: dict[int, tuple[Any, int]] = {}
        """root -> (message's key, workers that held a part) of trees that timed out: a worker may yet end by one."""
        self.give_up = give_up
        """Called with (message id, values, failure) of each new dead letter."""
        self.attempts = attempts or Attempts()
        self.quarantine = Quarantine(OwnTurn()) if quarantine is None else quarantine
        self.note = note
        """Called with (message id, failure) of each failure."""
        self.trees: dict[int, tuple[Any, int, int, Any]] = {}
        """root -> (message id, emitted at, timeout counted from, values). Insertion order is deadline order: the
        timeout is the same for all, and a reset moves a tree to the end."""
        self.due_ns = 0
        """No tree is to expire before this; what is added later expires later."""

    def __len__(self) -> int:
        """Messages that wait for an answer, or to be emitted."""
        return len(self.trees) + len(self.quarantine)

    def add(self, root: int, message_id: Any, values: Any, xor: int, mask: int) -> None:
        """A tree was emitted: `xor` of its first edges, sent to the workers of `mask`."""
        now = self.now_ns()
        self.trees[root] = (message_id, now, now, values)
        if self.attempts.alert and self.attempts.emitted(root, key_of(message_id, values)):
            self._stats.replayed += 1
        self._init(root, xor, self._task, mask)

    def hold(self, message_id: Any, values: Any) -> None:
        """The spout emitted what must not go out at once."""
        self.quarantine.hold(Held(message_id, values, None), self.attempts.strikes(key_of(message_id, values)))

    def give_back(self, letter: Letter) -> None:
        """A dead letter is to be emitted again, as if it had never failed."""
        self.attempts.forget(key_of(letter.message_id, letter.values))
        self.attempts.pin(1)
        self.emitted_again += 1
        self.quarantine.waiting.append(letter)

    def answer_untracked(self, message_id: Any) -> None:
        """No ackers: acked as it is emitted (Storm's rule), and not counted."""
        self.spout.ack(message_id)

    def acked(self, root: int) -> None:
        """The acker says that the tree is processed."""
        tree = self.trees.pop(root, None)
        if tree is None:
            return
        message_id, emitted_ns, _, values = tree
        # Before the spout hears of it: what it makes durable must not be missing in the account, whoever dies next.
        self._acked = acked = self._acked + 1
        self._account[ACKED] = acked
        self._stats.observe_ns(self.now_ns() - emitted_ns)
        if self.attempts.alert:
            letter = self._answered(root)
            self.attempts.forget(key_of(message_id, values))
            if letter is not None:
                self._settle(letter)
                return
        try:
            self.spout.ack(message_id)
        except BaseException:
            # It did not take the answer: its successor will emit the message again. Were it counted, a spout that
            # raises again and again would seem to get on.
            self._acked -= 1
            self._account[ACKED] = self._acked
            raise

    def _answered(self, root: int) -> Letter | None:
        """Note that a tree is no longer under way; the letter it was, if it was one that had been given back."""
        attempts = self.attempts
        was_tried = root in attempts.on_trial
        attempts.answered(root)
        if was_tried and not attempts.on_trial:
            self.quarantine.trial_over(self.now_ns())
        return self.quarantine.letters.pop(root, None)

    def _settle(self, letter: Letter) -> None:
        self.attempts.pin(-1)
        letter.settled()

    def failed(self, root: int, failure: Failure) -> None:
        """The tree failed; the spout is told, or the message given up when it has failed too often."""
        tree = self.trees.pop(root, None)
        if tree is None:
            return
        message_id, values = tree[0], tree[3]
        key = key_of(message_id, values)
        failure, letter = self._note_failure(root, message_id, key, failure)
        if self.attempts.condemned(key):
            shown = self.attempts.last_failure(key) if failure.error == ANOTHER_TUPLE else failure
            self.bury(message_id, values, shown.as_attempt(failure.attempt), letter)
            return
        self._account[FAILED] += 1
        if letter is not None:
            self.emitted_again += 1
            self.quarantine.wait(letter, failure.attempt, self.now_ns())
        else:
            self.spout.on_failure(message_id, failure)

    def _note_failure(
        self, root: int, message_id: Any, key: Hashable, failure: Failure
    ) -> tuple[Failure, Letter | None]:
        alone = self.attempts.group == (root,)
        if failure.reason == WORKER_DIED and root in self.attempts.on_trial:
            self.quarantine.somebody_killed()
        letter = self._answered(root) if self.attempts.alert else None
        failure = self.attempts.failed(key, failure, alone)
        self.note(message_id, failure)
        return failure, letter

    def charge(self, root: int, failure: Failure) -> None:
        """The worker is about to end by an error in this tree. The spout hears nothing: its successor will emit the
        message again, or find it condemned."""
        tree = self.trees.pop(root, None)
        if tree is not None:
            self._account[FAILED] += 1
            self._note_failure(root, tree[0], key_of(tree[0], tree[3]), failure)
        else:
            self.charge_late(root, failure)

    def charge_late(self, root: int, failure: Failure) -> None:
        """A worker has ended by an error in this tree, which may have timed out before: the spout was told then."""
        if root not in self._late:
            return
        key, _ = self._late.pop(root)
        charged = self.attempts.charge_late(key, failure)
        if charged is not None:
            self.note(id_of(key), charged)

    def worker_died(self, dead: int, failure: Failure, held: Collection[int]) -> None:
        """The worker of that bit died without a word. It may have hung in what has timed out before; `held`: roots of
        trees that it held and that are about to fail by its death."""
        late = [(root, known[0]) for root, known in self._late.items() if known[1] & dead]
        struck = {key_of(tree[0], tree[3]) for root, tree in self.trees.items() if root in held} if late else set()
        # The newest first: of a message that timed out twice, that is the attempt that may have been on trial.
        for root, key in reversed(late):
            del self._late[root]
            if key not in struck:
                struck.add(key)
                self.attempts.died_late(root, key, failure)

    def bury(self, message_id: Any, values: Any, failure: Failure, letter: Letter | None) -> None:
        """Over the limit: to the ledger with it."""
        self.give_up(message_id, values, failure)
        # Only now is it there. Who is killed in between tries the message once more, and buries it again.
        self._account[DEAD_LETTERS] += 1
        self.attempts.buried(key_of(message_id, values), values)
        if letter is not None:
            self._settle(letter)
        else:
            self.tell_dead(message_id, values, failure)

    def refuse_dead(self, message_id: Any, values: Any) -> None:
        """The spout has emitted a message that is in the ledger already: it is told so instead."""
        self._account[FAILED] += 1
        self.tell_dead(message_id, values, self.attempts.last_failure(key_of(message_id, values)))

    def tell_dead(self, message_id: Any, values: Any, failure: Failure) -> None:
        """The message is in the ledger."""
        self.attempts.told_dead(key_of(message_id, values))
        self.spout.on_dead_letter(message_id, failure)

    def unreplayed(self, waiting: int) -> int:
        """Messages that failed, and that the spout, which holds `waiting` for a retry, did not emit again. Counted
        where nothing is open; until then it may still do so."""
        return 0 if self else max(0, self.attempts.failed_here - waiting)

    def reset(self, root: int) -> None:
        """Count the tree's timeout from now."""
        tree = self.trees.pop(root, None)
        if tree is not None:
            self.trees[root] = (tree[0], tree[1], self.now_ns(), tree[3])

    def expire(self) -> int:
        """Fail every tree whose time is up; how many."""
        now = self.now_ns()
        limit = now - self._timeout_ns
        self.due_ns = now + self._timeout_ns
        expired = []
        for root, tree in self.trees.items():
            if tree[2] > limit:
                self.due_ns = tree[2] + self._timeout_ns
                break
            expired.append(root)
        for root in expired:
            self._stats.timed_out += 1
            tree = self.trees[root]
            self._late[root] = key_of(tree[0], tree[3]), self.forget(root)
            if root in self.attempts.on_trial:
                self.quarantine.somebody_is_late(now)
                self.attempts.overdue(root, self._late[root][0])
            self.failed(root, Failure(TIMEOUT))
        if len(self._late) > LATE:
            for root in list(islice(self._late, len(self._late) - LATE * 9 // 10)):
                del self._late[root]
        return len(expired)

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        for tree in self.trees.values():
            return tree[2] + self._timeout_ns
        return None

    def acker_died(self, is_its: Callable[[int], bool], failure: Failure | None = None) -> None:
        """Fail every tree whose acker is gone; `is_its(root)` says which."""
        for root in [root for root in self.trees if is_its(root)]:
            self.failed(root, failure or Failure(WORKER_DIED))
