"""A topology whose ticks take longer than the time between them, as on a busy machine, finishes all the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from squall import BasicBolt, BasicCollector, Config, TopologyBuilder, Tuple
from tests.process import parts
from tests.process.conftest import SharedCluster

TICK_SECS = 0.02


class Overdue(BasicBolt):
    """The next tick is due before it is done with one."""

    outputs = ("n",)

    def __init__(self, blocking: bool) -> None:
        self.blocking = blocking

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup.is_tick:
            threading.Event().wait(2 * TICK_SECS)
        else:
            collector.emit((tup["n"],))


@pytest.mark.parametrize("blocking", [False, True])
def test_it_is_finished_and_leaves(shared_cluster: SharedCluster, tmp_path: Path, blocking: bool) -> None:
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Numbers(str(tmp_path), 100))
    builder.set_bolt("overdue", Overdue(blocking), parallelism=2).shuffle_grouping("source")
    builder.set_bolt("seen", parts.Seen(str(tmp_path))).shuffle_grouping("overdue")
    job = shared_cluster.submit("t", builder.build(), Config(workers=2, tick_tuple_freq_secs=TICK_SECS))
    job.await_drained(60)
    assert job.status() == "FINISHED"
    assert not job.kill(60)
    assert set(parts.notes(tmp_path, "acked")) == set(range(100))
