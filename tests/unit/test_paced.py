"""What the benchmarks measure: latencies from due to acked, in a histogram."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.paced import BUCKETS, Due, Latency, Pace, bucket_of, percentile_ms, read_histogram


def test_percentiles_are_upper_edges() -> None:
    histogram = [0] * BUCKETS
    histogram[bucket_of(1e-3)] += 98
    histogram[bucket_of(1e-1)] += 2
    found = Latency.of(histogram)
    assert found.p50 == pytest.approx(1.0, rel=0.1)
    assert found.p99 == pytest.approx(100.0, rel=0.1)
    assert found.p50 >= 1.0
    assert found.p999 == found.p99
    assert math.isnan(percentile_ms([0] * BUCKETS, 0.5))
    assert (bucket_of(0.0), bucket_of(1e9)) == (0, BUCKETS - 1)


def test_a_line_counts_from_when_it_was_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    only: Any = SimpleNamespace(component_id="lines", task_index=0, component_tasks=lambda component: [1])
    due = Due(Pace(2.0, 3.0, str(tmp_path)), only)
    assert due.count() == 1
    # The spout stood still for eight seconds: what was due then is late, and says so.
    now = 108.0
    assert due.count() == 17
    due.acked(range(17))
    due.write()
    histogram = read_histogram(tmp_path)
    assert sum(histogram) == sum(1 for number in range(17) if number * 0.5 >= 3.0)
    assert histogram[bucket_of(8.0 - 3.0)] == 1
