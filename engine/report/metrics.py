"""Counters and latency histograms of one task: exact, mergeable, and cheap enough for the tuple path.

Guarantees: counts are exact (nothing is sampled); a histogram's percentile is within 1/16 of the true value, from one
microsecond to about 19 hours; two histograms merge by adding their buckets.

Relies on: one writer per `TaskStats`. Thread: the task's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from squall.engine.api.user_metrics import percentile
from squall.engine.report.account import ACCOUNT_COLUMNS, Words, abandon

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
            abandon(account)

    def counters(self) -> list[int]:
        """Values in the order of TASK_COUNTERS, whose first ones are the account's columns."""
        return [*self.account, *_counters_after_account(self)]
