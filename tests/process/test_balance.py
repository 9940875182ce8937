"""No worker idles while another has work: bolts that hold, and tasks that are stuck, on real workers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Bolt,
    BoltCollector,
    Config,
    Spout,
    SpoutCollector,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for

MESSAGES, HELD = 30_000, 6000
PACED, PENDING = 15_000, 2000


class Numbers(Spout):
    outputs = ("number",)

    def __init__(self, count: int) -> None:
        self.count = count

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.next = collector, 0

    def next_tuple(self) -> None:
        if self.next == self.count:
            self.exhausted = True
            return
        self.collector.emit((self.next,), message_id=self.next)
        self.next += 1


class Paced(Numbers):
    """A few, until one of them has made a worker stuck; then at most 5 a millisecond. Hundreds go to that worker before
    others know it, not all that may be open, as a fast machine's would."""

    def __init__(self, count: int, path: str) -> None:
        super().__init__(count)
        self.path = path

    def next_tuple(self) -> None:
        if self.next % 5 == 0:
            time.sleep(0.001)
            if self.next == 100 and not Path(self.path, "stuck").exists():
                return
        super().next_tuple()


class Holds(Bolt):
    """Acks nothing before it has HELD tuples."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext, collector: BoltCollector) -> None:
        self.collector = collector
        self.held: list[Tuple] = []

    def execute(self, tup: Tuple) -> None:
        self.held.append(tup)
        if len(self.held) == HELD:
            for one in self.held:
                self.collector.ack(one)
            self.held = []


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


def test_a_bolt_in_another_worker_that_holds_thousands_gets_them(shared_cluster: SharedCluster) -> None:
    """More than a spout has open at first, and than it once had open at all."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Numbers(MESSAGES))
    builder.set_bolt("holds", Holds()).shuffle_grouping("numbers")
    report = shared_cluster.run(builder.build(), Config(workers=2, message_timeout_secs=3600))
    assert (report.acked, report.failed) == (MESSAGES, 0)


def test_a_shuffle_keeps_away_from_a_worker_that_is_stuck(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """If it got every second message, all that may be open would wait for it."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", Paced(PACED, str(tmp_path))).set_config(max_spout_pending=PENDING)
    builder.set_bolt("works", Stuck(str(tmp_path)), parallelism=2).shuffle_grouping("numbers")
    config = Config(workers=2, message_timeout_secs=3600, worker_timeout_secs=None)
    job = shared_cluster.submit("stuck", builder.build(), config)
    wait_for("nearly all acked", lambda: job.stats().acked >= PACED - PENDING)
    wait_for("the stuck task", Path(tmp_path, "stuck").exists)
    assert job.stats().pending > 0
    Path(tmp_path, "go on").touch()
    report = job.wait_until_drained(timeout=120)
    assert (report.acked, report.failed) == (PACED, 0)
