"""A worker that outlives its supervisor and its topology: it is waited for, ended, and nobody hears of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from squall.ipc.rundir import RunDir
from tests.process.standing_tools import Standing, directory
from tests.process.waiting import wait_for

TOPOLOGY = "tests/chaos/isolation_topologies.py"


class Singly:
    """A cluster of single daemons, which nobody starts again."""

    def __init__(self, cluster: Standing) -> None:
        self.cluster = cluster
        self.started: list[psutil.Popen] = []
        RunDir.create(cluster.path)
        self.nimbus = self.start("nimbus")
        wait_for("Nimbus", lambda: cluster.run("list").returncode == 0)

    def start(self, *arguments: str) -> psutil.Popen:
        env = {**os.environ, "SQUALL_DIR": str(self.cluster.path), "PYTHONPATH": os.getcwd()}
        command = [sys.executable, "-m", "squall", *arguments]
        self.started.append(psutil.Popen(command, env=env, stdout=-3, stderr=-3))
        return self.started[-1]

    def supervisor(self) -> psutil.Popen:
        return self.start("supervisor", "--node", "node-1", "--slots", "2")

    def submit(self, name: str, *arguments: str | Path) -> list[int]:
        """Pids of its two workers, once they are ready."""
        self.cluster.ok("submit", TOPOLOGY, "--name", name, "--workers", "2", "--", *arguments)

        def ready() -> list[int]:
            rows = self.cluster.described(name)["workers"]
            return [row["pid"] for row in rows if row["state"] == "ready"]

        wait_for(f"workers of {name}", lambda: len(ready()) == 2)
        return ready()

    def close(self) -> None:
        for process in self.started:
            if process.is_running():
                process.kill()
            process.wait()


@pytest.fixture
def singly() -> Iterator[Singly]:
    with directory() as cluster:
        made = Singly(cluster)
        yield made
        if made.nimbus.is_running():
            cluster.run("down", "-w", "0")
        made.close()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def inside(tmp_path: Path) -> list[int]:
    """Workers that sit in a long execute."""
    return [int(path.name.partition("-")[2]) for path in tmp_path.glob("inside-*")]


def sink(tmp_path: Path, name: str) -> list[str]:
    path = tmp_path / f"sink-of-{name}"
    return path.read_text().split() if path.exists() else []


def alone_in_a_long_execute(singly: Singly, tmp_path: Path) -> list[int]:
    """Workers of "first", whose supervisor is gone."""
    supervisor = singly.supervisor()
    pids = singly.submit("first", tmp_path, "waits")
    wait_for("the long execute", lambda: inside(tmp_path))
    supervisor.kill()
    supervisor.wait()
    return pids


def test_a_worker_without_supervisor_is_ended_before_its_topology_is_gone(singly: Singly, tmp_path: Path) -> None:
    pids = alone_in_a_long_execute(singly, tmp_path)
    assert all(map(lives, pids))
    assert singly.cluster.ok("kill", "first", "-w", "0").startswith("first is gone;")
    assert not any(map(lives, pids))
    (tmp_path / "release").touch()
    singly.supervisor()
    singly.submit("second", tmp_path)
    wait_for("its own records", lambda: len(sink(tmp_path, "second")) > 1000)
    assert set(sink(tmp_path, "second")) == {"second"}
    assert singly.cluster.described("second")["links"]["refused"] == 0


def test_a_supervisor_that_comes_back_ends_it(singly: Singly, tmp_path: Path) -> None:
    pids = alone_in_a_long_execute(singly, tmp_path)
    kill = singly.start("kill", "first", "-w", "0")
    singly.supervisor()
    (tmp_path / "release").touch()
    assert kill.wait(60) == 0
    assert not any(map(lives, pids))


def test_workers_end_when_their_run_directory_is_removed(singly: Singly, tmp_path: Path) -> None:
    supervisor = singly.supervisor()
    pids = singly.submit("first", tmp_path)
    for daemon in (supervisor, singly.nimbus):
        daemon.kill()
        daemon.wait()
    assert all(map(lives, pids))
    RunDir(singly.cluster.path).remove()
    wait_for("the workers' end", lambda: not any(map(lives, pids)))
