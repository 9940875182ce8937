"""A cluster that stands by itself, worked with by commands only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from squall.scheduler.client.statuses import WorkerShown
from squall.scheduler.common.role import processes_of
from tests.process.cli import command, environment, start
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for
from tests.process.written import word_counts


def worker_of(cluster: Standing, name: str, number: int = 0) -> WorkerShown:
    return cluster.described(name).workers[number]


def test_a_day_of_two_topologies(standing: Standing) -> None:
    submitted = standing.json("submit", ENDLESS, "--name", "one", "--workers", "2")
    assert submitted["workers"] == ["node-1:6700", "node-1:6701"]
    assert standing.json("submit", ENDLESS, "--name", "two", "--inactive")["status"] == "INACTIVE"
    assert {row["name"]: (row["status"], row["workers"]) for row in standing.json("list")["topologies"]} == {
        "one": ("ACTIVE", 2), "two": ("INACTIVE", 1),
    }
    wait_for("acks of one", lambda: standing.json("status", "one")["rates"]["acked_per_sec"] > 0)
    found = standing.json("status", "one")
    assert found["components"]["nothing"]["executors"] == 2
    assert {e["component"] for e in found["executors"]} == {"__acker", "numbers", "nothing"}
    assert [(w["worker"], w["state"], w["incarnation"]) for w in found["workers"]] == [
        ("node-1:6700", "ready", 1), ("node-1:6701", "ready", 1),
    ]
    assert "nothing" in standing.ok("status", "one")
    assert standing.ok("dead-letters", "one").startswith("0 dead letters of one")

    wait_for("the worker of two", lambda: worker_of(standing, "two").state == "ready")
    assert standing.json("status", "two")["emitted"] == 0
    assert standing.ok("activate", "two") == "two is ACTIVE\n"
    wait_for("acks of two", lambda: standing.described("two").acked > 0)
    assert standing.ok("deactivate", "two") == "two is INACTIVE\n"
    assert standing.json("kill", "one")["pending"] == 0
    assert [row["name"] for row in standing.json("list")["topologies"]] == ["two"]
    assert len(standing.json("status")["free_slots"]) == 3


def test_rebalance_and_logs(standing: Standing) -> None:
    cluster = standing
    cluster.ok("submit", ENDLESS, "--name", "one")
    wait_for("the worker", lambda: worker_of(cluster, "one").state == "ready")
    moved = cluster.json("rebalance", "one", "-n", "3", "-e", "nothing=2")
    assert (len(moved["workers"]), moved["pending"]) == (3, 0)
    wait_for("the workers", lambda: [worker_of(cluster, "one", n).state for n in range(3)] == ["ready"] * 3)
    text = cluster.ok("rebalance", "one", "-n", "1", "-e", "nothing=1")
    assert re.fullmatch(r"one runs on 1 worker: node-1:670\d; nothing was pending\n", text)
    wait_for("the worker", lambda: worker_of(cluster, "one").state == "ready")

    lines = cluster.json("logs", "one")
    # Two tasks of the bolt, opened three times.
    assert Counter(row["line"] for row in lines) == {"prepared nothing 0": 3, "prepared nothing 1": 3}
    assert set(cluster.ok("logs", "one").splitlines()) <= {f"[{row['worker']}] {row['line']}" for row in lines}
    with start("logs", "one", "--follow", SQUALL_DIR=str(cluster.path)) as process:
        assert process.stdout is not None
        first = [process.stdout.readline() for _ in lines]
        os.kill(worker_of(cluster, "one").pid, signal.SIGKILL)
        more = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=100)
    assert all("prepared nothing" in line for line in first + more)
    assert process.returncode == 130
    # As `| head` does: nobody reads any more, and nothing new is printed either.
    with start("logs", "one", "--follow", SQUALL_DIR=str(cluster.path)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=100) == 0
        assert process.stderr.read() == ""
    status = cluster.json("status", "one")
    assert [restart["reason"] for restart in status["restarts"]] == ["killed by SIGKILL"]
    assert "choose one" in cluster.refused(2, "logs", "one", "--json", "-f")
    cluster.ok("kill", "one", "-w", "0")
    assert cluster.json("logs", "one")
    assert cluster.refused(2, "logs", "zz") == "there are no logs of a topology named 'zz'; topologies with logs: one"


def test_down_drains_keeps_and_up_goes_on_exactly(cluster: Standing, tmp_path: Path) -> None:
    """Meanwhile `clean` removes what others left, and nothing else."""
    text, out = tmp_path / "some.txt", tmp_path / "result"
    text.write_text("".join(f"w{n % 97} same w{n % 7}\n" for n in range(12_000)))
    cluster.up(slots=3)
    cluster.ok("submit", ENDLESS, "--name", "gone")
    cluster.ok("submit", "examples/word_count.py", "--name", "count", "--workers", "2", "--", text, "--out", out)
    # A worker makes its log when it is started, and tasks their state: a submit waits for neither.
    wait_for("its log", lambda: cluster.run("logs", "gone").stdout)
    for name in ("gone", "count"):
        wait_for("some acks", lambda name=name: cluster.described(name).acked > 0)
    cluster.ok("kill", "gone", "-w", "0")
    done = cluster.json("down")
    assert done["pending"] == {"count": 0}
    assert done["killed"] == 0

    here = "--dir", cluster.path
    left = cluster.json("clean", *here)
    assert {(row["name"], row["kind"]) for row in left} == {("gone", "logs"), ("gone", "state")}
    removed = cluster.json("clean", *here, "--remove")
    assert {row["removed"] for row in removed} == {True}
    assert cluster.ok("clean", *here) == "nothing is left of topologies that are gone\n"
    assert "there is nothing to remove of 'count'" in cluster.refused(2, "clean", *here, "count", "--remove")

    assert cluster.json("up", "--slots", "2", "--detach")["topologies"] == ["count"]
    wait_for("the end", lambda: cluster.described("count").drained)
    assert cluster.json("kill", "count", "-w", "20")["pending"] == 0
    assert word_counts(out) == Counter(text.read_text().split())
    again = ("submit", "examples/word_count.py", "--name", "count")
    assert "it takes up the state that an earlier count left in" in cluster.ok(*again, "--", text)
    cluster.ok("kill", "count")
    assert not cluster.json(*again, "--fresh", "--", text)["takes_up_state"]
    wait_for("all acks anew", lambda: cluster.described("count").acked)


def test_daemons_one_by_one(cluster: Standing) -> None:
    variables = environment(SQUALL_DIR=str(cluster.path))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": variables}
    supervisors = [("supervisor", "--node", node, "--slots", "1") for node in ("left", "right")]
    daemons = [subprocess.Popen(command(*arguments), **quiet) for arguments in (("nimbus",), *supervisors)]
    try:
        wait_for("the directory", cluster.run_dir.nimbus_socket.exists)
        wait_for("both nodes", lambda: len(cluster.json("status")["nodes"]) == 2)
        cluster.ok("submit", ENDLESS, "--name", "one", "--workers", "2")
        wait_for("acks", lambda: cluster.described("one").acked > 0)
        pid = worker_of(cluster, "one").pid
        # Nimbus goes and comes; nobody else minds.
        daemons[0].send_signal(signal.SIGINT)
        assert daemons[0].wait(60) == 0
        done = cluster.run("status")
        assert done.returncode == 1
        waits, gives_up = done.stderr.splitlines()
        assert waits == "Nimbus is away, waiting for it for up to 5 s"
        assert gives_up.endswith(f"workers run on, `squall nimbus --dir {cluster.path}` starts it again")
        assert "without Nimbus: `squall nimbus` starts it again" in cluster.refused(2, "up", "--detach")
        daemons[0] = subprocess.Popen(command("nimbus"), **quiet)
        wait_for("both nodes", lambda: len(cluster.json("status")["nodes"]) == 2 if running(cluster) else False)
        assert worker_of(cluster, "one").pid == pid
        assert cluster.json("down")["pending"] == {"one": 0}
        assert [daemon.wait(60) for daemon in daemons] == [0, 0, 0]
    finally:
        for daemon in daemons:
            daemon.kill()
            daemon.wait()


def running(cluster: Standing) -> bool:
    return cluster.run("status").returncode == 0


@pytest.mark.parametrize("killed", [False, True])
def test_in_the_foreground_command_and_cluster_end_together(cluster: Standing, killed: bool) -> None:
    with start("up", "--slots", "1", SQUALL_DIR=str(cluster.path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cluster.ok("submit", ENDLESS, "--name", "one")
        wait_for("the worker", lambda: worker_of(cluster, "one").state == "ready")
        if killed:
            process.kill()
        else:
            cluster.ok("down")
        process.communicate(timeout=100)
    assert killed or process.returncode == 0
    wait_for("every process to end", lambda: not processes_of(cluster.run_dir))
