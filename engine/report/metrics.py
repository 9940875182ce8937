"""Counters and latency histograms of one task: exact, mergeable, and cheap enough for the tuple path. The account of a
spout task, which comes first of them, counts the fates of its attempts (emits with a message id).

Guarantees
    * Counts are exact (nothing is sampled); a histogram's percentile is within 1/16 of the true value, from one
      microsecond to about 19 hours; two histograms merge by adding their buckets.
    * At any instant `tracked = acked + failed + dead_letters + abandoned + open`, whatever died when: a column is
      written before the spout, or a process other than the worker, can see the event that it counts.
    * Attempts that an incarnation left open at its end are counted as abandoned by its successor, once.
    * A message that nobody has answered is in `unanswered` until it is, whatever died when. Each incarnation knows its
      own message ids only, so it takes its first emits for the messages that its predecessors left.

The words of an account outlive the worker if they are in shared memory.

Relies on: one writer per `TaskStats`. Thread: the task's; of an account the worker's loop, which alone writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from squall.engine.api.user_metrics import percentile
from squall.engine.report.document import Count

ACCOUNT_COLUMNS = ("acked", "failed", "dead_letters", "abandoned", "replayed", "emitted", "tracked")
"""`failed`: only the spout was told; it may hold some of these for a retry. `replayed`: attempts beyond the first of
their messages. `emitted`: all emits of the task. `tracked`: those with a message id, if there are ackers. Emits come
last, so that a reader during a write never sees an answer before its emit."""
ACKED, FAILED, DEAD_LETTERS, ABANDONED, REPLAYED, EMITTED, TRACKED = range(len(ACCOUNT_COLUMNS))

Words = MutableSequence[int] | memoryview
"""The columns of one task: a plain list, or words of the status board."""

WAITS = ("pending_limit", "credit", "retry", "input", "inactive")
"""Reasons for a spout task to wait: `max_spout_pending` messages are open; no room downstream; the time of a retry; no
input from its source; not activated."""
WAIT_COUNTERS = tuple(f"wait_{reason}_ns" for reason in WAITS)

# One word each on the status board, in this order. Gauges (written, not added to) come last.
TASK_COUNTERS = (
    *ACCOUNT_COLUMNS,
    "transferred",
    "executed",
    "execute_ns",
    "timed_out",
    "crashes",
    "errors",
    "untracked_executed",
    *WAIT_COUNTERS,
    "pending",
    "exhausted",
    "in_queue",
    "waiting",
    "unreplayed",
    "limit",
)
_counters_of = attrgetter(*TASK_COUNTERS)
_counters_after_account = attrgetter(*TASK_COUNTERS[len(ACCOUNT_COLUMNS):])
FIRST_GAUGE = TASK_COUNTERS.index("pending")
"""Counters before this one only grow; the rest are gauges."""

# Log-linear buckets over microseconds: 16 linear steps in every power of two. 16 halves the error of 8 for 2 KiB more
# per task; more would not show in any report.
_STEPS = 16
_STEP_BITS = 4
_OCTAVES = 32
HISTOGRAM_BUCKETS = _STEPS + _OCTAVES * _STEPS
_LAST = HISTOGRAM_BUCKETS - 1


def bucket_of(micros: int) -> int:
    """The bucket that counts a latency of `micros` microseconds."""
    if micros < _STEPS:
        return micros if micros >= 0 else 0
    octave = micros.bit_length() - _STEP_BITS - 1
    index = octave * _STEPS + (micros >> octave)
    return index if index < _LAST else _LAST


def bucket_bounds(index: int) -> tuple[int, int]:
    """Smallest latency counted in bucket `index`, and the smallest one past it, in microseconds."""
    if index < _STEPS:
        return index, index + 1
    octave, step = divmod(index, _STEPS)
    octave -= 1
    return (step + _STEPS) << octave, (step + _STEPS + 1) << octave


def merge(histograms: Iterable[Sequence[int]]) -> list[int]:
    """Merge histograms into one of all observations."""
    return list(map(sum, zip(*filter(None, histograms), strict=True))) or [0] * HISTOGRAM_BUCKETS


def percentile_ms(histogram: Sequence[int], fraction: float) -> float:
    """The latency in ms that `fraction` (0..1] of the observations do not exceed; 0.0 if there are none."""
    return percentile(histogram, fraction, bucket_bounds) / 1000.0


class TaskStats:
    """Counters of one task, published to the board between batches. Thread: the task's."""

    __slots__ = ("histogram", "touched", *TASK_COUNTERS)

    acked: int
    failed: int
    dead_letters: int
    abandoned: int
    emitted: int
    tracked: int
    transferred: int
    executed: int
    execute_ns: int
    timed_out: int
    replayed: int
    crashes: int
    errors: int
    untracked_executed: int
    """Executed tuples that belong to no tree, without ticks."""
    wait_pending_limit_ns: int
    wait_credit_ns: int
    wait_retry_ns: int
    wait_input_ns: int
    wait_inactive_ns: int
    pending: int
    exhausted: int
    in_queue: int
    waiting: int
    """Failed messages that the spout holds for a retry."""
    unreplayed: int
    """Failed messages that the spout neither emitted again nor holds for a retry. Known only while nothing is open."""
    limit: int
    """Messages that it may have open; 0 = no limit."""

    def __init__(self) -> None:
        for name in TASK_COUNTERS:
            setattr(self, name, 0)
        self.histogram = [0] * HISTOGRAM_BUCKETS
        self.touched: set[int] = set()
        """Histogram buckets that changed since the last publication."""

    def observe_ns(self, latency_ns: int, messages: int = 1) -> None:
        """Count one emit-to-ack latency, which `messages` had."""
        index = bucket_of(latency_ns // 1000)
        self.histogram[index] += messages
        self.touched.add(index)

    def counters(self) -> list[int]:
        """Values in the order of TASK_COUNTERS."""
        return list(_counters_of(self))


def _column(index: int) -> Any:
    def get(stats: SpoutStats) -> int:
        return stats.account[index]

    def put(stats: SpoutStats, value: int) -> None:
        stats.account[index] = value

    return property(get, put)


class SpoutStats(TaskStats):
    """Counters of a spout task. The account has its own words: they are written at each change, and continue those of
    the previous incarnation."""

    __slots__ = ("account",)

    acked, failed, dead_letters, abandoned, replayed, emitted, tracked = map(_column, range(len(ACCOUNT_COLUMNS)))

    def __init__(self, account: Words | None = None) -> None:
        self.account: Words = [0] * len(ACCOUNT_COLUMNS)
        super().__init__()
        if account is not None:
            self.account = account
            # An incarnation begins: its predecessors can answer no more.
            account[ABANDONED] += open_attempts(account)

    def counters(self) -> list[int]:
        """Values in the order of TASK_COUNTERS, whose first ones are the account's columns."""
        return [*self.account, *_counters_after_account(self)]


def open_attempts(words: Words) -> int:
    """Number of attempts without an answer."""
    return max(0, words[TRACKED] - words[ACKED] - words[FAILED] - words[DEAD_LETTERS] - words[ABANDONED])


def unanswered(counters: Mapping[str, int]) -> int:
    """Number of messages that were emitted and are neither acked nor dead letters, from the columns by name."""
    messages = counters["tracked"] - counters["replayed"]
    return max(0, messages - counters["acked"] - counters["dead_letters"])


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
    words = [counters[name] for name in ACCOUNT_COLUMNS]
    acked, failed, letters, abandoned, _, _, tracked = words
    left = open_attempts(words)
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
