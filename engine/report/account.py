"""The account of a spout task: what became of each attempt (each emit with a message id).

Guarantees
    * At any instant `tracked = acked + failed + dead_letters + abandoned + open`, whatever died when: each column is
      written before anybody outside the worker, or the spout itself, can see what it counts.
    * What an incarnation left open when it ended without an answer, its successor counts as abandoned, once.

The words outlive the worker where they lie in shared memory. One thread writes them: the worker's loop.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from dataclasses import dataclass

ACCOUNT_COLUMNS = ("acked", "failed", "dead_letters", "abandoned", "emitted", "tracked")
"""`failed`: the spout was told, and nothing else; of those, some it may hold for a retry. `emitted`: all emits of the
task; `tracked`: those with a message id, while there are ackers. Emits come last, so that who reads while it is written
does not see an answer before its question."""
ACKED, FAILED, DEAD_LETTERS, ABANDONED, EMITTED, TRACKED = range(len(ACCOUNT_COLUMNS))

Words = MutableSequence[int] | memoryview
"""A plain list, or words of the status board."""


def open_attempts(words: Words) -> int:
    """Attempts that nobody has answered."""
    return max(0, words[TRACKED] - words[ACKED] - words[FAILED] - words[DEAD_LETTERS] - words[ABANDONED])


def abandon(words: Words) -> None:
    """An incarnation begins: what its predecessors left open will not be answered any more."""
    words[ABANDONED] += open_attempts(words)


@dataclass(frozen=True)
class Account:
    """Attempts of a spout task, or of several: `emitted`, and what became of each, in one of the other columns."""

    emitted: int
    acked: int
    failed: int
    """The spout was told, and does not hold the message for a retry (any more)."""
    dead_letters: int
    waiting: int
    """Failed, and held by the spout for a retry."""
    pending: int
    """Under way, or held back by the engine until they may be."""
    abandoned: int
    """Under way when their spout's worker died or was replaced: nobody answers them, the successor begins new ones."""


def account_of(counters: Mapping[str, int], alive: bool = True) -> Account:
    """The account of one task from its counters. `alive`: whether the spout's worker lives, or ended in order."""
    tracked, acked, failed = counters["tracked"], counters["acked"], counters["failed"]
    letters, abandoned = counters["dead_letters"], counters["abandoned"]
    left = max(0, tracked - acked - failed - letters - abandoned)
    if not alive:
        return Account(tracked, acked, failed, letters, 0, 0, abandoned + left)
    waiting = min(failed, counters["waiting"])
    return Account(tracked, acked, failed - waiting, letters, waiting, left, abandoned)


class Unfinished(int):
    """How many messages were pending when a topology was stopped or moved."""

    waiting: int
    """How many more its spouts held for a retry."""
    untracked: int
    """Tuples without a tree that were not executed, as far as is known, since the topology was submitted."""

    def __new__(cls, pending: int, waiting: int = 0, untracked: int = 0) -> Unfinished:
        made = super().__new__(cls, pending)
        made.waiting = waiting
        made.untracked = untracked
        return made
