"""Components that take their time on a thread of their own, on real workers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall import (
    Config,
    Spout,
    SpoutCollector,
    TopologyBuilder,
    TopologyContext,
)
from tests.process import parts
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for


class Pipe(Spout):
    """Sits in a read of a named pipe, for ever if nothing comes. Each line is a number."""

    outputs = ("n",)
    blocking = True

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.lines = os.fdopen(os.open(f"{self.directory}/pipe", os.O_RDWR | os.O_CLOEXEC), "r")

    def next_tuple(self) -> None:
        n = int(self.lines.readline())
        self.collector.emit((n,), message_id=n)

    def ack(self, message_id: Any) -> None:
        parts.note(self.directory, "acked", message_id)

    def deactivate(self) -> None:
        parts.note(self.directory, "calls", "deactivate")


def test_a_spout_that_sits_in_a_read_holds_up_nothing_and_nobody(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """It shares its only worker with bolts, a rebalance and a kill come to rest, and what is written meanwhile is read
    by its successor."""
    os.mkfifo(tmp_path / "pipe")
    pipe = os.open(tmp_path / "pipe", os.O_RDWR)
    builder = TopologyBuilder()
    builder.set_spout("lines", Pipe(str(tmp_path)))
    builder.set_bolt("seen", parts.Seen(str(tmp_path))).shuffle_grouping("lines")
    # It would wait for the timeout of a message that is held up.
    config = Config(worker_timeout_secs=5, message_timeout_secs=3600)
    job = shared_cluster.submit("pipe", builder.build(), config)
    job.wait_until_ready(120)
    os.write(pipe, b"".join(b"%d\n" % n for n in range(5)))
    wait_for("what was written", lambda: len(parts.notes(tmp_path, "seen")) == 5)
    wait_for("their acks", lambda: job.stats().acked == 5 and job.is_idle())
    assert job.rebalance(workers=2) == 0
    job.wait_until_ready(120)
    os.write(pipe, b"".join(b"%d\n" % n for n in range(5, 10)))
    wait_for("the rest", lambda: len(parts.notes(tmp_path, "seen")) == 10)
    wait_for("the acks", lambda: job.stats().acked == 10)
    assert job.kill() == 0
    os.close(pipe)
    assert sorted(n for _, n in parts.notes(tmp_path, "seen")) == list(range(10))
