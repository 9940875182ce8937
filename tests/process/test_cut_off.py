"""Sources and sinks whose other side is away, records that nobody can read, and batch bolts that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import BatchBolt, ClusterError, Config, Topology, UsageError, bolt
from squall.connect import Sink, Unreadable
from tests.process.conftest import SharedCluster
from tests.process.ends import Numbers, ToFile, between
from tests.process.waiting import wait_for


class Odd(Numbers):
    """Even numbers cannot be read."""

    def read_from(self, position: int | None) -> Iterator[Any]:
        for after, values in super().read_from(position):
            yield after, values if values[0] % 2 else Unreadable(values, f"{values[0]} is even")


class Behind(Numbers):
    """Reads three numbers each time that it is connected, and is cut off."""

    def connect(self, context: Any) -> None:
        self.left = 3

    def read_from(self, position: int | None) -> Iterator[Any]:
        for record in super().read_from(position):
            if not self.left:
                raise ConnectionResetError("the server went")
            self.left -= 1
            yield record

    def disconnect(self) -> None:
        raise BrokenPipeError


class Wrong(Numbers):
    def connect(self, context: Any) -> None:
        raise UsageError("the server knows no such user")


class WrongSink(Sink):
    connect = Wrong.connect


class Waits(BatchBolt):
    """Waits in a thread of its own, and fails the row of one number."""

    blocking = True
    outputs = ("number",)

    def execute_batch(self, batch: Any, collector: Any) -> None:
        time.sleep(0.001)
        collector.emit_batch((batch["number"],))
        if 7 in batch["number"]:
            collector.fail(list(batch["number"]).index(7), "a seven")


@bolt
def adds(tup: Any) -> None:
    assert isinstance(tup["number"], int)


def test_what_cannot_be_read_is_a_dead_letter_at_once(shared_cluster: SharedCluster) -> None:
    report = shared_cluster.run(between(Odd(100), adds))
    assert (report.acked, report.dead_letters, report.failed) == (50, 50, 0)


def test_a_source_goes_on_where_it_was_cut_off(shared_cluster: SharedCluster) -> None:
    report = shared_cluster.run(between(Behind(10), adds))
    assert (report.messages, report.acked, report.replayed) == (10, 10, 0)


def test_a_server_that_is_away_counts_against_no_tuple(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    path = tmp_path / "there"
    sink = ToFile(path, lambda number: number % 10 == 0)
    job = shared_cluster.submit("away", between(Numbers(100), sink), Config(max_attempts=2))
    wait_for("each number to fail often", lambda: job.stats().failed > 500)
    assert job.stats().dead_letters == 0
    path.touch()
    job.wait_until_drained(timeout=90)
    assert (job.stats().acked, job.stats().dead_letters) == (90, 10)
    assert sorted(map(int, path.read_text().split())) == [number for number in range(100) if number % 10]
    assert {reason for failures in job.stats().failures.values() for reason in failures.counts} == {
        "failed", "unavailable"
    }


@pytest.mark.parametrize("topology", [between(Wrong(1), adds), between(Numbers(1), WrongSink())])
def test_what_is_set_up_wrong_ends_the_run_and_counts_against_no_tuple(
    shared_cluster: SharedCluster, topology: Topology
) -> None:
    with pytest.raises(ClusterError, match="knows no such user"):
        shared_cluster.run(topology, Config(max_attempts=2))


def test_a_batch_bolt_may_wait_in_a_thread_of_its_own(shared_cluster: SharedCluster) -> None:
    report = shared_cluster.run(between(Numbers(20_000), Waits(), adds), Config(max_attempts=1))
    assert (report.acked, report.dead_letters) == (19_999, 1)
