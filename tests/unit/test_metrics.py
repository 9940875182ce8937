"""Counters and histograms."""

from __future__ import annotations

import random

import pytest

from squall.engine.report.metrics import (
    FIRST_GAUGE,
    HISTOGRAM_BUCKETS,
    TASK_COUNTERS,
    TaskStats,
    bucket_bounds,
    bucket_of,
    merge,
    percentile_ms,
)


def test_buckets_leave_no_gap_and_do_not_overlap() -> None:
    for index in range(HISTOGRAM_BUCKETS - 1):
        low, high = bucket_bounds(index)
        assert low < high == bucket_bounds(index + 1)[0]
        assert bucket_of(low) == bucket_of(high - 1) == index
    assert bucket_bounds(0) == (0, 1)


def test_a_bucket_is_at_most_a_sixteenth_wide() -> None:
    for index in range(16, HISTOGRAM_BUCKETS):
        low, high = bucket_bounds(index)
        assert (high - low) / low <= 1 / 16


def test_percentiles_are_within_a_sixteenth_of_the_truth(seed: int) -> None:
    rng = random.Random(seed)
    stats = TaskStats()
    micros = sorted(int(rng.lognormvariate(8, 2)) for _ in range(5000))
    for latency in micros:
        stats.observe_ns(latency * 1000)
    for fraction in (0.5, 0.9, 0.99, 1.0):
        true = micros[max(0, round(fraction * len(micros)) - 1)]
        assert percentile_ms(stats.histogram, fraction) * 1000 == pytest.approx(true, rel=1 / 16, abs=1)


def test_merging_adds() -> None:
    one, other = TaskStats(), TaskStats()
    for stats, latencies in ((one, (1, 2, 3)), (other, (3, 400))):
        for micros in latencies:
            stats.observe_ns(micros * 1000)
    total = merge([one.histogram, other.histogram])
    assert sum(total) == 5
    assert total[3] == 2
    assert merge([]) == [0] * HISTOGRAM_BUCKETS


def test_counters_come_in_order_with_gauges_last() -> None:
    stats = TaskStats()
    assert stats.counters() == [0] * len(TASK_COUNTERS)
    stats.emitted, stats.pending = 3, 5
    counters = dict(zip(TASK_COUNTERS, stats.counters(), strict=True))
    assert (counters["emitted"], counters["pending"]) == (3, 5)
    assert TASK_COUNTERS[FIRST_GAUGE:] == ("pending", "exhausted", "in_queue", "waiting", "unreplayed", "limit")
