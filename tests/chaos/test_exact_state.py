"""State, windows and sinks that count each record once, with workers that are killed: exactly right."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from squall import SqlSink, Topology, WindowedBolt
from tests.chaos.kills import TEXTS, run_with_kills
from tests.process import state_parts as parts
from tests.process import window_parts as windowed


def by_rows() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count())


def by_batches() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitBatch(), parts.CountBatch())


def mixed() -> Topology:
    return parts.topology(parts.Texts(TEXTS, named=True), parts.SplitBatch(), parts.MoodyCount())


def acking_itself() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.SplitItself(), parts.CountBatch())


def asynchronous() -> Topology:
    return parts.topology(parts.BatchedTexts(TEXTS), parts.SplitAsync(), parts.Count())


def copied() -> Topology:
    return parts.topology(parts.Texts(TEXTS), parts.Split(), parts.Count(), copies=["all"])


@pytest.mark.parametrize("make", [by_rows, by_batches, mixed, acking_itself, asynchronous, copied])
def test_each_record_counts_once(make: Callable[[], Topology], seed: int) -> None:
    expected = parts.expected(TEXTS)
    if make is copied:
        expected += expected
    with run_with_kills(make(), 2 * TEXTS, seed) as job:
        assert job.state("count") == expected
        assert Counter(job.state("total")["totals"]) == expected


def sliding(bolt: WindowedBolt) -> WindowedBolt:
    return bolt.with_sliding_window(secs=windowed.LENGTH_MS / 1000, slide_secs=windowed.SLIDE_MS / 1000)


def sessions(bolt: WindowedBolt) -> WindowedBolt:
    return bolt.with_session_window(gap_secs=windowed.GAP_MS / 1000)


@pytest.mark.parametrize("bolt", [windowed.Sums, windowed.Folded])
@pytest.mark.parametrize(("declare", "expected"), [
    (sliding, windowed.sliding_results), (sessions, windowed.session_results),
])
def test_each_window_is_right(
    bolt: type[WindowedBolt], declare: Callable[[WindowedBolt], WindowedBolt],
    expected: Callable[[int], Counter[str]], seed: int,
) -> None:
    made = declare(bolt()).with_key("user").with_timestamp_field("at").with_lag(secs=0.1)
    with run_with_kills(windowed.windows(TEXTS, made), 2 * TEXTS, seed) as job:
        assert job.state("keep") == expected(TEXTS)


def test_each_record_is_written_once(seed: int, tmp_path: Path) -> None:
    expected = Counter(windowed.event(number) for number in range(TEXTS))
    connect = functools.partial(windowed.connect, str(tmp_path / "db"))
    sink = SqlSink(connect, "INSERT INTO events VALUES (?, ?, ?)")
    with run_with_kills(windowed.sinks(TEXTS, tmp_path, sink, 1), 2 * TEXTS, seed):
        pass
    assert windowed.in_files(tmp_path) == expected + expected
    assert windowed.in_parquet(tmp_path) == expected + expected
    assert Counter(connect().execute("SELECT * FROM events")) == expected + expected
