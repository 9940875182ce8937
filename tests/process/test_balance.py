"""No worker idles while another has work: a task that is stuck, on real workers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Config,
    Spout,
    SpoutCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

PACED, PENDING = 15_000, 2000


class Paced(Spout):
    """A few, until one of them has made a worker stuck; then at most 5 a millisecond. Hundreds go to that worker before
    others know it, not all that may be open, as a fast machine's would."""

    outputs = ("number",)

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next = collector, 0

    def next_tuple(self) -> None:
        if self.next % 5 == 0:
            time.sleep(0.001)
            if self.next == 100 and not Path(self.path, "stuck").exists():
                return
        self.exhausted = self.next == PACED
        if not self.exhausted:
            self.collector.emit((self.next,), message_id=self.next)
            self.next += 1


class Stuck(BasicBolt):
    """One of its tasks waits in its first tuple until a file is there."""

    def __init__(self, path: str) -> None:
        self.path = path

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.stuck = context.worker.endswith(":6701")

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if self.stuck:
            Path(self.path, "stuck").touch()
            wait_for("the test has seen enough", Path(self.path, "go on").exists, 600)


def test_a_shuffle_keeps_away_from_a_worker_that_is_stuck(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """If it got every second message, all that may be open would wait for it."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Paced(str(tmp_path))).set_config(max_spout_pending=PENDING)
    builder.set_bolt("works", Stuck(str(tmp_path)), parallelism=2).shuffle_grouping("numbers")
    config = Config(workers=2, message_timeout_secs=3600, worker_timeout_secs=None)
    job = shared_cluster.submit("stuck", builder.build(), config)
    wait_for("nearly all acked", lambda: job.stats().acked >= PACED - PENDING)
    wait_for("the stuck task", Path(tmp_path, "stuck").exists)
    assert job.stats().pending > 0
    Path(tmp_path, "go on").touch()
    report = job.wait_until_drained(timeout=120)
    assert (report.acked, report.failed) == (PACED, 0)
