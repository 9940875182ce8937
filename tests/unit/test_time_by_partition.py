"""Event time waits for each partition of each source, and for a message that is under way, however long it takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import (
    Config,
    Topology,
    TopologyBuilder,
    Tuple,
    bolt,
)
from squall.connect import Source
from squall.testing import FeederSpout, SimulatedCluster
from squall.testing.waiting import wait_for
from tests.unit.rig import Does
from tests.unit.test_windows import Shows

FIELDS = ("at", "n")
LAG_SECS, WINDOW_SECS = 30, 60


def windows_of(rows: list[tuple[float, int]]) -> dict[float, list[int]]:
    found: dict[float, list[int]] = {}
    for at, n in rows:
        found.setdefault(at // WINDOW_SECS * WINDOW_SECS, []).append(n)
    return {start: sorted(numbers) for start, numbers in found.items()}


def windowed(secs: float, **settings: float) -> Shows:
    """Windows of so many seconds; `settings`: those of event time."""
    made = Shows().with_tumbling_window(secs=secs).with_timestamp_field("at").with_late_stream("late")
    for name, value in settings.items():
        getattr(made, f"with_{name}")(secs=value)
    return made


def counting(windows: Shows, *holding: str, **sources: Any) -> Topology:
    """Windows of what sources emit; `holding`: the sources with a bolt behind that holds tuples."""
    builder = TopologyBuilder()
    declared = builder.set_bolt("counts", windows)
    for name, source in sources.items():
        builder.set_spout(name, source)
        if name in holding:
            builder.set_bolt(f"after-{name}", Does(holds, FIELDS)).global_grouping(name)
            declared.global_grouping(f"after-{name}")
        else:
            declared.global_grouping(name)
    builder.set_bolt("late", bolt(lambda tup: None)).global_grouping("counts", stream="late")
    return builder.build()


def results_of(cluster: SimulatedCluster) -> dict[float, list[int]]:
    """By the windows' starts. Nothing was late, and no window came twice."""
    assert [name for name, rows in cluster.emitted.items() if name.endswith("/late") and rows] == []
    rows = [(start, sorted(numbers)) for _, start, _, numbers, *_ in cluster.emitted["counts.results"]]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def go(cluster: SimulatedCluster, until: Callable[[], bool]) -> None:
    """Let time pass while tuples flow."""

    def passed() -> bool:
        cluster.step()
        cluster.clock.advance_ns(20_000_000)
        return until()

    wait_for("the condition", passed)


GO_ON = threading.Event()


class Stuck(Source):
    """Yields a record, and then sits in a call until it may go on."""

    outputs = FIELDS

    def read_from(self, position: int | None) -> Iterator[Any]:
        yield [(1, (1.0, 1))]
        GO_ON.wait(60)
        yield [(number, (float(number), number)) for number in range(2, 300)]


def holds(bolt: Does, tup: Tuple) -> None:
    """Hold number 1 until another comes."""
    bolt.kept.append(tup)
    if tup["n"] != 1:
        for each in bolt.kept:
            bolt.collector.emit(each.values, anchors=each)
            bolt.collector.ack(each)
        bolt.kept.clear()


@pytest.mark.parametrize("is_held", [False, True])
def test_no_record_of_a_source_that_sat_in_a_call_is_late(tmp_path: Path, is_held: bool) -> None:
    GO_ON.clear()
    other = FeederSpout(FIELDS)
    topology = counting(windowed(WINDOW_SECS, lag=LAG_SECS), "stuck" * is_held, stuck=Stuck(), other=other)
    with SimulatedCluster(topology, Config(message_timeout_secs=3600), state_root=tmp_path) as cluster:
        go(cluster, lambda: len(cluster.emitted["stuck"]) == 1)
        for second in range(0, 300, 10):
            other.feed((second, 1000 + second))
            cluster.advance(1)
        assert cluster.emitted["counts.results"] == []
        GO_ON.set()
        other.finish()
        go(cluster, lambda: cluster.drained)
        rows = [(second, 1000 + second) for second in range(0, 300, 10)]
        assert results_of(cluster) == windows_of([*rows, *((number, number) for number in range(1, 300))])


def test_what_is_held_longer_than_the_idle_timeout_is_not_late(tmp_path: Path) -> None:
    slow, other = FeederSpout(FIELDS), FeederSpout(FIELDS)
    topology = counting(windowed(1, idle_timeout=1), "slow", slow=slow, other=other)
    with SimulatedCluster(topology, Config(message_timeout_secs=1000), state_root=tmp_path) as cluster:
        slow.feed((0.1, 0))
        other.feed((0.2, 100))
        cluster.settle()
        slow.feed((0.3, 1))
        for second in range(10):
            other.feed((0.5 + second, 101 + second))
            cluster.advance(1)
        slow.feed((0.4, 2))
        slow.finish()
        other.finish()
        cluster.run()
        assert results_of(cluster)[0.0] == [0, 1, 2, 100, 101]


def test_sources_that_all_have_nothing_more_leave_no_window_open_but_the_newest(tmp_path: Path) -> None:
    early, late = FeederSpout(FIELDS), FeederSpout(FIELDS)
    topology = counting(windowed(1, lag=0.25), early=early, other=late)
    with SimulatedCluster(topology, state_root=tmp_path) as cluster:
        early.feed((0.5, 0))
        for number, at in enumerate((8.5, 99.5, 100.5), 1):
            late.feed((at, number))
        cluster.advance(20)
        assert results_of(cluster) == {0.0: [0], 8.0: [1], 99.0: [2]}


@pytest.mark.parametrize("tasks", [1, 3])
def test_windows_of_keys_that_come_no_more_are_executed_while_the_source_goes_on(tasks: int, tmp_path: Path) -> None:
    """Time reaches a task that gets no tuple."""
    source, builder = FeederSpout(("key", *FIELDS)), TopologyBuilder()
    builder.set_spout("events", source)
    windows = Shows().with_tumbling_window(secs=1).with_key("key").with_timestamp_field("at")
    builder.set_bolt("windows", windows, parallelism=tasks).fields_grouping("events", "key")
    with SimulatedCluster(builder.build(), Config(), state_root=tmp_path) as cluster:
        for key in "abcdefghij":
            source.feed((key, 0.5, 0))
        cluster.settle()
        source.feed(("a", 1000.0, 1))
        cluster.run_until(lambda: len(cluster.emitted["windows.results"]) == 10, 2)
        assert {row[0] for row in cluster.emitted["windows.results"]} == set("abcdefghij")


def test_a_date_in_the_future_makes_nothing_late_and_stays_in_its_window(tmp_path: Path) -> None:
    now, month = time.time() // WINDOW_SECS * WINDOW_SECS - 10_000, 30 * 86_400
    rows = [(now + 5.0 * n if n != 200 else now + month, n) for n in range(400)]
    source = FeederSpout(FIELDS)
    topology = counting(windowed(WINDOW_SECS, lag=LAG_SECS), events=source)
    with SimulatedCluster(topology, state_root=tmp_path) as cluster:
        for n, row in enumerate(rows):
            source.feed(row)
            if n % 20 == 0:
                cluster.advance(0.5)
        source.finish()
        cluster.run()
        assert results_of(cluster) == windows_of(rows)
