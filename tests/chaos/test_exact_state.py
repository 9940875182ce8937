"""State, windows and sinks that count each record once, with workers that are killed: exactly right.

`tests/sim/state_lives.py` has the same with every death, in simulated time.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from squall import SqlSink, WindowedBolt
from tests.chaos.kills import TEXTS, run_with_kills
from tests.process import state_parts as parts
from tests.process import window_parts as windowed
from tests.process.conftest import SharedCluster

TOPOLOGIES = {
    "mixed": lambda: parts.topology(parts.Texts(TEXTS, named=True), parts.SplitAsync(), parts.MoodyCount()),
    "own acks": lambda: parts.topology(parts.BatchedTexts(TEXTS), parts.SplitItself(), parts.CountBatch()),
}


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_each_record_counts_once(shared_cluster: SharedCluster, kind: str, seed: int) -> None:
    """Plain rows: `tests/process/test_core_promise.py`."""
    expected = parts.expected(TEXTS)
    job = run_with_kills(shared_cluster, TOPOLOGIES[kind](), 2 * TEXTS, seed)
    assert job.state("count") == expected
    assert Counter(job.state("total")["totals"]) == expected


SLIDING = windowed.Folded().with_sliding_window(secs=windowed.LENGTH_MS / 1000, slide_secs=windowed.SLIDE_MS / 1000)
SESSIONS = windowed.Sums().with_session_window(gap_secs=windowed.GAP_MS / 1000)


@pytest.mark.parametrize(("bolt", "results"), [
    (SLIDING, windowed.sliding_results), (SESSIONS, windowed.session_results),
], ids=["sliding", "sessions"])
def test_each_window_is_right(shared_cluster: SharedCluster, bolt: WindowedBolt, results: Any, seed: int) -> None:
    topology = windowed.windows(TEXTS, bolt.with_key("user").with_timestamp_field("at").with_lag(secs=0.1))
    assert run_with_kills(shared_cluster, topology, 2 * TEXTS, seed).state("keep") == results(TEXTS)


def test_each_record_is_written_once(shared_cluster: SharedCluster, seed: int, tmp_path: Path) -> None:
    expected = Counter(windowed.event(number) for number in range(TEXTS))
    connect = functools.partial(windowed.connect, str(tmp_path / "db"))
    sink = SqlSink(connect, "INSERT INTO events VALUES (?, ?, ?)")
    run_with_kills(shared_cluster, windowed.sinks(TEXTS, tmp_path, sink, 1), 2 * TEXTS, seed)
    assert windowed.in_files(tmp_path) == expected + expected
    assert windowed.in_parquet(tmp_path) == expected + expected
    assert Counter(connect().execute("SELECT * FROM events")) == expected + expected
