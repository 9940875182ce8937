"""Event time waits for a message that is under way, however long nothing of its source has come."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall import (
    BasicCollector,
    Config,
    Topology,
    TopologyBuilder,
    Window,
    WindowedBolt,
)
from squall.engine.core.executor import TaskCrashed
from squall.testing import FeederSpout, SimulatedCluster
from tests.unit.test_time_by_partition import FIELDS, Holds


class Numbers(WindowedBolt):
    outputs = ("start", "numbers")

    def execute_window(self, window: Window, collector: BasicCollector) -> None:
        collector.emit((window.start, sorted(tup["n"] for tup in window.get())))


def test_what_is_held_longer_than_the_idle_timeout_is_not_late(tmp_path: Path) -> None:
    slow, other = FeederSpout(FIELDS), FeederSpout(FIELDS)
    builder = TopologyBuilder()
    builder.set_spout("slow", slow)
    builder.set_spout("other", other)
    builder.set_bolt("hold", Holds()).global_grouping("slow")
    numbers = Numbers().with_tumbling_window(secs=1).with_timestamp_field("at").with_idle_timeout(secs=1)
    builder.set_bolt("numbers", numbers).global_grouping("hold").global_grouping("other")
    with SimulatedCluster(builder.build(), Config(message_timeout_secs=1000), state_root=tmp_path) as cluster:
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
        assert cluster.emitted["numbers.results"][0][:2] == (0.0, [0, 1, 2, 100, 101])


def test_sources_that_all_have_nothing_more_leave_no_window_open_but_the_newest(tmp_path: Path) -> None:
    early, late = FeederSpout(FIELDS), FeederSpout(FIELDS)
    builder = TopologyBuilder()
    builder.set_spout("early", early)
    builder.set_spout("late", late)
    numbers = Numbers().with_tumbling_window(secs=1).with_timestamp_field("at").with_lag(secs=0.25)
    builder.set_bolt("numbers", numbers).global_grouping("early").global_grouping("late")
    with SimulatedCluster(builder.build(), state_root=tmp_path) as cluster:
        early.feed((0.5, 0))
        for number, at in enumerate((8.5, 99.5, 100.5), 1):
            late.feed((at, number))
        cluster.advance(20)
        assert [row[:2] for row in cluster.emitted["numbers.results"]] == [(0.0, [0]), (8.0, [1]), (99.0, [2])]


def test_open_windows_refuse_another_declaration(tmp_path: Path) -> None:
    def counting(secs: float) -> tuple[FeederSpout, Topology]:
        builder, source = TopologyBuilder(), FeederSpout(FIELDS)
        builder.set_spout("slow", source)
        numbers = Numbers().with_tumbling_window(secs=secs).with_timestamp_field("at")
        builder.set_bolt("numbers", numbers).global_grouping("slow")
        return source, builder.build()

    source, topology = counting(4)
    with SimulatedCluster(topology, state_root=tmp_path) as cluster:
        source.feed((0.5, 0))
        cluster.settle()
    refused = r"numbers is declared with windows of 2 s; 1 open window was declared with windows of 4 s"
    with pytest.raises(TaskCrashed, match=refused):
        SimulatedCluster(counting(2)[1], state_root=tmp_path)
    source, topology = counting(4)
    with SimulatedCluster(topology, state_root=tmp_path) as cluster:
        source.finish()
        cluster.run()
        assert cluster.emitted["numbers.results"][0][:2] == (0.0, [0])
    with SimulatedCluster(counting(2)[1], state_root=tmp_path) as cluster:
        cluster.settle()
