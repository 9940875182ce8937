"""State, windows and sinks that count each record once, with workers that are killed: exactly right.

`tests/sim/state_lives.py` has the same with every death, in simulated time.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

from squall import SqlSink, Topology, WindowedBolt
from tests.chaos.kills import TEXTS, run_with_kills
from tests.process import state_parts as parts
from tests.process import window_parts as windowed

TOPOLOGIES = {
    "rows": lambda: parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count()),
    "mixed": lambda: parts.topology(parts.Texts(TEXTS, named=True), parts.SplitAsync(), parts.MoodyCount()),
    "own acks": lambda: parts.topology(parts.BatchedTexts(TEXTS), parts.SplitItself(), parts.CountBatch()),
}


@pytest.mark.parametrize("kind", TOPOLOGIES)
def test_each_record_counts_once(kind: str, seed: int) -> None:
    expected = parts.expected(TEXTS)
    with run_with_kills(TOPOLOGIES[kind](), 2 * TEXTS, seed) as job:
        assert job.state("count") == expected
        assert Counter(job.state("total")["totals"]) == expected


def topology_of(bolt: WindowedBolt) -> Topology:
    return windowed.windows(TEXTS, bolt.with_key("user").with_timestamp_field("at").with_lag(secs=0.1))


def test_each_sliding_window_is_right(seed: int) -> None:
    length, slide = windowed.LENGTH_MS / 1000, windowed.SLIDE_MS / 1000
    topology = topology_of(windowed.Folded().with_sliding_window(secs=length, slide_secs=slide))
    with run_with_kills(topology, 2 * TEXTS, seed) as job:
        assert job.state("keep") == windowed.sliding_results(TEXTS)


def test_each_session_is_right(seed: int) -> None:
    topology = topology_of(windowed.Sums().with_session_window(gap_secs=windowed.GAP_MS / 1000))
    with run_with_kills(topology, 2 * TEXTS, seed) as job:
        assert job.state("keep") == windowed.session_results(TEXTS)


def test_each_record_is_written_once(seed: int, tmp_path: Path) -> None:
    expected = Counter(windowed.event(number) for number in range(TEXTS))
    connect = functools.partial(windowed.connect, str(tmp_path / "db"))
    sink = SqlSink(connect, "INSERT INTO events VALUES (?, ?, ?)")
    with run_with_kills(windowed.sinks(TEXTS, tmp_path, sink, 1), 2 * TEXTS, seed):
        pass
    assert windowed.in_files(tmp_path) == expected + expected
    assert windowed.in_parquet(tmp_path) == expected + expected
    assert Counter(connect().execute("SELECT * FROM events")) == expected + expected
