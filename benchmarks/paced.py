"""How long after it was due each line of a paced run was acked: a stalled spout counts as slow, not as silent.

Relies on: a spout that knows when its messages were due, and tells the moment of each ack.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from squall import TopologyContext

PER_DOUBLING = 8
BUCKETS = 256
"""Of a histogram: eight buckets for each doubling, from a microsecond."""


@dataclass(frozen=True)
class Pace:
    """How a paced run goes."""

    per_sec: float
    """Messages of all tasks together."""
    warm_up_secs: float
    """What is due before is left out: the caches of the interpreter and of the groupings are cold."""
    directory: str
    """Where each task writes its histogram."""


class Due:
    """The schedule of one task's messages, and what became of them."""

    def __init__(self, pace: Pace, context: TopologyContext) -> None:
        tasks = len(context.component_tasks(context.component_id))
        self._period_secs = tasks / pace.per_sec
        self._warm_up_secs = pace.warm_up_secs
        self._file = Path(pace.directory) / f"{context.component_id}-{context.task_index}.histogram"
        self._began = 0.0
        self._histogram = [0] * BUCKETS

    def count(self) -> int:
        """How many messages are due by now."""
        now = time.perf_counter()
        self._began = self._began or now
        return int((now - self._began) / self._period_secs) + 1

    def acked(self, numbers: Iterable[int]) -> None:
        """These messages, numbered from 0, are acked at this moment."""
        since = time.perf_counter() - self._began
        histogram, period_secs, warm_up_secs = self._histogram, self._period_secs, self._warm_up_secs
        for number in numbers:
            due = number * period_secs
            if due >= warm_up_secs:
                histogram[bucket_of(since - due)] += 1

    def write(self) -> None:
        self._file.write_text(json.dumps(self._histogram))


def bucket_of(secs: float) -> int:
    return 0 if secs < 1e-6 else min(int(PER_DOUBLING * math.log2(secs * 1e6)), BUCKETS - 1)


def read_histogram(directory: Path) -> list[int]:
    """The sum of what the tasks wrote."""
    found = [json.loads(path.read_text()) for path in sorted(directory.glob("*.histogram"))]
    return [sum(column) for column in zip(*found, strict=True)] if found else [0] * BUCKETS


@dataclass(frozen=True)
class Latency:
    """Milliseconds from due to acked, below which lies a share of the messages."""

    p50: float
    p90: float
    p99: float
    p999: float

    @staticmethod
    def of(histogram: list[int]) -> Latency:
        return Latency(*(percentile_ms(histogram, share) for share in (0.5, 0.9, 0.99, 0.999)))


def percentile_ms(histogram: list[int], share: float) -> float:
    """The upper edge of the bucket that holds it; NaN if nothing was counted."""
    total = sum(histogram)
    wanted = share * total
    for bucket, count in enumerate(histogram):
        wanted -= count
        if total and wanted <= 0:
            return float(2 ** ((bucket + 1) / PER_DOUBLING) / 1e3)
    return math.nan
