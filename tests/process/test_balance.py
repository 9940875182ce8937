"""No worker idles while another has work: a task that is stuck, on real workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import BasicBolt, BasicCollector, Config, TopologyBuilder, TopologyContext, Tuple, spout
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

COUNT = 1000


@spout("number")
def paced(start: int) -> Iterator[int]:
    """A few go to the worker that is stuck before others know it."""
    for number in range(start, COUNT):
        time.sleep(0.001)
        yield number


class Stuck(BasicBolt):
    """One of its tasks waits in its first tuple until a file is there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.stuck = context.worker.endswith(":6701")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.stuck:
            wait_for("the test has seen enough", self.path.exists, 600)


def test_a_shuffle_keeps_away_from_a_worker_that_is_stuck(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """If it got every second message, half of them would wait for it."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", paced)
    builder.set_bolt("works", Stuck(tmp_path / "enough"), parallelism=2).shuffle_grouping("numbers")
    config = Config(workers=2, message_timeout_secs=3600, worker_timeout_secs=None)
    job = shared_cluster.submit("stuck", builder.build(), config)
    wait_for("most acks", lambda: job.stats().acked >= COUNT * 2 // 3)
    assert job.stats().acked < COUNT
    (tmp_path / "enough").touch()
    report = job.wait_until_drained(timeout=120)
    assert (report.acked, report.failed) == (COUNT, 0)
