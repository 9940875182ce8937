"""SIGTERM, as systemd, `docker stop` and Kubernetes send it: a drain, then exit code 0; a second one does not wait. An
interrupt does the same, and ends with 130."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from squall.scheduler.common.role import processes_of
from tests.process.cli import running, squall
from tests.process.standing_tools import ENDLESS, Standing
from tests.process.waiting import wait_for


def await_line(process: subprocess.Popen[str], text: str) -> None:
    """Until the command has written it on stderr."""
    assert process.stderr is not None
    line = " "
    while text not in line:
        line = process.stderr.readline()
        assert line, f"it ended without {text!r}"


def test_up_drains(cluster: Standing) -> None:
    with running("up", "--slots", "1", SQUALL_DIR=str(cluster.path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cluster.ok("submit", ENDLESS, "--name", "one")
        wait_for("acks", lambda: cluster.described("one").acked > 0)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=100)
    assert (process.returncode, err) == (0, "draining for up to 30 s; interrupt again to stop at once\n")
    assert "no cluster runs in" in cluster.refused(2, "list")


def test_up_does_not_wait_after_a_second_one(cluster: Standing) -> None:
    with running("up", "--slots", "1", "-w", "1000", SQUALL_DIR=str(cluster.path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cluster.ok("submit", f"{ENDLESS}:stuck", "--name", "stuck")
        wait_for("much work", lambda: cluster.described("stuck").pending == 200)
        process.send_signal(signal.SIGTERM)
        await_line(process, "draining")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=100)
    assert process.returncode == 143
    assert "stuck: " in err


@pytest.mark.parametrize(("mode", "signum", "code"), [
    ("--workers=2", signal.SIGINT, 130), ("--local", signal.SIGTERM, 0),
])
def test_run_drains_and_ends_with_the_code_of_its_report(mode: str, signum: int, code: int, tmp_path: Path) -> None:
    with running("run", f"{ENDLESS}:marked", mode, "--", tmp_path) as process:
        wait_for("an ack", (tmp_path / "done-0").exists)
        process.send_signal(signum)
        out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    assert ", 0 pending" in out
    assert len(list(tmp_path.glob("done-*"))) == len((tmp_path / "acked").read_text().split())


def test_run_does_not_wait_after_a_second_one() -> None:
    with running("run", f"{ENDLESS}:stuck", "--drain-secs", "1000", "--interval", "0.1") as process:
        await_line(process, "pending 200")
        process.send_signal(signal.SIGTERM)
        await_line(process, "draining")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=100)
    assert process.returncode == 143
    [pending] = re.findall(r"stopped with unfinished messages: (\d+) pending; a source that can be", err)
    assert f", {pending} pending" in out


def test_the_next_run_takes_the_place_of_one_that_was_killed(cluster: Standing) -> None:
    run = "run", ENDLESS, "--dir", cluster.path, "--interval", "0.1", "--name"
    with running(*run, "one") as process:
        await_line(process, "pending")
    wait_for("the end of its cluster", lambda: not processes_of(cluster.run_dir))
    assert "--dir has topology one: `squall up` and `squall kill` it" in squall(*run, "two").stderr
    done = squall(*run, "one", "--for", "0.1s")
    assert (done.returncode, ", 0 pending" in done.stdout) == (0, True), done.stderr


def test_a_supervisor_hands_its_topologies_over(cluster: Standing, tmp_path: Path) -> None:
    """Without a message that failed, and so without one that is emitted twice."""
    where = {"SQUALL_DIR": str(cluster.path)}
    with running("nimbus", **where) as nimbus, running("supervisor", "--node", "left", "--slots", "1", **where) as left:
        wait_for("the directory", cluster.run_dir.nimbus_socket.exists)
        wait_for("the node", lambda: list(cluster.json("status")["nodes"]) == ["left"])
        cluster.ok("submit", f"{ENDLESS}:marked", "--name", "one", "--workers", "1", "--", tmp_path)
        with running("supervisor", "--node", "right", "--slots", "1", **where) as right:
            wait_for("acks", lambda: cluster.described("one").acked > 0)
            wait_for("both nodes", lambda: len(cluster.json("status")["nodes"]) == 2)
            left.send_signal(signal.SIGTERM)
            _, said = left.communicate(timeout=100)
            assert (left.returncode, "undrained" in said, "no other node" in said) == (0, False, False), said
            acked = len(list(tmp_path.glob("done-*")))
            wait_for("acks on the other node", lambda: len(list(tmp_path.glob("done-*"))) > acked)
            described = cluster.described("one")
            assert [worker.worker.partition(":")[0] for worker in described.workers] == ["right"]
            assert (described.failed, described.abandoned, described.deaths) == (0, 0, [])
            assert cluster.json("status")["gone"] == []
            right.send_signal(signal.SIGTERM)
            _, said = right.communicate(timeout=100)
            assert right.returncode == 0
            assert "one is drained too, and waits: no other node has a slot for it" in said
        assert cluster.described("one").pending == 0
        nimbus.send_signal(signal.SIGTERM)
        nimbus.communicate(timeout=100)
    assert nimbus.returncode == 0


def test_a_supervisor_without_nimbus_does_not_wait_for_it(cluster: Standing) -> None:
    where = {"SQUALL_DIR": str(cluster.path)}
    with running("supervisor", "--node", "left", "--slots", "1", "--wait", "1000", **where) as node:
        wait_for("its socket", lambda: cluster.run_dir.node_socket("left").exists())
        node.send_signal(signal.SIGTERM)
        _, said = node.communicate(timeout=100)
    assert node.returncode == 0, said


def test_a_supervisor_does_not_wait_after_a_second_one(cluster: Standing) -> None:
    where = {"SQUALL_DIR": str(cluster.path)}
    with running("nimbus", **where), running(
        "supervisor", "--node", "left", "--slots", "1", "--wait", "1000", **where
    ) as node:
        wait_for("the directory", cluster.run_dir.nimbus_socket.exists)
        wait_for("the node", lambda: list(cluster.json("status")["nodes"]) == ["left"])
        cluster.ok("submit", f"{ENDLESS}:stuck", "--name", "stuck")
        wait_for("much work", lambda: cluster.described("stuck").pending == 200)
        node.send_signal(signal.SIGTERM)
        wait_for("its leaving", lambda: cluster.json("status")["leaving"] == ["left"])
        assert cluster.described("stuck").status == "REBALANCING"
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=100)
    assert node.returncode == 0
