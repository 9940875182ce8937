"""The account of a spout task: it counts the fates of its attempts (emits with a message id).

Guarantees
    * At any instant `tracked = acked + failed + dead_letters + abandoned + open`, whatever died when: a column is
      written before the spout, or a process other than the worker, can see the event that it counts.
    * Attempts that an incarnation left open at its end are counted as abandoned by its successor, once.
    * A message that nobody has answered is in `unanswered` until it is, whatever died when. Each incarnation knows its
      own message ids only, so it takes its first emits for the messages that its predecessors left.

The words outlive the worker if they are in shared memory. Thread: the worker's loop, which alone writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass

from squall.engine.report.document import Count

ACCOUNT_COLUMNS = ("acked", "failed", "dead_letters", "abandoned", "replayed", "emitted", "tracked")
"""`failed`: only the spout was told; it may hold some of these for a retry. `replayed`: attempts beyond the first of
their messages. `emitted`: all emits of the task. `tracked`: those with a message id, if there are ackers. Emits come
last, so that a reader during a write never sees an answer before its emit."""
ACKED, FAILED, DEAD_LETTERS, ABANDONED, REPLAYED, EMITTED, TRACKED = range(len(ACCOUNT_COLUMNS))

Words = MutableSequence[int] | memoryview
"""The columns of one task: a plain list, or words of the status board."""


def open_attempts(words: Words) -> int:
    """Number of attempts without an answer."""
    return max(0, words[TRACKED] - words[ACKED] - words[FAILED] - words[DEAD_LETTERS] - words[ABANDONED])


def unanswered(counters: Mapping[str, int]) -> int:
    """Number of messages that were emitted and are neither acked nor dead letters, from the columns by name."""
    messages = counters["tracked"] - counters["replayed"]
    return max(0, messages - counters["acked"] - counters["dead_letters"])


def abandon(words: Words) -> None:
    """Count open attempts as abandoned. Called when an incarnation begins: its predecessors can answer no more."""
    words[ABANDONED] += open_attempts(words)


@dataclass(frozen=True)
class Account:
    """Attempts of one spout task or several: each counts in `emitted` and in one other column, its fate."""

    emitted: Count
    """Attempts: emits with a message id, replays included."""
    acked: Count
    """Processed by every bolt of their trees."""
    failed: Count
    """Failed, and not (or no longer) held by the spout for a retry."""
    dead_letters: Count
    """Given up, and written to the ledger."""
    waiting: Count
    """Failed, and held by the spout for a retry."""
    pending: Count
    """Under way, or held back by the engine (in quarantine, for example)."""
    abandoned: Count
    """Under way when their spout's worker died or was replaced: they get no answer, the successor emits new ones."""


def account_of(counters: Mapping[str, int], alive: bool = True) -> Account:
    """Make one task's account from its counters. `alive`: whether the spout's worker lives, or ended in order."""
    tracked, acked, failed = counters["tracked"], counters["acked"], counters["failed"]
    letters, abandoned = counters["dead_letters"], counters["abandoned"]
    left = max(0, tracked - acked - failed - letters - abandoned)
    if not alive:
        return Account(tracked, acked, failed, letters, 0, 0, abandoned + left)
    waiting = min(failed, counters["waiting"])
    return Account(tracked, acked, failed - waiting, letters, waiting, left, abandoned)


class Unfinished(int):
    """The number of messages pending when a topology was stopped or moved."""

    waiting: int
    """Messages that its spouts held for a retry, beside the pending ones."""
    untracked: int
    """Tuples without a tree, since the topology's submission, that are not known to be executed."""

    def __new__(cls, pending: int, waiting: int = 0, untracked: int = 0) -> Unfinished:
        made = super().__new__(cls, pending)
        made.waiting = waiting
        made.untracked = untracked
        return made
