"""A worker that outlives its supervisor: it is ended before its topology is gone."""

from __future__ import annotations

import psutil

from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_worker_without_supervisor_is_ended_before_its_topology_is_gone(cluster: Standing) -> None:
    cluster.up(slots=2)
    cluster.ok("submit", f"{ENDLESS}:stuck", "--name", "first", "--workers", "2")
    wait_for("messages in a long execute", lambda: cluster.described("first").pending == 200)
    pids = [row.pid for row in cluster.described("first").workers]
    with cluster.keeper_held():
        cluster.supervisor("node-1").kill()
        assert all(map(lives, pids))
        assert cluster.ok("kill", "first", "-w", "0").startswith("first is gone;")
        assert not any(map(lives, pids))
