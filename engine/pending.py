"""The pending table: trees a spout task has emitted and that are not answered yet.

Guarantees
    * Each tree is answered once: whoever removes it from the table first (ack, failure, timeout) wins, what comes later
      finds nothing. An attempt has a root of its own, so an answer to an earlier one cannot touch it.
    * A timeout is precise: the table is ordered by deadline, and the earliest is looked at on every turn of the loop.
    * The number of attempts per message id is counted until it is acked or given up.

Pure but for calling the spout. One thread: the spout's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.component import Spout
from engine.failure import TIMEOUT, WORKER_DIED, Failure
from engine.metrics import TaskStats

_REMEMBERED_ATTEMPTS = 100_000
"""Failed messages whose number of attempts is remembered; about 20 MiB at most."""

Init = Callable[[int, int, int, int], None]
"""(root, xor, spout task, workers) -> None: tells the acker of a new tree."""


class PendingTable:
    """Trees of one spout task."""

    __slots__ = (
        "_attempts", "_init", "_now_ns", "_stats", "_task", "_timeout_ns", "_trees", "forget", "give_up",
        "max_attempts", "spout",
    )

    def __init__(
        self, task: int, spout: Spout, now_ns: Callable[[], int], timeout_ns: int, stats: TaskStats, init: Init,
        forget: Callable[[int], None], max_attempts: int | None,
        give_up: Callable[[Any, Any, Failure], None],
    ) -> None:
        self._task = task
        self.spout = spout
        """Who is told of answers: the user's object, or what stands before it (see `engine.hooks`)."""
        self._now_ns = now_ns
        self._timeout_ns = timeout_ns
        self._stats = stats
        self._init = init
        self.forget = forget
        self.max_attempts = max_attempts
        self.give_up = give_up
        # root -> (message id, emitted at, timeout counted from, values). Insertion order is deadline order: the timeout
        # is the same for all, and a reset moves a tree to the end.
        self._trees: dict[int, tuple[Any, int, int, Any]] = {}
        self._attempts: dict[Any, int] = {}

    def __len__(self) -> int:
        return len(self._trees)

    def add(self, root: int, message_id: Any, values: Any, xor: int, workers: int) -> None:
        """A tree was emitted: `xor` of its first edges, sent to `workers`."""
        now = self._now_ns()
        self._trees[root] = (message_id, now, now, values)
        if self._attempts and message_id in self._attempts:
            self._stats.replayed += 1
        self._init(root, xor, self._task, workers)

    def answer_untracked(self, message_id: Any) -> None:
        """No ackers: acked as it is emitted (Storm's rule), and not counted."""
        self.spout.ack(message_id)

    def acked(self, root: int) -> None:
        """The acker says that the tree is processed."""
        tree = self._trees.pop(root, None)
        if tree is None:
            return
        message_id, emitted_ns, _, _ = tree
        stats = self._stats
        stats.acked += 1
        stats.observe_ns(self._now_ns() - emitted_ns)
        if self._attempts:
            self._attempts.pop(message_id, None)
        self.spout.ack(message_id)

    def failed(self, root: int, failure: Failure) -> None:
        """The tree failed; the spout is told, or the message given up when it has failed too often."""
        tree = self._trees.pop(root, None)
        if tree is None:
            return
        message_id = tree[0]
        self._stats.failed += 1
        attempt = self._attempts.get(message_id, 0) + 1
        failure = failure.as_attempt(attempt)
        if self.max_attempts is not None and attempt >= self.max_attempts:
            self._attempts.pop(message_id, None)
            self._stats.dead_letters += 1
            self.give_up(message_id, tree[3], failure)
            self.spout.on_dead_letter(message_id, failure)
            return
        self._attempts[message_id] = attempt
        if len(self._attempts) > _REMEMBERED_ATTEMPTS:
            # A spout that never replays, or uses a new id each time, would let this grow for ever.
            del self._attempts[next(iter(self._attempts))]
        self.spout.on_failure(message_id, failure)

    def reset(self, root: int) -> None:
        """Count the tree's timeout from now."""
        tree = self._trees.pop(root, None)
        if tree is not None:
            self._trees[root] = (tree[0], tree[1], self._now_ns(), tree[3])

    def expire(self) -> int:
        """Fail every tree whose time is up; how many."""
        limit = self._now_ns() - self._timeout_ns
        expired = []
        for root, tree in self._trees.items():
            if tree[2] > limit:
                break
            expired.append(root)
        for root in expired:
            self._stats.timed_out += 1
            self.forget(root)
            self.failed(root, Failure(TIMEOUT))
        return len(expired)

    @property
    def next_deadline_ns(self) -> int | None:
        """When the earliest tree times out."""
        for tree in self._trees.values():
            return tree[2] + self._timeout_ns
        return None

    def acker_died(self, is_its: Callable[[int], bool]) -> None:
        """Fail every tree whose acker is gone; `is_its(root)` says which."""
        for root in [root for root in self._trees if is_its(root)]:
            self.failed(root, Failure(WORKER_DIED))
