"""Event time waits for each partition of each source: one that is read behind others, and one whose thread is away."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    Config,
    FeedSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    Window,
    WindowedBolt,
)
from squall.connect import Source
from squall.testing import FeederSpout, SimulatedCluster
from squall.testing.waiting import wait_for

FIELDS = ("at", "n")
LAG_SECS, WINDOW_SECS = 30, 60


class Counts(WindowedBolt):
    outputs = {"default": ("start", "numbers"), "late": FIELDS}  # noqa: RUF012

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.start, sorted(tup["n"] for tup in window.get())))


def counts() -> Counts:
    return (
        Counts().with_tumbling_window(secs=WINDOW_SECS).with_timestamp_field("at").with_lag(secs=LAG_SECS)
        .with_late_stream("late")
    )


def windows_of(rows: list[tuple[float, int]]) -> dict[float, list[int]]:
    found: dict[float, list[int]] = {}
    for at, n in rows:
        found.setdefault(at // WINDOW_SECS * WINDOW_SECS, []).append(n)
    return {start: sorted(numbers) for start, numbers in found.items()}


class Ignores(BasicBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None: ...


def counting(*bolts: tuple[str, Any], **sources: Any) -> Topology:
    """A topology that counts what sources emit; `bolts`: what is between a source and the windows, by its name."""
    builder, between = TopologyBuilder(), dict(bolts)
    declared = builder.set_bolt("counts", counts())
    for name, source in sources.items():
        builder.set_spout(name, source)
        if name in between:
            builder.set_bolt(f"after-{name}", between[name]).global_grouping(name)
            declared.global_grouping(f"after-{name}")
        else:
            declared.global_grouping(name)
    builder.set_bolt("late", Ignores()).global_grouping("counts", stream="late")
    return builder.build()


def results_of(cluster: SimulatedCluster) -> dict[float, list[int]]:
    """By the windows' starts. Nothing was late, and no window came twice."""
    assert [name for name, rows in cluster.emitted.items() if name.endswith("/late") and rows] == []
    rows = [values[:2] for values in cluster.emitted["counts.results"]]
    assert max(Counter(start for start, _ in rows).values()) == 1
    return dict(rows)


def go(cluster: SimulatedCluster, until: Callable[[], bool]) -> None:
    """Let time pass while tuples flow."""

    def passed() -> bool:
        cluster.step()
        cluster.clock.advance_ns(20_000_000)
        return until()

    wait_for("the condition", passed)


@pytest.mark.parametrize("partitions", [4, 20])
def test_no_row_of_a_feed_of_several_partitions_is_late(tmp_path: Path, partitions: int) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng, rows = random.Random(partitions), list[tuple[float, int]]()
    (tmp_path / "feed").mkdir()
    for partition in range(partitions):
        seconds = range(0, 2000, 2)
        own = [(second + rng.uniform(0, LAG_SECS), partition + partitions * second) for second in seconds]
        columns = {name: list(column) for name, column in zip(FIELDS, zip(*own, strict=True), strict=True)}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"feed/{partition:02}.parquet")
        rows += own
    topology = counting(rows=FeedSpout(tmp_path / "feed", FIELDS, range_rows=100))
    with SimulatedCluster(topology, Config(max_spout_pending=100), state_root=tmp_path / "state") as cluster:
        go(cluster, lambda: bool(cluster.emitted["counts.results"]))
        assert len(cluster.emitted["rows"]) < len(rows), "windows wait for the end of the feed"
        go(cluster, lambda: cluster.drained)
        assert results_of(cluster) == windows_of(rows)


GO_ON = threading.Event()


class Stuck(Source):
    """Yields a record, and then sits in a call until it may go on."""

    outputs = FIELDS

    def read_from(self, position: int | None) -> Iterator[Any]:
        yield [(1, (1.0, 1))]
        GO_ON.wait(60)
        yield [(number, (float(number), number)) for number in range(2, 300)]


class Holds(Bolt):
    """Holds number 1 until another comes."""

    outputs = FIELDS

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector, self.held = collector, list[Tuple]()

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if tup["n"] != 1:
            for each in self.held:
                self.collector.emit(each.values, anchors=each)
                self.collector.ack(each)
            self.held = []


@pytest.mark.parametrize("is_held", [False, True])
def test_no_record_of_a_source_that_sat_in_a_call_is_late(tmp_path: Path, is_held: bool) -> None:
    GO_ON.clear()
    other = FeederSpout(FIELDS)
    topology = counting(*[("stuck", Holds())] if is_held else [], stuck=Stuck(), other=other)
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


class ByKey(WindowedBolt):
    outputs = ("key", "start")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.key, window.start))


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_windows_of_keys_that_come_no_more_are_executed_while_the_source_goes_on(tasks: int, tmp_path: Path) -> None:
    """Time reaches a task that gets no tuple."""
    source, builder = FeederSpout(("key", "at")), TopologyBuilder()
    builder.set_spout("events", source)
    windows = ByKey().with_tumbling_window(secs=1).with_key("key").with_timestamp_field("at")
    builder.set_bolt("windows", windows, parallelism=tasks).fields_grouping("events", "key")
    with SimulatedCluster(builder.build(), Config(), state_root=tmp_path) as cluster:
        for key in "abcdefghij":
            source.feed((key, 0.5))
        cluster.settle()
        source.feed(("a", 1000.0))
        cluster.run_until(lambda: len(cluster.emitted["windows.results"]) == 10, 2)
        assert {row[0] for row in cluster.emitted["windows.results"]} == set("abcdefghij")


def test_a_date_in_the_future_makes_nothing_late_and_stays_in_its_window(tmp_path: Path) -> None:
    now, month = time.time() // WINDOW_SECS * WINDOW_SECS - 10_000, 30 * 86_400
    rows = [(now + 5.0 * n, n) for n in range(400)]
    source, builder = FeederSpout(FIELDS), TopologyBuilder()
    builder.set_spout("events", source)
    builder.set_bolt("windows", counts()).global_grouping("events")
    with SimulatedCluster(builder.build(), Config(), state_root=tmp_path) as cluster:
        for n, row in enumerate(rows):
            source.feed(row if n != 200 else (now + month, 200))
            if n % 20 == 0:
                cluster.settle()
        source.finish()
        cluster.run()
        assert not cluster.emitted["windows.results/late"]
        rows[200] = (now + month, 200)
        assert dict(row[:2] for row in cluster.emitted["windows.results"]) == windows_of(rows)
