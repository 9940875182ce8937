"""The metrics of the engine and those of users."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from squall.engine.api.user_metrics import COUNTER, UserMetrics, summarise
from squall.engine.errors import ComponentError
from squall.engine.report.metrics import (
    HISTOGRAM_BUCKETS,
    TaskStats,
    bucket_bounds,
    bucket_of,
    percentile_ms,
)
from squall.ipc.metric_file import CELLS_BYTES, MetricFile, read_metrics


def test_buckets_leave_no_gap_and_do_not_overlap() -> None:
    for index in range(HISTOGRAM_BUCKETS - 1):
        low, high = bucket_bounds(index)
        assert low < high == bucket_bounds(index + 1)[0]
        assert bucket_of(low) == bucket_of(high - 1) == index
    assert bucket_bounds(0) == (0, 1)


def test_percentiles_are_within_a_sixteenth_of_the_truth(seed: int) -> None:
    rng = random.Random(seed)
    stats = TaskStats()
    micros = sorted(int(rng.lognormvariate(8, 2)) for _ in range(5000))
    for latency in micros:
        stats.observe_ns(latency * 1000)
    for fraction in (0.5, 0.9, 0.99, 1.0):
        true = micros[max(0, round(fraction * len(micros)) - 1)]
        assert percentile_ms(stats.histogram, fraction) * 1000 == pytest.approx(true, rel=1 / 16, abs=1)


def test_gauges_are_read_when_sampled_and_one_that_raises_is_reported_once_and_dropped() -> None:
    metrics, errors, size = UserMetrics(), [], {1: 3, 2: 4}
    metrics.gauge("a", 1, "broken", lambda: 1 // 0)
    for task in (1, 2):
        metrics.gauge("a", task, "size", lambda task=task: size[task])
    for last in (4, 9, 9):
        size[2] = last
        metrics.sample(lambda *error: errors.append(error))
        assert summarise(metrics.readings())["a"]["size"] == {1: 3.0, 2: last}
    [(component, task, error)] = errors
    assert (component, task, error.partition(":")[0]) == ("a", 1, "ZeroDivisionError")


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_histogram_percentiles_are_within_an_eighth(seed: int, scale: float) -> None:
    dice, metrics = random.Random(seed), UserMetrics()
    values = sorted(dice.lognormvariate(0, 2) * scale for _ in range(5000))
    for number, value in enumerate(values):
        metrics.histogram("a", number % 3, "x").update(value)
    shown: Any = summarise(metrics.readings())["a"]["x"]
    assert (shown["count"], shown["max"], shown["mean"]) == (5000, values[-1], pytest.approx(sum(values) / 5000))
    for percent in (50, 90, 99):
        assert shown[f"p{percent}"] == pytest.approx(values[percent * 50 - 1], rel=1 / 8)


def test_what_was_counted_is_read_from_outside_and_outlives_its_writer(tmp_path: Path) -> None:
    directory = tmp_path / "metrics"
    assert list(read_metrics(directory)) == []
    for incarnation, count in ((9, 3), (10, 4)):
        file = MetricFile(directory, 0, incarnation)
        metrics = UserMetrics(file.allocate)
        metrics.counter("a", 1, "seen").inc()
        metrics.counter("a", 1, "seen").inc(count)
        metrics.counter("a", 2, "seen").inc(-1)
        metrics.histogram("a", 1, "size").update(count)
        metrics.gauge("a", 1, "last", lambda count=count: count)
        metrics.sample(lambda *error: pytest.fail(str(error)))
        # Not closed in an orderly way: a worker that is killed does not do that either.
        shown = summarise(read_metrics(directory))["a"]
        file.close()
    assert (shown["seen"], shown["last"]) == (3 + 4 + 2 - 2, {1: 4.0})
    assert shown["size"]["count"] == 2  # type: ignore[index]


def test_worker_with_too_many_metrics_is_told(tmp_path: Path) -> None:
    file = MetricFile(tmp_path, 0, 1)
    for number in range(CELLS_BYTES // 65536):
        file.allocate("a", 1, COUNTER, f"x{number}", 65536)
    with pytest.raises(ComponentError, match=r"a\[1\] asks for counter 'y', but the metrics .* take all of the 4 MiB"):
        file.allocate("a", 1, COUNTER, "y", 8)
    file.close()
