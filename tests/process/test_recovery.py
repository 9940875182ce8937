"""A worker that is killed in the middle: nothing is counted twice or lost."""

from __future__ import annotations

from pathlib import Path

from squall import Config, TopologyBuilder
from tests.process import parts
from tests.process.conftest import SharedCluster
from tests.process.waiting import wait_for


def test_what_a_killed_worker_had_counted_is_in_the_report(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    """Users' counters are in shared memory: every tuple executed before the kill is there, and every one after it."""
    builder = TopologyBuilder()
    builder.set_spout("source", parts.Unending(str(tmp_path)))
    builder.set_bolt("counted", parts.Counted(str(tmp_path))).shuffle_grouping("source")
    job = shared_cluster.submit("counted", builder.build(), Config(workers=2))
    wait_for("some tuples", lambda: len(parts.notes(tmp_path, "counted")) > 100)
    shared_cluster.inject("kill", parts.notes(tmp_path, "counted")[0][0])
    wait_for("its replacement's work", lambda: any(r.working_after_secs for r in job.stats().restarts))
    (tmp_path / "enough").touch()
    report = job.wait_until_drained(timeout=90)
    assert len(report.restarts) == 1
    executed = len(parts.notes(tmp_path, "counted"))
    # One tuple may have been noted and not yet counted when the kill came.
    assert executed - 1 <= report.metrics["counted"]["executed"] <= executed
    assert list(report.metrics["counted"]["last"].values()) == [parts.notes(tmp_path, "counted")[-1][1]]
