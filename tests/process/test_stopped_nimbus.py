"""A cluster whose Nimbus is stopped by SIGSTOP can be stopped."""

from __future__ import annotations

from squall.scheduler.common.mark import processes_of
from tests.process.standing_tools import ENDLESS, directory
from tests.process.waiting import wait_for


def test_down_ends_it_without_nimbus_and_it_goes_on() -> None:
    with directory() as cluster:
        cluster.up(slots=1)
        cluster.ok("submit", ENDLESS, "--name", "one")
        wait_for("acks", lambda: cluster.described("one")["acked"] > 0)
        cluster.nimbus().suspend()
        done = cluster.run("down", "-w", "1")
        assert done.returncode == 0
        assert done.stdout == f"cluster in {cluster.path} is stopped\n"
        # Nimbus, the supervisor, its forking parent and the worker.
        assert done.stderr == "Nimbus does not answer; ended 4 processes without draining\n"
        assert processes_of(cluster.run_dir) == []
        cluster.up(slots=1)
        assert [row["name"] for row in cluster.json("list")["topologies"]] == ["one"]
