"""A value that fits into no frame: its own tuple fails, with its name and size, and the rest flows."""

from __future__ import annotations

from squall import Config, TopologyBuilder
from tests.chaos.isolation_topologies import Nothing, Sizes
from tests.process.conftest import SharedCluster

MIB = 1 << 20


def test_a_value_that_is_too_long_fails_its_tuple_alone(shared_cluster: SharedCluster) -> None:
    builder = TopologyBuilder()
    builder.set_spout("sizes", Sizes(1, 2, 20 * MIB, 3, 10 * MIB, 4))
    builder.set_bolt("sink", Nothing(), parallelism=2).all_grouping("sizes")
    config = Config(workers=2, max_frame_bytes=16 * MIB, arena_bytes=0, max_attempts=1, on_error="fail")
    report = shared_cluster.run(builder.build(), config)
    assert (report.acked, report.dead_letters, report.pending) == (5, 1, 0)
    assert report.restarts == []
    assert list(report.failures) == ["sizes"]
    told = str(report.failures)
    assert "frame of 2097" in told
    assert "max_frame_bytes allows 16777216" in told
