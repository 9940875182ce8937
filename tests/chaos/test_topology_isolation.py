"""A worker that outlives its supervisor: it is ended before its topology is gone, and nobody hears of it."""

from __future__ import annotations

from pathlib import Path

import psutil

from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

TOPOLOGY = "tests/chaos/isolation_topologies.py"


def submit(cluster: Standing, name: str, *arguments: str | Path) -> list[int]:
    """Pids of its two workers, once they are ready."""
    cluster.ok("submit", TOPOLOGY, "--name", name, "--workers", "2", "--", *arguments)

    def ready() -> list[int]:
        return [row["pid"] for row in cluster.described(name)["workers"] if row["state"] == "ready"]

    return wait_for(f"workers of {name}", lambda: len(pids := ready()) == 2 and pids)


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def sink(tmp_path: Path, name: str) -> list[str]:
    path = tmp_path / f"sink-of-{name}"
    return path.read_text().split() if path.exists() else []


def test_a_worker_without_supervisor_is_ended_before_its_topology_is_gone(tmp_path: Path) -> None:
    with directory() as cluster:
        cluster.up(slots=2)
        pids = submit(cluster, "first", tmp_path, "waits")
        wait_for("the long execute", lambda: list(tmp_path.glob("inside-*")))
        with cluster.keeper_held():
            cluster.supervisor("node-1").kill()
            assert all(map(lives, pids))
            assert cluster.ok("kill", "first", "-w", "0").startswith("first is gone;")
            assert not any(map(lives, pids))
        (tmp_path / "release").touch()
        submit(cluster, "second", tmp_path)
        wait_for("its own records", lambda: len(sink(tmp_path, "second")) > 1000)
        assert set(sink(tmp_path, "second")) == {"second"}
        assert cluster.described("second")["links"]["refused"] == 0
